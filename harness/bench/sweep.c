/* SPDX-License-Identifier: Apache-2.0 */
/* The scenes of `kvbench bench`: measures rows, makes results of them and prints them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/bench/bench.h"
#include "harness/replay/meter.h"
#include "oracle/oracle.h"
#include "results/statistics.h"
#include "workloads/live/live.h"

#define KIND(NAME, WHAT, SHAPE, BATCH, ...)                                                                            \
    .name = NAME, .what = WHAT, .shape = KVB_BENCH_##SHAPE, .batch = BATCH, .contexts = {__VA_ARGS__}

const kvb_bench_kind kvb_bench_kinds[] = {
    {KIND("decode", "a token of one sequence", DECODE, 1, 1 << 10, 4 << 10, 16 << 10, 64 << 10)},
    {KIND("batch", "a token of each sequence", BATCH, 16, 2 << 10)},
    {KIND("fork", "a token of each of 8 branches behind one trunk", FORK, 1, 8 << 10)},
    {KIND("verify", "a tree of 26 draft tokens", VERIFY, 1, 8 << 10)},
    {KIND("chunk", "512 tokens of a prompt", CHUNK, 1, 8 << 10)},
    {KIND("prefill", "a prompt", PREFILL, 1, 2 << 10)},
    {KIND("latent", "a token over latent rows", DECODE, 1, 4 << 10, 16 << 10), .latent = true, .group = 128},
    {KIND("window", "a token behind a window", BATCH, 1, 16 << 10), .window = 1024, .window_sinks = 4},
    {KIND("mha", "a token, each query head with a KV head", DECODE, 1, 4 << 10), .kv_heads = 32, .group = 1},
    {KIND("mqa", "a token, all query heads with one KV head", DECODE, 1, 16 << 10), .kv_heads = 1, .group = 32},
    {KIND("state", "a token of each sequence over recurrent states of f32", DECODE, 16, 0), .scan = true},
    {.name = NULL},
};

/* Cells of all sequences together, including the step's own. */
static uint32_t cells_of(const kvb_bench_row *r)
{
    const uint32_t c = r->context, each = c / KVB_BENCH_BRANCHES;
    const kvb_bench_shape shape = r->work.shape;
    return shape == KVB_BENCH_BATCH    ? c * r->batch
           : shape == KVB_BENCH_FORK   ? c + KVB_BENCH_BRANCHES * (each < KVB_BENCH_TAIL ? each : KVB_BENCH_TAIL)
           : shape == KVB_BENCH_VERIFY ? c + kvb_eagle_shape_25.n
           : shape == KVB_BENCH_CHUNK  ? c + (c < KVB_BENCH_FED ? c : KVB_BENCH_FED)
                                       : c;
}

bool kvb_bench_row_make(const kvb_bench_kind *kind, const kvb_group *g, const char *k_format, const char *v_format,
                        uint32_t context, uint32_t batch, uint32_t threads, kvb_bench_row *r)
{
    const bool one =
        kind->shape == KVB_BENCH_DECODE || kind->shape == KVB_BENCH_BATCH; /* one token for each sequence */
    const bool prompt = kind->shape == KVB_BENCH_PREFILL || kind->shape == KVB_BENCH_CHUNK;
    *r = (kvb_bench_row){.kind = kind, .context = context, .batch = batch, .threads = threads};
    r->work = (kvb_bench_work){.name = kind->name,
                               .format = k_format,
                               .v_format = v_format,
                               .group = g->heads / g->kv_heads,
                               .kv_heads = g->kv_heads,
                               .k_dim = g->k_dim,
                               .v_dim = g->v_dim,
                               .latent = g->latent,
                               .window = g->window ? g->window : g->chunk,
                               .window_sinks = g->sinks,
                               .batch = batch,
                               .limit = KVB_BENCH_LONGER};
    r->work.shape = !one ? kind->shape : batch > 1 || r->work.window ? KVB_BENCH_BATCH : KVB_BENCH_DECODE;
    r->work.cells = cells_of(r);
    return one || prompt || !r->work.window;
}

