/* SPDX-License-Identifier: Apache-2.0 */
/* What a sweep found: for people blocks of 80 columns, rows formats by contexts and columns kernels; for programs one
 * list. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/bench/bench.h"
#include "results/statistics.h"

enum { COLUMNS = 5, REASONS = 8 }; /* kernels side by side; reasons told of a block */

static const kvb_result *result_at(const kvb_bench_sweep *s, const kvb_bench_row *r, uint32_t kernel)
{
    return &s->results.at[r->first + kernel];
}

static bool has_time(const kvb_result *r)
{
    return r->time.all.samples && !kvb_bench_is_noisy(r);
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
    for (uint32_t k = 0; k < none && best < none; k++) { /* may one that is not shown be faster? */
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

/* "10.6m  80%*", of 11 characters. */
static void cell_text(const kvb_result *r, bool best, char text[32])
{
    char time[16], share[16] = "";
    if (!r->time.all.samples) {
        snprintf(text, 32, "%11s", r->status == KVB_STATUS_FAIL ? "WRONG " : "- ");
        return;
    }
    if (kvb_bench_is_noisy(r)) {
        snprintf(text, 32, "%11s", "noisy ");
        return;
    }
    short_time(r->time.all.median, time);
    if (!isnan(r->traffic.of_limit))
        snprintf(share, sizeof share, "%.0f%%", 100 * r->traffic.of_limit);
    snprintf(text, 32, "%5s %4s%c", time, share, r->status == KVB_STATUS_FAIL ? '!' : best ? '*' : ' ');
}

/* Its format, or its recurrence. */
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

/* Was it brought by the user? */
static bool is_foreign(const kvb_bench_sweep *s, const kvb_bench_row *row, uint32_t kernel)
{
    return row->kind->scan ? s->foreign_scan[kernel] : s->foreign[kernel];
}

/* Does any row have something to say of this kernel? */
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
        fprintf(out, " %10.10s ", result_at(s, rows, kernels[k])->kernel);
    fputc('\n', out);
    for (size_t i = 0; i < n; i++) {
        kvb_bench_count_text(rows[i].context, context);
        if (rows[i].kind->scan)
            context[0] = '\0';
        pools_text(&rows[i], text);
        fprintf(out, "%9s  %-*s", context, width, text);
        const uint32_t best = kvb_bench_best(s, &rows[i]);
        for (size_t k = 0; k < n_kernels; k++) {
            cell_text(result_at(s, &rows[i], kernels[k]), kernels[k] == best, text);
            fprintf(out, " %s", text);
        }
        fputc('\n', out);
    }
    fputc('\n', out);
}

/* What the machine did in the rounds: medians over the rows. */
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

/* Why cells are empty, each reason once; what a kernel does not read itself is one line. */
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
            noisy |= r->time.all.samples && kvb_bench_is_noisy(r);
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

/* "mine takes 2.2 times the time of flash (2.1 to 2.4 in 3 rows)", of each kernel that was brought. */
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
        const double median = kvb_quantile(ratio, some, 0.5); /* sorts them */
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

static double bits_of(const kvb_result *r)
{
    return isnan(r->error.bits_v) ? r->error.bits_k : (r->error.bits_k + r->error.bits_v) / 2;
}

/* Does a row of no more bits have a smaller error, or one of fewer bits no larger one? */
static bool is_beaten(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, const kvb_result *r)
{
    for (size_t i = 0; i < n; i++) {
        const kvb_result *other = result_at(s, &rows[i], 0);
        const double bits = bits_of(other) - bits_of(r), error = other->error.format_rel_l2 - r->error.format_rel_l2;
        if (bits <= 0 && error <= 0 && (bits < 0 || error < 0))
            return true;
    }
    return false;
}

/* Of rows not yet printed the one of the fewest bits, then of the smallest error; n: there is none. */
static size_t row_next(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, const bool *printed)
{
    size_t next = n;
    for (size_t i = 0; i < n; i++) {
        const kvb_result *r = result_at(s, &rows[i], 0), *least = next < n ? result_at(s, &rows[next], 0) : NULL;
        if (!printed[i] && (!least || bits_of(r) < bits_of(least) ||
                            (bits_of(r) == bits_of(least) && r->error.format_rel_l2 < least->error.format_rel_l2)))
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
    int error = table && printed ? 0 : -ENOMEM;
    if (kvb_table_is_for_people(format))
        heading_print(rows, out);
    for (size_t at; !error && (at = row_next(s, rows, n, printed)) < n; printed[at] = true) {
        const uint32_t best = kvb_bench_best(s, &rows[at]);
        const kvb_result *r = result_at(s, &rows[at], 0),
                         *fast = best < rows[at].n ? result_at(s, &rows[at], best) : NULL;
        char pool[32], bits[16], far[16] = "", time[16] = "", share[16] = "";
        pools_text(&rows[at], pool);
        snprintf(bits, sizeof bits, "%.4g", bits_of(r));
        if (!isnan(r->error.format_rel_l2))
            snprintf(far, sizeof far, "%.2g", r->error.format_rel_l2);
        if (fast)
            short_time(fast->time.all.median, time);
        if (fast && !isnan(fast->traffic.of_limit))
            snprintf(share, sizeof share, "%.0f%%", 100 * fast->traffic.of_limit);
        error = kvb_table_row(table, (const char *const[]){pool, bits, far, is_beaten(s, rows, n, r) ? "" : "yes",
                                                           fast ? fast->kernel : "", time, share});
    }
    error = error ? error : kvb_table_print(table, format, out);
    kvb_table_free(table);
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

static void number_text(double x, const char *format, char text[32])
{
    text[0] = '\0';
    if (!isnan(x))
        snprintf(text, 32, format, x);
}

int kvb_bench_rows_print(const kvb_bench_sweep *s, const kvb_bench_row *rows, size_t n, kvb_table_format format,
                         FILE *out)
{
    kvb_table *table = kvb_table_new(
        (const char *const[]){"scene",      "workload", ">context",  ">batch",  ">threads", "k",       "v",
                              "kernel",     "status",   ">ns",       ">low_ns", ">high_ns", ">rounds", ">gb_per_s",
                              ">gop_per_s", ">of_read", ">of_limit", ">rho",    "reason",   NULL});
    int error = table ? 0 : -ENOMEM;
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < rows[i].n && !error; k++) {
            const kvb_result *r = result_at(s, &rows[i], k);
            const bool shown = has_time(r);
            const struct {
                double value;
                const char *format;
            } numbers[] = {{rows[i].context, "%.0f"},
                           {rows[i].batch, "%.0f"},
                           {rows[i].threads, "%.0f"},
                           {shown ? r->time.all.median : NAN, "%.6g"},
                           {shown ? r->time.all.low : NAN, "%.6g"},
                           {shown ? r->time.all.high : NAN, "%.6g"},
                           {(double)r->time.all.samples, "%.0f"},
                           {shown ? r->traffic.gb_per_s : NAN, "%.4g"},
                           {shown ? r->traffic.gflop_per_s : NAN, "%.4g"},
                           {shown ? r->traffic.of_read : NAN, "%.3f"},
                           {shown ? r->traffic.of_limit : NAN, "%.3f"},
                           {r->rho, "%.3g"}};
            char text[sizeof numbers / sizeof *numbers][32];
            for (size_t t = 0; t < sizeof numbers / sizeof *numbers; t++)
                number_text(numbers[t].value, numbers[t].format, text[t]);
            const char *cells[] = {rows[i].kind->name,
                                   r->workload,
                                   text[0],
                                   text[1],
                                   text[2],
                                   r->pool_k,
                                   r->pool_v,
                                   r->kernel,
                                   kvb_status_name(r->status),
                                   text[3],
                                   text[4],
                                   text[5],
                                   text[6],
                                   text[7],
                                   text[8],
                                   text[9],
                                   text[10],
                                   text[11],
                                   r->reason[0] ? r->reason : NULL};
            for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
                cells[c] = cells[c] && *cells[c] ? cells[c] : NULL;
            error = kvb_table_row(table, cells);
        }
    error = error ? error : kvb_table_print(table, format, out);
    kvb_table_free(table);
    return error;
}
