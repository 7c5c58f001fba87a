/* SPDX-License-Identifier: Apache-2.0 */
#include "results/summary.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/compare_time.h"
#include "workloads/files.h"

void kvb_reason_reduce(const kvb_result *r, char text[KVB_REASON])
{
    const char *at = r->reason, *end = at + strcspn(at, "\r\n");
    size_t used = 0, cache = strlen(r->cache);

    if (strncmp(at, "line ", 5) == 0 && isdigit((unsigned char)at[5]) && strstr(at, ": "))
        at = strstr(at, ": ") + 2;
    if (strncmp(at, "cache ", 6) == 0 && strncmp(at + 6, r->cache, cache) == 0 && at[6 + cache] == ' ') {
        used = (size_t)snprintf(text, KVB_REASON, "the cache");
        at += 6 + cache;
    }
    while (at < end) {
        const char *colon = strstr(at, ": ");
        size_t n = (size_t)((colon && colon < end ? colon : end) - at), step = colon && colon < end ? n + 2 : n;
        bool is_pool = n > 0 && step > n &&
                       ((strlen(r->pool_k) == n && strncmp(at, r->pool_k, n) == 0) ||
                        (strlen(r->pool_v) == n && strncmp(at, r->pool_v, n) == 0));

        if (!is_pool) {
            size_t room = KVB_REASON - 1 - used, taken = step < room ? step : room;

            memcpy(text + used, at, taken);
            used += taken;
        }
        at += step;
    }
    text[used] = 0;
}

/* Skips a number that is a whole word: 12, -3.5e-7, 8x128. */
static const char *number_skip(const char *start, const char *at)
{
    bool stands_alone = at == start || at[-1] == ' ' || at[-1] == '(';
    const char *digit = at + (*at == '-' || *at == '+');

    if (!stands_alone || !isdigit((unsigned char)*digit))
        return at;
    while (isalnum((unsigned char)*digit) || (*digit && strchr(".+-", *digit)))
        digit++;
    return digit;
}

/* Are the texts equal, except for numbers? */
static bool is_alike(const char *a, const char *b)
{
    const char *x = a, *y = b;

    for (;;) {
        const char *after_x = number_skip(a, x), *after_y = number_skip(b, y);

        if ((after_x == x) != (after_y == y))
            return false;
        if (after_x > x) {
            x = after_x;
            y = after_y;
            continue;
        }
        if (*x != *y)
            return false;
        if (!*x)
            return true;
        x++;
        y++;
    }
}

kvb_reason_group *kvb_reason_groups(const kvb_result *results, size_t n, bool skips, size_t *n_groups)
{
    kvb_reason_group *groups = malloc((n + 1) * sizeof *groups);
    char text[KVB_REASON], other[KVB_REASON];

    *n_groups = 0;
    for (size_t i = 0; i < n && groups; i++) {
        const kvb_result *r = &results[i];
        size_t g = 0;

        if (skips ? r->status != KVB_STATUS_SKIP : !kvb_status_is_bad(r->status))
            continue;
        kvb_reason_reduce(r, text);
        text[skips ? strlen(text) : strcspn(text, ";")] = 0; /* details of a failure follow the semicolon */
        for (; g < *n_groups; g++) {
            kvb_reason_reduce(groups[g].first, other);
            other[skips ? strlen(other) : strcspn(other, ";")] = 0;
            if (groups[g].first->status == r->status && is_alike(text, other))
                break;
        }
        if (g == *n_groups)
            groups[(*n_groups)++] = (kvb_reason_group){.first = r};
        else
            groups[g].varies |= strcmp(text, other) != 0;
        groups[g].n++;
    }
    return groups;
}

#define FEW_VALUES 3u /* most values of an axis to name */

void kvb_axes_shorten(const char *list, char *text, size_t bytes)
{
    text[0] = '\0';
    for (const char *word = list; *word; word += strcspn(word, " "), word += *word == ' ') {
        const int length = (int)strcspn(word, " "), axis = (int)strcspn(word, "=");
        size_t values = 1;
        for (int i = 0; i < length; i++)
            values += word[i] == ',';
        if (values <= FEW_VALUES)
            kvb_list_add(text, bytes, " ", "%.*s", length, word);
        else
            kvb_list_add(text, bytes, " ", "%.*s=(%zu)", axis, word, values);
    }
}