bool kvb_bench_scan_row_make(const kvb_bench_kind *kind, uint32_t i, uint32_t batch, uint32_t threads, kvb_bench_row *r)
{
    static const char prefix[] = "scan-decode-";
    for (const kvb_bench_scan_work *w = kvb_bench_scan_works; w->name; w++)
        if (w->run == 1 && w->tokens == 1 && i-- == 0) { /* one of each recurrence */
            *r = (kvb_bench_row){.kind = kind, .batch = batch, .threads = threads, .scan = *w};
            r->scan.name = w->name + strlen(prefix);
            r->scan.tokens = batch;
            return true;
        }
    return false;
}

/* Is the interval of the median wider than half of the median? Such a time is not printed. */
static bool bench_is_noisy(const kvb_result *r)
{
    return !(r->time.all.high - r->time.all.low <= r->time.all.median / 2);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static kvb_step_kind kind_of(kvb_bench_shape shape)
{
    return shape == KVB_BENCH_FORK                                  ? KVB_KIND_FORK
           : shape == KVB_BENCH_VERIFY                              ? KVB_KIND_VERIFY
           : shape == KVB_BENCH_PREFILL || shape == KVB_BENCH_CHUNK ? KVB_KIND_PREFILL
                                                                    : KVB_KIND_DECODE;
}

/* "4k", "1000". */
static void bench_count_text(uint32_t n, char text[16])
{
    snprintf(text, 16, n % 1024 ? "%u" : "%uk", n % 1024 ? n : n / 1024);
}

/* "decode-8x128-g4-16x2k": 8 KV heads of 128 channels, 4 query heads each, 16 sequences, context of 2048. */
static void workload_text(const kvb_bench_row *r, char text[KVB_NAME])
{
    const kvb_bench_work *w = &r->work;
    char dim[24], context[16], window[24] = "", batch[16] = "";
    bench_count_text(r->context, context);
    snprintf(dim, sizeof dim, w->k_dim == w->v_dim ? "%u" : "%u.%u", w->k_dim, w->v_dim);
    if (w->window)
        snprintf(window, sizeof window, "-w%u", w->window);
    if (r->batch > 1)
        snprintf(batch, sizeof batch, "%ux", r->batch);
    snprintf(text, KVB_NAME, "%s-%ux%s-g%u%s-%s%s", r->kind->name, w->kv_heads, dim, w->group, window, batch, context);
}

/* *share: the median of shares, each taken within a round so that drift cancels; NaN: its interval is wider than half
 * of it. 0 or -ENOMEM. */
static int share_fill(double *shares, uint32_t n, double *share)
{
    double low, high;
    const int error = kvb_median_interval(shares, n, 0.95, 400, 1, &low, &high);
    *share = kvb_quantile(shares, n, 0.5);
    if (!error && high - low > *share / 2)
        *share = NAN;
    return error;
}

/* Fills in the times of a contestant's calls, and what each of them reads and computes. 0 or -ENOMEM. */
static int calls_fill(const kvb_bench_contestant *c, kvb_step_kind kind, double bytes, double ops, kvb_result *r)
{
    kvb_samples times[KVB_STEP_KINDS] = {0};
    int error = 0;
    for (uint32_t i = 0; i < c->turns && !error; i++)
        error = kvb_sample_add(&times[kind], c->ns[i]);
    if (!error)
        error = kvb_samples_report(times, kind, c->turns, 0, r);
    kvb_samples_free(&times[kind]);
    snprintf(r->traffic.kind, sizeof r->traffic.kind, "%s", kvb_step_kind_name(kind));
    r->traffic.bytes_read = r->traffic.working_set = bytes;
    r->traffic.flops = ops;
    return error;
}

static int times_fill(const kvb_bench_run *run, const kvb_bench_contestant *c, kvb_result *r)
{
    const kvb_bench_scene *s = run->scene;
    kvb_roofline roof = {0};
    double both[KVB_BENCH_TURNS], reading[KVB_BENCH_TURNS], peak[KVB_BENCH_TURNS];
    int error = calls_fill(c, kind_of(s->work->shape), c->bytes, c->ops, r);
    for (uint32_t i = 0; i < c->turns && !error; i++) {
        error = kvb_sample_add(&roof.rates, run->read[c->team][i]);
        both[i] = kvb_bench_limit_ns(run, c, KVB_BENCH_LONGER, i) / c->ns[i];
        reading[i] = kvb_bench_limit_ns(run, c, KVB_BENCH_READ, i) / c->ns[i];
        peak[i] = run->peak[c->team][i];
    }
    if (!error) {
        r->traffic.bytes_walk = kvb_bench_cell_bytes(s->work) * (double)s->own.pairs * s->work->group;
        r->traffic.cells_read = (double)s->own.unique;
        kvb_roofline_report(&roof, c->bytes, c->ops, r->time.all.median, kvb_quantile(peak, c->turns, 0.5), r);
        error = share_fill(both, c->turns, &r->traffic.of_limit);
        if (!error)
            error = share_fill(reading, c->turns, &r->traffic.of_read);
        r->time.contexts[0] = (kvb_context_point){(double)s->own.unique, r->time.all.median, c->turns};
        r->time.n_contexts = 1;
    }
    kvb_samples_free(&roof.rates);
    return error;
}

/* Fills in the record's `foreign`, for a kernel that calls another engine. */
static void foreign_fill(const kvb_bench_contestant *c, kvb_result *r)
{
    const kvb_tolerance *rule = &c->kernel->tolerance;
    if (!(c->kernel->flags & KVB_KERNEL_FOREIGN))
        return;
    r->foreign.calls = 1;
    if (c->kernel->available)
        c->kernel->available(r->foreign.engine, sizeof r->foreign.engine);
    snprintf(r->foreign.rule, sizeof r->foreign.rule, "%s", kvb_tolerance_names[rule->kind]);
    if (!rule->kind)
        return;
    snprintf(r->foreign.source, sizeof r->foreign.source, "%s", rule->source);
    r->foreign.limit = rule->limit;
    r->foreign.relative = rule->relative;
    r->foreign.share = c->share;
    r->foreign.outputs = c->rows * c->call.args.problem.v_dim;
}

/* Begins a result with the verdict. rows: output rows of the call. */
static void verdict_fill(const kvb_bench_row *row, const kvb_bench_contestant *c, uint64_t rows, const char *k,
                         const char *v, kvb_result *r)
{
    const char *reason = c->rows ? c->wrong ? c->finding : c->why : *c->why ? c->why : c->finding;
    kvb_result_begin(r, "", "contiguous", k, v, c->name);
    snprintf(r->time.cache_state, sizeof r->time.cache_state, "natural");
    snprintf(r->reason, sizeof r->reason, "%s", reason);
    r->threads = row->threads;
    r->status = c->rows ? c->wrong ? KVB_STATUS_FAIL : KVB_STATUS_PASS : *c->why ? KVB_STATUS_SKIP : KVB_STATUS_FAIL;
    if (r->status == KVB_STATUS_PASS && !c->turns)
        r->status = KVB_STATUS_SKIP; /* right, but not timed */
    if (!c->rows)
        return;
    r->check = !c->wrong ? KVB_CHECK_NONE : c->foreign ? KVB_CHECK_TOLERANCE : KVB_CHECK_BOUND;
    r->rho = r->error.rho_worst = c->rho;
    r->error.checked_rows = c->rows;
    r->error.total_rows = rows;
}

static int result_add(kvb_bench_sweep *sweep, const kvb_bench_row *row, const kvb_bench_run *run,
                      const kvb_bench_contestant *c)
{
    const char *k = row->work.format, *v = row->work.v_format;
    kvb_result r;
    verdict_fill(row, c, (uint64_t)run->scene->n_tok * run->scene->heads, k, v ? v : k, &r);
    workload_text(row, r.workload);
    if (c->rows) {
        r.memory.scratch_bytes = (double)c->call.scratch_bytes;
        foreign_fill(c, &r);
    }
    const int error = c->turns ? times_fill(run, c, &r) : 0;
    return error ? error : kvb_results_add(&sweep->results, &r);
}

/* ---- recurrent layers -------------------------------------------------------------------------------------------- */

static int scan_times_fill(const kvb_bench_scan *run, const kvb_bench_contestant *c, kvb_result *r)
{
    const double bytes = run->bytes / 2; /* the other half is written */
    double shares[KVB_BENCH_TURNS];
    const int error = calls_fill(c, KVB_KIND_DECODE, bytes, run->ops, r);
    for (uint32_t i = 0; i < c->turns; i++)
        shares[i] = run->limit[i] / c->ns[i];
    r->traffic.bytes_walk = bytes;
    r->traffic.gb_per_s = bytes / r->time.all.median;
    r->traffic.gflop_per_s = run->ops / r->time.all.median;
    return error ? error : share_fill(shares, c->turns, &r->traffic.of_limit);
}

static int scan_result_add(kvb_bench_sweep *sweep, const kvb_bench_row *row, const kvb_bench_scan *run,
                           const kvb_bench_contestant *c)
{
    kvb_result r;
    verdict_fill(row, c, (uint64_t)row->batch * run->work->problem.heads, "f32", "f32", &r);
    snprintf(r.workload, sizeof r.workload, "%s-%.*s-%u", row->kind->name,
             (int)(strrchr(row->scan.name, '-') - row->scan.name), row->scan.name, row->batch);
    const int error = c->turns ? scan_times_fill(run, c, &r) : 0;
    return error ? error : kvb_results_add(&sweep->results, &r);
}

static int scan_row_measure(kvb_bench_sweep *sweep, const kvb_team *team, kvb_bench_row *row)
{
    static kvb_bench_scan run; /* too large for a stack */
    run = (kvb_bench_scan){.work = &row->scan};
    for (uint32_t k = 0; k < sweep->n_scans; k++)
        kvb_bench_scanner_add(&run, sweep->scans[k]);
    int error = kvb_bench_scan_measure(&run, team, 0, sweep->seconds * run.n);
    row->first = sweep->results.n;
    for (uint32_t k = 0; k < run.n && !error; k++)
        error = scan_result_add(sweep, row, &run, &run.of[k]);
    row->n = sweep->results.n - row->first;
    return error;
}

static double bits_of(const char *format, uint32_t dim)
{
    const kvb_pool_type *pool = kvb_bench_pool(format);
    return 8.0 * (double)pool->row_bytes(pool, dim) / dim;
}

/* Fills bits and error of the row's formats into all of its results. 0 or -ENOMEM. */
static int formats_fill(kvb_bench_sweep *sweep, const kvb_bench_row *row, const kvb_bench_run *run)
{
    const kvb_bench_work *w = &row->work;
    double rel_l2 = NAN;
    int error = -ENOTSUP;
    for (uint32_t k = 0; k < run->n && error == -ENOTSUP; k++)
        if (run->contestant[k].rows)
            error = kvb_bench_format_error(run, &run->contestant[k], &rel_l2);
    for (size_t i = row->first; i < sweep->results.n; i++) {
        kvb_result *r = &sweep->results.at[i];
        r->error.format_rel_l2 = rel_l2;
        r->error.bits_k = bits_of(w->format, w->k_dim);
        r->error.bits_v = w->latent ? NAN : bits_of(w->v_format ? w->v_format : w->format, w->v_dim);
    }
    return error == -ENOTSUP ? 0 : error;
}

int kvb_bench_row_measure(kvb_bench_sweep *sweep, const kvb_team *team, kvb_bench_row *row)
{
    static const kvb_bench_entry whole = {.way = KVB_BENCH_WHOLE};
    if (row->kind->scan)
        return scan_row_measure(sweep, team, row);
    static kvb_bench_run run; /* too large for a stack */
    kvb_bench_scene scene = {0};
    run = (kvb_bench_run){.team = {team}, .scene = &scene, .store = &sweep->store, .seconds = sweep->seconds};
    int error = kvb_bench_store_open(&sweep->store, team, &row->work, row->work.cells,
                                     kvb_bench_layers(&row->work, row->work.cells));
    if (!error)
        error = kvb_bench_scene_open(&scene, team, &row->work, row->work.cells);
    for (uint32_t k = 0; k < sweep->n_kernels && !error; k++)
        kvb_bench_contestant_add(&run, sweep->registry, &whole, sweep->kernels[k]);
    error = error ? error : kvb_bench_run_measure(&run);
    row->first = sweep->results.n;
    for (uint32_t k = 0; k < run.n && !error; k++)
        error = result_add(sweep, row, &run, &run.contestant[k]);
    row->n = sweep->results.n - row->first;
    if (!error && sweep->by_formats)
        error = formats_fill(sweep, row, &run);
    kvb_bench_run_close(&run);
    kvb_bench_scene_close(&scene);
    return error;
}

/* ---- printing: blocks of 80 columns for people, one list for programs -------------------------------------------- */

enum { COLUMNS = 5, REASONS = 8 }; /* most kernels side by side; most reasons of a block */

static const kvb_result *result_at(const kvb_bench_sweep *s, const kvb_bench_row *r, uint32_t kernel)
{
    return &s->results.at[r->first + kernel];
}

static bool has_time(const kvb_result *r)
{
    return r->time.all.samples && !bench_is_noisy(r);
}

uint32_t kvb_bench_best(const kvb_bench_sweep *s, const kvb_bench_row *row)
{
    const uint32_t none = (uint32_t)row->n;
    const kvb_result *all[KVB_BENCH_CONTESTANTS] = {NULL};
    uint32_t best = none;
    for (uint32_t k = 0; k < none; k++)
        all[k] = result_at(s, row, k);
    if (!kvb_comparable(all, none))
        return none;
    for (uint32_t k = 0; k < none; k++) {
        const kvb_result *r = result_at(s, row, k);
        if (r->status == KVB_STATUS_PASS && has_time(r) &&
            (best == none || r->time.all.median < result_at(s, row, best)->time.all.median))
            best = k;
    }
    for (uint32_t k = 0; k < none && best < none; k++) { /* may one that is too noisy be faster? */
        const kvb_result *r = result_at(s, row, k);
        if (r->status == KVB_STATUS_PASS && !has_time(r) &&
            !(r->time.all.low > result_at(s, row, best)->time.all.median))
            best = none;
    }
    return best;
}

/* Three digits and a letter: "626u", "10.6m", "1.20s". */
static void short_time(double ns, char text[16])
{
    static const char units[] = "num";
    size_t u = 0;
    for (; u < 3 && ns >= 999.5; u++)
        ns /= 1000;
    snprintf(text, 16, "%.*f%c", ns < 9.995 ? 2 : ns < 99.95 ? 1 : 0, ns, u < 3 ? units[u] : 's');
}

/* "10.6m  80%", 10 characters. Returns the mark behind it, or "". */
static const char *cell_text(const kvb_result *r, bool best, char text[32])
{
    const bool wrong = r->status == KVB_STATUS_FAIL;
    char time[16], share[16] = "";
    if (!r->time.all.samples || bench_is_noisy(r)) {
        snprintf(text, 32, "%10s", r->time.all.samples ? "noisy" : wrong ? "WRONG" : "-");
        return "";
    }
    short_time(r->time.all.median, time);
    if (!isnan(r->traffic.of_limit))
        snprintf(share, sizeof share, "%.0f%%", 100 * r->traffic.of_limit);
    snprintf(text, 32, "%5s %4s", time, share);
    return wrong ? "!" : best ? "*" : "";
}

/* The row's formats, or its recurrence. */
static void pools_text(const kvb_bench_row *r, char text[32])
{
    if (r->kind->scan) {
        snprintf(text, 32, "%.*s", (int)(strrchr(r->scan.name, '-') - r->scan.name), r->scan.name);
        return;
    }
    snprintf(text, 32, r->work.v_format ? "%s:%s" : "%s", r->work.format, r->work.v_format);
}

/* ---- a block ----------------------------------------------------------------------------------------------------- */

static void heading_print(const kvb_bench_row *r, FILE *out)
{
    const kvb_bench_work *w = &r->work;
    fprintf(out, "%s: %s", r->kind->name, r->kind->what);
    if (r->batch > 1)
        fprintf(out, ", %u sequences", r->batch);
    if (r->kind->scan)
        fputs("\n4096 channels, of mamba2, lightning and delta in 64 heads; a name ends with the rows of a state", out);
    else if (w->latent)
        fprintf(out, "\n%u query heads over one latent row of %u channels, V in it %u", w->group, w->k_dim, w->v_dim);
    else {
        fprintf(out, "\n%u KV head%s x %u", w->kv_heads, w->kv_heads == 1 ? "" : "s", w->k_dim);
        if (w->v_dim != w->k_dim)
            fprintf(out, " and %u", w->v_dim);
        fprintf(out, ", %u query head%s each", w->group, w->group == 1 ? "" : "s");
    }
    if (w->window)
        fprintf(out, ", window of %u", w->window);
    if (w->window_sinks)
        fprintf(out, " and the first %u", w->window_sinks);
    fprintf(out, ", %u thread%s", r->threads, r->threads == 1 ? "" : "s");
    if (r->layers)
        fprintf(out, ": %u layers", r->layers);
    fputs("\n\n", out);
}

/* Does the kernel come from a plug-in, or from --beside? */
static bool is_foreign(const kvb_bench_sweep *s, const kvb_bench_row *row, uint32_t kernel)
{
    return row->kind->scan ? s->foreign_scan[kernel] : s->foreign[kernel];
}

/* Does any row have a result of this kernel? */
static bool is_told(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, uint32_t kernel)
{
    for (size_t i = 0; i < n; i++)
        if (result_at(s, &rows[i], kernel)->status != KVB_STATUS_SKIP)
            return true;
    return false;
}

static void columns_print(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, const uint32_t *kernels,
                          size_t n_kernels, FILE *out)
{
    char text[32], context[16];
    int width = 6;
    for (size_t i = 0; i < n; i++) {
        pools_text(&rows[i], text);
        width = (int)strlen(text) > width ? (int)strlen(text) : width;
    }
    fprintf(out, "%9s  %-*s", rows->kind->scan ? "" : "context", width, rows->kind->scan ? "state" : "format");
    for (size_t k = 0; k < n_kernels; k++)
        fprintf(out, "%*s%10.10s", k ? 2 : 1, "", result_at(s, rows, kernels[k])->kernel);
    fputc('\n', out);
    for (size_t i = 0; i < n; i++) {
        bench_count_text(rows[i].context, context);
        if (rows[i].kind->scan)
            context[0] = '\0';
        pools_text(&rows[i], text);
        fprintf(out, "%9s  %-*s", context, width, text);
        const uint32_t best = kvb_bench_best(s, &rows[i]);
        for (size_t k = 0, blanks = 1; k < n_kernels; k++) {
            const char *mark = cell_text(result_at(s, &rows[i], kernels[k]), kernels[k] == best, text);
            fprintf(out, "%*s%s%s", (int)blanks, "", text, mark);
            blanks = 2 - strlen(mark);
        }
        fputc('\n', out);
    }
    fputc('\n', out);
}

/* Prints the measured limits: medians over the rows. */
static void limits_print(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, FILE *out)
{
    double *read = malloc(2 * (n + 1) * sizeof *read), *peak = read + n + 1;
    size_t some = 0;
    for (size_t i = 0; i < n && read; i++)
        for (uint32_t k = 0; k < rows[i].n; k++) {
            const kvb_result *r = result_at(s, &rows[i], k);
            if (!r->time.all.samples)
                continue;
            read[some] = r->traffic.read_gb_per_s;
            peak[some++] = r->traffic.peak_gflop_per_s;
            break;
        }
    if (rows->kind->scan)
        fputs("Time of a call, and the share of reading and writing the states once. *: best of its row.\n", out);
    else if (some)
        fprintf(out,
                "Time of a call, and the share of what this machine can: reading the rows at %.3g GB/s,\n"
                "or multiplying in f32 at %.3g Gop/s, whichever takes longer. *: best of its row.\n",
                kvb_quantile(read, some, 0.5), kvb_quantile(peak, some, 0.5));
    free(read);
}

/* Prints why cells are empty, each reason once. All formats that kernels do not read themselves share one line. */
static void reasons_print(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, FILE *out)
{
    char said[REASONS][KVB_NAME + 256];
    size_t n_said = 0;
    bool declined = false, noisy = false;
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < rows[i].n; k++) {
            const kvb_result *r = result_at(s, &rows[i], k);
            char line[KVB_NAME + 256], pool[32];
            pools_text(&rows[i], pool);
            noisy |= r->time.all.samples && bench_is_noisy(r);
            if (r->status == KVB_STATUS_PASS || !r->reason[0])
                continue;
            if (r->status == KVB_STATUS_SKIP && !r->error.checked_rows) {
                declined |= is_told(s, rows, n, k);
                if (!is_foreign(s, rows, k) || is_told(s, rows, n, k))
                    continue;
            }
            snprintf(line, sizeof line, "%s over %s: %.200s", r->kernel, pool, r->reason);
            size_t at = 0;
            while (at < n_said && strcmp(said[at], line))
                at++;
            if (at == n_said && n_said < REASONS)
                memcpy(said[n_said++], line, sizeof line);
        }
    if (declined)
        fputs("-: the kernel does not read these rows itself.\n", out);
    if (noisy)
        fputs("noisy: the interval of the median is wider than half of it (more --seconds, or a quieter machine).\n",
              out);
    for (size_t i = 0; i < n_said; i++)
        kvb_folded_put(said[i], 4, out);
}

