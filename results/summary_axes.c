/* SPDX-License-Identifier: Apache-2.0 */
#include "results/summary_axes.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define FEW_VALUES 3u /* of an axis, that are named one by one */

void kvb_axes_shorten(const char *list, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (const char *word = list; *word && used < bytes; word += strcspn(word, " "), word += *word == ' ') {
        const int length = (int)strcspn(word, " "), axis = (int)strcspn(word, "=");
        size_t values = 1;
        for (int i = 0; i < length; i++)
            values += word[i] == ',';
        used +=
            (size_t)(values <= FEW_VALUES
                         ? snprintf(text + used, bytes - used, "%s%.*s", used ? " " : "", length, word)
                         : snprintf(text + used, bytes - used, "%s%.*s=(%zu)", used ? " " : "", axis, word, values));
    }
}

static int kernel_row(kvb_table *table, const kvb_result *r)
{
    char calls[32], values[48], pairs[32], declined[KVB_REASON];
    snprintf(calls, sizeof calls, "%" PRIu64, r->axes.calls);
    snprintf(values, sizeof values, "%" PRIu64 " of %" PRIu64, r->axes.values, r->axes.values_of);
    snprintf(pairs, sizeof pairs, "%.0f %%",
             r->axes.pairs_of ? 100 * (double)r->axes.pairs / (double)r->axes.pairs_of : 0);
    kvb_axes_shorten(r->axes.declined, declined, sizeof declined);
    return kvb_table_row(table, (const char *const[]){r->kernel, calls, values, pairs, declined});
}

int kvb_axes_print(const kvb_result *results, size_t n, bool is_markdown, FILE *out)
{
    kvb_table *table = kvb_table_new((const char *const[]){"kernel", ">calls", ">values", ">pairs", "declines", NULL});
    int error = table ? 0 : -ENOMEM;
    bool any = false, more = false;
    for (size_t i = 0; i < n && !error; i++) {
        if (!results[i].axes.calls || !results[i].axes.values_of)
            continue;
        error = kernel_row(table, &results[i]);
        any = true;
        more |= results[i].axes.pairs < results[i].axes.pairs_of;
    }
    if (!error && any) {
        kvb_table_drop_empty(table);
        kvb_table_fold(table);
        fputc('\n', out);
        error = kvb_table_print(table, is_markdown ? KVB_TABLE_MD : KVB_TABLE_TEXT, out);
        fprintf(out, "%ssingle calls: values, and pairs of values, of their axes (kvbench list axes)%s\n",
                is_markdown ? "\n" : "", more ? "; --set calls=N makes more" : "");
    }
    for (size_t i = 0; i < n && !error; i++)
        if (*results[i].axes.uncovered)
            fprintf(out, "%s had no call with %s: --set calls=N makes more\n", results[i].kernel,
                    results[i].axes.uncovered);
    kvb_table_free(table);
    return error;
}
