/* SPDX-License-Identifier: Apache-2.0 */
/* What the pools hold, kept and brought back with the whole cache. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/window_state.h"

/* Of a side: what no other list follows from. */
typedef struct kept_side {
    uint32_t cells;
    uint64_t *token;
    bool *own;
    float *half;
    block *blocks;
    uint64_t clock;
} kept_side;

struct kvb_window_slot {
    size_t n;
    kept_side sides[];
};

static void *copy(const void *array, size_t bytes)
{
    void *made = malloc(bytes + 1);
    if (made && bytes)
        memcpy(made, array, bytes);
    return made;
}

static size_t half_floats(const side *s, uint32_t cells)
{
    return s->width > 1 ? (size_t)cells * s->heads * s->dim : 0;
}

static size_t blocks_of(const side *s, uint32_t cells)
{
    return s->width ? cells / s->width : 0;
}

static void slot_free(struct kvb_window_slot *slot)
{
    for (size_t i = 0; slot && i < slot->n; i++) {
        free(slot->sides[i].token);
        free(slot->sides[i].own);
        free(slot->sides[i].half);
        free(slot->sides[i].blocks);
    }
    free(slot);
}

void kvb_window_slots_free(kvb_window *w)
{
    for (uint32_t i = 0; i < KVB_TRACE_SLOTS; i++)
        slot_free(w->slots[i]);
}

int kvb_window_save(kvb_window *w, uint32_t number)
{
    const size_t n = 2 * (size_t)w->state->model->n_layers;
    struct kvb_window_slot *slot = calloc(1, sizeof *slot + n * sizeof *slot->sides);
    if (!slot)
        return -ENOMEM;
    slot_free(w->slots[number]);
    w->slots[number] = slot;
    for (size_t i = 0; i < n; i++) {
        const side *s = &w->sides[i];
        kept_side *kept = &slot->sides[slot->n++];
        *kept = (kept_side){.cells = s->cells,
                            .token = copy(s->token, s->cells * sizeof *s->token),
                            .own = copy(s->own, s->cells * sizeof *s->own),
                            .half = copy(s->half, half_floats(s, s->cells) * sizeof *s->half),
                            .blocks = copy(s->blocks, blocks_of(s, s->cells) * sizeof *s->blocks),
                            .clock = s->clock};
        if (!kept->token || !kept->own || !kept->half || !kept->blocks)
            return -ENOMEM;
    }
    return 0;
}

void kvb_window_load(kvb_window *w, uint32_t number)
{
    const struct kvb_window_slot *slot = w->slots[number];
    for (size_t i = 0; i < slot->n; i++) {
        side *s = &w->sides[i];
        const kept_side *kept = &slot->sides[i];
        if (!s->cells)
            continue;
        memcpy(s->token, kept->token, kept->cells * sizeof *s->token);
        memcpy(s->own, kept->own, kept->cells * sizeof *s->own);
        if (s->width > 1)
            memcpy(s->half, kept->half, half_floats(s, kept->cells) * sizeof *s->half);
        for (uint32_t c = kept->cells; c < s->cells; c++) /* there is room for more than there was */
            s->token[c] = KVB_WINDOW_NOBODY, s->own[c] = false;
        memset(s->blocks, 0, blocks_of(s, s->cells) * sizeof *s->blocks);
        memcpy(s->blocks, kept->blocks, blocks_of(s, kept->cells) * sizeof *s->blocks);
        for (size_t b = 0; b < blocks_of(s, s->cells); b++)
            s->blocks[b].stale = UINT64_MAX;
        s->clock = kept->clock;
    }
}