/* Prints "mine takes 2.2 times the time of flash (2.1 to 2.4 in 3 rows)" for each foreign kernel. */
static int ratios_print(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, FILE *out)
{
    const char *ours = rows->kind->scan ? "scan" : "flash";
    uint32_t flash = 0;
    double *ratio = malloc((n + 1) * sizeof *ratio);
    while (flash < rows->n && strcmp(result_at(s, rows, flash)->kernel, ours))
        flash++;
    for (uint32_t k = 0; ratio && flash < rows->n && k < rows->n; k++) {
        size_t some = 0;
        for (size_t i = 0; i < n && is_foreign(s, rows, k) && k != flash; i++) {
            const kvb_result *mine = result_at(s, &rows[i], k), *other = result_at(s, &rows[i], flash);
            if (has_time(mine) && has_time(other) && kvb_comparable((const kvb_result *const[]){mine, other}, 2))
                ratio[some++] = mine->time.all.median / other->time.all.median;
        }
        if (!some)
            continue;
        const double median = kvb_quantile(ratio, some, 0.5); /* sorts ratio[] */
        fprintf(out, "%s takes %.2g times the time of %s", result_at(s, rows, k)->kernel, median, ours);
        if (some > 1)
            fprintf(out, " (%.2g to %.2g in %zu rows)", ratio[0], ratio[some - 1], some);
        fputs(".\n", out);
    }
    free(ratio);
    return ratio ? 0 : -ENOMEM;
}

