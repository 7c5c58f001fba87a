/* SPDX-License-Identifier: Apache-2.0 */
/* Makes control calls. Draws them from a seed, most of them legal, and the models, pools and limits to play them on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ci/fuzz/fuzz.h"
#include "ci/fuzz/verbs.h"
#include "ci/tests/caches/states.h"

/* ---- making a call ----------------------------------------------------------------------------------------------- */

static char slots_folder[256];
static bool slots_made;

/* Removes all saved files. */
static void slots_clear(void)
{
    char path[300];
    for (uint32_t slot = 0; slot < RULES_SLOTS && slots_made; slot++) {
        snprintf(path, sizeof path, "%s/%u", slots_folder, slot);
        unlink(path);
    }
}

static void slots_remove(void)
{
    slots_clear();
    rmdir(slots_folder);
}

/* The folder lies in memory if possible: histories come by the thousand. */
void kvb_slots_open(void)
{
    const char *where = getenv("TMPDIR");
    where = !access("/dev/shm", W_OK) ? "/dev/shm" : where ? where : "/tmp";
    if (!slots_made) {
        snprintf(slots_folder, sizeof slots_folder, "%.200s/kvbench-slots-XXXXXX", where);
        slots_made = mkdtemp(slots_folder);
        if (!slots_made)
            kvb_fuzz_wrong("%s: cannot be made", slots_folder);
        atexit(slots_remove);
    }
    slots_clear();
}

static const char *slot_path(uint32_t slot)
{
    static char path[300];
    if (!slots_made)
        kvb_slots_open();
    snprintf(path, sizeof path, "%s/%u", slots_folder, slot);
    return path;
}

uint32_t kvb_call_found;
const uint64_t *kvb_call_ordinals;

int kvb_call_make(kvb_cache *cache, const call *c)
{
    switch (c->kind) {
    case EXTEND:
        return kvb_cache_begin_step_tokens(cache, NULL, c->known ? c->toks : NULL, c->n);
    case STEP:
        return kvb_cache_begin_step_tokens(cache, c->ids, c->known ? c->toks : NULL, c->n);
    case COPY:
        return kvb_cache_seq_cp(cache, c->src, c->dst, c->p0, c->p1);
    case REMOVE:
        return kvb_cache_seq_rm(cache, c->src, c->p0, c->p1);
    case KEEP:
        return kvb_cache_seq_keep(cache, c->src);
    case CLEAR:
        return kvb_cache_clear(cache);
    case PROPOSE:
        return kvb_cache_propose(cache, c->ids, c->parents, c->n);
    case COMMIT:
        return kvb_cache_commit(cache, c->src, c->ids, c->n);
    case REWIND:
        return kvb_cache_rewind(cache, c->p0);
    case REORDER:
        return kvb_cache_seq_reorder(cache, c->ids, c->srcs, c->n);
    case SHIFT:
        return c->divides ? kvb_cache_seq_div(cache, c->src, c->p0, c->p1, c->divisor)
                          : kvb_cache_seq_add(cache, c->src, c->p0, c->p1, c->delta);
    case DEFRAG:
        return kvb_cache_defrag(cache);
    case SAVE:
        return kvb_cache_save(cache, c->src, slot_path(c->slot));
    case LOAD:
        return kvb_cache_load(cache, c->src, slot_path(c->slot));
    case MATCH:
        kvb_call_found = 0;
        return kvb_cache_seq_match(cache, c->src, c->toks, c->n, c->key, &kvb_call_found, &kvb_call_ordinals);
    case CALLS:
        break;
    }
    return -ENOSYS;
}

const char *kvb_call_scan(const rules *m, kvb_cache *cache, uint32_t layer, const uint64_t *ordinals, uint32_t n)
{
    static uint64_t out[RULES_TOKENS];
    static uint32_t positions[RULES_TOKENS];
    rules_token path[RULES_LEN];
    kvb_scan_spec spec;
    for (uint32_t i = 0; i < n; i++)
        positions[i] = m->pos[ordinals[i]];
    if (kvb_cache_fetch_states(cache, layer, positions, n, &spec))
        return kvb_cache_why(cache);
    if (spec.group != kvb_model_group(m->model, layer) || spec.n_tok != n || !spec.states.base ||
        !spec.conv.base != !spec.group->scan.conv_width || !states_scan(&spec, layer, ordinals, out))
        return "tokens are to begin with slots that are none";
    for (uint32_t i = 0; i < n; i++) {
        uint64_t state = 0;
        for (uint32_t j = 0, before = kvb_rules_path(m, ordinals[i], path); j < before; j++)
            state = state_next(state, path[j].ordinal, layer);
        if (out[i] != state)
            return "a token's state is of other tokens than those before it";
    }
    return NULL;
}

/* ---- drawing calls ----------------------------------------------------------------------------------------------- */

