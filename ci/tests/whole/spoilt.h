/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of a kernel over rows in real pools, spoilt before or after the kernel runs, and the oracle's judgement of its
 * outputs.
 */
#ifndef KVB_TEST_SPOILT_H
#define KVB_TEST_SPOILT_H

#include "ci/tests/tests.h"
#include "ci/tests/whole/filled.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "oracle/oracle.h"

enum { SPOILT_QUERIES = 64, SPOILT_HEADS = 16, SPOILT_FLOATS = 1 << 15 }; /* the most of each */

typedef struct spoilt {
    filled *at;
    const kvb_kernel *kernel;
    uint32_t layer;
    kvb_attend_spec spec;
    kvb_group group; /* the spec's group, to be spoilt */
    float q[SPOILT_FLOATS], sink_logits[SPOILT_HEADS];
    uint32_t row_start[SPOILT_QUERIES + 1];
    kvb_run runs[3 * SPOILT_QUERIES];
    kvb_elem out_elem;                            /* the type that the kernel wrote; out is decoded */
    float out[SPOILT_FLOATS], lse[SPOILT_FLOATS]; /* [queries][heads][group.v_dim]; [queries][heads] */
    uint32_t first_channel;                       /* first judged channel of an output row */
    double error;                                 /* smallest relative error of all outputs that must be found */
} spoilt;

/* A place among the cells: a number; HALF + n: n from the middle; WHOLE - n: n from the end. */
enum { HALF = 1 << 20, WHOLE = 1 << 21 };

static inline uint32_t place_of(uint32_t cells, uint32_t place)
{
    return place < HALF / 2 ? place : place < WHOLE - HALF / 2 ? cells / 2 + place - HALF : cells + place - WHOLE;
}

/* A way to spoil a call: two functions, which read the other fields. */
typedef struct spoil {
    const char *name;
    uint32_t layer;
    void (*before)(spoilt *c, const struct spoil *s); /* spoils the arguments; NULL: they stay honest */
    void (*after)(spoilt *c, const struct spoil *s);  /* spoils the outputs; NULL: they stay */
    double by;                                        /* a factor; how many times a cell counts; a number of queries */
    uint32_t cell, as;                                /* places of two cells; numbers of two heads */
    kvb_run seen[3];                                  /* visible cells, from place to place */
    const char *words;                                /* words of the filter's message */
    bool of_one_cell;                                 /* the change is as large as the weight of one cell */
    bool of_v;                                        /* only V is spoilt: the log-sum-exp does not change */
} spoil;

/* Each query sees only the cells of s->seen, as far as the causal mask allows. */
static inline void cells_seen(spoilt *c, const spoil *s)
{
    const uint32_t cells = c->at->cells, queries = c->at->queries;
    uint32_t n = 0;
    for (uint32_t t = 0; t < queries; t++) {
        c->row_start[t] = n;
        for (int i = 0; i < 3; i++) {
            const uint32_t begin = place_of(cells, s->seen[i].begin), end = place_of(cells, s->seen[i].end),
                           most = cells - queries + t + 1;
            if (begin < end && begin < most)
                c->runs[n++] = (kvb_run){begin, end < most ? end : most};
        }
    }
    c->row_start[queries] = n;
    c->spec.mask = (kvb_mask){.kind = KVB_MASK_RUNS, .row_start = c->row_start, .runs = c->runs};
}

static inline void scale_off(spoilt *c, const spoil *s)
{
    c->group.scale *= s->by;
}

static inline void heads_swapped(spoilt *c, const spoil *s)
{
    for (uint32_t t = 0; t < c->at->queries && t < s->by; t++) {
        const uint32_t dim = c->group.k_dim;
        float *q = c->q + (size_t)t * c->group.heads * dim, *a = q + s->cell * dim, *b = q + s->as * dim;
        for (uint32_t d = 0; d < dim; d++) {
            const float x = a[d];
            a[d] = b[d];
            b[d] = x;
        }
    }
}

static inline uint32_t spoilt_rows(const spoilt *c)
{
    return c->at->queries * c->group.heads;
}

static inline void outputs_scale(spoilt *c, double factor)
{
    for (uint32_t i = 0; i < spoilt_rows(c) * c->group.v_dim; i++)
        c->out[i] = (float)((double)c->out[i] * factor);
}

static inline void outputs_off(spoilt *c, const spoil *s)
{
    outputs_scale(c, s->by);
}

/* Runs the call and decodes its outputs. false: the kernel does not take it. */
static inline bool spoilt_run(spoilt *c)
{
    static float raw[SPOILT_FLOATS];
    assert_in_range(spoilt_rows(c) * c->group.v_dim, 1, SPOILT_FLOATS);
    c->spec.group = &c->group;
    c->spec.generation = 0; /* no mask of an earlier call */
    if (!filled_attend(c->at, c->kernel, &c->spec, c->q, c->out_elem, raw, c->lse))
        return false;
    const size_t n = spoilt_rows(c) * c->group.v_dim;
    if (c->out_elem == KVB_F32)
        memcpy(c->out, raw, n * sizeof *raw);
    else
        kvb_elems_decode(c->out_elem, c->out, raw, n);
    return true;
}