void kvb_same_words(const kvb_result *r, bool same, char *text, size_t bytes)
{
    text[0] = '\0';
    for (uint32_t k = 0; k < KVB_SAME_KINDS; k++) {
        const double by = r->same.by[k];
        if (same && by == 0)
            kvb_list_add(text, bytes, ", ", "%s", kvb_same_names[k]);
        else if (!same && by > 0)
            kvb_list_add(text, bytes, ", ", "%s %.2g", kvb_same_names[k], by);
    }
}

/* Prints a row for each kernel with single calls: their number, the values and pairs of values that they cover, the
 * values that the kernel declines; below, uncovered values and the option that adds calls. 0, -ENOMEM or -EIO. */
static int axes_print(const kvb_result *results, size_t n, bool is_markdown, FILE *out)
{
    kvb_table *table = kvb_table_new(
        (const char *const[]){"kernel", ">calls", ">values", ">pairs", "declines", "other bits, of the bound", NULL});
    int error = table ? 0 : -ENOMEM;
    bool more = false;
    for (size_t i = 0; i < n; i++) {
        const kvb_result *r = &results[i];
        char declined[KVB_REASON], same[256];
        if (!r->axes.calls || !r->axes.values_of)
            continue;
        kvb_axes_shorten(r->axes.declined, declined, sizeof declined);
        kvb_same_words(r, false, same, sizeof same);
        if (r->same.calls && !*same)
            snprintf(same, sizeof same, "none");
        kvb_table_put(table, "%s\t%" PRIu64 "\t%" PRIu64 " of %" PRIu64 "\t%.0f %%\t%s\t%s", r->kernel, r->axes.calls,
                      r->axes.values, r->axes.values_of,
                      r->axes.pairs_of ? 100 * (double)r->axes.pairs / (double)r->axes.pairs_of : 0, declined, same);
        more |= r->axes.pairs < r->axes.pairs_of;
    }
    if (kvb_table_rows(table)) {
        kvb_table_drop_empty(table);
        kvb_table_fold(table);
        fputc('\n', out);
        error = kvb_table_print(table, is_markdown ? KVB_TABLE_MD : KVB_TABLE_TEXT, out);
        fprintf(out, "%ssingle calls: values, and pairs of values, of their axes (kvbench list axes)%s\n",
                is_markdown ? "\n" : "", more ? "; --set calls=N makes more" : "");
    }
    bool began = false;
    for (size_t i = 0; i < n; i++)
        if (results[i].axes.exact) {
            fprintf(out, "%s%s %" PRIu64,
                    began ? ", " : "calls judged to the bit, in the order that the kernel declares: ",
                    results[i].kernel, results[i].axes.exact);
            began = true;
        }
    if (began)
        fputc('\n', out);
    for (size_t i = 0; i < n; i++)
        if (*results[i].axes.uncovered)
            fprintf(out, "%s had no call with %s: --set calls=N makes more\n", results[i].kernel,
                    results[i].axes.uncovered);
    kvb_table_free(table);
    return error;
}

#define FEW_ROWS      20u /* most rows that a person reads */
#define MOST_FAILURES 5u
#define MOST_REASONS  8u
#define MOST_NAMES    5u
#define LEAST_UNSAID  0.01 /* least share of rows to report */

/* ---- the view -------------------------------------------------------------------------------------------- */

/* What is printed, and what one walk over the results finds. */
typedef struct view {
    const kvb_summary *summary;
    const kvb_result *results;
    size_t n;
    FILE *out;
    size_t count[KVB_STATUSES], judged; /* judged: those with a verdict */
    size_t witnessed, own, beyond; /* passed by a witness alone; by their own project's rule; by that with rho > 1 */
    const kvb_result *failed, *counted; /* the first that did not pass; the first with counts; NULL: none */
    const kvb_result *worst;            /* of the largest rho */
    const kvb_result *vague;            /* of the largest share of rows where other outputs would have passed, too */
    double vagueness;                   /* that share */
    uint64_t rows, checked, opinion, scanned; /* all; judged by the bound of their own sums, or from above, too; read */
    bool timed;
    double resolution; /* of kvb_run_resolution() */
    char resolves[KVB_RESOLUTION_TEXT];
} view;

static bool is_witnessed(const kvb_result *r)
{
    return r->status == KVB_STATUS_PASS && r->error.witness_queries > 0;
}

