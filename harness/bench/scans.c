/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times scan kernels. Decoding changes states in place, in more slots than any CPU cache holds. Its limit is to read
 * and write as many bytes of the same slots, measured in turns with it. A prompt's limit is the f32 multiply-add peak;
 * that of a convolution is to copy its inputs to its outputs.
 * Operations: two for a multiply-add. A token writes each element of the state and reads it; the delta rule reads it
 * twice. Additional products of kernels that work in chunks do not count. MAMBA1 has an exponential for each element,
 * which counts as 10 multiply-adds: its products, range reduction and polynomial. scan-reference is called with fewer
 * tokens of a prompt, and its time is scaled to the prompt's length.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/bench/bench.h"
#include "harness/program.h"
#include "harness/rounds.h"
#include "kernels/kernels.h"
#include "kernels/vector/vector.h"
#include "oracle/single.h"

#define BEYOND_CACHES 300e6 /* bytes of all slots of a decoding work: more than CPU caches hold */
#define PLAIN_TOKENS  16u   /* most tokens of a call of scan-reference */
#define PROMPT        4096u
#define COLUMNS       16u /* judged columns of one head's outputs */
#define INPUTS        6   /* of kvb_scan_inputs(): without a bias */

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
    {"scan-conv-4", CHANNELS(CONV, 3), PROMPT, PROMPT, 0.85},
    {.name = NULL},
};

typedef struct stage {
    const kvb_bench_scan_work *work;
    kvb_scan args;
    size_t state_bytes;
    uint32_t turn;
    uint32_t *from, *to;
    float *rows[INPUTS], *out;
    double bytes, ops; /* of a call */
} stage;

