/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scan kernels alone. Decoding changes states in place, from copies that no cache holds: its limit is reading and writing as many
 * bytes, measured in turns with it over the same slots. A prompt's limit is the f32 multiply-add peak.
 * Operations: two for a multiply-add. A token writes each element of the state and reads it; the delta rule reads it twice.
 * What chunks multiply besides does not count. MAMBA1 has an exponential for each element, which counts as 10 multiply-adds:
 * the polynomial and what brings its argument into range, with the products before it.
 * scan-reference is called with fewer tokens, and its time taken as many times as the prompt is longer.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/bench/bench.h"
#include "harness/clock.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "kernels/vector/vector.h"
#include "results/table.h"

#define BEYOND_CACHES 300e6 /* bytes of all slots of a decoding work */
#define PLAIN_TOKENS  16u   /* of a prompt, for scan-reference */
#define PROMPT        4096u
#define WRONG         1e-3 /* relative L2 of out, against scan-reference */

#define HEADS64(KIND, D_K, GROUPS)                                                                                     \
    {                                                                                                                  \
        .kind = KVB_SCAN_##KIND, .heads = 64, .groups = GROUPS, .d_k = D_K, .d_v = 64, .state_elem = KVB_F32           \
    }
#define CHANNELS(KIND, D_K)                                                                                            \
    {                                                                                                                  \
        .kind = KVB_SCAN_##KIND, .heads = 1, .groups = 1, .d_k = D_K, .d_v = 4096, .state_elem = KVB_F32, .silu = true \
    }
#define EACH(NAME, ...)                                                                                                \
    {"scan-decode-" NAME "-b1", __VA_ARGS__, 1, 1, 0.85}, {"scan-decode-" NAME "-b16", __VA_ARGS__, 16, 1, 0.85},      \
    {                                                                                                                  \
        "scan-prefill-" NAME, __VA_ARGS__, PROMPT, PROMPT, 0.5                                                         \
    }

const kvb_bench_scan_work kvb_bench_scan_works[] = {
    EACH("mamba1-16", CHANNELS(MAMBA1, 16)),
    EACH("mamba1-128", CHANNELS(MAMBA1, 128)),
    EACH("mamba2-16", HEADS64(MAMBA2, 16, 1)),
    EACH("mamba2-128", HEADS64(MAMBA2, 128, 1)),
    EACH("lightning-16", HEADS64(LIGHTNING, 16, 64)),
    EACH("lightning-128", HEADS64(LIGHTNING, 128, 64)),
    EACH("delta-16", HEADS64(DELTA, 16, 32)),
    EACH("delta-128", HEADS64(DELTA, 128, 32)),
    {"scan-prefill-conv-4", CHANNELS(CONV, 3), PROMPT, PROMPT, 0},
    {.name = NULL},
};

typedef struct stage {
    const kvb_bench_scan_work *work;
    kvb_scan args, plain; /* of `scan`; of scan-reference */
    size_t state_bytes;
    uint32_t turn, plain_tokens;
    uint32_t *from, *to;
    float *rows[6], *out, *plain_out;
    double bytes, ops; /* of a call */
} stage;

static size_t floats_of(const kvb_scan_problem *p, int input)
{
    const size_t keys = (size_t)p->n_tok * p->groups * p->d_k, values = (size_t)p->n_tok * p->heads * p->d_v;
    const bool each = p->kind == KVB_SCAN_MAMBA1, conv = p->kind == KVB_SCAN_CONV, delta = p->kind == KVB_SCAN_DELTA;
    const bool gated = each || delta || p->kind == KVB_SCAN_MAMBA2;
    const size_t sizes[6] = {
        conv ? 0 : keys,
        conv ? 0 : keys,
        values,
        !gated ? 0
        : each ? values
               : (size_t)p->n_tok * p->heads,
        delta ? (size_t)p->n_tok * p->heads : 0,
        delta  ? 0
        : each ? (size_t)p->d_k * p->d_v
        : conv ? (size_t)(p->d_k + 1) * p->d_v
               : p->heads,
    };
    return sizes[input];
}

/* Numbers as a model has them, roughly: decays of 0.9 to 1, short keys. */
static void rows_fill(const kvb_scan_problem *p, float *const rows[6])
{
    uint64_t bits = 1;
    for (int input = 0; input < 6; input++) {
        const bool key = input == 1, gate = input == 3, layer = input == 5 && p->kind != KVB_SCAN_CONV;
        for (size_t i = 0; i < floats_of(p, input); i++) {
            bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const float unit = (float)(bits >> 40) * 0x1p-24f;
            rows[input][i] = layer                               ? -0.1f - unit
                             : gate && p->kind == KVB_SCAN_DELTA ? -0.1f * unit
                             : gate                              ? 0.1f * unit
                             : input == 4                        ? unit
                             : key                               ? (2 * unit - 1) / sqrtf((float)p->d_k / 2)
                                                                 : 2 * unit - 1;
        }
    }
}

