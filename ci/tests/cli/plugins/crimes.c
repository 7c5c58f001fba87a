/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in of kernels that each do one forbidden thing. A run must survive and name each. */
#define _GNU_SOURCE
#include "attend.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cell 63 gets the V row of cell 64, a mistake at the border of a kernel's blocks. */
static bool is_off_at_border;

/* f32 rows, scalar, sums in double: right, except for `scale` and `p_round`. */
static void row_attend(const kvb_attend *a, uint32_t t, uint32_t h, double scale, double (*p_round)(double))
{
    const kvb_problem *p = &a->problem;
    const float *q = a->q + ((size_t)t * p->n_heads + h) * p->k_dim;
    uint32_t kv = h / (p->n_heads / p->n_kv_heads);
    double sum = 0, max = -INFINITY, acc[4096] = {0};
    for (int pass = 0; pass < 2; pass++) {
        uint32_t cursor = 0;
        kvb_run run;
        while (kvb_mask_next(&a->mask, p->n_tok, p->n_cells, t, &cursor, &run))
            for (uint32_t c = run.begin; c < run.end; c++) {
                const float *k = kvb_view_row(&a->k, kv, c),
                            *v = kvb_view_row(&a->v, kv, is_off_at_border && c == 63 ? 64 : c);
                double s = 0;
                for (uint32_t d = 0; d < p->k_dim; d++)
                    s += (double)q[d] * k[d];
                s *= scale;
                if (pass == 0) {
                    max = fmax(max, s);
                    continue;
                }
                double w = exp(s - max);
                sum += w;
                w = p_round(w);
                for (uint32_t d = 0; d < p->v_dim; d++)
                    acc[d] += w * v[d];
            }
    }
    size_t row = (size_t)t * p->n_heads + h;
    for (uint32_t d = 0; d < p->v_dim; d++)
        ((float *)a->out)[row * p->v_dim + d] = (float)(sum > 0 ? acc[d] / sum : 0);
    if (a->lse)
        a->lse[row] = (float)(sum > 0 ? max + log(sum) : -INFINITY);
}

static double as_is(double x)
{
    return x;
}

static double to_bf16(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&f, &bits, 4);
    return f;
}

static void all_rows(const kvb_attend *a, uint32_t rows, double factor, double (*p_round)(double))
{
    for (uint32_t i = 0; i < rows; i++)
        row_attend(a, i / a->problem.n_heads, i % a->problem.n_heads, (double)a->problem.scale * factor, p_round);
}

static uint32_t rows_of(const kvb_attend *a)
{
    return a->problem.n_tok * a->problem.n_heads;
}

static int honest(const kvb_attend *a)
{
    all_rows(a, rows_of(a), 1, as_is);
    return 0;
}

static int segfault(const kvb_attend *a)
{
    (void)a;
    raise(SIGSEGV);
    return 0;
}

/* Sleeps, so that other tests have the core meanwhile. */
static int hang(const kvb_attend *a)
{
    for (volatile const kvb_attend *wait = a; wait;)
        pause();
    return 0;
}

/* Right, but twenty times as slow in every process except the first, which makes the file KVB_FIRST. */
static int second(const kvb_attend *a)
{
    static int passes;
    if (!passes) {
        int file = open(getenv("KVB_FIRST"), O_CREAT | O_EXCL | O_WRONLY, 0600);
        passes = file < 0 ? 20 : 1;
        close(file);
    }
    for (int i = 0; i < passes; i++)
        honest(a);
    return 0;
}

static int leave(const kvb_attend *a)
{
    (void)a;
    _Exit(0);
}

static int unwritten(const kvb_attend *a)
{
    all_rows(a, rows_of(a) - 1, 1, as_is);
    return 0;
}

static int scaled(const kvb_attend *a)
{
    all_rows(a, rows_of(a), 1.001, as_is);
    return 0;
}

/* Wrong in the upper half of the heads, in calls of one token. */
static int half(const kvb_attend *a)
{
    uint32_t n = a->problem.n_heads;
    for (uint32_t i = 0; i < rows_of(a); i++)
        row_attend(a, i / n, i % n, (double)a->problem.scale * (a->problem.n_tok == 1 && i >= n / 2 ? 1.01 : 1), as_is);
    return 0;
}

static int coarse(const kvb_attend *a)
{
    all_rows(a, rows_of(a), 1, to_bf16);
    return 0;
}

static double to_5_bits(double x)
{
    return round(x * 32) / 32;
}

static int in_steps(const kvb_attend *a)
{
    all_rows(a, rows_of(a), 1, to_5_bits);
    return 0;
}

static int neighbour(const kvb_attend *a)
{
    is_off_at_border = a->problem.n_cells > 64;
    in_steps(a);
    is_off_at_border = false;
    return 0;
}

static int gives_up(const kvb_attend *a)
{
    (void)a;
    return -12;
}

/* ---- memory: each does its work first, then a forbidden access --------------------------------------- */

static int overrun(const kvb_attend *a)
{
    honest(a);
    ((volatile float *)a->out)[(size_t)rows_of(a) * a->problem.v_dim] = 1;
    return 0;
}

static int underrun(const kvb_attend *a)
{
    honest(a);
    ((volatile float *)a->out)[-1] = 1;
    return 0;
}

#define SCRATCH_BYTES 256

static size_t scratch_some(const kvb_problem *p, uint32_t n_threads)
{
    (void)p;
    (void)n_threads;
    return SCRATCH_BYTES;
}

static int scratch_overrun(const kvb_attend *a)
{
    honest(a);
    ((volatile char *)a->scratch)[SCRATCH_BYTES] = 1;
    return 0;
}