uint32_t kvb_draw_below(drawer *d, uint32_t n)
{
    d->state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = d->state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % n);
}

/* A sequence id: mostly one of the first few, sometimes one of the last two or one too high. */
static uint32_t seq_draw(drawer *d, const rules *m)
{
    return kvb_draw_below(d, 40) ? kvb_draw_below(d, d->seqs) : m->n_ids - 2 + kvb_draw_below(d, 3);
}

/* Nodes for one sequence or for several, often for those that have nodes. */
static void parents_draw(drawer *d, const rules *m, call *c)
{
    const bool one = kvb_draw_below(d, 2), known = m->now->n_nodes && kvb_draw_below(d, 2);
    for (uint32_t i = 0; i < 16; i++) {
        c->ids[i] = one && i ? c->ids[0]
                    : known  ? m->now->node[kvb_draw_below(d, m->now->n_nodes)].seq
                             : seq_draw(d, m);
        c->ids[i] = m->type->flags & KVB_CACHE_SEQ ? c->ids[i] : 0;
        uint32_t number = kvb_rules_pending(m, c->ids[i]);
        for (uint32_t j = 0; j < i; j++)
            number += c->ids[j] == c->ids[i];
        c->parents[i] = (int32_t)(kvb_draw_below(d, 3) ? kvb_draw_below(d, number + 1) : number) - 1;
    }
    if (kvb_draw_below(d, 30) == 0)
        c->parents[0] = (int32_t)(kvb_rules_pending(m, c->ids[0]) + kvb_draw_below(d, 2) * 100);
}

static void path_draw(drawer *d, const rules *m, call *c)
{
    int32_t at = -1;
    c->n = 0;
    if (m->now->n_nodes && kvb_draw_below(d, 8)) /* else the sequence may have no nodes */
        c->src = m->now->node[kvb_draw_below(d, m->now->n_nodes)].seq;
    for (uint32_t i = 0, number = 0; i < m->now->n_nodes && c->n < 16; i++) {
        if (m->now->node[i].seq != c->src)
            continue;
        if (m->now->node[i].parent == at && kvb_draw_below(d, 4)) {
            c->ids[c->n++] = number;
            at = (int32_t)number;
        }
        number++;
    }
    if (kvb_draw_below(d, 10) == 0) /* a wrong one */
        c->ids[c->n++ % 16] = kvb_draw_below(d, 20);
    c->n = c->n > 16 ? 16 : c->n;
}

/* A small shift, a shift down to where a hole begins, or a division. */
static void shift_draw(drawer *d, const rules *m, call *c)
{
    c->delta = (int32_t)kvb_draw_below(d, 9) - 3;
    c->divides = m->type->flags & KVB_CACHE_DIVIDE && kvb_draw_below(d, 3) == 0;
    c->divisor = c->divides ? kvb_draw_below(d, 5) : 0;
    if (c->src >= m->n_ids || kvb_draw_below(d, 3) == 0)
        return;
    for (uint32_t i = 0, next = 0; i < m->now->seq[c->src].n; next = m->now->seq[c->src].token[i++].pos + 1)
        if (m->now->seq[c->src].token[i].pos > next) {
            c->p0 = m->now->seq[c->src].token[i].pos;
            c->delta = (int32_t)next - (int32_t)c->p0 + (int32_t)kvb_draw_below(d, 2);
            return;
        }
}

/* Slot and sequence of a SAVE or LOAD. A LOAD mostly goes to an empty sequence. */
static void saved_draw(drawer *d, const rules *m, call *c)
{
    c->slot = kvb_draw_below(d, RULES_SLOTS - 1); /* the last one is for verbs.c */
    if (!(m->type->flags & KVB_CACHE_SEQ) && kvb_draw_below(d, 10))
        c->src = 0;
    if (c->kind == LOAD && m->type->flags & KVB_CACHE_SEQ && kvb_draw_below(d, 10))
        for (uint32_t i = 0; i < d->seqs && (c->src >= m->n_ids || m->now->seq[c->src].n); i++)
            c->src = i;
    if (c->kind == SAVE ? kvb_draw_below(d, 6) == 0 : m->slot[c->slot].all && kvb_draw_below(d, 10))
        c->src = KVB_SEQ_ALL;
}

/* Few different ids, so that prompts begin alike. */
static void tokens_draw(drawer *d, call *c)
{
    c->known = kvb_draw_below(d, 8);
    for (uint32_t i = 0; i < 16; i++)
        c->toks[i] = kvb_draw_below(d, 6) == 0;
}

