/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes control calls on a cache. Calls may be illegal, and memory may be refused. The rules (rules.h) give the right
 * answer to each. The history gives the tokens that every query must see; the witness kernel reads those that it does
 * see, through mask and pool.
 */
#include "ci/fuzz/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "caches/call.h"
#include "ci/fuzz/fuzz.h"
#include "harness/replay/pass.h"
#include "kernels/kernels.h"
#include "workloads/values.h"

enum { TAPE_CALLS = 120, FED_MOST = 512 };

typedef struct tape {
    const uint8_t *at, *end;
    uint32_t calls;
} tape;

static uint32_t take(tape *t, uint32_t below)
{
    return t->at < t->end ? *t->at++ % below : 0;
}

typedef struct scene {
    kvb_model model;
    kvb_allocator allocator;
    kvb_cache *cache;
    kvb_witness_check check;
    kvb_call call;
    rules rules;
    kvb_cache_usage usage[RULES_GROUPS]; /* before the call */
    uint64_t scanned;                    /* 1 + ordinal of the last token whose states were made */
    verbs_tally *tally;
    bool resaves;  /* saves and loads the whole cache after each call */
    bool roomless; /* a plug-in's cache that may need any number of cells: when it is full is not judged */
    bool readable; /* the witness can read rows of these pools */
} scene;

/* ---- opening ---------------------------------------------------------------------------------------------------- */

const kvb_cache_type *const *kvb_verbs_types = kvb_builtin_caches;

uint32_t kvb_verbs_caches(void)
{
    uint32_t n = 0;
    while (kvb_verbs_types[n])
        n++;
    return n;
}

static verbs_setting setting_take(tape *t)
{
    verbs_setting set = {.cache = take(t, kvb_verbs_caches())};
    set.shape = take(t, KVB_VERBS_SHAPES);
    set.k_pool = take(t, 2 * kvb_verbs_pools());
    set.v_pool = take(t, 2 * kvb_verbs_pools());
    set.growth = take(t, KVB_GROWTHS);
    set.capacity = 1 + take(t, 80);
    set.seq_capacity = 1 + take(t, 200);
    set.max_seqs = 1 + take(t, 8);
    set.min_chunk = 1 + take(t, 16);
    set.rollback = take(t, 8);
    set.step = take(t, 17);
    return set;
}

/* False: such a cache cannot be opened. */
static bool scene_open(scene *s, const verbs_setting *set)
{
    char why[256];
    const kvb_cache_type *type = kvb_verbs_types[set->cache % kvb_verbs_caches()];
    kvb_cache_options o = {.k_pool = kvb_verbs_pool(set->k_pool),
                           .v_pool = kvb_verbs_pool(set->v_pool),
                           .growth = (kvb_growth)(set->growth % KVB_GROWTHS),
                           .capacity = set->capacity,
                           .seq_capacity = set->seq_capacity,
                           .max_seqs = set->max_seqs,
                           .seq_ids = set->min_chunk % 3 ? 0 : set->max_seqs + 4,
                           .min_chunk = set->min_chunk,
                           .rollback = set->rollback,
                           .step = set->step,
                           .state_depth = set->rollback,
                           .page_cells = 1 + set->min_chunk % 8,
                           .prefix_bytes = set->rollback * 4096,
                           .allocator = &s->allocator};
    kvb_verbs_model(&s->model, set->shape % KVB_VERBS_SHAPES, o.k_pool, o.v_pool);
    /* Huge pages are kept in one of six settings that draw them: clearing them takes longer than so short a history. */
    const bool huge = o.growth == KVB_GROWTH_DOUBLE_THP || o.growth == KVB_GROWTH_RESERVE_THP;
    if (huge && (set->seq_capacity % 6 || !kvb_growth_available(o.growth, why, sizeof why)))
        o.growth = kvb_growth_reserves(o.growth) ? KVB_GROWTH_RESERVE : KVB_GROWTH_DOUBLE;
    kvb_replay_options wrong = {.cache = type};
    int error = set->fault ? kvb_fault_plant(set->fault, &wrong, why, sizeof why) : 0;
    if (!error)
        error = kvb_cache_open(wrong.cache, &s->model, &o, &s->cache, why, sizeof why);
    if (error)
        s->cache = NULL;
    s->roomless = kvb_verbs_types != kvb_builtin_caches && !(type->flags & KVB_CACHE_EXACT);
    s->resaves = set->min_chunk % 8 == 5;
    kvb_slots_open();
    if (error)
        return false;
    rules *m = &s->rules;
    m->type = type;
    m->model = &s->model;
    m->capacity = s->roomless ? 1 << 20 : o.capacity;
    m->seq_capacity = o.seq_capacity;
    m->n_ids = o.seq_ids ? o.seq_ids : KVB_SEQ_IDS;
    m->max_seqs = o.max_seqs;
    m->rollback = o.rollback;
    m->step = o.step;
    m->state_depth = o.state_depth;
    m->page_cells = o.page_cells;
    m->residual = o.k_pool->format->residual_cells || o.v_pool->format->residual_cells;
    return !kvb_rules_open(m) && !kvb_witness_check_open(&s->check, &s->model, RULES_TOKENS);
}

