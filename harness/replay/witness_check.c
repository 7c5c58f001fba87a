/* SPDX-License-Identifier: Apache-2.0 */
/* Visible sets, as multisets: every expected row raises its token's stamp by one, every seen row must lower one. */
#include "harness/replay/pass.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/witness.h"

int kvb_witness_check_open(kvb_witness_check *check, const kvb_model *model, uint64_t tokens)
{
    *check = (kvb_witness_check){.tokens = tokens, .tag = kvb_tag_of(model)};
    check->stamp = calloc(tokens ? tokens : 1, sizeof *check->stamp);
    return check->stamp ? 0 : -ENOMEM;
}

void kvb_witness_check_close(kvb_witness_check *check)
{
    free(check->stamp);
    check->stamp = NULL;
}

/* Checks the rows that one query saw at one KV head. 0, or 1 with why. */
static int row_check(kvb_witness_check *check, const kvb_history *history, const kvb_row_run *want, int64_t n_want,
                     const uint32_t *seen, uint32_t n_seen, bool latent, uint32_t layer, uint32_t head, char *why,
                     size_t why_bytes)
{
    const uint64_t met = ++check->epoch; /* stamp - met: rows of the token that are still expected */
    for (int64_t r = 0; r < n_want; r++) {
        check->epoch += want[r].n;
        for (uint32_t i = 0; i < want[r].n; i++) {
            uint64_t *stamp = &check->stamp[kvb_history_token(history, want[r].row + i)];
            *stamp = (*stamp < met ? met : *stamp) + 1;
        }
    }
    for (uint32_t i = 0; i < n_seen; i++) {
        uint64_t token = kvb_tag_token(check->tag, seen[2 * i]);
        if (seen[2 * i] == KVB_WITNESS_TORN || seen[2 * i + 1] == KVB_WITNESS_TORN)
            snprintf(why, why_bytes, "saw a torn %s row", seen[2 * i] == KVB_WITNESS_TORN ? "K" : "V");
        else if (seen[2 * i] != kvb_tag_code(check->tag, token, layer, head, false))
            snprintf(why, why_bytes, "saw a K row of another layer or head (code %08x)", seen[2 * i]);
        else if (seen[2 * i + 1] != kvb_tag_code(check->tag, token, layer, head, !latent))
            snprintf(why, why_bytes, "saw K of token %llu with a V row that is not its own (code %08x)",
                     (unsigned long long)token, seen[2 * i + 1]);
        else if (token >= check->tokens || check->stamp[token] < met)
            snprintf(why, why_bytes, "saw token %llu, which it must not see", (unsigned long long)token);
        else if (check->stamp[token] == met)
            snprintf(why, why_bytes, "saw token %llu twice", (unsigned long long)token);
        else {
            check->stamp[token]--;
            continue;
        }
        return 1;
    }
    for (int64_t r = 0; r < n_want; r++)
        for (uint32_t i = 0; i < want[r].n; i++) {
            const uint64_t token = kvb_history_token(history, want[r].row + i);
            if (check->stamp[token] == met)
                continue;
            snprintf(why, why_bytes, "did not see token %llu", (unsigned long long)token);
            return 1;
        }
    return 0;
}

int kvb_witness_check_step(kvb_witness_check *check, kvb_history *history, const kvb_group *group,
                           const kvb_problem *problem, const void *scratch, uint32_t n_new, uint32_t layer, char *why,
                           size_t why_bytes)
{
    char what[160];
    for (uint32_t i = 0; i < n_new; i++) {
        const kvb_row_run *want;
        if ((uint64_t)problem->n_tok + i < n_new) /* no such query: the cache found the token */
            continue;
        int64_t n_want = kvb_history_visible(history, group, i, &want);
        if (n_want < 0)
            return (int)n_want;
        uint32_t t = problem->n_tok - n_new + i;
        for (uint32_t h = 0; h < problem->n_kv_heads; h++) {
            uint32_t n_seen = *kvb_witness_count(scratch, problem, t, h);
            const uint32_t *seen = kvb_witness_seen(scratch, problem, t, h);
            if (row_check(check, history, want, n_want, seen, n_seen, group->latent, layer, h, what, sizeof what)) {
                snprintf(why, why_bytes, "query %u, layer %u, KV head %u %s", i, layer, h, what);
                return 1;
            }
            check->queries++;
            check->cells += n_seen;
        }
    }
    return 0;
}