/* A prompt, mostly for an empty sequence. */
static call prompt_draw(drawer *d, const rules *m)
{
    call c = {
        .kind = MATCH, .n = kvb_draw_below(d, 20) ? 2 + kvb_draw_below(d, 15) : 0, .key = kvb_draw_below(d, 3) == 0};
    c.src = seq_draw(d, m);
    for (uint32_t i = 0; i < d->seqs && kvb_draw_below(d, 10) && (c.src >= m->n_ids || m->now->seq[c.src].n); i++)
        c.src = i;
    tokens_draw(d, &c);
    c.known = true;
    return c;
}

/* One random call of those that the cache has, mostly a legal one. */
call kvb_draw_call(drawer *d, const rules *m)
{
    static const call_kind mix[] = {EXTEND,  EXTEND,  STEP,   STEP,   STEP,   STEP,    STEP,    STEP,
                                    STEP,    COPY,    COPY,   REMOVE, REMOVE, KEEP,    CLEAR,   PROPOSE,
                                    PROPOSE, PROPOSE, COMMIT, COMMIT, REWIND, REORDER, REORDER, SHIFT,
                                    SHIFT,   DEFRAG,  SAVE,   LOAD,   LOAD,   STEP,    STEP,    STEP};
    const bool prompts = d->prompts && m->type->flags & KVB_CACHE_PREFIX;
    call c = {.kind = CALLS};
    bool have = false;
    if (prompts && kvb_draw_below(d, 6) == 0)
        return prompt_draw(d, m);
    if (prompts && kvb_draw_below(d, 8) == 0) { /* a load takes pages that prompts may find */
        c = (call){.kind = kvb_draw_below(d, 2) ? SAVE : LOAD,
                   .src = kvb_draw_below(d, 2) ? KVB_SEQ_ALL : seq_draw(d, m)};
        if (c.src != KVB_SEQ_ALL)
            saved_draw(d, m, &c);
        return c;
    }
    while (!have) {
        c.kind = mix[kvb_draw_below(d, sizeof mix / sizeof *mix)];
        have = c.kind == EXTEND || c.kind == CLEAR || c.kind == DEFRAG || c.kind == SAVE || c.kind == LOAD;
        have = have || (m->type->flags & KVB_CACHE_SEQ && c.kind >= STEP && c.kind <= KEEP);
        have = have || (m->type->flags & KVB_CACHE_TREE && (c.kind == PROPOSE || c.kind == COMMIT));
        have = have || (m->type->flags & (KVB_CACHE_SEQ | KVB_CACHE_REWIND) && c.kind == REWIND);
        have = have || (m->type->flags & KVB_CACHE_REORDER && c.kind == REORDER);
        have = have || (m->type->flags & KVB_CACHE_SHIFT && c.kind == SHIFT);
        have = have && (c.kind != CLEAR || kvb_draw_below(d, 6) == 0);
        have = have && ((c.kind != DEFRAG && c.kind != SHIFT) || kvb_draw_below(d, 3) == 0);
        have = have && (c.kind != KEEP || kvb_draw_below(d, 3) == 0);
        have = have && (m->type->flags & KVB_CACHE_SAVES || (c.kind != SAVE && c.kind != LOAD));
        have = have && (!m->now->n_nodes || c.kind == PROPOSE || c.kind == COMMIT ||
                        kvb_draw_below(d, m->type->flags & KVB_CACHE_SEQ ? 2 : 8) == 0);
    }
    c.n = kvb_draw_below(d, 20) ? 1 + kvb_draw_below(d, kvb_draw_below(d, 3) ? 4 : 14) : 0;
    c.src = seq_draw(d, m);
    c.dst = seq_draw(d, m);
    uint32_t len = c.src < m->n_ids && c.kind != REWIND ? kvb_rules_length(m, c.src) : kvb_rules_length(m, 0);
    c.p0 = kvb_draw_below(d, 2) ? kvb_draw_below(d, len + 2) : 0;
    c.p1 = kvb_draw_below(d, 2) ? KVB_POS_END : kvb_draw_below(d, len + 2);
    if (c.kind == COPY && c.dst < m->n_ids && kvb_draw_below(d, 2)) /* from where the destination ends */
        c.p0 = kvb_rules_length(m, c.dst);
    if (c.kind == REWIND && c.p0 == 0)
        c.p0 = len;
    if (c.kind == SHIFT)
        shift_draw(d, m, &c);
    if (c.kind == SAVE || c.kind == LOAD)
        saved_draw(d, m, &c);
    if (prompts)
        tokens_draw(d, &c);
    bool same = kvb_draw_below(d, 3) == 0;
    for (uint32_t i = 0; i < 16; i++) {
        c.ids[i] = i && same ? c.ids[0] : seq_draw(d, m);
        c.srcs[i] = seq_draw(d, m);
    }
    if (c.kind == PROPOSE)
        parents_draw(d, m, &c);
    if (c.kind == COMMIT && !(m->type->flags & KVB_CACHE_SEQ))
        c.src = 0;
    if (c.kind == COMMIT)
        path_draw(d, m, &c);
    for (uint32_t i = 0; c.kind == REORDER && i < c.n && kvb_draw_below(d, 30); i++) /* else one may be named twice */
        c.ids[i] = i ? (c.ids[i - 1] + 1) % m->n_ids : kvb_draw_below(d, d->seqs);
    return c;
}

