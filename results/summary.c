/* SPDX-License-Identifier: Apache-2.0 */
/* The last lines of a run. */
#include "results/summary.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "results/key.h"
#include "results/resolution.h"
#include "results/text.h"

/* A line, cleaned for a terminal; in Markdown an item of a list. */
static void line_print(const kvb_summary *summary, FILE *out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void line_print(const kvb_summary *summary, FILE *out, const char *format, ...)
{
    char line[4096];
    __builtin_va_list args;

    __builtin_va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    __builtin_va_end(args);
    kvb_utf8_clean(line);
    fputs(summary->is_markdown ? "- " : "", out);
    kvb_plain_put(line, out);
    fputc('\n', out);
}

/* ---- what failed --------------------------------------------------------------------------------------- */

static bool is_failure(const kvb_result *r)
{
    return r->status != KVB_STATUS_PASS && r->status != KVB_STATUS_SKIP;
}

static size_t count_of(const kvb_result *results, size_t n, kvb_status status)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += results[i].status == status;
    return count;
}

static void counts_print(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out)
{
    const kvb_result *worst = NULL;
    char seconds[32] = "", rho[KVB_KEY_TEXT + 64] = "", name[KVB_KEY_TEXT];

    for (size_t i = 0; i < n; i++)
        if (results[i].rho > (worst ? worst->rho : 0))
            worst = &results[i];
    if (!isnan(summary->seconds))
        snprintf(seconds, sizeof seconds, " in %.0f s", summary->seconds);
    if (worst) {
        kvb_key_name(worst, name);
        snprintf(rho, sizeof rho, "; largest rho %.3g (%s)", worst->rho, name);
    }
    line_print(summary, out, "%zu passed, %zu failed, %zu crashed, %zu timed out, %zu skipped%s%s",
               count_of(results, n, KVB_STATUS_PASS), count_of(results, n, KVB_STATUS_FAIL),
               count_of(results, n, KVB_STATUS_CRASH), count_of(results, n, KVB_STATUS_TIMEOUT),
               count_of(results, n, KVB_STATUS_SKIP), seconds, rho);
    if (n == count_of(results, n, KVB_STATUS_SKIP))
        line_print(summary, out, "nothing ran: every combination was skipped, for the reasons above");
}

/* Of a reason its first line: enough to go on. */
static void failures_print(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out)
{
    size_t failed = 0;

    for (size_t i = 0; i < n; i++) {
        const kvb_result *r = &results[i];
        char name[KVB_KEY_TEXT];

        if (!is_failure(r) || failed++ >= summary->n_failures)
            continue;
        kvb_key_name(r, name);
        line_print(summary, out, "%s %s: %.*s", kvb_status_name(r->status), name, (int)strcspn(r->reason, "\r\n"),
                   r->reason);
    }
    if (failed > summary->n_failures)
        line_print(summary, out, "and %zu more", failed - summary->n_failures);
}

/* ---- what is fastest ----------------------------------------------------------------------------------- */

/* A witness computes nothing: its times say nothing. */
static bool is_timed(const kvb_result *r)
{
    return r->status == KVB_STATUS_PASS && r->time.all.median > 0 && r->error.witness_queries == 0;
}

/* The fastest of those like `like`: of its workload; with a kernel to leave out, of the same cache, pools, threads and
 * growth by another kernel. */
static const kvb_result *fastest_of(const kvb_result *results, size_t n, const kvb_result *like, bool other_kernel)
{
    const kvb_result *best = NULL;

    for (size_t i = 0; i < n; i++) {
        const kvb_result *r = &results[i];
        kvb_result same;

        if (!is_timed(r) || strcmp(r->workload, like->workload) != 0)
            continue;
        if (other_kernel) {
            same = *r;
            memcpy(same.kernel, like->kernel, sizeof same.kernel);
            if (strcmp(r->kernel, like->kernel) == 0 || kvb_key_order(&same, like) != 0)
                continue;
        }
        if (!best || r->time.all.median < best->time.all.median)
            best = r;
    }
    return best;
}

/* Smallest and largest of what the caches of a workload held at their peaks, and that over the bytes of the rows that
 * were live at most. */
static void memory_text(const kvb_result *results, size_t n, const char *workload, char *peak, char *over, size_t bytes)
{
    const kvb_result *least = NULL, *most = NULL;
    double low = INFINITY, high = 0;

    *peak = *over = 0;
    for (size_t i = 0; i < n; i++) {
        const kvb_result *r = &results[i];
        double ratio = r->memory.allocator_peak / (r->memory.utilisation * r->memory.reserved_bytes);

        if (!is_timed(r) || strcmp(r->workload, workload) != 0 || !(r->memory.allocator_peak > 0))
            continue;
        least = least && least->memory.allocator_peak <= r->memory.allocator_peak ? least : r;
        most = most && most->memory.allocator_peak >= r->memory.allocator_peak ? most : r;
        if (isfinite(ratio)) {
            low = fmin(low, ratio);
            high = fmax(high, ratio);
        }
    }
    if (least) {
        char from[KVB_UNIT_TEXT], to[KVB_UNIT_TEXT];

        kvb_bytes_text(least->memory.allocator_peak, from);
        kvb_bytes_text(most->memory.allocator_peak, to);
        snprintf(peak, bytes, strcmp(from, to) ? "%s to %s" : "%s", from, to);
    }
    if (high > 0)
        snprintf(over, bytes, high - low < 0.05 ? "%.1fx" : "%.1fx to %.1fx", low, high);
}

