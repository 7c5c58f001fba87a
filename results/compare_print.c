/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison for people: text, and Markdown for a pull request. What changed comes first, the same is only counted. */
#include <errno.h>
#include <math.h>

#include "results/compare_rows.h"
#include "results/compare_time.h"

/* "REGRESSION: kernel flash SLOWER +10.0 %, 2 BROKEN"; what failed, else what is well. */
static void headline_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    const char *separator = ": ";

    fputs(kvb_comparison_regressions(c)            ? "REGRESSION"
          : kvb_comparison_failed(c, view->strict) ? "UNDECIDED, and --strict"
                                                   : "no regression",
          out);
    for (size_t i = 0; i < c->n_groups; i++) {
        char change[KVB_CHANGE_TEXT];
        if (!kvb_verdict_is_regression(c->groups[i].verdict))
            continue;
        kvb_change_text(c->groups[i].ratio, change);
        fprintf(out, "%s%s %s %s %s", separator, c->groups[i].axis, c->groups[i].name,
                kvb_verdict_name(c->groups[i].verdict), change);
        separator = ", ";
    }
    for (kvb_verdict v = 0; v < KVB_VERDICTS; v++)
        if (c->count[v] && kvb_verdict_is_regression(v)) {
            fprintf(out, "%s%zu %s", separator, c->count[v], kvb_verdict_name(v));
            separator = ", ";
        }
}

/* "312 combinations: 2 SLOWER, 300 SAME, 10 UNDECIDED (null comparisons: 99 % below 4.2 %)" */
static void counts_print(const kvb_comparison *c, FILE *out)
{
    size_t combinations = 0;

    for (size_t i = 0; i < c->n; i++)
        combinations += c->findings[i].metric <= KVB_METRIC_TIME;
    fprintf(out, "%zu combinations", combinations);
    for (kvb_verdict v = 0, told = 0; v < KVB_VERDICTS; v++)
        if (c->count[v])
            fprintf(out, "%s %zu %s", told++ ? "," : ":", c->count[v], kvb_verdict_name(v));
    if (c->compared && !isnan(c->resolution))
        fprintf(out, "; of these runs' null comparisons 99 %% stay below %.1f %%", 100 * c->resolution);
    if (c->compared && fabs(c->machine - 1) >= 0.02) /* false for NaN */
        fprintf(out, "; the machine's bandwidth was %.1f %% %s in the new run", 100 * fabs(1 / c->machine - 1),
                c->machine > 1 ? "lower" : "higher");
}

static int text_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    fprintf(out, "base: %s\nnew:  %s\n", view->base, view->new);
    for (size_t i = 0; view->notes && view->notes[i]; i++)
        fprintf(out, "note: %s\n", view->notes[i]);
    putc('\n', out);
    long rows = kvb_groups_print(c, view, out);
    if (rows > 0)
        putc('\n', out);
    if (rows >= 0)
        rows = kvb_findings_print(c, view, 0, view->all ? KVB_VERDICTS - 1 : KVB_VERDICT_FAILING, out);
    if (rows < 0)
        return (int)rows;
    if (rows > 0)
        putc('\n', out);
    counts_print(c, out);
    putc('\n', out);
    headline_print(c, view, out);
    putc('\n', out);
    return 0;
}

/* A part that is folded away on a page. */
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
    long rows = kvb_findings_print(c, view, first, last, out);
    fputs("\n</details>\n\n", out);
    return rows < 0 ? (int)rows : 0;
}

static int md_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    fputs("## kvbench: ", out);
    headline_print(c, view, out);
    fputs("\n\n", out);
    counts_print(c, out);
    fprintf(out, ".\n\nBase: `%s`, new: `%s`.\n\n", view->base, view->new);
    for (size_t i = 0; view->notes && view->notes[i]; i++)
        fprintf(out, "- %s\n%s", view->notes[i], view->notes[i + 1] ? "" : "\n");
    long rows = kvb_groups_print(c, view, out);
    if (rows > 0)
        putc('\n', out);
    if (rows >= 0)
        rows = kvb_findings_print(c, view, 0, KVB_VERDICT_MORE, out);
    if (rows > 0)
        putc('\n', out);
    int error = rows < 0 ? (int)rows : md_fold(c, view, KVB_VERDICT_UNDECIDED, KVB_VERDICT_UNDECIDED, out);
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
                                               : kvb_compare_rows_print(c, view, out);

    return error ? error : fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}
