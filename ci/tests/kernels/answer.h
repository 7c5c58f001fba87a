/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer of an attention problem in double precision, and how far a kernel may be from it. Nothing of kernels/ is
 * used but attend.h: what is visible is a table of booleans, elements are read by formats.h. Worked out once; any
 * number of kernels can be judged by it.
 */
#ifndef KVB_TEST_ANSWER_H
#define KVB_TEST_ANSWER_H

#include "formats.h"
#include "kernels/attend.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

/* Of one query row, what bounds are made of: largest of all visible cells each. */
struct answer_row {
    double lse;
    double reach;   /* sum |q||k| */
    double shift;   /* largest |q| times sum |k| */
    double q;       /* largest |q| */
    double logit;   /* |s| */
    double product; /* weight / sum of the weights, times the largest |v| of all channels */
    uint32_t seen;
};

struct answer {
    struct answer_row *rows; /* [n_tok][n_heads] */
    double *out, *mass;      /* [n_tok][n_heads][v_dim]: sum p v, sum p |v| */
};

/* Rows of a view that any query sees, as doubles [n_kv_heads][cells][dim]; the others stay 0. */
static inline double *answer_rows(const kvb_view *view, const kvb_problem *p, const bool *visible)
{
    double *rows = calloc((size_t)p->n_kv_heads * view->cells * view->dim + 1, sizeof *rows);
    assert_non_null(rows);
    for (uint32_t c = 0; c < view->cells; c++) {
        bool seen = false;
        for (uint32_t t = 0; t < p->n_tok; t++)
            seen |= visible[(size_t)t * p->n_cells + c];
        for (uint32_t h = 0; h < p->n_kv_heads && seen; h++)
            for (uint32_t d = 0; d < view->dim; d++)
                rows[((size_t)h * view->cells + c) * view->dim + d] = row_elem(view, h, c, d);
    }
    return rows;
}

/* k [n_cells][k_dim], v [n_cells][v_stride]: of the row's KV head; s [n_cells]: scratch. */
static inline void answer_row_solve(const kvb_attend *args, const bool *visible, uint32_t t, uint32_t h,
                                    const double *k, const double *v, size_t v_stride, double *s, struct answer *a)
{
    const kvb_problem *p = &args->problem;
    size_t at = (size_t)t * p->n_heads + h;
    const float *q = args->q + at * p->k_dim;
    const bool *sees = visible + (size_t)t * p->n_cells;
    double sink = p->has_sinks ? (double)args->sinks[h] : -INFINITY, max = sink, sum = 0, q_largest = 0;
    double *out = a->out + at * p->v_dim, *mass = a->mass + at * p->v_dim;
    struct answer_row row = {0};

    for (uint32_t d = 0; d < p->k_dim; d++)
        q_largest = fmax(q_largest, fabs((double)q[d]));
    for (uint32_t c = 0; c < p->n_cells; c++) {
        double dot = 0, reach = 0, size = 0;
        for (uint32_t d = 0; d < p->k_dim && sees[c]; d++) {
            double x = k[(size_t)c * p->k_dim + d], term = (double)q[d] * x;
            dot += term;
            reach += fabs(term);
            size += fabs(x);
        }
        if (!sees[c])
            continue;
        s[c] = dot * (double)p->scale;
        if (p->softcap > 0)
            s[c] = (double)p->softcap * tanh(s[c] / (double)p->softcap);
        max = fmax(max, s[c]);
        row.seen++;
        row.reach = fmax(row.reach, reach);
        row.shift = fmax(row.shift, q_largest * size);
        row.q = q_largest;
        row.logit = fmax(row.logit, fabs(s[c]));
    }
    if (sink > -INFINITY)
        sum = exp(sink - max);
    for (uint32_t c = 0; c < p->n_cells; c++)
        if (sees[c])
            sum += s[c] = exp(s[c] - max);
    double p_largest = 0, v_largest = 0;
    for (uint32_t c = 0; c < p->n_cells; c++) {
        const double weight = sees[c] ? s[c] / sum : 0;
        p_largest = fmax(p_largest, weight);
        for (uint32_t d = 0; d < p->v_dim && sees[c]; d++) {
            const double x = v[c * v_stride + d], size = fabs(x);
            out[d] += weight * x;
            mass[d] += weight * size;
            v_largest = size > v_largest ? size : v_largest;
        }
    }
    row.product = p_largest * v_largest;
    row.lse = sum == 0 ? -INFINITY : max + log(sum);
    a->rows[at] = row;
}