static view view_of(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out)
{
    view v = {.summary = summary, .results = results, .n = n, .out = out, .resolution = NAN};

    for (size_t i = 0; i < n; i++) {
        const kvb_result *r = &results[i];
        const bool passed = r->status == KVB_STATUS_PASS, own = passed && r->foreign.outputs > 0;
        const bool whole = r->error.checked_rows >= r->error.total_rows;
        const double vague = r->error.unsaid_of ? (double)r->error.unsaid_rows / (double)r->error.unsaid_of : 0;

        v.count[r->status]++;
        v.judged += kvb_status_is_verdict(r->status);
        v.witnessed += is_witnessed(r);
        v.own += own;
        v.beyond += own && r->rho > 1;
        v.timed |= passed && r->time.all.median > 0;
        v.failed = !v.failed && kvb_status_is_bad(r->status) ? r : v.failed;
        v.counted = !v.counted && r->counts.passes ? r : v.counted;
        v.worst = r->rho > (v.worst ? v.worst->rho : 0) ? r : v.worst;
        v.vague = vague > v.vagueness ? r : v.vague;
        v.vagueness = fmax(vague, v.vagueness);
        v.rows += r->error.total_rows;
        v.checked += r->error.checked_rows;
        v.opinion += whole ? r->error.total_rows : r->error.looked.opinion;
        v.scanned += whole ? r->error.total_rows : r->error.looked.scanned;
    }
    return v;
}