static void scene_close(scene *s)
{
    kvb_cache_close(s->cache);
    if (s->allocator.current_bytes)
        kvb_fuzz_wrong("%zu bytes are held after close", s->allocator.current_bytes);
    kvb_rules_close(&s->rules);
    kvb_witness_check_close(&s->check);
    kvb_call_free(&s->call);
    free(s);
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

static uint32_t seq_take(tape *t, const rules *m)
{
    uint32_t s = take(t, m->max_seqs + 3);
    return s < m->max_seqs ? s : s == m->max_seqs ? m->n_ids - 1 : s == m->max_seqs + 1 ? m->n_ids : m->max_seqs;
}

/* By a distance, or divided. */
static void shift_take(tape *t, const rules *m, call *c)
{
    const uint32_t by = take(t, 256);
    c->divides = m->type->flags & KVB_CACHE_DIVIDE && by >= 250;
    c->divisor = c->divides ? by - 250 : 0;
    c->delta = c->divides ? 0 : (int32_t)by - 128;
}

static bool call_take(void *ctx, const rules *m, call *taken, uint32_t *memory)
{
    tape *t = ctx;
    if (t->at == t->end || t->calls++ == TAPE_CALLS)
        return false;
    *memory = take(t, 4) == 3 ? 1 + take(t, 16) : 0;
    const bool prompts = m->type->flags & KVB_CACHE_PREFIX;
    call c = {.kind = (call_kind)take(t, prompts ? CALLS : MATCH)};
    c.key = c.kind == MATCH ? take(t, 3) : 0;
    if (c.kind == MATCH || c.kind == REORDER || c.kind == EXTEND || c.kind == STEP || c.kind == PROPOSE ||
        c.kind == COMMIT)
        c.n = take(t, 17);
    for (uint32_t i = 0; i < c.n && (c.kind == STEP || c.kind == REORDER); i++)
        c.ids[i] = seq_take(t, m);
    for (uint32_t i = 0; i < c.n && c.kind == REORDER; i++)
        c.srcs[i] = seq_take(t, m);
    c.known = prompts && (c.kind == MATCH || ((c.kind == STEP || c.kind == EXTEND) && take(t, 4)));
    for (uint32_t i = 0; i < c.n && c.known; i++)
        c.toks[i] = (int32_t)take(t, 2);
    const bool trees = m->type->flags & KVB_CACHE_SEQ && (c.kind == PROPOSE || c.kind == COMMIT) && take(t, 2);
    c.src = trees && c.kind == COMMIT ? seq_take(t, m) : 0;
    for (uint32_t i = 0; i < c.n && c.kind == PROPOSE; i++) {
        c.ids[i] = trees ? seq_take(t, m) : 0;
        c.parents[i] = (int32_t)take(t, kvb_rules_pending(m, c.ids[i]) + i + 2) - 1; /* the highest names no node yet */
    }
    for (uint32_t i = 0; i < c.n && c.kind == COMMIT; i++)
        c.ids[i] = take(t, kvb_rules_pending(m, c.src) + 1);
    if (c.kind == SAVE || c.kind == LOAD) {
        c.slot = take(t, RULES_SLOTS - 1);
        c.src = take(t, 3) ? seq_take(t, m) : KVB_SEQ_ALL;
    }
    if (c.kind == COPY || c.kind == REMOVE || c.kind == KEEP || c.kind == SHIFT || c.kind == MATCH)
        c.src = seq_take(t, m);
    if (c.kind == COPY)
        c.dst = seq_take(t, m);
    if (c.kind == COPY || c.kind == REMOVE || c.kind == REWIND || c.kind == SHIFT) {
        c.p0 = take(t, 256);
        c.p1 = take(t, 256);
        c.p1 = c.p1 ? c.p1 - 1 : KVB_POS_END;
    }
    if (c.kind == SHIFT)
        shift_take(t, m, &c);
    *taken = c;
    return true;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static void team_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    (void)team;
    part(ctx, 0, 1);
}

static uint64_t plans; /* made so far, by all caches */

/* A mask's generation is the same in all layers of a group under one plan, and in no others. */
static void mask_look(const scene *s, const kvb_attend_spec *spec, uint32_t group, uint32_t n)
{
    static struct {
        uint64_t generation, plan;
        uint32_t group;
    } last[64]; /* of all caches */
    static uint32_t at;
    kvb_cache_usage usage;
    kvb_cache_usage_of(s->cache, group, &usage);
    if (spec->k.cells > usage.high_water || spec->k.cells != spec->v.cells)
        kvb_fuzz_wrong("%s: views have %u and %u cells, the high-water mark is %u", s->rules.type->name, spec->k.cells,
                       spec->v.cells, usage.high_water);
    if (spec->mask.kind == KVB_MASK_NONE && n > 1)
        kvb_fuzz_wrong("%s: %u queries have no mask", s->rules.type->name, n);
    for (uint32_t i = 0; i < 64; i++)
        if (last[i].generation &&
            (last[i].generation == spec->generation) != (last[i].plan == plans && last[i].group == group))
            kvb_fuzz_wrong("%s: a mask's number is not its own", s->rules.type->name);
    if (!spec->generation)
        kvb_fuzz_wrong("%s: a mask has no number", s->rules.type->name);
    last[at].generation = spec->generation, last[at].plan = plans, last[at].group = group;
    at = (at + 1) % 64;
    s->tally->masks[spec->mask.kind]++;
}

/* Stores the feed in a layer that attends, and checks what queries see. False: the witness cannot read the pools. */
static bool layer_look(scene *s, uint32_t layer, const uint64_t *feed, uint32_t n)
{
    static float k[FED_MOST * KVB_VERBS_ROW], v[FED_MOST * KVB_VERBS_ROW], q[FED_MOST * KVB_VERBS_ROW],
        out[FED_MOST * KVB_VERBS_ROW], lse[FED_MOST * KVB_VERBS_HEADS];
    static uint32_t positions[FED_MOST];
    static const kvb_team team = {1, team_run};
    const kvb_group *group = kvb_model_group(&s->model, layer);
    const kvb_profile *tags = kvb_profile_find("tags");
    kvb_attend_spec spec;
    char why[300];
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t token = kvb_history_token(s->rules.history, feed[i]);
        positions[i] = s->rules.pos[feed[i]];
        kvb_profile_rows(tags, &s->model, 1, KVB_ROWS_K, layer, token, positions[i],
                         k + i * kvb_values_floats(group, KVB_ROWS_K));
        if (!group->latent)
            kvb_profile_rows(tags, &s->model, 1, KVB_ROWS_V, layer, token, positions[i],
                             v + i * kvb_values_floats(group, KVB_ROWS_V));
    }
    positions[n - 1]++;
    if (kvb_cache_update_and_fetch(s->cache, layer, positions, k, group->latent ? NULL : v, n, &spec) != -EINVAL)
        kvb_fuzz_wrong("update_and_fetch takes a position that is not the plan's");
    positions[n - 1]--;
    if (kvb_cache_update_and_fetch(s->cache, layer, positions, k, group->latent ? NULL : v, n, &spec))
        kvb_fuzz_wrong("update_and_fetch: %s", kvb_cache_why(s->cache));
    if (spec.group != group || spec.k.dim != group->k_dim || spec.v.dim != group->v_dim)
        kvb_fuzz_wrong("layer %u has views of another layer's rows", layer);
    mask_look(s, &spec, s->model.group_of[layer], n);
    if (!s->readable)
        return false;
    s->call.kernel = &kvb_kernel_witness;
    s->call.team = &team;
    s->call.out_elem = KVB_F32;
    int error = kvb_call_prepare(&s->call, &spec, q, n, why, sizeof why);
    if (error == -ENOTSUP)
        return false;
    if (error || kvb_call_run(&s->call, out, lse))
        kvb_fuzz_wrong("the witness: %s", why);
    if (kvb_witness_check_step(&s->check, s->rules.history, group, &s->call.args.problem, s->call.scratch,
                               s->rules.n_new, layer, why, sizeof why))
        kvb_fuzz_wrong("%s: %s", s->rules.type->name, why);
    return true;
}