int kvb_bench_block_print(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, FILE *out)
{
    uint32_t told[KVB_BENCH_CONTESTANTS];
    size_t n_told = 0;
    for (uint32_t k = 0; k < rows->n; k++)
        if (is_told(s, rows, n, k))
            told[n_told++] = k;
    heading_print(rows, out);
    for (size_t at = 0; at < n_told; at += COLUMNS)
        columns_print(s, rows, n, told + at, n_told - at < COLUMNS ? n_told - at : COLUMNS, out);
    limits_print(s, rows, n, out);
    const int error = ratios_print(s, rows, n, out);
    reasons_print(s, rows, n, out);
    fputc('\n', out);
    return error;
}

/* ---- formats ----------------------------------------------------------------------------------------------------- */

static double row_bits(const kvb_result *r)
{
    return isnan(r->error.bits_v) ? r->error.bits_k : (r->error.bits_k + r->error.bits_v) / 2;
}

/* Is another row at least as good in bits and in error, and better in one of them? */
static bool is_beaten(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, const kvb_result *r)
{
    for (size_t i = 0; i < n; i++) {
        const kvb_result *other = result_at(s, &rows[i], 0);
        const double bits = row_bits(other) - row_bits(r), error = other->error.format_rel_l2 - r->error.format_rel_l2;
        if (bits <= 0 && error <= 0 && (bits < 0 || error < 0))
            return true;
    }
    return false;
}