/* ---- drawing settings -------------------------------------------------------------------------------------------- */

/* The models: limits of their groups. */
static const struct {
    uint32_t n_groups;
    kvb_group groups[3];
} shapes[KVB_VERBS_SHAPES] = {
    {1, {{.window = 0}}},
    {2, {{.latent = true}, {.window = 6, .sinks = 2}}},
    {2, {{.chunk = 8}, {.window = 0}}},
    {3, {{.window = 3, .latent = true}, {.window = 9, .sinks = 1}, {.chunk = 5}}},
    {1, {{.window = 5}}},
    {1, {{.window = 1}}},
    {2, {{.chunk = 1}, {.window = 2, .sinks = 3}}},
    {2, {{.window = 0}, STATES_GROUP(KVB_F32)}},
    {3, {{.window = 4}, {.latent = true}, STATES_GROUP(KVB_BF16)}},
    {2, {STATES_GROUP(KVB_F16), {.chunk = 6}}},
    {1, {STATES_GROUP(KVB_F32)}},
};

uint32_t kvb_verbs_pools(void)
{
    uint32_t n = 0;
    while (kvb_builtin_pools[n])
        n++;
    return n;
}

const kvb_pool_type *kvb_verbs_pool(uint32_t at)
{
    const kvb_pool_type *pool = kvb_builtin_pools[at / 2 % kvb_verbs_pools()];
    return at % 2 && pool->rotated ? pool->rotated : pool;
}

static bool pool_takes(const kvb_pool_type *pool, uint32_t dim)
{
    char why[200];
    return !pool->supports || pool->supports(pool, dim, why, sizeof why);
}

/* Rows are as short as both pools can store, but have 32 elements or more: each element holds a bit of a tag. */
void kvb_verbs_model(kvb_model *m, uint32_t shape, const kvb_pool_type *k, const kvb_pool_type *v)
{
    uint32_t dim = 32;
    while (dim < KVB_VERBS_DIM / 2 && !(pool_takes(k, dim) && pool_takes(v, dim)))
        dim *= 2;
    *m = (kvb_model){.n_layers = KVB_VERBS_LAYERS, .n_groups = shapes[shape].n_groups};
    for (uint32_t layer = 0; layer < KVB_VERBS_LAYERS; layer++)
        m->group_of[layer] = (uint8_t)(layer % m->n_groups);
    for (uint32_t g = 0; g < m->n_groups; g++) {
        kvb_group *group = &m->groups[g];
        *group = shapes[shape].groups[g];
        if (kvb_group_scans(group))
            continue;
        group->kv_heads = group->heads = g == 1 ? 1 : KVB_VERBS_HEADS;
        group->k_dim = group->latent ? 2 * dim : dim;
        group->v_dim = dim;
        group->scale = 1;
        group->rope.known = true; /* tags must not be rotated */
    }
}

/* A planted fault (kvbench faults), of a cache, to test these tests. NULL: no such fault. */
static const kvb_fault *fault_find(const char *name)
{
    for (size_t t = 0; name && kvb_fault_tables[t]; t++)
        for (const kvb_fault *fault = kvb_fault_tables[t]; fault->name; fault++)
            if (!strcmp(fault->name, name))
                return fault;
    return NULL;
}

verbs_setting kvb_draw_setting(drawer *d, uint32_t cache, uint64_t seed)
{
    *d = (drawer){.state = seed, .prompts = true};
    const uint32_t pool = kvb_draw_below(d, 64), other = kvb_draw_below(d, 64);
    const verbs_setting set = {.cache = cache,
                               .fault = fault_find(getenv("KVB_RANDOM_FAULT")),
                               .shape = kvb_draw_below(d, 64),
                               .k_pool = pool,
                               .v_pool = kvb_draw_below(d, 2) ? pool : other,
                               .growth = kvb_draw_below(d, 4),
                               .capacity = 24 + kvb_draw_below(d, 64),
                               .seq_capacity = kvb_draw_below(d, 2) ? 40 : 60 + kvb_draw_below(d, 140),
                               .max_seqs = 1 + kvb_draw_below(d, 6),
                               .min_chunk = 1 + kvb_draw_below(d, 16),
                               .rollback = kvb_draw_below(d, 8),
                               .step = kvb_draw_below(d, 2) ? 0 : 6 + kvb_draw_below(d, 9)};
    d->seqs = set.max_seqs;
    return set;
}

uint32_t kvb_draw_memory(drawer *d)
{
    return kvb_draw_below(d, 4) ? 0 : 1 + kvb_draw_below(d, 12);
}
