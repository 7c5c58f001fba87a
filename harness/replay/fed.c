/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a step, and their rows. */
#include "harness/replay/fed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int buffer_grow(float **buffer, size_t floats)
{
    free(*buffer);
    *buffer = malloc(floats * sizeof **buffer);
    return *buffer ? 0 : -ENOMEM;
}

/* Makes room for n fed tokens or more, enough for every layer. */
static int room_ensure(kvb_pass *p, uint32_t n)
{
    const kvb_model *m = &p->trace->header.model;
    if (n <= p->room)
        return 0;
    n = n / 2 < p->room ? 2 * p->room : n; /* `recompute` feeds one token more at each step */
    free(p->positions);
    p->positions = malloc(n * sizeof *p->positions);
    int error = p->positions ? 0 : -ENOMEM;
    for (int kind = 0; kind < KVB_ROWS_KINDS && !error; kind++) {
        size_t most = 1;
        for (uint32_t g = 0; g < m->n_groups; g++) {
            size_t floats = kvb_values_floats(&m->groups[g], (kvb_rows)kind);
            most = most > floats ? most : floats;
        }
        error = buffer_grow(&p->rows[kind], n * most);
    }
    p->room = error ? 0 : n;
    return error;
}

const float *kvb_pass_rows(kvb_pass *p, kvb_rows kind, uint32_t layer, const uint64_t *tokens, uint32_t n)
{
    size_t row = kvb_values_floats(kvb_model_group(&p->trace->header.model, layer), kind);
    bool together = true;
    for (uint32_t i = 1; i < n && together; i++)
        together = tokens[i] == tokens[0] + i;
    if (together || !row)
        return kvb_values_rows(p->options->values, kind, layer, tokens[0]);
    for (uint32_t i = 0; i < n; i++)
        memcpy(p->rows[kind] + i * row, kvb_values_rows(p->options->values, kind, layer, tokens[i]),
               row * sizeof(float));
    return p->rows[kind];
}

int kvb_pass_feed(kvb_pass *p, uint32_t n, const uint64_t **tokens, uint32_t *fed)
{
    *fed = kvb_cache_feed(p->cache, tokens);
    if (*fed < n)
        return kvb_pass_refuse(p, -EPROTO, "feed", "the cache asks for fewer tokens than the step brings");
    int error = room_ensure(p, *fed);
    for (uint32_t i = 0; i < *fed && !error; i++) {
        if ((*tokens)[i] >= p->trace->needs.tokens)
            return kvb_pass_refuse(p, -EPROTO, "feed", "the cache asks for a token that never was");
        p->positions[i] = p->position[(*tokens)[i]];
    }
    return error;
}