/* Scans a layer once under each plan: some states change in place. */
static bool layer_scan(scene *s, uint32_t layer, const uint64_t *feed, uint32_t n)
{
    const bool done = s->scanned == feed[n - 1] + 1;
    const char *wrong = done ? NULL : kvb_call_scan(&s->rules, s->cache, layer, feed, n);
    s->tally->scanned += !done;
    if (wrong)
        kvb_fuzz_wrong("%s: layer %u: %s", s->rules.type->name, layer, wrong);
    return s->readable;
}

/* Without a plan the cache must refuse to store and to fetch. */
static void planless_look(scene *s)
{
    static const float rows[KVB_VERBS_ROW];
    const uint64_t *feed;
    const uint32_t position = 0;
    kvb_attend_spec spec;
    kvb_scan_spec states;
    if (kvb_cache_feed(s->cache, &feed) ||
        kvb_cache_update_and_fetch(s->cache, 0, &position, rows, rows, 1, &spec) != -EINVAL ||
        kvb_cache_fetch_states(s->cache, 0, &position, 1, &states) != -EINVAL)
        kvb_fuzz_wrong("%s: a plan is in force that should not be", s->rules.type->name);
}

/* Checks the plan in force: its feed, and what its queries see in each layer. */
static void plan_look(scene *s)
{
    const rules *m = &s->rules;
    const uint64_t *feed;
    rules_token path[RULES_LEN];
    const uint32_t n = kvb_cache_feed(s->cache, &feed);
    uint32_t want = m->type->flags & KVB_CACHE_FORGETS ? 0 : m->n_new;
    if (!m->valid) {
        planless_look(s);
        return;
    }
    for (uint64_t o = 0; o < m->next && m->type->flags & KVB_CACHE_FORGETS; o++)
        want += kvb_rules_path(m, o, path) > 0;
    if (n != want || n > FED_MOST)
        kvb_fuzz_wrong("%s: %u tokens are fed instead of %u", m->type->name, n, want);
    for (uint32_t i = 0; i < m->n_new; i++)
        if (feed[n - m->n_new + i] != m->first + i)
            kvb_fuzz_wrong("%s: token %u of the step is not the one that is fed", m->type->name, i);
    for (uint32_t layer = 0; layer < KVB_VERBS_LAYERS;
         layer++) /* rows are stored even where they cannot be read back */
        s->readable = kvb_group_scans(kvb_model_group(&s->model, layer)) ? layer_scan(s, layer, feed, n)
                                                                         : layer_look(s, layer, feed, n);
    s->scanned = feed[n - 1] + 1;
    s->tally->steps++;
}

