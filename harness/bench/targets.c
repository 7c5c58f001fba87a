/* SPDX-License-Identifier: Apache-2.0 */
/* The works, the targets of kernels, and a work's lines in the table. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/bench/bench.h"
#include "results/table.h"

/* With f16 rows one copy of so many cells is larger than any CPU cache. */
#define LONG (128u << 10)

enum { WORK, KERNEL, SIZE, TIME, RATE, LIMIT, RATIO, SPREAD, BOTH, TARGET, MET, COLUMNS };

/* An entry: a kernel, a way to call it, a target (0: none). */
#define FLASH(TARGET)      "flash", KVB_BENCH_WHOLE, TARGET
#define FLASH_INT8(TARGET) "flash-int8", KVB_BENCH_WHOLE, TARGET
#define FLASH_BF16(TARGET) "flash-bf16", KVB_BENCH_WHOLE, TARGET
#define FLASH_F16(TARGET)  "flash-f16", KVB_BENCH_WHOLE, TARGET
#define FLASH_AMX(TARGET)  "flash-amx", KVB_BENCH_WHOLE, TARGET
#define FLASH_BITS         "flash", KVB_BENCH_BITS, 0
#define FLASH_APART        "flash", KVB_BENCH_APART, 0
#define FLASH_ALONE        "flash", KVB_BENCH_ALONE, 0
#define FLASH_F16_APART    "flash-f16", KVB_BENCH_APART, 0
/* Without target: with the work's feature and without it. */
#define BESIDE_PLAIN .entry[0].kernel = "flash", .entry[1].kernel = "flash", .entry[1].way = KVB_BENCH_PLAIN

#define DECODE(FORMAT, GROUP, CELLS, LIMIT)                                                                            \
    .name = "decode-" FORMAT "-g" #GROUP, .format = FORMAT, .group = GROUP, .cells = CELLS, .limit = LIMIT
#define CACHED(FORMAT)                                                                                                 \
    .name = "cached-" FORMAT "-g4", .format = FORMAT, .group = 4, .resident = true, .limit = KVB_BENCH_READ
#define THREADS(FORMAT) .name = "threads-decode", .format = FORMAT, .group = 4, .cells = LONG, .limit = KVB_BENCH_READ
#define VERIFY(NAME, FORMAT)                                                                                           \
    .name = NAME, .format = FORMAT, .shape = KVB_BENCH_VERIFY, .group = 4, .cells = (32 << 10) + 26,                   \
    .limit = KVB_BENCH_PEAK
#define BATCH(NAME, SHAPE)                                                                                             \
    .name = "batch-" NAME, .format = "f16", .shape = SHAPE, .group = 4, .cells = 16 * 2048, .limit = KVB_BENCH_READ
#define FORK(GROUP)                                                                                                    \
    .name = "fork-g" #GROUP, .format = "f16", .shape = KVB_BENCH_FORK, .group = GROUP, .cells = (32 << 10) + 8 * 64,   \
    .limit = KVB_BENCH_LONGER
#define PREFILL(NAME, FORMAT, SHAPE, CELLS)                                                                            \
    .name = NAME "-" FORMAT "-g4", .format = FORMAT, .shape = SHAPE, .group = 4, .cells = CELLS, .resident = true,     \
    .limit = KVB_BENCH_PEAK
/* The first cells of one long store: the cost of a token as the context grows. */
#define CONTEXT(KILO)                                                                                                  \
    .name = "context-" #KILO "k", .format = "f16", .group = 4, .cells = KILO << 10, .store = LONG, .resident = true,   \
    .limit = KVB_BENCH_READ

#define PAGED(PAGE)                                                                                                    \
    .name = "paged-" #PAGE, .format = "f16", .shape = KVB_BENCH_PAGED, .page = PAGE, .group = 4, .cells = 16 * 2048,   \
    .limit = KVB_BENCH_READ, .plain = ", in runs", BESIDE_PLAIN
/* MLA, absorbed: 128 query heads over one latent row. */
#define LATENT(NAME, FORMAT, PEAK)                                                                                     \
    .name = "latent-" NAME, .format = FORMAT, .latent = true, .group = 128, .cells = 16 << 10,                         \
    .limit = KVB_BENCH_PEAK, .peak = PEAK
