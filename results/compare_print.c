/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a comparison: tables for programs; text for people, and Markdown for a pull request. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/compare.h"
#include "results/compare_time.h"

enum { VERDICT, WORKLOAD, CACHE, POOL, KERNEL, THREADS, METRIC, BASE, NEW, CHANGE, INTERVAL, REASON, COLUMNS };
static const char *const people[COLUMNS + 1] = {"verdict",  "workload", "cache", "pool", "kernel",
                                                ">threads", "metric",   ">base", ">new", ">change",
                                                "interval", "reason",   NULL};

#define MOST_ROWS 20 /* of one verdict; --all shows the rest */

/* ---- for programs ------------------------------------------------------------------------------------------ */

static void number_text(double number, char text[KVB_UNIT_TEXT])
{
    text[0] = 0;
    if (isfinite(number))
        snprintf(text, KVB_UNIT_TEXT, "%.9g", number);
}

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static int raw_row(kvb_table *table, kvb_verdict verdict, const char *const key[6], const char *metric,
                   const double numbers[5], const char *reason)
{
    char text[5][KVB_UNIT_TEXT];

    for (int i = 0; i < 5; i++)
        number_text(numbers[i], text[i]);
    return kvb_table_row(table, (const char *const[]){kvb_verdict_name(verdict),
                                                      kvb_verdict_is_regression(verdict) ? "yes" : "no", key[0], key[1],
                                                      key[2], key[3], key[4], key[5], metric, or_null(text[0]),
                                                      or_null(text[1]), or_null(text[2]), or_null(text[3]),
                                                      or_null(text[4]), or_null(reason)});
}

/* Every kernel, cache and finding. A kernel or cache has an asterisk in the columns that it spans. 0 or -errno. */
static int rows_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    kvb_table *table = kvb_table_new((const char *const[]){"verdict", "regression", "workload", "cache", "pool",
                                                           "kernel", ">threads", "growth", "metric", ">base", ">new",
                                                           ">ratio", ">low", ">high", "reason", NULL});
    int error = table ? 0 : -ENOMEM;

    for (size_t i = 0; i < c->n_axes && !error; i++) {
        const kvb_compared_axis *g = &c->axes[i];
        bool kernel = !strcmp(g->axis, "kernel");
        error =
            raw_row(table, g->verdict,
                    (const char *const[]){"*", kernel ? "*" : g->name, "*", kernel ? g->name : "*", "*", "*"},
                    kvb_metric_name(KVB_METRIC_TIME), (const double[]){NAN, NAN, g->ratio, g->low, g->high}, g->reason);
    }
    for (size_t i = 0; i < c->n && !error; i++) {
        const kvb_finding *f = &c->findings[i];
        const kvb_result *r = f->new ? f->new : f->base;
        char pool[KVB_KEY_PART], threads[16];
        kvb_key_pools(r, pool);
        snprintf(threads, sizeof threads, "%u", r->threads);
        error = raw_row(
            table, f->verdict, (const char *const[]){r->workload, r->cache, pool, r->kernel, threads, r->growth},
            kvb_metric_name(f->metric), (const double[]){f->before, f->after, f->ratio, f->low, f->high}, f->reason);
    }
    if (!error)
        error = kvb_table_print(table, view->format, out);
    kvb_table_free(table);
    return error;
}

/* ---- for people: tables ------------------------------------------------------------------------------------ */

static void value_text(const kvb_finding *f, double value, char text[KVB_UNIT_TEXT])
{
    if (f->metric == KVB_METRIC_TIME)
        kvb_time_text(value, text);
    else if (kvb_metric_is_bytes(f->metric))
        kvb_bytes_text(value, text);
    else if (isnan(value))
        text[0] = 0;
    else if (value >= 1e6 && isfinite(value))
        snprintf(text, KVB_UNIT_TEXT, "%.2f M", 1e-6 * value);
    else
        snprintf(text, KVB_UNIT_TEXT, "%.3g", value);
}

/* Writes both values with units, or as plain numbers where units hide the difference. */
static void values_text(const kvb_finding *f, char before[KVB_UNIT_TEXT], char after[KVB_UNIT_TEXT])
{
    value_text(f, f->before, before);
    value_text(f, f->after, after);
    if (f->metric != KVB_METRIC_TIME && !strcmp(before, after)) {
        number_text(f->before, before);
        number_text(f->after, after);
    }
}