static void usage_read(const scene *s, kvb_cache_usage *usage)
{
    for (uint32_t g = 0; g < s->model.n_groups; g++)
        kvb_cache_usage_of(s->cache, g, &usage[g]);
}

/* A refused call must change no count of any group, and give a reason. */
static void refused_look(const scene *s)
{
    kvb_cache_usage now[RULES_GROUPS];
    usage_read(s, now);
    for (uint32_t g = 0; g < s->model.n_groups; g++)
        if (now[g].cells_live != s->usage[g].cells_live || now[g].cells_peak != s->usage[g].cells_peak ||
            now[g].high_water != s->usage[g].high_water || now[g].cells_written != s->usage[g].cells_written ||
            now[g].cells_moved != s->usage[g].cells_moved)
            kvb_fuzz_wrong("%s: a call that was refused has changed counts of group %u", s->rules.type->name, g);
    if (!*kvb_cache_why(s->cache))
        kvb_fuzz_wrong("%s: a call was refused without a word", s->rules.type->name);
}

static void state_look(scene *s)
{
    const rules *m = &s->rules;
    for (uint32_t g = 0; g < s->model.n_groups && !s->roomless; g++) {
        const bool anew =
            kvb_group_scans(&s->model.groups[g]) && m->type->flags & KVB_CACHE_FORGETS; /* slots last for one step */
        const uint32_t live = kvb_rules_live(m, g), most = kvb_rules_cells(m, g);
        kvb_cache_usage usage;
        kvb_cache_usage_of(s->cache, g, &usage);
        if ((!anew && usage.cells_live != live) || usage.cells_peak > most)
            kvb_fuzz_wrong("%s: group %u has %u cells, %u at most, instead of %u and %u", m->type->name, g,
                           usage.cells_live, usage.cells_peak, live, most);
    }
    for (uint32_t i = 0; i < m->n_ids; i++) {
        const uint32_t length = kvb_cache_length(s->cache, i), pending = kvb_cache_pending(s->cache, i);
        if (length != kvb_rules_length(m, i) || length != kvb_history_next(m->history, i) ||
            pending != kvb_rules_pending(m, i))
            kvb_fuzz_wrong("%s: sequence %u has length %u and %u nodes instead of %u and %u", m->type->name, i, length,
                           pending, kvb_rules_length(m, i), kvb_rules_pending(m, i));
    }
}