/* The limit that is nearer: of_limit is the larger of both fractions. */
static void limit_text(const kvb_result *r, char *text, size_t bytes)
{
    *text = 0;
    if (!isnan(r->traffic.of_limit))
        snprintf(text, bytes, "%.1f %% of %s", 100 * r->traffic.of_limit,
                 r->traffic.of_limit > r->traffic.of_read * (1 + 1e-9) ? "peak" : "bandwidth");
}

static int workload_row(kvb_table *table, const kvb_result *results, size_t n, const kvb_result *best)
{
    const kvb_result *next = fastest_of(results, n, best, true);
    char cache[KVB_KEY_PART], pools[KVB_KEY_PART], median[KVB_UNIT_TEXT], second[KVB_NAME + 32] = "";
    char limit[64], peak[2 * KVB_UNIT_TEXT + 8], over[2 * KVB_UNIT_TEXT + 8], threads[16];

    kvb_key_cache(best, cache);
    kvb_key_pools(best, pools);
    kvb_time_text(best->time.all.median, median);
    snprintf(threads, sizeof threads, "%u", best->threads);
    if (next)
        snprintf(second, sizeof second, "%.2fx %s", next->time.all.median / best->time.all.median, next->kernel);
    limit_text(best, limit, sizeof limit);
    memory_text(results, n, best->workload, peak, over, sizeof peak);
    const char *const cells[] = {best->workload, cache,  pools, best->kernel, threads,
                                 median,         second, limit, peak,         over};
    return kvb_table_row(table, cells);
}

/* In the order in which workloads come first. */
static int workloads_print(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out)
{
    kvb_table *table =
        kvb_table_new((const char *const[]){"fastest of", "cache", "pool", "kernel", ">threads", ">median",
                                            "faster than", "limit", "memory of all", "over live rows", NULL});
    size_t rows = 0;
    int error = table ? 0 : -ENOMEM;

    for (size_t i = 0; i < n && !error; i++) {
        bool told = false;

        for (size_t j = 0; j < i && !told; j++)
            told = is_timed(&results[j]) && !strcmp(results[j].workload, results[i].workload);
        if (told || !is_timed(&results[i]))
            continue;
        error = workload_row(table, results, n, fastest_of(results, n, &results[i], false));
        rows++;
    }
    if (!error && rows) {
        fputc('\n', out);
        error = kvb_table_print(table, summary->is_markdown ? KVB_TABLE_MD : KVB_TABLE_TEXT, out);
    }
    kvb_table_free(table);
    return error;
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

static const kvb_result *first_failure(const kvb_result *results, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_failure(&results[i]))
            return &results[i];
    return NULL;
}

/* " option word", the word in quotes where the shell needs them: a workload may be a file of any name. */
static void word_add(char *text, size_t bytes, const char *option, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,=+@/:%";
    const char *quote = *word && !word[strspn(word, plain)] ? "" : "'";
    size_t used = strlen(text);

    used += (size_t)snprintf(text + used, bytes - used, " %s %s", option, quote);
    for (; *word && used < bytes; word++)
        used += (size_t)snprintf(text + used, bytes - used, *word == '\'' ? "'\\''" : "%c", *word);
    if (used < bytes)
        snprintf(text + used, bytes - used, "%s", quote);
}

static void next_print(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out)
{
    const kvb_result *failed = first_failure(results, n);
    const char *path = summary->path ? summary->path : "F.jsonl";
    char words[2048] = "", pools[KVB_KEY_PART];

    if (failed) {
        kvb_key_pools(failed, pools);
        word_add(words, sizeof words, "--workload", failed->workload);
        word_add(words, sizeof words, "--cache", failed->cache);
        word_add(words, sizeof words, "--pool", pools);
        word_add(words, sizeof words, "--kernel", failed->kernel);
        line_print(summary, out, "the first failure alone: kvbench run%s --threads %u, with its --plugin if any", words,
                   failed->threads);
    }
    if (summary->path)
        line_print(summary, out, "records in %s", path);
    else
        line_print(summary, out, "no records were kept: -o F.jsonl keeps them");
    *words = 0;
    word_add(words, sizeof words, "report", path);
    line_print(summary, out, "a page with plots: kvbench%s", words);
    *words = 0;
    word_add(words, sizeof words, "compare BASE.jsonl", path);
    line_print(summary, out, "what changed since another run: kvbench%s", words);
}

int kvb_summary_print(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out)
{
    double resolution;
    uint32_t nulls;
    int error = kvb_resolution(results, n, &resolution, &nulls);

    if (error)
        return error;
    counts_print(summary, results, n, out);
    failures_print(summary, results, n, out);
    error = workloads_print(summary, results, n, out);
    if (error)
        return error;
    fputc('\n', out);
    if (!isnan(resolution))
        line_print(summary, out,
                   "smallest difference this run can resolve: %.1f %% (99 %% of its null comparisons stay below)",
                   100 * resolution);
    if (summary->note && *summary->note)
        line_print(summary, out, "note: %s", summary->note);
    next_print(summary, results, n, out);
    return fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}