/* Fills inputs with numbers like a model's: decays of 0.9 to 1, short keys. */
static void rows_fill(const kvb_scan_problem *p, const size_t elements[KVB_SCAN_INPUTS], float *const rows[INPUTS])
{
    uint64_t bits = 1;
    for (int input = 0; input < INPUTS; input++) {
        const bool key = input == 1, gate = input == 3, layer = input == 5 && p->kind != KVB_SCAN_CONV;
        for (size_t i = 0; i < elements[input]; i++) {
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

/* Memory for slots, kept for the next work: page faults took most of the time of short measurements. NULL: no memory. */
static void *slots_take(size_t bytes)
{
    static void *kept;
    static size_t most;
    if (bytes > most) {
        kvb_memory_give(NULL, kept, 0);
        kept = kvb_memory_take(NULL, "", bytes);
        most = kept ? bytes : 0;
    }
    return kept;
}

static int stage_open(stage *s, const kvb_bench_scan *run, const kvb_team *team, uint32_t cells)
{
    kvb_scan_problem p = s->work->problem;
    const bool decode = s->work->run == 1;
    p.n_tok = !decode && cells && cells < s->work->tokens ? cells : s->work->tokens;
    p.run = decode ? 1 : p.n_tok;
    const size_t values = (size_t)p.n_tok * p.heads * p.d_v, state = (size_t)p.heads * p.d_k * p.d_v;
    size_t elements[KVB_SCAN_INPUTS];
    int error = 0;

    s->state_bytes = state * sizeof(float);
    const double held = cells ? 1 : BEYOND_CACHES;
    const uint32_t slots = decode ? ((uint32_t)(held / (double)s->state_bytes) / p.n_tok + 1) * p.n_tok : 1;
    s->bytes = 2.0 * (decode ? (double)s->state_bytes * p.n_tok : (double)values * sizeof(float));
    s->ops = p.kind == KVB_SCAN_CONV ? 2.0 * (double)values * (p.d_k + 1)
                                     : 2.0 * (double)state * p.n_tok *
                                           (p.kind == KVB_SCAN_DELTA    ? 3
                                            : p.kind == KVB_SCAN_MAMBA1 ? 12
                                                                        : 2);
    kvb_scan_inputs(&p, elements);
    for (int input = 0; input < INPUTS; input++)
        error |= elements[input] && !(s->rows[input] = kvb_memory_take(NULL, "", elements[input] * sizeof(float)));
    s->from = kvb_memory_take(NULL, "", p.n_tok * sizeof *s->from);
    s->to = kvb_memory_take(NULL, "", p.n_tok * sizeof *s->to);
    s->out = kvb_memory_take(NULL, "", values * sizeof(float));
    s->args = (kvb_scan){.problem = p, .from = s->from, .to = s->to, .out = s->out, .team = team};
    s->args.states = (kvb_scan_states){slots_take(slots * s->state_bytes), s->state_bytes, slots};
    size_t scratch = 64;
    for (uint32_t k = 0; k < run->n; k++) {
        const kvb_kernel *kernel = run->of[k].kernel;
        const size_t bytes = kernel->scan->scratch_bytes ? kernel->scan->scratch_bytes(&p, team->n) : 0;
        scratch = bytes > scratch ? bytes : scratch;
    }
    s->args.scratch = kvb_memory_take(NULL, "", scratch);
    if (error || !s->from || !s->to || !s->out || !s->args.states.base || !s->args.scratch)
        return -ENOMEM;
    rows_fill(&p, elements, s->rows);
    memset(s->args.states.base, 0, slots * s->state_bytes);
    s->args.q = s->rows[0], s->args.k = s->rows[1], s->args.v = s->rows[2];
    s->args.gate = s->rows[3], s->args.beta = s->rows[4], s->args.a = s->rows[5];
    for (uint32_t t = 0; t < p.n_tok; t++) {
        s->from[t] = decode ? t : t ? KVB_SCAN_PREVIOUS : KVB_SCAN_ZERO;
        s->to[t] = decode ? t : t + 1 < p.n_tok ? KVB_SCAN_NONE : 0;
    }
    return 0;
}

static void stage_close(stage *s)
{
    void *all[] = {s->rows[0], s->rows[1], s->rows[2], s->rows[3], s->rows[4],
                   s->rows[5], s->from,    s->to,      s->out,     s->args.scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kvb_memory_give(NULL, all[i], 0);
}

/* Moves on to the next slots, so that a CPU cache holds none of them. */
static void slots_turn(stage *s)
{
    const uint32_t n = s->args.problem.n_tok;
    for (uint32_t t = 0; t < n && s->work->run == 1; t++)
        s->from[t] = s->to[t] = (s->turn * n + t) % s->args.states.slots;
    s->turn++;
}

/* This kernel's call: scan-reference gets fewer tokens of a prompt. */
static kvb_scan args_of(const stage *s, const kvb_kernel *kernel)
{
    kvb_scan args = s->args;
    if (kernel == &kvb_kernel_scan_reference && s->work->run > 1 && args.problem.n_tok > PLAIN_TOKENS)
        args.problem.n_tok = PLAIN_TOKENS;
    return args;
}

static double call_ns(stage *s, const kvb_kernel *kernel)
{
    const kvb_scan args = args_of(s, kernel);
    slots_turn(s);
    const double start = kvb_now_ns();
    kernel->scan->scan(&args);
    return (kvb_now_ns() - start) * s->args.problem.n_tok / args.problem.n_tok;
}

static void part_touch(void *ctx, uint32_t i, uint32_t n)
{
    const stage *s = ctx;
    const size_t floats = (size_t)s->bytes / 2 / sizeof(float) / n / 16 * 16;
    float *states = s->args.states.base, *base = states + s->from[0] * (s->state_bytes / sizeof *states);
    const bool decode = s->work->run == 1;
    kvb_vector_at(kvb_cpu())->rescale((decode ? base : s->out) + i * floats, (decode ? base : s->rows[2]) + i * floats,
                                      (uint32_t)floats, 1.0f);
}

/* Nanoseconds of the limit. A batch: as many bytes of the slots are read and written; they keep their values. A
 * convolution: its inputs are copied to its outputs. */
static double touch_ns(stage *s)
{
    slots_turn(s);
    const double start = kvb_now_ns();
    s->args.team->run(s->args.team, part_touch, s);
    return kvb_now_ns() - start;
}

/* Context of a sample, the mean of a few calls of the kernel. kernel NULL: the limit is sampled. */
typedef struct sampling {
    stage *stage;
    const kvb_kernel *kernel;
    uint32_t repeats;
} sampling;

static double call_take(void *ctx)
{
    const sampling *x = ctx;
    double ns = 0;
    for (uint32_t i = 0; i < x->repeats; i++)
        ns += (x->kernel ? call_ns(x->stage, x->kernel) : touch_ns(x->stage)) / x->repeats;
    return ns;
}

/* Nanoseconds of a prompt's multiply-adds at the peak rate. */
static double peak_take(void *ctx)
{
    const stage *s = ((const sampling *)ctx)->stage;
    char why[96];
    kvb_rate rate;
    return kvb_multiply_add_peak(s->args.team, KVB_PEAK_F32, 0.005, &rate, why, sizeof why) ? NAN
                                                                                            : s->ops / rate.median;
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

/* Makes a call over empty states, and compares the last columns of the last head with the oracle. */
static int scanner_judge(stage *s, kvb_bench_contestant *c)
{
    const kvb_scan args = args_of(s, c->kernel);
    const kvb_scan_problem *p = &args.problem;
    const uint32_t n = p->d_v < COLUMNS ? p->d_v : COLUMNS;
    const kvb_lane lane = {.head = p->heads - 1, .first = p->d_v - n, .n = n};
    kvb_scan_arithmetic arithmetic;
    kvb_diff out = {0}, states = {0};
    if (s->work->run == 1)
        memset(s->args.states.base, 0, p->n_tok * s->state_bytes);
    memset(s->out, 0xff, (size_t)p->n_tok * p->heads * p->d_v * sizeof *s->out);
    s->turn = 0;
    call_ns(s, c->kernel);
    c->kernel->scan->arithmetic(p, &arithmetic);
    const int error = kvb_lane_judge(&args, NULL, &arithmetic, &lane, &out, &states);
    c->rho = out.rho;
    c->rows = p->n_tok;
    c->wrong = out.any_failed;
    if (c->wrong)
        snprintf(c->finding, sizeof c->finding, "out of token %u, head %u, channel %u is %.6g, exact %.6g",
                 out.first.query, out.first.head, out.first.channel, out.first.got, out.first.want);
    return error;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

void kvb_bench_scanner_add(kvb_bench_scan *run, const kvb_kernel *kernel)
{
    kvb_bench_contestant *c = &run->of[run->n++];
    kvb_scan_problem p = run->work->problem;
    p.n_tok = run->work->tokens;
    p.run = run->work->run;
    *c = (kvb_bench_contestant){.name = kernel->name, .kernel = kernel};
    if ((!kernel->available || kernel->available(c->why, sizeof c->why)) &&
        (!kernel->scan->supports || kernel->scan->supports(&p, c->why, sizeof c->why)))
        c->why[0] = '\0';
    else if (!c->why[0])
        snprintf(c->why, sizeof c->why, "declined");
}

static void rounds_make(kvb_bench_scan *run, stage *s, const kvb_team *team, double seconds)
{
    const uint32_t repeats = run->work->run == 1 ? 8 : 1;
    sampling sampled[1 + KVB_BENCH_SCANNERS] = {{s, NULL, repeats}};
    kvb_contestant all[1 + KVB_BENCH_SCANNERS] = {{.take = kvb_bench_scan_moves(run->work) ? call_take : peak_take,
                                                   .ctx = &sampled[0],
                                                   .samples = run->limit,
                                                   .team = team,
                                                   .limit = true}};
    kvb_bench_contestant *timed[1 + KVB_BENCH_SCANNERS];
    uint32_t n = 1;
    for (uint32_t k = 0; k < run->n; k++) {
        kvb_bench_contestant *c = &run->of[k];
        if (c->why[0] || c->wrong)
            continue;
        sampled[n] = (sampling){s, c->kernel, c->kernel == &kvb_kernel_scan_reference ? 1 : repeats}; /* slow: one */
        all[n] = (kvb_contestant){.take = call_take, .ctx = &sampled[n], .samples = c->ns, .team = team};
        timed[n++] = c;
    }
    const kvb_rounds rounds = {.least = KVB_BENCH_TURNS_MIN, .most = KVB_BENCH_TURNS, .seconds = seconds};
    run->turns = kvb_rounds_run(&rounds, all, n);
    for (uint32_t i = 1; i < n; i++)
        timed[i]->turns = all[i].n;
}

int kvb_bench_scan_measure(kvb_bench_scan *run, const kvb_team *team, uint32_t cells, double seconds)
{
    stage s = {.work = run->work};
    const bool decode = run->work->run == 1;
    int error = stage_open(&s, run, team, cells);
    for (uint32_t k = 0; k < run->n && !error; k++)
        if (!run->of[k].why[0])
            error = scanner_judge(&s, &run->of[k]);
    if (!error)
        rounds_make(run, &s, team, seconds);
    run->bytes = s.bytes;
    run->ops = s.ops;
    run->held = (double)s.state_bytes * (decode ? s.args.states.slots : 1);
    stage_close(&s);
    return error ? error : kvb_stopped ? -EINTR : 0;
}

int kvb_bench_scan_run(kvb_table *table, const kvb_bench_scan_work *work, const kvb_team *team, uint32_t cells,
                       double seconds, kvb_bench_score *score)
{
    static kvb_bench_scan run; /* too large for a stack */
    run = (kvb_bench_scan){.work = work};
    kvb_bench_scanner_add(&run, &kvb_kernel_scan);
    kvb_bench_scanner_add(&run, &kvb_kernel_scan_reference);
    const int error = kvb_bench_scan_measure(&run, team, cells, seconds);
    return error ? error : kvb_bench_scan_report(table, &run, score);
}