/* Checks can_extend and can_propose before a step. Neither may ask for memory. */
static void forecast_look(scene *s, const call *c)
{
    call nodes = {.kind = PROPOSE, .n = c->n};
    const uint64_t requests = s->allocator.requests;
    rules *m = &s->rules;
    if (s->roomless)
        return;
    if (c->kind == STEP || c->kind == EXTEND) {
        const uint32_t *ids = c->kind == STEP ? c->ids : NULL;
        if (kvb_cache_can_extend(s->cache, ids, c->n) != kvb_rules_room(m, c))
            kvb_fuzz_wrong("%s: can_extend is wrong of %u tokens", m->type->name, c->n);
    }
    for (uint32_t i = 0; i < c->n; i++) {
        nodes.ids[i] = c->kind == PROPOSE ? c->ids[i] : 0;
        nodes.parents[i] = -1;
    }
    if (kvb_cache_can_propose(s->cache, c->kind == PROPOSE ? nodes.ids : NULL, c->n) != kvb_rules_room(m, &nodes))
        kvb_fuzz_wrong("%s: can_propose is wrong of %u nodes", m->type->name, c->n);
    if (s->allocator.requests != requests)
        kvb_fuzz_wrong("%s: a forecast asks for memory", m->type->name);
}

/* Counts what happened: a test requires enough of each. had: tokens of a copy's destination before the copy. */
static void call_count(const scene *s, const call *c, int answer, uint32_t had)
{
    const rules *m = &s->rules;
    verbs_tally *t = s->tally;
    t->refused += answer != 0;
    t->no_space += answer == -ENOSPC;
    t->no_reach += answer == -ENOTSUP && c->kind != SAVE && c->kind != LOAD;
    if (answer)
        return;
    t->beside += c->kind == STEP && m->now->n_nodes;
    t->trees += c->kind == COMMIT && m->now->n_nodes;
    t->reordered += c->kind == REORDER && c->n > 1;
    t->joined += c->kind == COPY && had && m->now->seq[c->dst].n > had;
    t->loaded += c->kind == LOAD && !s->resaves;
    t->found += c->kind == MATCH && kvb_call_found;
    for (uint32_t i = 0; i < m->n_ids; i++)
        t->longer += m->now->seq[i].n > m->capacity && kvb_rules_attend(m);
}

/* A cache that holds no token must have room for one, whatever makes it full otherwise. */
static void full_look(const scene *s, const call *c)
{
    const rules *m = &s->rules;
    uint32_t held = 0;
    for (uint32_t i = 0; i < m->n_ids; i++)
        held += kvb_rules_length(m, i) + kvb_rules_pending(m, i);
    if (!held && c->n == 1 && (c->kind == STEP || c->kind == EXTEND))
        kvb_fuzz_wrong("%s: a token is refused by a cache that holds none: %s", m->type->name, kvb_cache_why(s->cache));
}

static int cache_do(scene *s, const call *c)
{
    usage_read(s, s->usage);
    const int got = kvb_call_make(s->cache, c);
    if (got)
        refused_look(s);
    return got;
}

/* Makes the call. `heard` gets it before the answer is judged, so that a trace also holds the call that goes wrong.
 * memory: the request for memory that is refused; 0: none. */