/* The unprinted row with the fewest bits, then with the smallest error; n: none is left. */
static size_t row_next(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, const bool *printed)
{
    size_t next = n;
    for (size_t i = 0; i < n; i++) {
        const kvb_result *r = result_at(s, &rows[i], 0), *least = next < n ? result_at(s, &rows[next], 0) : NULL;
        if (!printed[i] && (!least || row_bits(r) < row_bits(least) ||
                            (row_bits(r) == row_bits(least) && r->error.format_rel_l2 < least->error.format_rel_l2)))
            next = i;
    }
    return next;
}

int kvb_bench_formats_print(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, kvb_table_format format,
                            FILE *out)
{
    kvb_table *table = kvb_table_new((const char *const[]){"format", ">bits", ">error", "best for its bits",
                                                           "best kernel", ">time", ">of limit", NULL});
    bool *printed = calloc(n + 1, sizeof *printed);
    if (kvb_table_is_for_people(format))
        heading_print(rows, out);
    for (size_t at; printed && (at = row_next(s, rows, n, printed)) < n; printed[at] = true) {
        const uint32_t best = kvb_bench_best(s, &rows[at]);
        const kvb_result *r = result_at(s, &rows[at], 0),
                         *fast = best < rows[at].n ? result_at(s, &rows[at], best) : NULL;
        char pool[32], bits[16], far[16] = "", time[16] = "", share[16] = "";
        pools_text(&rows[at], pool);
        snprintf(bits, sizeof bits, "%.4g", row_bits(r));
        if (!isnan(r->error.format_rel_l2))
            snprintf(far, sizeof far, "%.2g", r->error.format_rel_l2);
        if (fast)
            short_time(fast->time.all.median, time);
        if (fast && !isnan(fast->traffic.of_limit))
            snprintf(share, sizeof share, "%.0f%%", 100 * fast->traffic.of_limit);
        kvb_table_row(table, (const char *const[]){pool, bits, far, is_beaten(s, rows, n, r) ? "" : "yes",
                                                   fast ? fast->kernel : "", time, share});
    }
    const int error = kvb_table_end(printed ? table : NULL, format, out);
    free(printed);
    if (kvb_table_is_for_people(format) && !error)
        fputs("\nBits of a value, with its share of scales. Error: how far exact attention over the stored rows lies "
              "from that\n"
              "over the rows themselves, relative (L2); rows are normally distributed. Best: no other has fewer bits "
              "and\n"
              "a smaller error. Time of a call by the fastest right kernel, and its share of what this machine can.\n",
              out);
    return error;
}