static int stage_open(stage *s, const kvb_team *team, uint32_t cells)
{
    kvb_scan_problem p = s->work->problem;
    const bool decode = s->work->run == 1;
    p.n_tok = !decode && cells && cells < s->work->tokens ? cells : s->work->tokens;
    p.run = decode ? 1 : p.n_tok;
    const size_t values = (size_t)p.n_tok * p.heads * p.d_v, elements = (size_t)p.heads * p.d_k * p.d_v;
    int error = 0;

    s->state_bytes = elements * sizeof(float);
    const double held = cells ? 1 : BEYOND_CACHES;
    const uint32_t slots = decode ? ((uint32_t)(held / (double)s->state_bytes) / p.n_tok + 1) * p.n_tok : 1;
    s->bytes = 2.0 * (double)s->state_bytes * p.n_tok;
    s->ops = p.kind == KVB_SCAN_CONV ? 2.0 * (double)values * (p.d_k + 1)
                                     : 2.0 * (double)elements * p.n_tok *
                                           (p.kind == KVB_SCAN_DELTA    ? 3
                                            : p.kind == KVB_SCAN_MAMBA1 ? 12
                                                                        : 2);
    for (int input = 0; input < 6; input++)
        error |=
            floats_of(&p, input) && !(s->rows[input] = kvb_memory_take(NULL, "", floats_of(&p, input) * sizeof(float)));
    s->from = kvb_memory_take(NULL, "", p.n_tok * sizeof *s->from);
    s->to = kvb_memory_take(NULL, "", p.n_tok * sizeof *s->to);
    s->out = kvb_memory_take(NULL, "", values * sizeof(float));
    s->plain_out = kvb_memory_take(NULL, "", values * sizeof(float));
    s->args = (kvb_scan){.problem = p, .from = s->from, .to = s->to, .out = s->out, .team = team};
    s->args.states = (kvb_scan_states){kvb_memory_take(NULL, "", slots * s->state_bytes), s->state_bytes, slots};
    const size_t ours = kvb_scan_kernel_vector.scratch_bytes(&p, team->n),
                 plain = kvb_scan_kernel_reference.scratch_bytes(&p, team->n);
    s->args.scratch = kvb_memory_take(NULL, "", (ours > plain ? ours : plain) + 64);
    if (error || !s->from || !s->to || !s->out || !s->plain_out || !s->args.states.base || !s->args.scratch)
        return -ENOMEM;
    rows_fill(&p, s->rows);
    memset(s->args.states.base, 0, slots * s->state_bytes);
    s->args.q = s->rows[0], s->args.k = s->rows[1], s->args.v = s->rows[2];
    s->args.gate = s->rows[3], s->args.beta = s->rows[4], s->args.a = s->rows[5];
    for (uint32_t t = 0; t < p.n_tok; t++) {
        s->from[t] = decode ? t : t ? KVB_SCAN_PREVIOUS : KVB_SCAN_ZERO;
        s->to[t] = decode ? t : t + 1 < p.n_tok ? KVB_SCAN_NONE : 0;
    }
    s->plain = s->args;
    s->plain.out = s->plain_out;
    s->plain_tokens = decode ? p.n_tok : PLAIN_TOKENS;
    s->plain.problem.n_tok = s->plain_tokens;
    return 0;
}