#define WINDOW(NAME, SHAPE, CELLS, LIMIT)                                                                              \
    .name = "window-" NAME, .format = "f16", .shape = SHAPE, .group = 4, .cells = CELLS, .window = 1024,               \
    .window_sinks = 4, .resident = true, .limit = LIMIT, .plain = ", only what is seen", BESIDE_PLAIN
#define WITH(NAME, SHAPE, CELLS, LIMIT)                                                                                \
    .name = NAME, .format = "f16", .shape = SHAPE, .group = 4, .cells = CELLS, .resident = true, .limit = LIMIT,       \
    .plain = ", without", BESIDE_PLAIN
/* Small steps: the cost of a call. */
#define CALL(FORMAT, KERNEL, NAME, SHAPE, CELLS)                                                                       \
    .name = "call-" FORMAT "-" NAME, .format = FORMAT, .shape = SHAPE, .group = 4, .cells = CELLS, .resident = true,   \
    .limit = KVB_BENCH_LONGER, .call = true, .entry = {{KERNEL, KVB_BENCH_WHOLE, 0}, {KERNEL, KVB_BENCH_ALONE, 0}}

/* Neighbours with one format and size share the store's rows. */
const kvb_bench_work kvb_bench_works[] = {
    {DECODE("f32", 1, LONG / 2, KVB_BENCH_READ), .entry = {{FLASH(0.90)}}},
    {DECODE("f16", 1, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.90)}, {FLASH_F16(0.90)}}},
    {DECODE("f16", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.90)}, {FLASH_F16(0.90)}}},
    {DECODE("f16", 8, LONG, KVB_BENCH_LONGER), .entry = {{FLASH(0.80)}, {FLASH_F16(0.80)}}},
    {DECODE("bf16", 1, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.90)}, {FLASH_BF16(0.90)}}},
    {DECODE("bf16", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.90)}, {FLASH_BF16(0.90)}}},
    {DECODE("bf16", 8, LONG, KVB_BENCH_LONGER), .entry = {{FLASH(0.80)}, {FLASH_BF16(0.80)}}},
    {DECODE("q8_0", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.75)}, {FLASH_INT8(0.75)}, {FLASH_F16(0.75)}}},
    {DECODE("a8g64", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.75)}, {FLASH_INT8(0.75)}, {FLASH_F16(0.75)}}},
    {DECODE("e4m3", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.75)}, {FLASH_BF16(0.75)}, {FLASH_F16(0.75)}}},
    {DECODE("q4_0", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.60)}, {FLASH_INT8(0.60)}}},
    {DECODE("a4g64", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.60)}, {FLASH_INT8(0.60)}}},
    {VERIFY("verify-f16-g4", "f16"), .entry = {{FLASH(0.75)}, {FLASH_F16(0.75)}}},
    {VERIFY("verify-int8-g4", "int8"), .entry = {{FLASH_INT8(1.3)}, {FLASH(0)}}},
    {VERIFY("verify-bf16-g4", "bf16"), .entry = {{FLASH_BF16(0)}, {FLASH(0)}}},
    {BATCH("in-runs", KVB_BENCH_BATCH), .entry = {{FLASH(0.85)}, {FLASH_BITS}, {FLASH_F16(0.85)}}},
    {BATCH("in-steps", KVB_BENCH_STEPS), .entry = {{FLASH(0.75)}, {FLASH_BITS}, {FLASH_F16(0.75)}}},
    {FORK(1), .entry = {{FLASH(0.75)}, {FLASH_APART}, {FLASH_F16(0.75)}, {FLASH_F16_APART}}, .gain = 5},
    {FORK(4), .entry = {{FLASH(0.75)}, {FLASH_APART}, {FLASH_F16(0.75)}, {FLASH_F16_APART}}, .gain = 2},
    {PREFILL("prefill", "f32", KVB_BENCH_PREFILL, 4096), .entry = {{FLASH(0.80)}}},
    {PREFILL("prefill", "f16", KVB_BENCH_PREFILL, 4096), .entry = {{FLASH(0.80)}, {FLASH_F16(0.80)}}},
    {PREFILL("prefill", "bf16", KVB_BENCH_PREFILL, 4096), .entry = {{FLASH_BF16(0)}, {FLASH(0)}}},
    {PREFILL("chunk", "f16", KVB_BENCH_CHUNK, 8192 + 512), .entry = {{FLASH(0)}}},
    {PAGED(16), .gain = 0.95},
    {PAGED(64), .gain = 0.95},
    {PAGED(256), .gain = 0.95},
    {WINDOW("decode", KVB_BENCH_BATCH, LONG, KVB_BENCH_READ), .gain = 0.90},
    {WINDOW("chunk", KVB_BENCH_CHUNK, 8192 + 512, KVB_BENCH_PEAK), .gain = 0.90},
    {WITH("sinks-decode", KVB_BENCH_DECODE, LONG, KVB_BENCH_READ), .sinks = true, .gain = 0.97},
    {WITH("softcap-decode", KVB_BENCH_DECODE, LONG, KVB_BENCH_READ), .softcap = 3, .gain = 0.97},
    {WITH("softcap-prefill", KVB_BENCH_PREFILL, 4096, KVB_BENCH_PEAK), .softcap = 3, .gain = 0.97},
    {WITH("out-f16-prefill", KVB_BENCH_PREFILL, 4096, KVB_BENCH_PEAK), .out = KVB_F16, .gain = 0.97},
    {LATENT("f16", "f16", KVB_PEAK_F32), .entry = {{FLASH(0.80)}, {FLASH_F16(0.80)}}},
    {LATENT("bf16", "bf16", KVB_PEAK_BF16), .entry = {{FLASH_BF16(0.80)}, {FLASH(0)}}},
    /* The same works beside the peak of AMX's tiles. */
    {VERIFY("verify-amx-g4", "bf16"), .peak = KVB_PEAK_AMX_BF16, .entry = {{FLASH_AMX(0.50)}, {FLASH_BF16(0)}}},
    {PREFILL("prefill-amx", "bf16", KVB_BENCH_PREFILL, 4096), .peak = KVB_PEAK_AMX_BF16,
     .entry = {{FLASH_AMX(0.50)}, {FLASH_BF16(0)}}},
    {LATENT("amx", "bf16", KVB_PEAK_AMX_BF16), .entry = {{FLASH_AMX(0.50)}, {FLASH_BF16(0)}}},
    {VERIFY("verify-amx-int8-g4", "int8"), .peak = KVB_PEAK_AMX_INT8, .entry = {{FLASH_INT8(0)}}},
    {LATENT("amx-a8g64", "a8g64", KVB_PEAK_AMX_INT8), .entry = {{FLASH_INT8(0)}}},
    {CALL("f16", "flash", "64", KVB_BENCH_DECODE, 64)},
    {CALL("f16", "flash", "256", KVB_BENCH_DECODE, 256)},
    {CALL("f16", "flash", "16x16", KVB_BENCH_BATCH, 16 * 16)},
    {CALL("f16", "flash", "16x64", KVB_BENCH_BATCH, 16 * 64)},
    {CALL("q8_0", "flash-int8", "64", KVB_BENCH_DECODE, 64)},
    {CALL("q8_0", "flash-int8", "256", KVB_BENCH_DECODE, 256)},
    {CALL("q8_0", "flash-int8", "16x16", KVB_BENCH_BATCH, 16 * 16)},
    {CALL("q8_0", "flash-int8", "16x64", KVB_BENCH_BATCH, 16 * 64)},
    {CALL("bf16", "flash-bf16", "64", KVB_BENCH_DECODE, 64)},
    {CALL("bf16", "flash-bf16", "256", KVB_BENCH_DECODE, 256)},
    {CALL("bf16", "flash-bf16", "16x16", KVB_BENCH_BATCH, 16 * 16)},
    {CALL("bf16", "flash-bf16", "16x64", KVB_BENCH_BATCH, 16 * 64)},
    {CACHED("f16"), .entry = {{FLASH(0.75)}, {FLASH_F16(0.75)}}},
    {CONTEXT(1), .entry = {{FLASH(0)}}},
    {CONTEXT(2), .entry = {{FLASH(0)}}},
    {CONTEXT(4), .entry = {{FLASH(0)}}},
    {CONTEXT(8), .entry = {{FLASH(0)}}},
    {CONTEXT(16), .entry = {{FLASH(0)}}},
    {CONTEXT(32), .entry = {{FLASH(0)}}},
    {CONTEXT(64), .entry = {{FLASH(0)}}},
    {CONTEXT(128), .entry = {{FLASH(0.90)}}},
    {THREADS("f16"), .entry = {{FLASH(0)}, {FLASH_ALONE}}, .gain = 1.9},
    {VERIFY("threads-verify", "f16"), .entry = {{FLASH(0)}, {FLASH_ALONE}}, .gain = 1.9},
    {.name = NULL},
};