static inline bool is_here(const kvb_kernel *kernel)
{
    char why[256];
    return kernel->attend && !(kernel->flags & KVB_KERNEL_WITNESS) &&
           (!kernel->available || kernel->available(why, sizeof why));
}

/* Prepares an honest call. */
static inline void spoilt_open(filled *at, uint32_t layer, const kvb_kernel *kernel, kvb_elem out_elem, spoilt *c)
{
    const kvb_group *g = at->spec[layer].group;
    *c = (spoilt){
        .at = at, .kernel = kernel, .layer = layer, .spec = at->spec[layer], .group = *g, .out_elem = out_elem};
    memcpy(c->q, filled_q(at, layer), (size_t)at->queries * g->heads * g->k_dim * sizeof *c->q);
}

/* Runs an honest call of layer 0. false: the kernel is not available, or does not take these rows. */
static inline bool honest_run(filled *at, const kvb_kernel *kernel, kvb_elem out_elem, spoilt *c)
{
    spoilt_open(at, 0, kernel, out_elem, c);
    return is_here(kernel) && spoilt_run(c);
}

/* Makes the same call, spoilt. false: the kernel does not take it. */
static inline bool spoilt_make(const spoilt *honest, const spoil *s, spoilt *c)
{
    bool taken = true;
    *c = *honest;
    if (s->before) {
        s->before(c, s);
        taken = spoilt_run(c);
    }
    if (s->after)
        s->after(c, s);
    return taken;
}

/* The oracle's rows for a kernel's outputs: one for each query and head. */
typedef struct judge {
    kvb_rounded *rounded;
    kvb_arithmetic declared, arithmetic; /* arithmetic: declared without q's rounding, which the rows have */
    const kvb_expect *rows, *own;        /* for the q that the kernel rounded; the oracle's own */
} judge;

/* Opens the judge of a call that was run. */
static inline void judge_open(const spoilt *c, judge *j)
{
    char why[256];
    size_t n, n_own;
    assert_int_equal(kvb_rounded_open(c->at->oracle, c->kernel, &j->rounded), 0);
    kvb_call_arithmetic(&c->at->call, &j->declared);
    j->arithmetic = j->declared;
    j->own = kvb_oracle_rows(c->at->oracle, 1, c->layer, &n_own);
    if (kvb_rounded_rows(j->rounded, &c->at->call.args, 1, c->layer, &j->arithmetic, &j->rows, &n, why, sizeof why))
        fail_msg("%s", why);
    assert_true(n == spoilt_rows(c) && n_own == n);
}

static inline void judge_close(judge *j)
{
    kvb_rounded_free(j->rounded);
}

/* Adds row i to diff: its output and, if wanted, its log-sum-exp. Returns the output in the kernel's type. */
static inline const void *row_judge(const spoilt *c, const judge *j, size_t i, bool with_lse, kvb_diff *diff)
{
    static unsigned char raw[SPOILT_FLOATS];
    const kvb_attend_spec *own = &c->at->spec[c->layer];
    const kvb_group *g = own->group;
    kvb_expect e = j->rows[i];
    const size_t row = e.query * g->heads + e.head;
    const void *out = c->out + row * c->group.v_dim + c->first_channel;
    if (c->at->window)
        assert_int_equal(kvb_window_solve(c->at->window, &j->rows[i],
                                          &(kvb_attend_of){&own->mask, own->k.cells, c->at->queries, j->rows[i].query},
                                          &e),
                         0);
    if (c->out_elem != KVB_F32) {
        kvb_elems_encode(c->out_elem, raw, out, g->v_dim);
        out = raw;
    }
    kvb_diff_row(diff, &e, g->v_dim, &j->arithmetic, g->scale, (double)g->softcap, c->out_elem, out,
                 with_lse ? &c->lse[row] : NULL);
    return out;
}

static inline double rho_of(const spoilt *c, const judge *j, bool with_lse)
{
    kvb_diff diff = {0};
    for (size_t i = 0; i < spoilt_rows(c); i++)
        row_judge(c, j, i, with_lse, &diff);
    return diff.rho;
}

/* The smallest relative error, the same in all outputs, that `fails`, by bisection. */
static inline double smallest_failing(bool (*fails)(const void *by, const spoilt *c), const void *by,
                                      const spoilt *honest)
{
    static spoilt c;
    double low = 1e-9, high = 100;
    if (fails(by, honest))
        return 0;
    while (high / low > 1.02) {
        const double e = sqrt(low * high);
        c = *honest;
        outputs_scale(&c, 1 + e);
        *(fails(by, &c) ? &high : &low) = e;
    }
    return high;
}

/* The largest error relative to the largest element of `rows`; *l2: the relative L2 error of all elements. */
static inline double own_error(const spoilt *c, const kvb_expect *rows, double *l2)
{
    double error = 0, largest = 0, error2 = 0, exact2 = 0;
    for (size_t i = 0; i < spoilt_rows(c) * c->group.v_dim; i++) {
        const double exact = rows[i / c->group.v_dim].terms[i % c->group.v_dim].o,
                     off = fabs((double)c->out[i] - exact);
        error = fmax(error, off);
        largest = fmax(largest, fabs(exact));
        error2 += off * off;
        exact2 += exact * exact;
    }
    *l2 = sqrt(error2 / exact2);
    return error / largest;
}

#endif