/* visible: [n_tok][n_cells]. */
static inline void answer_solve(struct answer *a, const kvb_attend *args, const bool *visible)
{
    const kvb_problem *p = &args->problem;
    size_t rows = (size_t)p->n_tok * p->n_heads;
    double *k = answer_rows(&args->k, p, visible), *v = p->v_in_k ? k : answer_rows(&args->v, p, visible);
    size_t v_stride = p->v_in_k ? p->k_dim : p->v_dim;
    double *s = calloc((size_t)p->n_cells + 1, sizeof *s);

    a->rows = calloc(rows, sizeof *a->rows);
    a->out = calloc(rows * p->v_dim, sizeof *a->out);
    a->mass = calloc(rows * p->v_dim, sizeof *a->mass);
    assert_true(s && a->rows && a->out && a->mass);
    for (uint32_t t = 0; t < p->n_tok; t++)
        for (uint32_t h = 0; h < p->n_heads; h++) {
            size_t first = (size_t)(h / (p->n_heads / p->n_kv_heads)) * p->n_cells;
            answer_row_solve(args, visible, t, h, k + first * p->k_dim, v + first * v_stride, v_stride, s, a);
        }
    free(s);
    if (v != k)
        free(v);
    free(k);
}

static inline void answer_free(struct answer *a)
{
    free(a->rows);
    free(a->out);
    free(a->mass);
    *a = (struct answer){0};
}

/*
 * How far a kernel of this arithmetic may be from the answer, worst case (Higham, Accuracy and Stability, section 3.1):
 * a dot product of chain m errs by g(m) sum|q||k|, g(m) = mu / (1 - mu), by g of its roundings to f16 (q's, too), by
 * q's steps and by its floor; the logit by 6u of itself more (scale, cap, subtraction); weights relatively by expm1(2
 * of that) and by exp and rescales; sums over cells by g(chain), by g of their roundings to f16 and by the weights'
 * steps and floor; division, and rounding to the output type.
 */
static inline double answer_half_error(uint32_t chain)
{
    return chain * 0x1p-11 / (1 - chain * 0x1p-11);
}

static inline double answer_bf16_error(kvb_elem rounded)
{
    return rounded == KVB_BF16 ? 0x1p-8 : 0;
}

static inline double answer_weight_error(const kvb_problem *p, const kvb_arithmetic *a, const struct answer_row *row)
{
    double u = 0x1p-24, g_dot = a->dot_chain * u / (1 - a->dot_chain * u),
           g_cell = (a->cell_chain + 1) * u / (1 - a->cell_chain * u);
    g_dot += 1.01 * answer_half_error(a->scores.chain + (a->query.rounding == KVB_F16)) +
             1.01 * answer_bf16_error(a->query.rounding);
    double slack =
        fabs((double)p->scale) * (g_dot * row->reach + (a->query.step / 2 + a->query.floor) * (1 + g_dot) * row->shift +
                                  a->scores.floor * row->q) +
        6 * u * (row->logit + (double)p->softcap);
    return expm1(2 * slack) + 2 * (a->exp_error + a->rescales * (a->exp_error + u)) + 2 * g_cell + 4 * u;
}

/* Every element of out, and of lse when it was asked for, within its bound of the answer. `note` is for the message. */
static inline void answer_judge_rows(const struct answer *answer, const kvb_attend *args, const kvb_kernel *kernel,
                                     const char *note, size_t begin, size_t end)
{
    const kvb_problem *p = &args->problem;
    double u = 0x1p-24, u_out = p->out_elem == KVB_F16 ? 0x1p-11 : p->out_elem == KVB_BF16 ? 0x1p-8 : u;
    double tiny = p->out_elem == KVB_F16 ? 0x1p-25 : 0x1p-120; /* half an ulp of a subnormal f16 */
    kvb_arithmetic a;

    kernel->arithmetic(p, &a);
    for (size_t r = begin; r < end; r++) {
        const struct answer_row *row = &answer->rows[r];
        double rel = answer_weight_error(p, &a, row);
        double steps = a.sums.step / 2 * row->seen * row->product * (1 + rel) + a.sums.floor * row->seen * (1 + rel);
        double halves =
            (answer_half_error(a.sums.chain + (a.sums.rounding == KVB_F16)) + answer_bf16_error(a.sums.rounding)) *
            (1 + rel);
        for (uint32_t d = 0; d < p->v_dim; d++) {
            size_t i = r * p->v_dim + d;
            double got = elem_value(p->out_elem, (const char *)args->out + i * elem_bytes(p->out_elem));
            double bound = (rel + halves) * answer->mass[i] + steps + u_out * fabs(answer->out[i]) + tiny;
            if (!(fabs(got - answer->out[i]) <= bound))
                fail_msg("%s %s: out[%zu][%zu][%u] = %.9g, exact %.9g, bound %.3g", kernel->name, note, r / p->n_heads,
                         r % p->n_heads, d, got, answer->out[i], bound);
        }
        double lse = args->lse ? (double)args->lse[r] : row->lse;
        bool right = isinf(row->lse) ? lse == row->lse : fabs(lse - row->lse) <= rel + 4 * u * (1 + fabs(row->lse));
        if (!right)
            fail_msg("%s %s: lse[%zu][%zu] = %.9g, exact %.9g", kernel->name, note, r / p->n_heads, r % p->n_heads, lse,
                     row->lse);
    }
}

static inline void answer_judge(const struct answer *answer, const kvb_attend *args, const kvb_kernel *kernel,
                                const char *note)
{
    answer_judge_rows(answer, args, kernel, note, 0, (size_t)args->problem.n_tok * args->problem.n_heads);
}

#endif