static int scratch_forgotten(const kvb_attend *a)
{
    ((volatile float *)a->scratch)[2] = 1;
    return honest(a);
}

static int gives_five(const kvb_attend *a)
{
    honest(a);
    return 5;
}

/* Writes to the slack between the last row of lse and the next multiple of 64 bytes, if there is one. */
static int slack(const kvb_attend *a)
{
    honest(a);
    if (rows_of(a) % 16)
        ((volatile float *)a->lse)[rows_of(a)] = 1;
    return 0;
}

/* Reads beyond the last head's last reserved cell. */
static int overread(const kvb_attend *a)
{
    honest(a);
    (void)*((const volatile char *)a->k.base + a->problem.n_kv_heads * a->k.head_stride);
    return 0;
}

static int allocates(const kvb_attend *a)
{
    void *volatile block = malloc(64);
    free(block);
    return honest(a);
}

static int prints(const kvb_attend *a)
{
    char *text = NULL;
    if (asprintf(&text, "%u tokens", a->problem.n_tok) >= 0)
        free(text);
    return honest(a);
}

static int wrong_twice(const kvb_attend *a)
{
    void *volatile block = calloc(3, 8);
    free(block);
    return scaled(a);
}

static int write_input(const kvb_attend *a)
{
    honest(a);
    *(volatile float *)(uintptr_t)a->q += 1;
    return 0;
}

static int write_rows(const kvb_attend *a)
{
    honest(a);
    *(volatile float *)(uintptr_t)kvb_view_row(&a->k, 0, 0) += 1;
    return 0;
}

static int partial_lse(const kvb_attend *a)
{
    float *last = a->lse + rows_of(a) - 1, before = *last;
    honest(a);
    *last = before;
    return 0;
}

static bool is_f32(const kvb_format *f)
{
    return f->elem == KVB_F32 && f->transform == KVB_TRANSFORM_NONE;
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    bool f32 = is_f32(p->k_format) && is_f32(p->v_format) && p->out_elem == KVB_F32;
    if (!f32 && why_bytes)
        strncpy(why, "f32 rows only", why_bytes - 1);
    return f32;
}

static bool no_answer(const kvb_problem *p, char *why, size_t why_bytes)
{
    (void)p, (void)why, (void)why_bytes;
    raise(SIGSEGV);
    return true;
}

static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){.dot_chain = p->k_dim, .cell_chain = p->n_cells, .exp_error = 0x1p-50};
}

static void arithmetic_bf16(const kvb_problem *p, kvb_arithmetic *a)
{
    arithmetic(p, a);
    a->sums.rounding = KVB_BF16;
}

static int other_q(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    (void)k, (void)head;
    for (uint32_t d = 0; d < p->k_dim; d++)
        rounded[d] = 1.001 * q[d];
    return 0;
}

static int no_q(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    (void)p, (void)k, (void)head, (void)q, (void)rounded;
    raise(SIGSEGV);
    return 0;
}

static void arithmetic_steps(const kvb_problem *p, kvb_arithmetic *a)
{
    arithmetic(p, a);
    a->sums.step = 1.0 / 32;
}

#define CRIME(text, how, what, ...)                                                                                    \
    &(const kvb_kernel)                                                                                                \
    {                                                                                                                  \
        .name = text, .summary = "for tests", .masks = KVB_MASKS_ALL, .supports = supports, .arithmetic = how,         \
        .attend = what, __VA_ARGS__                                                                                    \
    }

static const kvb_kernel *const kernels[] = {
    CRIME("crime-none", arithmetic, honest),
    CRIME("crime-segfault", arithmetic, segfault),
    CRIME("crime-hang", arithmetic, hang),
    CRIME("crime-exit", arithmetic, leave),
    CRIME("crime-unwritten", arithmetic, unwritten),
    CRIME("crime-scaled", arithmetic, scaled),
    CRIME("crime-half", arithmetic, half),
    CRIME("crime-undeclared", arithmetic, coarse),
    CRIME("crime-declared", arithmetic_bf16, coarse),
    CRIME("crime-error", arithmetic, gives_up),
    CRIME("crime-overrun", arithmetic, overrun),
    CRIME("crime-underrun", arithmetic, underrun),
    CRIME("crime-scratch", arithmetic, scratch_overrun, .scratch_bytes = scratch_some),
    CRIME("crime-slack", arithmetic, slack),
    CRIME("crime-overread", arithmetic, overread),
    CRIME("crime-malloc", arithmetic, allocates),
    CRIME("crime-forgotten", arithmetic, scratch_forgotten),
    CRIME("crime-five", arithmetic, gives_five),
    CRIME("crime-printf", arithmetic, prints),
    CRIME("crime-wrong-twice", arithmetic, wrong_twice),
    CRIME("crime-write-input", arithmetic, write_input),
    CRIME("crime-write-rows", arithmetic, write_rows),
    CRIME("crime-partial-lse", arithmetic, partial_lse),
    &(const kvb_kernel){"crime-supports", .summary = "for tests", .masks = KVB_MASKS_ALL, .supports = no_answer,
                        .arithmetic = arithmetic, .attend = honest},
    CRIME("crime-other-q", arithmetic, honest, .round_query = other_q),
    CRIME("crime-no-q", arithmetic, honest, .round_query = no_q),
    CRIME("crime-steps", arithmetic_steps, in_steps),
    CRIME("crime-neighbour", arithmetic_steps, neighbour),
    CRIME("second-slower", arithmetic, second),
    NULL,
};

KVB_PLUGIN_EXPORT extern const kvb_plugin_v1 kvb_plugin;
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "crimes", .kernels = kernels};
