/* SPDX-License-Identifier: Apache-2.0 */
/* Cache paged-prefix: what finding the beginning of a prompt allocates. */
#include <errno.h>
#include <stdlib.h>

#include "harness/size/prediction.h"

/* What a group has of src, whose own prompt is found if it is dst: then dst lets go of it first. Pages from its first one on that have
 * their key still, into *table; no more than `most`. */
static int group_offer(kvb_size_prediction *p, kvb_size_group_tables *t, uint32_t src, uint32_t dst,
                       kvb_size_pieces *table, uint64_t *most)
{
    kvb_size_pieces all = t->seq[src].held;
    uint64_t found = 0;
    int error = kvb_size_pages_key(p, t);
    t->gaps = true;
    error = error ? error : kvb_size_list_copy(table, &all);
    if (src == dst) {
        t->seq[dst].held = (kvb_size_pieces){0};
        error = error ? error : kvb_size_pages_let_go(p, t, &all, 1);
    }
    if (src == dst)
        free(all.at);
    for (size_t i = 0; i < table->n; i++)
        for (uint64_t j = 0; j < table->at[i].n && found == table->at[i].pos + j; j++)
            found += kvb_size_page_keyed(&t->pages_in_use, table->at[i].cell + j);
    *most = *most < found ? *most : found;
    return error;
}

static int group_find(kvb_size_prediction *p, kvb_size_group_tables *t, uint32_t dst, kvb_size_pieces *table,
                      uint64_t pages)
{
    const int error = kvb_size_pieces_drop(table, pages, UINT64_MAX);
    for (uint64_t n = 1; n <= pages; n++) {
        need_of(&t->seq[dst].pages, n, &t->tables);
        need(&t->changes, n);
    }
    for (size_t i = 0; i < table->n; i++)
        for (uint64_t j = 0; j < table->at[i].n; j++)
            kvb_size_page_find(&t->pages_in_use, table->at[i].cell + j);
    free(t->seq[dst].held.at);
    t->seq[dst].held = *table;
    *table = (kvb_size_pieces){0};
    return error ? error : kvb_size_pages_count(p, t);
}

/* A sequence without tokens comes to hold another one's first ones, as many as are in whole pages; or its own again, as far as its pages
 * have stayed. States are found in none, and without them nothing is. */
int kvb_size_prompt_find(kvb_size_prediction *p, uint32_t src, uint32_t dst, uint64_t tokens)
{
    const uint64_t n = kvb_size_page_cells(p);
    const kvb_model *m = &p->subject->model;
    uint64_t pages = p->seq[src].loaded ? 0 : tokens / n;
    kvb_size_pieces ordinals = {0}, table[KVB_MODEL_GROUPS] = {{0}};
    int error = 0;
    for (uint32_t g = 0; g < m->n_groups && !error; g++) {
        if (kvb_group_scans(&m->groups[g]))
            pages = 0;
        else
            error = group_offer(p, &p->group[g], src, dst, &table[g], &pages);
    }
    need(&p->matched, tokens + 1);
    error = error ? error : kvb_size_list_copy(&ordinals, &p->seq[src].ordinals);
    error = error ? error : kvb_size_pieces_drop(&ordinals, pages * n, UINT64_MAX);
    need_of(&p->seq[dst].account, ordinals.n, &p->spans);
    for (uint32_t g = 0; g < m->n_groups; g++) {
        kvb_size_group_tables *t = &p->group[g];
        if (!kvb_group_scans(&m->groups[g])) {
            error = error ? error : group_find(p, t, dst, &table[g], pages);
        } else if (src == dst) {
            need_of(&t->seq[src].spans, t->seq[src].held.n + 1, &t->spans);
            t->seq[src].held.n = 0;
            error = error ? error : kvb_size_states_count(p, t);
        }
        free(table[g].at);
    }
    free(p->seq[dst].ordinals.at);
    p->seq[dst].ordinals = ordinals;
    p->seq[dst].len = pages * n;
    p->seq[dst].loaded = false;
    p->next_ordinal += pages * n;
    return error;
}

int kvb_size_prompts_share(kvb_size_prediction *p, const kvb_size_step *s)
{
    int error = 0;
    const uint64_t len = p->seq[s->first].len;
    for (uint32_t dst = s->first + 1; dst <= s->first + s->n_seqs && !error; dst++)
        error = kvb_size_prompt_find(p, s->first, dst, s->tokens < len ? s->tokens : len);
    return error;
}