/* Prints a line; in Markdown, an item of a list. A line of text may be folded. */
static void line_print(const view *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line_print(const view *v, const char *format, ...)
{
    char line[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    kvb_utf8_clean(line);
    if (!v->summary->is_markdown)
        return kvb_folded_put(line, 4, v->out);
    fputs("- ", v->out);
    kvb_plain_put(line, v->out);
    fputc('\n', v->out);
}

#define COARSE 0.10 /* a run with a larger resolution gets a warning */

/* Prints warnings, before the rows. */
static void warnings_print(const view *v)
{
    bool rest = v->summary->unfinished && v->summary->path, coarse = v->timed && !(v->resolution <= COARSE);

    if (rest)
        line_print(v,
                   "not finished: %zu combinations of a run that still goes on, or was stopped; its command with "
                   "--resume runs the rest",
                   v->n);
    if (coarse)
        line_print(v,
                   "smallest difference this run can resolve: %s, so it cannot tell a change of %.0f %%; several "
                   "runs of each build can, or a duel of two builds (kvbench compare --help)",
                   v->resolves, 100 * COARSE);
    if (rest || coarse)
        fputc('\n', v->out);
}

static void verdict_print(const view *v)
{
    size_t ran = v->judged, passed = v->count[KVB_STATUS_PASS];

    if (!ran)
        fputs("# kvbench: nothing ran\n\n", v->out);
    else if (ran == passed)
        fprintf(v->out, "# kvbench: passed, %zu of %zu\n\n", passed, ran);
    else
        fprintf(v->out, "# kvbench: FAILED, %zu of %zu did not pass\n\n", ran - passed, ran);
}

size_t kvb_results_unjudged(const kvb_result *results, size_t n, bool skipped_too, char text[KVB_REASON])
{
    size_t count = 0, used = 0;

    *text = 0;
    for (size_t i = 0; i < n; i++) {
        bool known = !skipped_too && !is_witnessed(&results[i]); /* judged, named before, or not a candidate */

        for (size_t k = 0; k < n && !known; k++) {
            bool judged = kvb_status_is_verdict(results[k].status) && !is_witnessed(&results[k]);
            bool before = k < i && (skipped_too || is_witnessed(&results[k]));

            known = (judged || before) && !strcmp(results[k].pool_k, results[i].pool_k) &&
                    !strcmp(results[k].pool_v, results[i].pool_v);
        }
        if (known)
            continue;
        if (count++ < MOST_NAMES)
            used += (size_t)snprintf(text + used, KVB_REASON - used, "%s%s", used ? ", " : "",
                                     kvb_key_pools(&results[i]).text);
    }
    if (count > MOST_NAMES)
        snprintf(text + used, KVB_REASON - used, " and %zu more", count - MOST_NAMES);
    return count;
}

/* Prints what was judged: by witnesses alone, by other rules, which share of the rows and how. */
static void judging_print(const view *v)
{
    char pools[KVB_REASON], rest[128] = "";

    if (v->witnessed)
        line_print(v, "%zu of the passed only witnessed: each query saw the right tokens, no output was judged",
                   v->witnessed);
    if (kvb_results_unjudged(v->results, v->n, false, pools))
        line_print(v, "nothing judged pool %s: no output over it was compared with the truth", pools);
    if (v->own)
        line_print(v, "%zu of the passed by the rule of their kernel's own project; %zu of these with rho above 1",
                   v->own, v->beyond);
    if (v->checked < v->rows)
        snprintf(rest, sizeof rest, ", %.3g %% by that or a bound from above; %.3g %% looked at for NaN and infinity",
                 100 * (double)v->opinion / (double)v->rows, 100 * (double)v->scanned / (double)v->rows);
    if (v->rows)
        line_print(v, "rows judged by the bound of their own sums: %.3g %% of %llu%s",
                   100 * (double)v->checked / (double)v->rows, (unsigned long long)v->rows, rest);
    if (v->vagueness >= LEAST_UNSAID)
        line_print(v,
                   "of %.3g %% of the rows of %s the kernel's declaration says nothing: other outputs would pass too",
                   100 * v->vagueness, kvb_key_name(v->vague).text);
}

static void headline_print(const view *v)
{
    char seconds[32] = "", counted[32] = "";

    if (v->count[KVB_STATUS_COUNTED])
        snprintf(counted, sizeof counted, ", %zu counted", v->count[KVB_STATUS_COUNTED]);
    if (!isnan(v->summary->seconds))
        snprintf(seconds, sizeof seconds, " in %.0f s", v->summary->seconds);
    const char *colour = v->summary->is_markdown || !v->judged
                             ? ""
                             : kvb_table_colour(v->judged == v->count[KVB_STATUS_PASS] ? "pass" : "fail", v->out);
    fputs(colour, v->out);
    line_print(v, "%zu passed, %zu failed, %zu crashed, %zu timed out, %zu skipped%s%s", v->count[KVB_STATUS_PASS],
               v->count[KVB_STATUS_FAIL], v->count[KVB_STATUS_CRASH], v->count[KVB_STATUS_TIMEOUT],
               v->count[KVB_STATUS_SKIP], counted, seconds);
    fputs(*colour ? KVB_COLOUR_END : "", v->out);
    judging_print(v);
    if (v->summary->coverage && *v->summary->coverage)
        line_print(v, "%s", v->summary->coverage);
    if (v->summary->pools_alone && *v->summary->pools_alone)
        line_print(v, "judged by themselves, too, at many dims: %s", v->summary->pools_alone);
    if (v->summary->untimed)
        line_print(v, "nothing was timed (--check)");
    if (v->counted)
        line_print(v, "counts cover the steps, exact, by %s; AVX-512, prefetching, bandwidth and threads are not seen",
                   v->counted->counts.source);
    if (v->n == v->count[KVB_STATUS_SKIP] && !v->summary->unfinished)
        line_print(v, "nothing ran: every combination was skipped");
    if (v->worst)
        line_print(v, "largest rho: %.3g of %s", v->worst->rho, kvb_key_name(v->worst).text);
    if (v->timed && v->resolution <= COARSE)
        line_print(v, "smallest difference this run can resolve: %s", v->resolves);
}

/* ---- reasons --------------------------------------------------------------------------------------------- */

static int failures_print(const view *v)
{
    size_t n_groups, more = 0;
    kvb_reason_group *groups = kvb_reason_groups(v->results, v->n, false, &n_groups);

    for (size_t g = 0; groups && g < n_groups; g++) {
        const kvb_result *r = groups[g].first;
        char like_it[64] = "";

        if (g >= MOST_FAILURES) {
            more += groups[g].n;
            continue;
        }
        if (groups[g].n > 1)
            snprintf(like_it, sizeof like_it, " (and %zu more like it)", groups[g].n - 1);
        line_print(v, "%s %s: %.*s%s", kvb_status_name(r->status), kvb_key_name(r).text,
                   (int)strcspn(r->reason, "\r\n"), r->reason, like_it);
    }
    if (more)
        line_print(v, "and %zu more that did not pass, for other reasons", more);
    free(groups);
    return groups ? 0 : -ENOMEM;
}

static int larger_group(const void *a, const void *b)
{
    const kvb_reason_group *x = a, *y = b;

    return x->n != y->n ? (x->n > y->n ? -1 : 1) : x->first < y->first ? -1 : 1;
}

static int skips_print(const view *v)
{
    size_t n_groups, more = 0;
    kvb_reason_group *groups = kvb_reason_groups(v->results, v->n, true, &n_groups);

    if (groups && n_groups) {
        qsort(groups, n_groups, sizeof *groups, larger_group);
        fputs("\nskipped:\n", v->out);
        if (v->summary->is_markdown)
            fputc('\n', v->out);
    }
    for (size_t g = 0; groups && g < n_groups; g++) {
        char text[KVB_REASON];

        if (g >= MOST_REASONS && n_groups > MOST_REASONS + 1) {
            more += groups[g].n;
            continue;
        }
        kvb_reason_reduce(groups[g].first, text);
        line_print(v, "%*zu  %s%s", v->summary->is_markdown ? 0 : 5, groups[g].n, text,
                   groups[g].varies ? " (numbers vary)" : "");
    }
    if (more)
        line_print(v, "%*zu  for %zu other reasons", v->summary->is_markdown ? 0 : 5, more, n_groups - MOST_REASONS);
    free(groups);
    return groups ? 0 : -ENOMEM;
}

/* ---- workloads ------------------------------------------------------------------------------------------- */

/* The results of a workload. */
typedef struct standing {
    size_t ran, passed;
    const kvb_result *fastest, *smallest; /* NULL: no times, or no memory measured */
} standing;

/* Does a take less memory than b, or the same and less time? */
static bool is_smaller(const kvb_result *a, const kvb_result *b)
{
    double x = a->memory.allocator_peak, y = b->memory.allocator_peak;

    return x != y ? x < y : a->time.all.median < b->time.all.median;
}

/* Does the result belong to a kernel that computes nothing? */
static bool is_of_witness(const view *v, const kvb_result *result)
{
    bool found = false;
    for (size_t i = 0; i < v->n && !found; i++)
        found = v->results[i].error.witness_queries && !strcmp(v->results[i].kernel, result->kernel);
    return found;
}

/* May the results of a workload be ranked? */
static bool is_ranked(const view *v, const char *workload)
{
    const kvb_result **rivals = malloc((v->n + 1) * sizeof *rivals);
    size_t n = 0;
    for (size_t i = 0; rivals && i < v->n; i++)
        if (!strcmp(v->results[i].workload, workload) && !is_of_witness(v, &v->results[i]))
            rivals[n++] = &v->results[i];
    const bool ranked = rivals && kvb_comparable(rivals, n);
    free(rivals);
    return ranked;
}

static standing standing_of(const view *v, const char *workload)
{
    const bool ranked = is_ranked(v, workload);
    standing s = {0};

    for (size_t i = 0; i < v->n; i++) {
        const kvb_result *r = &v->results[i];

        if (strcmp(r->workload, workload) != 0)
            continue;
        s.ran += kvb_status_is_verdict(r->status);
        s.passed += r->status == KVB_STATUS_PASS;
        if (!ranked || r->status != KVB_STATUS_PASS || is_witnessed(r)) /* a witness computes nothing */
            continue;
        if (r->time.all.median > 0 && (!s.fastest || r->time.all.median < s.fastest->time.all.median))
            s.fastest = r;
        if (r->memory.allocator_peak > 0 && (!s.smallest || is_smaller(r, s.smallest)))
            s.smallest = r;
    }
    return s;
}

static void workload_row(kvb_table *table, const char *workload, const standing *s, bool one_thread)
{
    char passed[48], fastest[3 * sizeof(kvb_key)] = "", smallest[2 * sizeof(kvb_key)] = "", threads[32] = "";
    kvb_number median = {""}, width = {""}, limit = {""}, memory = {""};

    snprintf(passed, sizeof passed, s->passed == s->ran ? "%zu" : "%zu of %zu", s->passed, s->ran);
    if (s->fastest) {
        if (!one_thread)
            snprintf(threads, sizeof threads, ", %u thread%s", s->fastest->threads, s->fastest->threads > 1 ? "s" : "");
        snprintf(fastest, sizeof fastest, "%s %s %s%s", kvb_key_cache(s->fastest).text, kvb_key_pools(s->fastest).text,
                 s->fastest->kernel, threads);
        median = kvb_time_text(s->fastest->time.all.median);
        width = kvb_error_text(&s->fastest->time.all);
        if (!isnan(s->fastest->traffic.of_limit))
            snprintf(limit.text, sizeof limit.text, "%.2g %%", 100 * s->fastest->traffic.of_limit);
    }
    if (s->smallest) {
        snprintf(smallest, sizeof smallest, "%s %s", kvb_key_cache(s->smallest).text, kvb_key_pools(s->smallest).text);
        memory = kvb_bytes_text(s->smallest->memory.allocator_peak);
    }
    kvb_table_row(table, (const char *const[]){workload, passed, fastest, median.text, width.text, limit.text, smallest,
                                               memory.text});
}

/* Prints a row for each workload that ran, in their order. */
static int workloads_print(const view *v)
{
    kvb_table *table = kvb_table_new((const char *const[]){"workload", ">passed", "fastest", ">>median", ">±", ">limit",
                                                           "smallest", ">memory", NULL});
    bool one_thread = kvb_results_one_thread(v->results, v->n), limits = false;
    int error = table ? 0 : -ENOMEM;

    for (size_t i = 0; i < v->n; i++) {
        const char *workload = v->results[i].workload;

        if (!kvb_result_begins_workload(v->results, i))
            continue;
        standing s = standing_of(v, workload);
        if (s.ran == 0)
            continue;
        workload_row(table, workload, &s, one_thread);
        limits |= s.fastest && !isnan(s.fastest->traffic.of_limit);
    }
    if (kvb_table_rows(table)) {
        kvb_table_drop_empty(table);
        kvb_table_fold(table);
        fputc('\n', v->out);
        error = kvb_table_print(table, v->summary->is_markdown ? KVB_TABLE_MD : KVB_TABLE_TEXT, v->out);
    }
    if (!error && limits) {
        fputs(v->summary->is_markdown ? "\n" : "", v->out);
        fputs("limit: share of the machine's read bandwidth or arithmetic peak, whichever is nearer\n", v->out);
    }
    kvb_table_free(table);
    return error;
}

/* ---- what to do next ------------------------------------------------------------------------------------- */

/* Prints a command on one line, so that it can be copied. */
static void command_print(const view *v, const char *what, const char *words)
{
    fprintf(v->out, v->summary->is_markdown ? "- %s: `" : "%s: ", what);
    kvb_plain_put(words, v->out);
    fputs(v->summary->is_markdown ? "`\n" : "\n", v->out);
}

static void replay_print(const view *v)
{
    if (v->failed && *v->failed->replay)
        command_print(v, "the first failure alone", v->failed->replay);
}

/* Prints commands that show more. all: every row was printed. */
static void next_print(const view *v, bool all)
{
    const char *path = v->summary->path;
    char words[2048];

    replay_print(v);
    if (v->summary->unfinished)
        return;
    if (!path) {
        line_print(v, "%s-o F.jsonl keeps the records for show, report and compare",
                   all ? "" : "every row: the same command with --all; ");
        return;
    }
    static const struct {
        const char *what, *words, *after;
    } next[] = {{"every row", "show", " --all"},
                {"a page with plots", "report", ""},
                {"what changed since another run", "compare BASE.jsonl", ""}};
    for (size_t i = all; i < sizeof next / sizeof *next; i++) {
        snprintf(words, sizeof words, "kvbench %s", next[i].words);
        kvb_shell_add(words, sizeof words, path);
        snprintf(words + strlen(words), sizeof words - strlen(words), "%s", next[i].after);
        command_print(v, next[i].what, words);
    }
}

int kvb_summary_print(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out)
{
    view v = view_of(summary, results, n, out);
    size_t ran = v.judged;
    bool all = summary->rows == KVB_ROWS_ALL, few = summary->rows == KVB_ROWS_FEW && ran > 0 && ran <= FEW_ROWS;
    bool md = summary->is_markdown;
    size_t nulls;
    int error = kvb_run_resolution(results, n, &v.resolution, &nulls);

    if (error)
        return error;
    kvb_resolution_text(v.resolution, nulls, v.resolves);
    if (md)
        verdict_print(&v);
    warnings_print(&v);
    if (md) { /* a job's page shows these first */
        headline_print(&v);
        error = failures_print(&v);
    }
    if (!error && (all || few)) {
        fputs(md ? "\n" : "", out);
        error = kvb_result_table(results, n, all, false, md ? KVB_TABLE_MD : KVB_TABLE_TEXT, out);
        fputs(md ? "" : "\n", out);
    }
    if (!error && !md) {
        headline_print(&v);
        error = failures_print(&v);
    }
    if (!error)
        error = workloads_print(&v);
    if (!error)
        error = axes_print(results, n, md, out);
    if (!error && summary->counters)
        error = kvb_counters_print(results, n, md ? KVB_TABLE_MD : KVB_TABLE_TEXT, out);
    if (!error)
        error = skips_print(&v);
    if (error)
        return error;
    fputc('\n', out);
    if (summary->note && *summary->note)
        line_print(&v, "note: %s", summary->note);
    next_print(&v, all || (few && ran == n));
    return fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}

/* ---- in a few lines ---------------------------------------------------------------------------------------- */

/* A word of results whose different values are counted. length: bytes of the word that count. */
typedef struct part {
    const char *one, *many;
    size_t offset;
    size_t (*length)(const char *word);
} part;

static size_t before_at(const char *word)
{
    return strcspn(word, "@+");
}

static size_t before_twin(const char *word)
{
    const char *had = strstr(word, "+had");
    return had ? (size_t)(had - word) : strlen(word);
}

/* Is it a replay with judged outputs? */
static bool is_judged_replay(const kvb_result *r)
{
    return kvb_status_is_verdict(r->status) && !r->axes.calls && !is_witnessed(r);
}

size_t kvb_results_distinct(const kvb_result *results, size_t n, size_t offset, size_t (*length)(const char *word))
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const char *word = (const char *)&results[i] + offset;
        const size_t bytes = length(word);
        bool known = !is_judged_replay(&results[i]);
        for (size_t k = 0; k < i && !known; k++) {
            const char *other = (const char *)&results[k] + offset;
            known = is_judged_replay(&results[k]) && length(other) == bytes && !memcmp(word, other, bytes);
        }
        count += !known;
    }
    return count;
}