/* A work's lines in the table. */
const char *const kvb_bench_headings[COLUMNS + 1] = {"work",   "kernel", ">K+V",     ">time",  ">rate", ">limit",
                                                     ">ratio", ">+-",    ">of both", "target", "met",   NULL};

typedef char cell[400];
typedef struct line {
    cell at[COLUMNS];
} line;

static int line_add(kvb_table *table, const line *l)
{
    const char *cells[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        cells[i] = l->at[i][0] ? l->at[i] : NULL;
    return kvb_table_row(table, cells);
}

/* Prints a ratio. Does `judged` meet the target? false: no, or there is none. */
static bool line_judge(line *l, kvb_bench_figure ratio, double judged, double target, const char *unit)
{
    snprintf(l->at[RATIO], sizeof(cell), "%.*f%s", *unit ? 2 : 3, ratio.median, unit);
    snprintf(l->at[SPREAD], sizeof(cell), "%.*f", *unit ? 2 : 3, ratio.mad);
    if (!(target > 0))
        return false;
    bool met = judged >= target;
    snprintf(l->at[TARGET], sizeof(cell), ">= %.2f%s", target, unit);
    snprintf(l->at[MET], sizeof(cell), met ? "yes" : "no");
    return met;
}

/* Prints the reason in place of a result; the target is not met. */
static void line_refuse(line *l, double target, const char *word, const char *why)
{
    if (target > 0)
        snprintf(l->at[TARGET], sizeof(cell), ">= %.2f", target);
    snprintf(l->at[MET], sizeof(cell), "%s: %s", word, why);
}

static void size_print(const kvb_bench_run *run, cell text)
{
    double mb = (double)run->scene->own.unique * kvb_bench_cell_bytes(run->scene->work) / 1e6;
    if (run->store->layers > 1)
        snprintf(text, sizeof(cell), "%u x %.0f MB", run->store->layers, mb);
    else
        snprintf(text, sizeof(cell), mb < 10 ? "%.1f MB" : "%.0f MB", mb);
}

/* Prints the binding limit, reading or operations, as a rate. */
static void limit_print(const kvb_bench_run *run, const kvb_bench_contestant *c, double limit_ns, cell text)
{
    kvb_bench_limit limit = run->scene->work->limit;
    double read = kvb_bench_figure_of(run->read[c->team], run->turns).median;
    bool by_read = limit == KVB_BENCH_READ || (limit == KVB_BENCH_LONGER && c->bytes / read >= 0.999 * limit_ns);
    if (by_read)
        snprintf(text, sizeof(cell), "read %.1f GB/s", c->bytes / limit_ns);
    else
        snprintf(text, sizeof(cell), "%s %.0f Gop/s", kvb_peak_names[run->peak_kind], c->ops / limit_ns);
}

static double cycles_of(const kvb_bench_run *run, const kvb_bench_contestant *c)
{
    double cycles[KVB_BENCH_TURNS];
    for (uint32_t i = 0; i < c->turns; i++)
        cycles[i] = c->ns[i] / run->cycle[i];
    return kvb_bench_figure_of(cycles, c->turns).median;
}

static void rate_print(const kvb_bench_run *run, const kvb_bench_contestant *c, double ns, cell text)
{
    const kvb_bench_work *work = run->scene->work;
    if (work->call) /* the CPU's clock may change: each turn has its cycle */
        snprintf(text, sizeof(cell), "%.0f cycles", cycles_of(run, c));
    else if (work->limit == KVB_BENCH_PEAK)
        snprintf(text, sizeof(cell), "%.1f Gop/s", c->ops / ns);
    else if (work->store) /* a context: the cost of a cell */
        snprintf(text, sizeof(cell), "%.1f ns/cell, %.1f GB/s", ns / run->scene->cells, c->bytes / ns);
    else
        snprintf(text, sizeof(cell), "%.1f GB/s", c->bytes / ns);
}

static const char *const way_words[] = {[KVB_BENCH_WHOLE] = "",
                                        [KVB_BENCH_BITS] = ", bit mask",
                                        [KVB_BENCH_APART] = ", a call a token",
                                        [KVB_BENCH_ALONE] = ", one thread"};

static const char *way_word(const kvb_bench_run *run, kvb_bench_way way)
{
    return way == KVB_BENCH_PLAIN ? run->scene->work->plain : way_words[way];
}

static int contestant_report(kvb_table *table, const kvb_bench_run *run, const kvb_bench_contestant *c, bool *met)
{
    line l = {0};
    double ratio[KVB_BENCH_TURNS], limit[KVB_BENCH_TURNS], both[KVB_BENCH_TURNS], target = c->entry->target;

    snprintf(l.at[WORK], sizeof(cell), "%s", run->scene->work->name);
    snprintf(l.at[KERNEL], sizeof(cell), "%s%s", c->name, way_word(run, c->entry->way));
    size_print(run, l.at[SIZE]);
    if (c->why[0] || !c->turns) {
        line_refuse(&l, target, c->why[0] ? "unavailable" : "WRONG", c->why[0] ? c->why : c->finding);
        return line_add(table, &l);
    }
    for (uint32_t i = 0; i < c->turns; i++) {
        limit[i] = kvb_bench_limit_ns(run, c, run->scene->work->limit, i);
        ratio[i] = limit[i] / c->ns[i];
        both[i] = kvb_bench_limit_ns(run, c, KVB_BENCH_LONGER, i) / c->ns[i];
    }
    double ns = kvb_bench_figure_of(c->ns, c->turns).median;
    snprintf(l.at[TIME], sizeof(cell), "%s", kvb_time_text(ns).text);
    rate_print(run, c, ns, l.at[RATE]);
    limit_print(run, c, kvb_bench_figure_of(limit, c->turns).median, l.at[LIMIT]);
    snprintf(l.at[BOTH], sizeof(cell), "%.3f", kvb_bench_figure_of(both, c->turns).median);
    if (c->wrong) { /* a foreign kernel: it has a time */
        line_judge(&l, kvb_bench_figure_of(ratio, c->turns), 0, 0, "");
        line_refuse(&l, target, "inexact", c->finding);
    } else {
        *met |= line_judge(&l, kvb_bench_figure_of(ratio, c->turns), kvb_bench_figure_of(both, c->turns).median, target,
                           "");
    }
    return line_add(table, &l);
}

/* The required gain of more threads: at most 0.95 of the gain in bandwidth, which a few threads may exhaust. */
static double threads_target(const kvb_bench_run *run, double most, line *l)
{
    double gain[KVB_BENCH_TURNS], allowed = INFINITY;
    for (uint32_t i = 0; i < run->turns; i++)
        gain[i] = run->read[0][i] / run->read[1][i];
    if (run->scene->work->limit == KVB_BENCH_READ) {
        allowed = fmax(1, kvb_bench_figure_of(gain, run->turns).median);
        snprintf(l->at[LIMIT], sizeof(cell), "read gains %.2fx", allowed);
    }
    return fmin(most, 0.95 * allowed);
}

static int gain_report(kvb_table *table, const kvb_bench_run *run, const kvb_bench_contestant *fast,
                       const kvb_bench_contestant *slow, bool *met)
{
    line l = {0};
    double gain[KVB_BENCH_TURNS], target = run->scene->work->gain;

    snprintf(l.at[WORK], sizeof(cell), "%s", run->scene->work->name);
    snprintf(l.at[KERNEL], sizeof(cell), "%s, gain over%s", fast->name, way_word(run, slow->entry->way) + 1);
    if (!fast->turns || !slow->turns || fast->wrong || slow->wrong) {
        line_refuse(&l, target, fast->wrong || slow->wrong ? "WRONG" : "unavailable", "see above");
        return line_add(table, &l);
    }
    const uint32_t turns = fast->turns < slow->turns ? fast->turns : slow->turns;
    for (uint32_t i = 0; i < turns; i++)
        gain[i] = slow->ns[i] / slow->ops / (fast->ns[i] / fast->ops);
    if (slow->entry->way == KVB_BENCH_ALONE)
        target = threads_target(run, target, &l);
    else if (slow->entry->way == KVB_BENCH_APART)
        snprintf(l.at[LIMIT], sizeof(cell), "%.2fx the bytes", slow->bytes / fast->bytes);
    const kvb_bench_figure figure = kvb_bench_figure_of(gain, turns);
    *met |= line_judge(&l, figure, figure.median, target, "x");
    return line_add(table, &l);
}

/* Is b the slow way that a's gain is measured over? */
static bool is_slow_way(const kvb_bench_contestant *a, const kvb_bench_contestant *b)
{
    return a->entry->way == KVB_BENCH_WHOLE &&
           (b->entry->way == KVB_BENCH_APART || b->entry->way == KVB_BENCH_ALONE || b->entry->way == KVB_BENCH_PLAIN) &&
           !strcmp(a->name, b->name);
}

int kvb_bench_run_report(kvb_table *table, const kvb_bench_run *run, kvb_bench_score *score)
{
    int error = 0;
    bool asked = false, met = false, gained = false;
    for (uint32_t e = 0; e < run->n && !error; e++) {
        asked |= run->contestant[e].entry->target > 0;
        error = contestant_report(table, run, &run->contestant[e], &met);
    }
    for (uint32_t e = 0; e < run->n && run->scene->work->gain > 0; e++)
        for (uint32_t f = 0; f < run->n && !error; f++)
            if (is_slow_way(&run->contestant[e], &run->contestant[f]))
                error = gain_report(table, run, &run->contestant[e], &run->contestant[f], &gained);
    score->targets += asked + (run->scene->work->gain > 0);
    score->met += met + gained;
    return error;
}

int kvb_bench_scan_report(kvb_table *table, const kvb_bench_scan *run, kvb_bench_score *score)
{
    const kvb_bench_contestant *ours = &run->of[0], *plain = &run->of[1];
    const bool moves = kvb_bench_scan_moves(run->work);
    const double work = moves ? run->bytes : run->ops, target = run->work->target;
    double ratio[KVB_BENCH_TURNS], gain[KVB_BENCH_TURNS];
    line l = {0}, faster = {0};

    const uint32_t turns = ours->turns < plain->turns ? ours->turns : plain->turns;
    for (uint32_t i = 0; i < ours->turns; i++)
        ratio[i] = run->limit[i] / ours->ns[i];
    for (uint32_t i = 0; i < turns; i++)
        gain[i] = plain->ns[i] / ours->ns[i];
    snprintf(l.at[WORK], sizeof(cell), "%s", run->work->name);
    snprintf(l.at[KERNEL], sizeof(cell), "%s", ours->name);
    snprintf(l.at[SIZE], sizeof(cell), "%.1f MB", run->held / 1e6);
    score->targets += target > 0;
    if (ours->turns) {
        const kvb_bench_figure share = kvb_bench_figure_of(ratio, ours->turns);
        const double ns = kvb_bench_figure_of(ours->ns, ours->turns).median,
                     limit = kvb_bench_figure_of(run->limit, ours->turns).median;
        snprintf(l.at[TIME], sizeof(cell), "%s", kvb_time_text(ns).text);
        snprintf(l.at[RATE], sizeof(cell), moves ? "%.1f GB/s" : "%.1f Gop/s", work / ns);
        snprintf(l.at[LIMIT], sizeof(cell), moves ? "read+write %.1f GB/s" : "f32 %.0f Gop/s", work / limit);
        score->met += line_judge(&l, share, share.median, target, "");
    } else {
        line_refuse(&l, target, ours->why[0] ? "unavailable" : "WRONG", ours->why[0] ? ours->why : ours->finding);
    }
    const int error = line_add(table, &l);
    if (error || !ours->turns || !plain->turns)
        return error;
    snprintf(faster.at[WORK], sizeof(cell), "%s", run->work->name);
    snprintf(faster.at[KERNEL], sizeof(cell), "%s, gain over %s", ours->name, plain->name);
    line_judge(&faster, kvb_bench_figure_of(gain, turns), 0, 0, "x");
    return line_add(table, &faster);
}