static void stage_close(stage *s)
{
    void *all[] = {s->rows[0], s->rows[1], s->rows[2], s->rows[3],   s->rows[4],          s->rows[5],
                   s->from,    s->to,      s->out,     s->plain_out, s->args.states.base, s->args.scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kvb_memory_give(NULL, all[i], 0);
}

/* The next slots, so that none is met again while a cache holds it. */
static void slots_turn(stage *s)
{
    const uint32_t n = s->args.problem.n_tok;
    for (uint32_t t = 0; t < n && s->work->run == 1; t++)
        s->from[t] = s->to[t] = (s->turn * n + t) % s->args.states.slots;
    s->turn++;
}

static double call_ns(stage *s, const kvb_scan_kernel *kernel, const kvb_scan *args)
{
    slots_turn(s);
    const double start = kvb_now_ns();
    kernel->scan(args);
    return (kvb_now_ns() - start) * s->args.problem.n_tok / args->problem.n_tok;
}

static void part_touch(void *ctx, uint32_t i, uint32_t n)
{
    const stage *s = ctx;
    const size_t floats = (size_t)s->bytes / 2 / sizeof(float) / n / 16 * 16;
    float *states = s->args.states.base, *base = states + s->from[0] * (s->state_bytes / sizeof *states) + i * floats;
    kvb_vector_at(kvb_cpu())->rescale(base, base, (uint32_t)floats, 1.0f);
}

/* Reads and writes as many bytes of the slots as a call: the numbers stay. */
static double touch_ns(stage *s)
{
    slots_turn(s);
    const double start = kvb_now_ns();
    s->args.team->run(s->args.team, part_touch, s);
    return kvb_now_ns() - start;
}

/* The limit's time for what a call does. */
static double limit_ns(stage *s)
{
    char why[96];
    kvb_rate rate;
    if (s->work->run == 1)
        return touch_ns(s);
    return kvb_multiply_add_peak(s->args.team, KVB_PEAK_F32, 0.02, &rate, why, sizeof why) ? NAN : s->ops / rate.median;
}

/* Both from the same states. */
static double error_of(stage *s)
{
    double off = 0, all = 0;
    s->turn = 0;
    call_ns(s, &kvb_scan_kernel_vector, &s->args);
    if (s->work->run == 1)
        memset(s->args.states.base, 0, s->args.problem.n_tok * s->state_bytes);
    s->turn = 0;
    call_ns(s, &kvb_scan_kernel_reference, &s->plain);
    for (size_t i = 0; i < (size_t)s->plain_tokens * s->args.problem.heads * s->args.problem.d_v; i++) {
        off += pow((double)s->out[i] - (double)s->plain_out[i], 2);
        all += pow((double)s->plain_out[i], 2);
    }
    return isnan(off) ? INFINITY : sqrt(off / all);
}

static int work_report(kvb_table *table, stage *s, double seconds, kvb_bench_score *score)
{
    double ns[KVB_BENCH_TURNS], ratio[KVB_BENCH_TURNS], gain[KVB_BENCH_TURNS], limit[KVB_BENCH_TURNS];
    const bool decode = s->work->run == 1;
    const double error = error_of(s), end = kvb_now_ns() + seconds * 1e9;
    uint32_t n = 0, repeats = decode ? 8 : 1;

    for (; n < KVB_BENCH_TURNS && (n < KVB_BENCH_TURNS_MIN || kvb_now_ns() < end); n++) {
        ns[n] = limit[n] = 0;
        for (uint32_t i = 0; i < repeats; i++) {
            limit[n] += limit_ns(s) / repeats;
            ns[n] += call_ns(s, &kvb_scan_kernel_vector, &s->args) / repeats;
        }
        gain[n] = call_ns(s, &kvb_scan_kernel_reference, &s->plain) / ns[n];
        ratio[n] = limit[n] / ns[n];
    }
    const kvb_bench_figure share = kvb_bench_figure_of(ratio, n), time = kvb_bench_figure_of(ns, n),
                           of = kvb_bench_figure_of(limit, n);
    const kvb_bench_figure faster = kvb_bench_figure_of(gain, n);
    char text[9][64] = {""};
    snprintf(text[0], 64, "%.1f MB", (double)s->state_bytes * (decode ? s->args.states.slots : 1) / 1e6);
    kvb_time_text(time.median, text[1]);
    snprintf(text[2], 64, decode ? "%.1f GB/s" : "%.1f Gop/s", (decode ? s->bytes : s->ops) / time.median);
    snprintf(text[3], 64, decode ? "read+write %.1f GB/s" : "f32 %.0f Gop/s", (decode ? s->bytes : s->ops) / of.median);
    snprintf(text[4], 64, "%.3f", share.median);
    snprintf(text[5], 64, "%.3f", share.mad);
    const bool wrong = error > WRONG, met = !wrong && share.median >= s->work->target;
    if (s->work->target > 0) {
        snprintf(text[6], 64, ">= %.2f", s->work->target);
        score->targets++;
        score->met += met;
    }
    if (wrong)
        snprintf(text[7], 64, "WRONG: out is off by %.2g", error);
    else if (s->work->target > 0)
        snprintf(text[7], 64, met ? "yes" : "no");
    const char *row[] = {s->work->name,
                         "scan",
                         text[0],
                         text[1],
                         text[2],
                         text[3],
                         text[4],
                         text[5],
                         NULL,
                         *text[6] ? text[6] : NULL,
                         *text[7] ? text[7] : NULL};
    int added = kvb_table_row(table, row);
    snprintf(text[4], 64, "%.2fx", faster.median);
    snprintf(text[5], 64, "%.2f", faster.mad);
    const char *second[] = {
        s->work->name, "scan, gain over scan-reference", NULL, NULL, NULL, NULL, text[4], text[5], NULL, NULL, NULL};
    return added ? added : kvb_table_row(table, second);
}

int kvb_bench_scan_run(kvb_table *table, const kvb_bench_scan_work *work, const kvb_team *team, uint32_t cells,
                       double seconds, kvb_bench_score *score)
{
    stage s = {.work = work};
    int error = stage_open(&s, team, cells);
    if (!error)
        error = work_report(table, &s, seconds, score);
    stage_close(&s);
    return error;
}