static void judged_print(const view *v)
{
    static const part parts[] = {{"history", "histories", offsetof(kvb_result, workload), before_at},
                                 {"cache", "caches", offsetof(kvb_result, cache), strlen},
                                 {"kernel", "kernels", offsetof(kvb_result, kernel), strlen},
                                 {"format", "formats", offsetof(kvb_result, pool_k), before_twin}};
    const size_t ran = v->judged, passed = v->count[KVB_STATUS_PASS];
    uint64_t calls = 0, values = 0, values_of = 0, pairs = 0, pairs_of = 0;
    size_t replays = ran;
    char what[256] = "";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const size_t n = kvb_results_distinct(v->results, v->n, parts[i].offset, parts[i].length);
        kvb_list_add(what, sizeof what, ", ", "%zu %s", n, n == 1 ? parts[i].one : parts[i].many);
    }
    for (size_t i = 0; i < v->n; i++) {
        calls += v->results[i].axes.calls;
        replays -= v->results[i].axes.calls > 0;
        values += v->results[i].axes.values;
        values_of += v->results[i].axes.values_of;
        pairs += v->results[i].axes.pairs;
        pairs_of += v->results[i].axes.pairs_of;
    }
    if (calls)
        snprintf(what + strlen(what), sizeof what - strlen(what), ", %llu calls", (unsigned long long)calls);
    const bool right = ran > 0 && ran == passed && !v->summary->unfinished;
    fputs(kvb_table_colour(right ? "pass" : "fail", v->out), v->out);
    fputs(right ? "right?" : "WRONG ", v->out);
    fputs(*kvb_table_colour("pass", v->out) ? KVB_COLOUR_END : "", v->out);
    fprintf(v->out, "  %s:\n        ", what);
    if (right)
        fprintf(v->out, "all correct, in %zu replays", replays);
    else
        fprintf(v->out, "%zu of %zu replays and kernels' calls are not right", ran - passed, ran);
    if (pairs_of)
        fprintf(v->out, "; %.0f %% of pairs of axes' values met (kvbench list axes)",
                100 * (double)pairs / (double)pairs_of);
    fprintf(v->out, "%s\n", values < values_of ? ", and not all values" : "");
}

int kvb_summary_right(const kvb_summary *summary, const kvb_result *results, size_t n, FILE *out)
{
    const view v = view_of(summary, results, n, out);
    judged_print(&v);
    const int error = failures_print(&v);
    if (error)
        return error;
    replay_print(&v);
    return fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}