static void interval_text(double low, double high, char text[2 * KVB_CHANGE_TEXT + 8])
{
    char least[KVB_CHANGE_TEXT], most[KVB_CHANGE_TEXT];

    kvb_change_text(low, least);
    kvb_change_text(high, most);
    text[0] = 0;
    if (low < high)
        snprintf(text, 2 * KVB_CHANGE_TEXT + 8, "%s to %s", least, *most ? most : "more");
}

#define SHORT_REASON 100 /* characters of a reason in Markdown; CSV and JSON have it whole */

/* The reason, cut where a pull request would be made wide by it. */
static void reason_text(const char *reason, kvb_table_format format, char text[KVB_REASON])
{
    bool cut = format == KVB_TABLE_MD && strlen(reason) > SHORT_REASON;

    snprintf(text, KVB_REASON, cut ? "%.*s…" : "%.*s", cut ? SHORT_REASON : KVB_REASON - 8, reason);
}

static int finding_row(kvb_table *table, const kvb_finding *f, kvb_table_format format)
{
    const kvb_result *r = f->new ? f->new : f->base;
    char pool[KVB_KEY_PART], cache[KVB_KEY_PART], threads[16], interval[2 * KVB_CHANGE_TEXT + 8];
    char before[KVB_UNIT_TEXT], after[KVB_UNIT_TEXT], change[KVB_CHANGE_TEXT], reason[KVB_REASON];

    reason_text(f->reason, format, reason);
    kvb_key_pools(r, pool);
    kvb_key_cache(r, cache);
    snprintf(threads, sizeof threads, "%u", r->threads);
    values_text(f, before, after);
    kvb_change_text(f->ratio, change);
    interval_text(f->low, f->high, interval);
    return kvb_table_row(table, (const char *const[COLUMNS]){[VERDICT] = kvb_verdict_name(f->verdict),
                                                             [WORKLOAD] = r->workload,
                                                             [CACHE] = cache,
                                                             [POOL] = pool,
                                                             [KERNEL] = r->kernel,
                                                             [THREADS] = threads,
                                                             [METRIC] = kvb_metric_name(f->metric),
                                                             [BASE] = before,
                                                             [NEW] = after,
                                                             [CHANGE] = change,
                                                             [INTERVAL] = interval,
                                                             [REASON] = reason});
}

/* By verdict, then the largest change first, then in the order of findings. */
static int findings_order(const void *a, const void *b)
{
    const kvb_finding *x = *(const kvb_finding *const *)a, *y = *(const kvb_finding *const *)b;
    double by_x = isnan(x->ratio) ? 0 : fabs(log(x->ratio)), by_y = isnan(y->ratio) ? 0 : fabs(log(y->ratio));

    if (x->verdict != y->verdict)
        return x->verdict < y->verdict ? -1 : 1;
    return by_x != by_y ? (by_x > by_y ? -1 : 1) : x < y ? -1 : 1;
}

/* Times that two files cannot tell are counted in a text, and said once below it. */
static bool is_only_counted(const kvb_comparison *c, const kvb_finding *f, const kvb_compare_view *view)
{
    return !c->paired && !view->all && view->format == KVB_TABLE_TEXT && f->metric == KVB_METRIC_TIME &&
           f->verdict == KVB_VERDICT_UNDECIDED;
}

/* The findings of the verdicts first .. last as one table, the largest change of each verdict first. A line below says
 * how many are left out. Returns the number of rows, or -errno. */
static long findings_print(const kvb_comparison *c, const kvb_compare_view *view, kvb_verdict first, kvb_verdict last,
                           FILE *out)
{
    kvb_table *table = kvb_table_new(people);
    const kvb_finding **sorted = malloc((c->n + 1) * sizeof *sorted);
    size_t shown[KVB_VERDICTS] = {0}, n = 0;
    int error = table && sorted ? 0 : -ENOMEM;

    for (size_t i = 0; i < c->n && !error; i++)
        if (c->findings[i].verdict >= first && c->findings[i].verdict <= last &&
            !is_only_counted(c, &c->findings[i], view))
            sorted[n++] = &c->findings[i];
    if (!error)
        qsort(sorted, n, sizeof *sorted, findings_order);
    for (size_t i = 0; i < n && !error; i++)
        if (view->all || shown[sorted[i]->verdict] < MOST_ROWS) {
            error = finding_row(table, sorted[i], view->format);
            shown[sorted[i]->verdict]++;
        }
    if (!error && n > 0)
        error = kvb_table_print(table, view->format, out);
    for (kvb_verdict v = first; v <= last && !error; v++)
        if (shown[v] && c->count[v] > shown[v])
            fprintf(out, "%sand %zu more %s; --all shows them\n", view->format == KVB_TABLE_MD ? "\n" : "",
                    c->count[v] - shown[v], kvb_verdict_name(v));
    kvb_table_free(table);
    free(sorted);
    return error ? error : (long)n;
}

