/* SPDX-License-Identifier: Apache-2.0 */
/* Plays scenarios over caches and compares the tokens. */
#include "harness/commands/live_check.h"

#include <errno.h>
#include <string.h>

#include "kernels/kernels.h"

static bool equal(const kvb_live_outcome *a, const kvb_live_outcome *b)
{
    return a->n == b->n && (a->n == 0 || !memcmp(a->tokens, b->tokens, a->n * sizeof *a->tokens));
}

/* Row of one scenario and cache, with why it failed or a note: 0 all equal, 1 not, or -ENOMEM. greedy NULL: not
 * speculative. */
static int row_add(kvb_table *table, const kvb_scenario *scenario, const kvb_cache_type *cache,
                   const kvb_live_outcome *said, const kvb_live_outcome *truth, const kvb_live_outcome *greedy,
                   const char *failure, const char *note)
{
    char tokens[24], per_pass[24];
    bool same = !failure && equal(said, truth), as_greedy = !failure && (!greedy || equal(said, greedy));
    snprintf(tokens, sizeof tokens, "%zu", said->n);
    snprintf(per_pass, sizeof per_pass, "%.2f", said->rounds ? (double)said->spoken / said->rounds : 0.0);
    const char *cells[] = {scenario->name,
                           cache->name,
                           tokens,
                           same ? "yes" : "NO",
                           !greedy     ? "-"
                           : as_greedy ? "yes"
                                       : "NO",
                           said->rounds ? per_pass : "-",
                           failure ? failure
                           : note  ? note
                                   : ""};
    int err = kvb_table_row(table, cells);
    return err ? err : !(same && as_greedy);
}

static int scenario_check(const kvb_live_check *check, const kvb_scenario *scenario, kvb_table *table)
{
    char why[256];
    /* What keeps nothing is the truth; where there is nothing to move then, what shares nothing. */
    static const struct {
        const kvb_cache_type *cache;
        const char *note;
    } plain[] = {{&kvb_cache_recompute, NULL},
                 {&kvb_cache_slab, "compared with slab: recompute has no rows to move"},
                 {&kvb_cache_seq, "compared with seq: no other can play it"}};
    size_t p = 0;
    while (p + 1 < sizeof plain / sizeof *plain && !kvb_scenario_fits(scenario, plain[p].cache))
        p++;
    const kvb_cache_type *plainest = plain[p].cache;
    const char *note = plain[p].note;
    kvb_live_options options = {.weights = check->weights,
                                .seed = check->seed,
                                .cache = plainest,
                                .pool = check->pool,
                                .kernel = check->kernel,
                                .scan = &kvb_scan_kernel_reference};
    kvb_live_outcome truth, greedy = {0};
    int wrong = 0, err = kvb_live_play(scenario, &options, &truth, why, sizeof why);
    if (!err && scenario->greedy) {
        options.n_greedy = (uint32_t)truth.n;
        err = kvb_live_play(scenario->greedy, &options, &greedy, why, sizeof why);
    }
    const kvb_live_outcome *also = scenario->greedy ? &greedy : NULL;
    if (err)
        wrong = row_add(table, scenario, plainest, &truth, &truth, also, why, NULL);
    for (const kvb_cache_type *const *cache = check->caches; !err && wrong >= 0 && *cache; cache++) {
        if (!kvb_scenario_fits(scenario, *cache))
            continue;
        kvb_live_outcome said;
        options.cache = *cache;
        int failed = kvb_live_play(scenario, &options, &said, why, sizeof why);
        int row = row_add(table, scenario, *cache, &said, &truth, also, failed ? why : NULL, note);
        wrong = row < 0 ? row : wrong + row;
        kvb_live_outcome_free(&said);
    }
    kvb_live_outcome_free(&greedy);
    kvb_live_outcome_free(&truth);
    return wrong;
}

int kvb_live_check_run(const kvb_live_check *check, kvb_table_format format, FILE *out, char *why, size_t why_bytes)
{
    static const char *const headings[] = {
        "scenario", "cache", ">tokens", "equal to recompute", "equal to greedy", ">tokens per pass", "reason", NULL};
    int wrong = -ENOMEM;
    kvb_table *table = kvb_table_new(headings);
    if (table)
        wrong = 0;
    for (const kvb_scenario *const *s = check->scenarios; wrong >= 0 && *s; s++) {
        int more = scenario_check(check, *s, table);
        wrong = more < 0 ? more : wrong + more;
    }
    if (wrong >= 0)
        kvb_table_print(table, format, out); /* what standard output cannot take is said at the program's end */
    else
        snprintf(why, why_bytes, "cannot show the table: %s", strerror(-wrong));
    kvb_table_free(table);
    return wrong;
}