static int call_do(scene *s, const call *c, uint32_t memory, verbs_heard *heard, void *ctx)
{
    rules *m = &s->rules;
    const uint32_t had = c->kind == COPY && c->dst < m->n_ids ? m->now->seq[c->dst].n : 0;
    int got = -ENOMEM;
    forecast_look(s, c);
    if (memory) {
        s->allocator.fail_request = s->allocator.requests + memory;
        got = cache_do(s, c);
        s->allocator.fail_request = 0;
    }
    if (memory && got == -ENOMEM) { /* must be as if it had not been made */
        s->tally->no_memory++;
        state_look(s);
        plan_look(s);
    }
    if ((c->kind == MATCH || s->roomless) && got == -ENOMEM)
        got = cache_do(s, c);
    if (s->roomless && got == -ENOSPC) { /* the same */
        full_look(s, c);
        state_look(s);
        plan_look(s);
        return got;
    }
    bool wrong = false;
    int want = c->kind == MATCH ? kvb_rules_match(m, c, got, kvb_call_found, kvb_call_ordinals, &wrong)
                                : kvb_rules_answer(m, c, 0);
    if (wrong)
        kvb_fuzz_wrong("%s: a prompt of %u tokens finds %u, which are not its beginning, or not all that must be found",
                       m->type->name, c->n, kvb_call_found);
    const kvb_event *event = want ? NULL : c->kind == MATCH ? &m->event : kvb_rules_take(m, c);
    if (event && heard)
        heard(ctx, &s->model, event);
    if (got == -ENOMEM)
        got = cache_do(s, c);
    if (want && c->kind != MATCH) /* the call may break several rules */
        want = kvb_rules_answer(m, c, got);
    if (got != want)
        kvb_fuzz_wrong("%s: call %d of %u tokens returned %d instead of %d: %s", m->type->name, (int)c->kind, c->n, got,
                       want, kvb_cache_why(s->cache));
    plans += !want && (c->kind == EXTEND || c->kind == STEP || c->kind == PROPOSE);
    call_count(s, c, want, had);
    state_look(s);
    plan_look(s);
    return want;
}

/* Saves the whole cache to a file and loads it again. */
static void resave_do(scene *s, verbs_heard *heard, void *ctx)
{
    const call save = {.kind = SAVE, .src = KVB_SEQ_ALL, .slot = RULES_SLOTS - 1},
               load = {.kind = LOAD, .src = KVB_SEQ_ALL, .slot = RULES_SLOTS - 1};
    if (!kvb_rules_answer(&s->rules, &save, 0) &&
        (call_do(s, &save, 0, heard, ctx) || call_do(s, &load, 0, heard, ctx)))
        kvb_fuzz_wrong("%s: what was saved is not loaded", s->rules.type->name);
}

/* Offers a prompt, then makes a step with the tokens that were not found. If the step does not fit, the found tokens
 * are removed. In a trace all this is one event. */
static void prompt_do(scene *s, const call *c, uint32_t memory, verbs_heard *heard, void *ctx)
{
    static const uint32_t zeros[16];
    const call gone = {.kind = REMOVE, .src = c->src, .p1 = KVB_POS_END};
    call rest = {.kind = STEP, .known = true, .key = c->key};
    for (uint32_t i = 0; i < c->n; i++)
        rest.ids[i] = c->src;
    const kvb_event prompt = {.kind = KVB_EVENT_PREFILL,
                              .n = c->n,
                              .pos = (uint32_t *)zeros,
                              .seq = rest.ids,
                              .tok = (int32_t *)c->toks,
                              .reuse = true,
                              .extra_key = c->key};
    rest.n = c->n;
    const bool whole = kvb_rules_answer(&s->rules, &rest, 0) == 0;
    if (whole && heard)
        heard(ctx, &s->model, &prompt);
    if (call_do(s, c, memory, NULL, ctx))
        return;
    rest.n = c->n - kvb_call_found;
    memcpy(rest.toks, c->toks + kvb_call_found, rest.n * sizeof *rest.toks);
    if (call_do(s, &rest, memory, whole ? NULL : heard, ctx))
        call_do(s, &gone, 0, NULL, ctx);
}

void kvb_verbs_play(const verbs_setting *set, verbs_next *next, verbs_heard *heard, void *ctx, verbs_tally *tally)
{
    scene *s = calloc(1, sizeof *s);
    call c = {.kind = CALLS};
    uint32_t memory = 0;
    if (!s)
        kvb_fuzz_wrong("no memory");
    s->readable = true;
    s->tally = tally;
    for (bool open = scene_open(s, set); open && next(ctx, &s->rules, &c, &memory);) {
        c.kind == MATCH ? prompt_do(s, &c, memory, heard, ctx) : (void)call_do(s, &c, memory, heard, ctx);
        if (s->resaves)
            resave_do(s, heard, ctx);
    }
    scene_close(s);
}

void kvb_fuzz_verbs(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n)
{
    tape t = {bytes, bytes + n, 0};
    verbs_tally tally = {0};
    (void)target;
    verbs_setting set = setting_take(&t);
    kvb_verbs_play(&set, call_take, NULL, &t, &tally);
}