/* The kernels and caches that changed, or all. A pull request has a line for each kernel. Returns the number of rows,
 * or -errno. */
static long axes_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    kvb_table *table = kvb_table_new(
        (const char *const[]){"verdict", "all of", ">combinations", ">change", "interval", "reason", NULL});
    int error = table ? 0 : -ENOMEM;
    long rows = 0;

    for (size_t i = 0; i < c->n_axes && !error; i++) {
        const kvb_compared_axis *g = &c->axes[i];
        char what[3 * KVB_NAME], n[24], change[KVB_CHANGE_TEXT], interval[2 * KVB_CHANGE_TEXT + 8];
        bool named = g->verdict == KVB_VERDICT_SLOWER || g->verdict == KVB_VERDICT_FASTER;
        if (!view->all && !named && (view->format != KVB_TABLE_MD || strcmp(g->axis, "kernel")))
            continue;
        snprintf(what, sizeof what, "%s %s", g->axis, g->name);
        snprintf(n, sizeof n, "%zu", g->n);
        kvb_change_text(g->ratio, change);
        interval_text(g->low, g->high, interval);
        error = kvb_table_row(
            table, (const char *const[]){kvb_verdict_name(g->verdict), what, n, change, interval, g->reason});
        rows++;
    }
    if (!error && rows)
        error = kvb_table_print(table, view->format, out);
    kvb_table_free(table);
    return error ? error : rows;
}

/* ---- for people: text and Markdown ------------------------------------------------------------------------ */

/* "REGRESSION: kernel flash SLOWER +10.0 %, 2 BROKEN", "no regression", "nothing decided: 76 of 76 undecided". */
static void headline_print(const kvb_comparison *c, FILE *out)
{
    static const char *const texts[] = {[KVB_OUTCOME_GOOD] = "no regression",
                                        [KVB_OUTCOME_REGRESSION] = "REGRESSION",
                                        [KVB_OUTCOME_PARTLY] = "no regression in what is decided",
                                        [KVB_OUTCOME_NOTHING] = "nothing decided"};
    const char *separator = ": ";
    kvb_outcome outcome = kvb_comparison_outcome(c);

    fputs(texts[outcome], out);
    if (outcome == KVB_OUTCOME_PARTLY && c->count[KVB_VERDICT_UNDECIDED] == c->times)
        fputs(", kernels and caches as a whole", out);
    if (outcome == KVB_OUTCOME_PARTLY || outcome == KVB_OUTCOME_NOTHING)
        fprintf(out, ": %zu of %zu undecided", c->count[KVB_VERDICT_UNDECIDED], c->times);
    for (size_t i = 0; i < c->n_axes; i++) {
        char change[KVB_CHANGE_TEXT];
        if (!kvb_verdict_is_regression(c->axes[i].verdict))
            continue;
        kvb_change_text(c->axes[i].ratio, change);
        fprintf(out, "%s%s %s %s %s", separator, c->axes[i].axis, c->axes[i].name, kvb_verdict_name(c->axes[i].verdict),
                change);
        separator = ", ";
    }
    for (kvb_verdict v = 0; v < KVB_VERDICTS; v++)
        if (c->count[v] && kvb_verdict_is_regression(v)) {
            fprintf(out, "%s%zu %s", separator, c->count[v], kvb_verdict_name(v));
            separator = ", ";
        }
}

/* "312 combinations: 2 SLOWER, 300 SAME, 10 UNDECIDED; smallest difference these runs can resolve: 4.2 % (600 null
 * comparisons)" */