/* ---- a list ------------------------------------------------------------------------------------------------------ */

int kvb_bench_rows_print(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, kvb_table_format format,
                         FILE *out)
{
    kvb_table *table = kvb_table_new(
        (const char *const[]){"scene",      "workload", ">context",  ">batch",  ">threads", "k",       "v",
                              "kernel",     "status",   ">ns",       ">low_ns", ">high_ns", ">rounds", ">gb_per_s",
                              ">gop_per_s", ">of_read", ">of_limit", ">rho",    "reason",   NULL});
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < rows[i].n; k++) {
            const kvb_result *r = result_at(s, &rows[i], k);
            const bool shown = has_time(r);
            const struct {
                int column; /* of the headings */
                double value;
                const char *format;
            } numbers[] = {{2, rows[i].context, "%.0f"},
                           {3, rows[i].batch, "%.0f"},
                           {4, rows[i].threads, "%.0f"},
                           {9, shown ? r->time.all.median : NAN, "%.6g"},
                           {10, shown ? r->time.all.low : NAN, "%.6g"},
                           {11, shown ? r->time.all.high : NAN, "%.6g"},
                           {12, (double)r->time.all.samples, "%.0f"},
                           {13, shown ? r->traffic.gb_per_s : NAN, "%.4g"},
                           {14, shown ? r->traffic.gflop_per_s : NAN, "%.4g"},
                           {15, shown ? r->traffic.of_read : NAN, "%.3f"},
                           {16, shown ? r->traffic.of_limit : NAN, "%.3f"},
                           {17, r->rho, "%.3g"}};
            enum { NUMBERS = sizeof numbers / sizeof *numbers };
            char text[NUMBERS][32];
            const char *cells[] = {
                [0] = rows[i].kind->name,         [1] = r->workload, [5] = r->pool_k, [6] = r->pool_v, [7] = r->kernel,
                [8] = kvb_status_name(r->status), [18] = r->reason};
            for (size_t t = 0; t < NUMBERS; t++) {
                if (!isnan(numbers[t].value))
                    snprintf(text[t], sizeof *text, numbers[t].format, numbers[t].value);
                cells[numbers[t].column] = isnan(numbers[t].value) ? NULL : text[t];
            }
            for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
                cells[c] = cells[c] && *cells[c] ? cells[c] : NULL;
            kvb_table_row(table, cells);
        }
    return kvb_table_end(table, format, out);
}
