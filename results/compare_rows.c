/* SPDX-License-Identifier: Apache-2.0 */
/* Findings and groups as rows: units for people, raw numbers for programs. */
#include "results/compare_rows.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/compare_time.h"
#include "results/text.h"

enum { VERDICT, WORKLOAD, CACHE, POOL, KERNEL, THREADS, METRIC, BASE, NEW, CHANGE, INTERVAL, REASON, COLUMNS };
static const char *const people[COLUMNS + 1] = {"verdict",  "workload", "cache", "pool", "kernel",
                                                ">threads", "metric",   ">base", ">new", ">change",
                                                "interval", "reason",   NULL};

#define MOST_ROWS 20 /* of one verdict, unless all are asked for */

/* ---- what programs read ----------------------------------------------------------------------------------- */

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

static void pool_text(const kvb_result *r, char text[2 * KVB_NAME + 8])
{
    snprintf(text, 2 * KVB_NAME + 8, strcmp(r->pool_k, r->pool_v) ? "k=%s,v=%s" : "%s", r->pool_k, r->pool_v);
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

int kvb_compare_rows_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    kvb_table *table = kvb_table_new((const char *const[]){"verdict", "regression", "workload", "cache", "pool",
                                                           "kernel", ">threads", "growth", "metric", ">base", ">new",
                                                           ">ratio", ">low", ">high", "reason", NULL});
    int error = table ? 0 : -ENOMEM;

    for (size_t i = 0; i < c->n_groups && !error; i++) {
        const kvb_group *g = &c->groups[i];
        bool kernel = !strcmp(g->axis, "kernel");
        error =
            raw_row(table, g->verdict,
                    (const char *const[]){"*", kernel ? "*" : g->name, "*", kernel ? g->name : "*", "*", "*"},
                    kvb_metric_name(KVB_METRIC_TIME), (const double[]){NAN, NAN, g->ratio, g->low, g->high}, g->reason);
    }
    for (size_t i = 0; i < c->n && !error; i++) {
        const kvb_finding *f = &c->findings[i];
        const kvb_result *r = f->new ? f->new : f->base;
        char pool[2 * KVB_NAME + 8], threads[16];
        pool_text(r, pool);
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

/* ---- what people read ------------------------------------------------------------------------------------- */

static void value_text(const kvb_finding *f, double value, char text[KVB_UNIT_TEXT])
{
    if (f->metric == KVB_METRIC_TIME)
        kvb_time_text(value, text);
    else if (kvb_metric_is_bytes(f->metric))
        kvb_bytes_text(value, text);
    else if (isnan(value))
        text[0] = 0;
    else
        snprintf(text, KVB_UNIT_TEXT, "%.3g", value);
}

/* Both in units; where that hides the difference, as they are. */
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

static int finding_row(kvb_table *table, const kvb_finding *f)
{
    const kvb_result *r = f->new ? f->new : f->base;
    char pool[2 * KVB_NAME + 8], cache[2 * KVB_NAME + 8], threads[16], interval[2 * KVB_CHANGE_TEXT + 8];
    char before[KVB_UNIT_TEXT], after[KVB_UNIT_TEXT], change[KVB_CHANGE_TEXT];
    bool usual = !strcmp(r->growth, "double");

    pool_text(r, pool);
    snprintf(cache, sizeof cache, usual ? "%s" : "%s, %s", r->cache, r->growth);
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
                                                             [REASON] = f->reason});
}

/* By verdict, then by how much, then as they come. */
static int findings_order(const void *a, const void *b)
{
    const kvb_finding *x = *(const kvb_finding *const *)a, *y = *(const kvb_finding *const *)b;
    double by_x = isnan(x->ratio) ? 0 : fabs(log(x->ratio)), by_y = isnan(y->ratio) ? 0 : fabs(log(y->ratio));

    if (x->verdict != y->verdict)
        return x->verdict < y->verdict ? -1 : 1;
    return by_x != by_y ? (by_x > by_y ? -1 : 1) : x < y ? -1 : 1;
}

long kvb_findings_print(const kvb_comparison *c, const kvb_compare_view *view, kvb_verdict first, kvb_verdict last,
                        FILE *out)
{
    kvb_table *table = kvb_table_new(people);
    const kvb_finding **sorted = malloc((c->n + 1) * sizeof *sorted);
    size_t shown[KVB_VERDICTS] = {0}, n = 0;
    int error = table && sorted ? 0 : -ENOMEM;

    for (size_t i = 0; i < c->n && !error; i++)
        if (c->findings[i].verdict >= first && c->findings[i].verdict <= last)
            sorted[n++] = &c->findings[i];
    if (!error)
        qsort(sorted, n, sizeof *sorted, findings_order);
    for (size_t i = 0; i < n && !error; i++)
        if (view->all || shown[sorted[i]->verdict] < MOST_ROWS) {
            error = finding_row(table, sorted[i]);
            shown[sorted[i]->verdict]++;
        }
    if (!error && n > 0)
        error = kvb_table_print(table, view->format, out);
    for (kvb_verdict v = first; v <= last && !error; v++)
        if (c->count[v] > shown[v])
            fprintf(out, "%sand %zu more %s; --all shows them\n", view->format == KVB_TABLE_MD ? "\n" : "",
                    c->count[v] - shown[v], kvb_verdict_name(v));
    kvb_table_free(table);
    free(sorted);
    return error ? error : (long)n;
}

long kvb_groups_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    kvb_table *table = kvb_table_new(
        (const char *const[]){"verdict", "all of", ">combinations", ">change", "interval", "reason", NULL});
    int error = table ? 0 : -ENOMEM;
    long rows = 0;

    for (size_t i = 0; i < c->n_groups && !error; i++) {
        const kvb_group *g = &c->groups[i];
        char what[3 * KVB_NAME], n[24], change[KVB_CHANGE_TEXT], interval[2 * KVB_CHANGE_TEXT + 8];
        if (!view->all && g->verdict != KVB_VERDICT_SLOWER && g->verdict != KVB_VERDICT_FASTER)
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