static void counts_print(const kvb_comparison *c, FILE *out)
{
    size_t combinations = 0;

    for (size_t i = 0; i < c->n; i++)
        combinations += c->findings[i].metric <= KVB_METRIC_TIME;
    fprintf(out, "%zu combinations", combinations);
    for (kvb_verdict v = 0, told = 0; v < KVB_VERDICTS; v++)
        if (c->count[v])
            fprintf(out, "%s %zu %s", told++ ? "," : ":", c->count[v], kvb_verdict_name(v));
    if (c->compared && c->times) {
        char resolution[KVB_RESOLUTION_TEXT];
        kvb_resolution_text(c->resolution, c->nulls, resolution);
        fprintf(out, "; smallest difference these runs can resolve: %s", resolution);
        if (!c->paired && (c->runs[0] < 2 || c->runs[1] < 2))
            fputs("; one run of a build does not show how runs differ: taken from null comparisons", out);
    }
    if (c->compared && fabs(c->machine - 1) >= 0.02) /* false for NaN */
        fprintf(out, "; the machine's bandwidth was %.1f %% %s in the new run", 100 * fabs(1 / c->machine - 1),
                c->machine > 1 ? "lower" : "higher");
}

/* Is there something left, and a way to know it? */
static bool is_to_decide(const kvb_comparison *c, const kvb_compare_view *view)
{
    kvb_outcome outcome = kvb_comparison_outcome(c);
    return view->decide && (outcome == KVB_OUTCOME_PARTLY || outcome == KVB_OUTCOME_NOTHING);
}

static int text_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    fprintf(out, "base: %s\nnew:  %s\n", view->base, view->new);
    for (size_t i = 0; view->notes && view->notes[i]; i++)
        fprintf(out, "note: %s\n", view->notes[i]);
    putc('\n', out);
    long rows = axes_print(c, view, out);
    if (rows > 0)
        putc('\n', out);
    if (rows >= 0)
        rows = findings_print(c, view, 0, view->all ? KVB_VERDICTS - 1 : KVB_VERDICT_FAILING, out);
    if (rows < 0)
        return (int)rows;
    if (rows > 0)
        putc('\n', out);
    counts_print(c, out);
    putc('\n', out);
    headline_print(c, out);
    putc('\n', out);
    if (is_to_decide(c, view))
        fprintf(out, "to decide: %s\n%s", view->decide, view->all || c->paired ? "" : "why each is undecided: --all\n");
    return 0;
}

/* A section that a page shows folded. */
static int md_fold(const kvb_comparison *c, const kvb_compare_view *view, kvb_verdict first, kvb_verdict last,
                   FILE *out)
{
    size_t n = 0;

    for (kvb_verdict v = first; v <= last; v++)
        n += c->count[v];
    if (!n)
        return 0;
    fputs("<details><summary>", out);
    for (kvb_verdict v = first, told = 0; v <= last; v++)
        if (c->count[v])
            fprintf(out, "%s%zu %s", told++ ? ", " : "", c->count[v], kvb_verdict_name(v));
    fputs("</summary>\n\n", out);
    long rows = findings_print(c, view, first, last, out);
    fputs("\n</details>\n\n", out);
    return rows < 0 ? (int)rows : 0;
}

static int md_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    fputs("## kvbench: ", out);
    headline_print(c, out);
    fputs("\n\n", out);
    counts_print(c, out);
    fputs(".\n\n", out);
    if (is_to_decide(c, view))
        fprintf(out, "To decide: %s.\n\n", view->decide);
    fprintf(out, "Base: `%s`, new: `%s`.\n\n", view->base, view->new);
    for (size_t i = 0; view->notes && view->notes[i]; i++)
        fprintf(out, "- %s\n%s", view->notes[i], view->notes[i + 1] ? "" : "\n");
    long rows = axes_print(c, view, out);
    if (rows > 0)
        putc('\n', out);
    int error = rows < 0 ? (int)rows : md_fold(c, view, 0, KVB_VERDICT_MORE, out);
    if (!error)
        error = md_fold(c, view, KVB_VERDICT_UNDECIDED, KVB_VERDICT_UNDECIDED, out);
    if (!error)
        error = md_fold(c, view, KVB_VERDICT_CHANGED, KVB_VERDICT_FAILING, out);
    if (!error && view->all)
        error = md_fold(c, view, KVB_VERDICT_SAME, KVB_VERDICT_SKIPPED, out);
    if (!error && view->command)
        fprintf(out, "To reproduce: `%s`\n", view->command);
    return error;
}

int kvb_comparison_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    int error = view->format == KVB_TABLE_TEXT ? text_print(c, view, out)
                : view->format == KVB_TABLE_MD ? md_print(c, view, out)
                                               : rows_print(c, view, out);

    return error ? error : fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}
