/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows, without an oracle, that outputs are the same: for one random history on two caches, and for a history with and
 * without detours that leave nothing behind (rejected drafts, steps taken back, an unrelated sequence that comes and
 * goes).
 */
#define TESTS_OWN_MAIN
#include "ci/fuzz/verbs.h"
#include "ci/tests/caches/rig.h"

#include "caches/call.h"
#include "kernels/kernels.h"
#include "workloads/values.h"

enum { LAYERS = 3, DIM = 16, HEADS = 4, BASE = 4096, CALLS_EACH = 60, HISTORIES = 25, STRANGER = 7, FED = 1024 };
/* Shape of a layer that scans. */
enum { Q_K = 8, SCAN_HEADS = 2, SCAN_V = 16, CHANNELS = 2 * Q_K + SCAN_HEADS * SCAN_V, TAPS = 4 };

/* ---- a cache that is played on ----------------------------------------------------------------------------------- */

/* A cache and its outputs. A token's label keys its rows: the history's tokens are numbered from 0, those of detours
 * from BASE on. */
typedef struct player {
    kvb_allocator allocator;
    kvb_cache *cache;
    kvb_call call;
    kvb_scan_call scan;
    uint32_t pos[RULES_TOKENS], label[RULES_TOKENS]; /* [ordinal] */
    uint64_t next;                                   /* ordinal of the next token */
    uint32_t based, strange;                         /* labels used: of the history; of detours */
    float out[BASE][LAYERS][HEADS * (DIM + 1)];      /* [label] outputs with log-sum-exps */
} player;

static kvb_model model;
static drawer draws;

typedef enum layers_kind {
    PLAIN,
    LIMITED,
    SCANNING
} layers_kind; /* LIMITED: window, chunk; SCANNING: one layer scans */

static void model_make(layers_kind layers)
{
    const kvb_group group = {.heads = HEADS,
                             .kv_heads = 2,
                             .k_dim = DIM,
                             .v_dim = DIM,
                             .scale = 0.25,
                             .rope = {.known = true, .base = 10000, .dims = DIM}};
    model = (kvb_model){.n_layers = LAYERS, .n_groups = 2, .group_of = {0, 1, 0}, .groups = {group, group}};
    model.groups[layers == LIMITED ? 0 : 1].softcap = 20;
    model.groups[0].rope = (kvb_rope){.known = true, .base = 100, .dims = DIM};
    model.groups[1].rope = (kvb_rope){.known = true, .base = 10000, .neighbours = true, .first = 4, .dims = DIM / 2};
    if (layers == LIMITED) {
        model.groups[0].window = 7, model.groups[0].sinks = 2;
        model.groups[1].chunk = 8;
    }
    if (layers == SCANNING)
        model.groups[1] = (kvb_group){.kind = KVB_GROUP_SCAN,
                                      .scan = {.kind = KVB_SCAN_DELTA,
                                               .heads = SCAN_HEADS,
                                               .groups = 1,
                                               .d_k = Q_K,
                                               .d_v = SCAN_V,
                                               .conv_width = TAPS,
                                               .conv_channels = CHANNELS,
                                               .silu = true}};
}

static void team_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    (void)team;
    part(ctx, 0, 1);
}

static void player_open(player *p, const rules *like, const kvb_cache_type *type, uint32_t page_cells,
                        const kvb_kernel *kernel)
{
    static const kvb_team team = {1, team_run};
    char why[200];
    const kvb_cache_options o = {.capacity = like->capacity,
                                 .seq_capacity = like->seq_capacity + 8, /* for detours */
                                 .max_seqs = like->max_seqs + 1,
                                 .rollback = like->rollback + 16, /* and for a step after which a detour drops tokens */
                                 .state_depth = like->state_depth + 20,
                                 .min_chunk = 4,
                                 .page_cells = page_cells,
                                 .k_pool = kvb_builtin_pools[0],
                                 .v_pool = kvb_builtin_pools[0],
                                 .allocator = &p->allocator};
    *p = (player){.call = {.kernel = kernel, .team = &team, .out_elem = KVB_F32},
                  .scan = {.kernel = kernel == &kvb_kernel_reference ? &kvb_kernel_scan_reference : &kvb_kernel_scan,
                           .team = &team,
                           .out_elem = KVB_F32}};
    assert_int_equal(kvb_cache_open(type, &model, &o, &p->cache, why, sizeof why), 0);
}

static void player_close(player *p)
{
    kvb_call_free(&p->call);
    kvb_scan_call_free(&p->scan);
    kvb_cache_close(p->cache);
    assert_int_equal(p->allocator.current_bytes, 0);
}

static void scan_run(kvb_scan_call *scan, const kvb_scan_spec *spec, bool conv, const kvb_scan *inputs, float *out)
{
    char why[200];
    if (kvb_scan_call_prepare(scan, spec, conv, inputs, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(kvb_scan_call_run(scan, out), 0);
}

/* The same for a layer that scans: a convolution, then a recurrence over its outputs. k has norm 1. */
static void layer_scan(player *p, uint32_t layer, const uint64_t *feed, uint32_t n, uint32_t n_new)
{
    static float x[FED * CHANNELS], mixed[FED * CHANNELS], q[FED * Q_K], k[FED * Q_K], v[FED * SCAN_HEADS * SCAN_V],
        gate[FED * SCAN_HEADS], beta[FED * SCAN_HEADS], out[FED * SCAN_HEADS * SCAN_V], taps[TAPS * CHANNELS];
    static uint32_t positions[FED];
    kvb_scan_spec spec;
    assert_true(n <= FED);
    for (uint32_t i = 0; i < TAPS * CHANNELS; i++)
        taps[i] = 0.5F / (float)(1 + i % 7);
    for (uint32_t i = 0; i < n; i++) {
        float row[HEADS * DIM];
        positions[i] = p->pos[feed[i]];
        kvb_profile_rows(kvb_profile_find("gaussian"), &model, 1, KVB_ROWS_Q, 0, p->label[feed[i]], positions[i], row);
        memcpy(x + (size_t)i * CHANNELS, row, CHANNELS * sizeof *x);
        for (uint32_t h = 0; h < SCAN_HEADS; h++) {
            gate[i * SCAN_HEADS + h] = -0.1F * fabsf(row[CHANNELS + h]);
            beta[i * SCAN_HEADS + h] = 0.5F + 0.4F * tanhf(row[CHANNELS + SCAN_HEADS + h]);
        }
    }
    assert_int_equal(kvb_cache_fetch_states(p->cache, layer, positions, n, &spec), 0);
    scan_run(&p->scan, &spec, true, &(kvb_scan){.v = x, .a = taps}, mixed);
    for (uint32_t i = 0; i < n; i++) {
        const float *row = mixed + (size_t)i * CHANNELS;
        float norm = 1e-6F;
        for (uint32_t c = 0; c < Q_K; c++)
            norm += row[Q_K + c] * row[Q_K + c];
        for (uint32_t c = 0; c < Q_K; c++) {
            q[i * Q_K + c] = row[c];
            k[i * Q_K + c] = row[Q_K + c] / sqrtf(norm);
        }
        memcpy(v + (size_t)i * SCAN_HEADS * SCAN_V, row + 2 * Q_K, SCAN_HEADS * SCAN_V * sizeof *v);
    }
    scan_run(&p->scan, &spec, false, &(kvb_scan){.q = q, .k = k, .v = v, .gate = gate, .beta = beta}, out);
    for (uint32_t i = n - n_new; i < n; i++)
        if (p->label[feed[i]] < BASE)
            memcpy(p->out[p->label[feed[i]]][layer], out + (size_t)i * SCAN_HEADS * SCAN_V,
                   SCAN_HEADS * SCAN_V * sizeof *out);
}

/* Stores the fed tokens' rows in one layer; keeps the outputs of new tokens with a label of the history. */
static void layer_play(player *p, uint32_t layer, const uint64_t *feed, uint32_t n, uint32_t n_new)
{
    static float rows[KVB_ROWS_ATTENDED][FED * HEADS * DIM], out[FED * HEADS * DIM], lse[FED * HEADS];
    static uint32_t positions[FED];
    const kvb_profile *gaussian = kvb_profile_find("gaussian");
    kvb_attend_spec spec;
    char why[200];
    assert_true(n <= FED);
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = p->pos[feed[i]];
        for (int kind = 0; kind < KVB_ROWS_ATTENDED; kind++)
            kvb_profile_rows(gaussian, &model, 1, (kvb_rows)kind, layer, p->label[feed[i]], positions[i],
                             rows[kind] + i * kvb_values_floats(&model.groups[0], (kvb_rows)kind));
    }
    assert_int_equal(
        kvb_cache_update_and_fetch(p->cache, layer, positions, rows[KVB_ROWS_K], rows[KVB_ROWS_V], n, &spec), 0);
    assert_int_equal(kvb_call_prepare(&p->call, &spec, rows[KVB_ROWS_Q], n, why, sizeof why), 0);
    assert_int_equal(kvb_call_run(&p->call, out, lse), 0);
    for (uint32_t i = n - n_new; i < n; i++) {
        const uint32_t label = p->label[feed[i]];
        if (label >= BASE)
            continue;
        memcpy(p->out[label][layer], out + i * HEADS * DIM, HEADS * DIM * sizeof *out);
        memcpy(p->out[label][layer] + HEADS * DIM, lse + i * HEADS, HEADS * sizeof *lse);
    }
}

/* Makes a call that brings n_new tokens (0: none), whose labels are the history's next ones or a detour's. */
static void call_play(player *p, const call *c, uint32_t n_new, bool detour)
{
    const uint64_t *feed;
    for (uint32_t i = 0; i < n_new; i++)
        p->label[p->next + i] = detour ? BASE + p->strange++ : p->based++;
    for (uint32_t i = 0; i < n_new; i++) { /* positions, before the call changes lengths */
        const uint32_t s = c->kind == STEP ? c->ids[i] : 0;
        uint32_t pos = kvb_cache_length(p->cache, s);
        if (c->kind == PROPOSE)
            for (int32_t at = c->parents[i]; at >= 0; at = c->parents[at])
                pos++;
        for (uint32_t j = 0; j < i && c->kind != PROPOSE; j++)
            pos += (c->kind == STEP ? c->ids[j] : 0) == s;
        p->pos[p->next + i] = pos;
    }
    p->next += n_new;
    assert_true(p->next < RULES_TOKENS && p->based < BASE);
    const int error = kvb_call_make(p->cache, c);
    if (error)
        print_message("# call %d of sequence %u, positions %u to %u: %s\n", (int)c->kind, c->src, c->p0, c->p1,
                      kvb_cache_why(p->cache));
    assert_int_equal(error, 0);
    const uint32_t n = kvb_cache_feed(p->cache, &feed);
    assert_int_equal(n > 0, n_new > 0);
    for (uint32_t layer = 0; layer < LAYERS && n; layer++)
        (kvb_group_scans(kvb_model_group(&model, layer)) ? layer_scan : layer_play)(p, layer, feed, n, n_new);
}

static uint32_t brings(const call *c)
{
    return c->kind == STEP || c->kind == EXTEND || c->kind == PROPOSE ? c->n : 0;
}

static void same_check(const player *a, const player *b, const char *what)
{
    double most = 0;
    assert_int_equal(a->based, b->based);
    for (uint32_t i = 0; i < a->based; i++)
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            for (uint32_t j = 0; j < HEADS * (DIM + 1); j++) {
                const double x = a->out[i][layer][j], y = b->out[i][layer][j];
                assert_true(isfinite(x) && isfinite(y));
                most = fmax(most, fabs(x - y) / (1 + fabs(y)));
            }
    if (most > 1e-5)
        print_message("# %s: outputs differ by %g\n", what, most);
    assert_true(most <= 1e-5);
}

/* ---- histories --------------------------------------------------------------------------------------------------- */

/* How a call of the history is played on the second cache. */
typedef void detour(player *p, const call *c);

static void plainly(player *p, const call *c)
{
    call_play(p, c, brings(c), false);
}

/* Adds tokens and removes them before the call. */
static void with_steps_back(player *p, const call *c)
{
    const bool seqs = kvb_cache_type_of(p->cache)->flags & KVB_CACHE_SEQ;
    const uint32_t s = seqs ? kvb_draw_below(&draws, 5) : 0, length = kvb_cache_length(p->cache, s);
    call step = {.kind = seqs ? STEP : EXTEND, .n = 1 + kvb_draw_below(&draws, 4)};
    for (uint32_t i = 0; i < step.n; i++)
        step.ids[i] = s;
    call_play(p, &step, step.n, true);
    call_play(p, &(call){.kind = seqs ? REMOVE : REWIND, .src = s, .p0 = length, .p1 = KVB_POS_END}, 0, true);
    plainly(p, c);
}

/* Steps of an unrelated sequence between the calls change where cells lie. */
static void with_strangers(player *p, const call *c)
{
    call step = {.kind = STEP, .n = 1 + kvb_draw_below(&draws, 3)};
    for (uint32_t i = 0; i < step.n; i++)
        step.ids[i] = STRANGER;
    const uint32_t length = kvb_cache_length(p->cache, STRANGER);
    if (kvb_draw_below(&draws, 2) || length > 12)
        call_play(
            p,
            &(call){
                .kind = REMOVE, .src = STRANGER, .p0 = kvb_draw_below(&draws, 2) ? length / 2 : 0, .p1 = KVB_POS_END},
            0, true);
    else
        call_play(p, &step, step.n, true);
    plainly(p, c);
}

/* Compacts the cache before each call; the unrelated sequence makes this necessary. */
static void with_order(player *p, const call *c)
{
    call_play(p, &(call){.kind = DEFRAG}, 0, true);
    with_strangers(p, c);
}

/* A sequence's tail moves up and, after a step of another sequence, down again. */
static void with_shifts_back(player *p, const call *c)
{
    const uint32_t s = kvb_draw_below(&draws, 5), length = kvb_cache_length(p->cache, s),
                   p0 = kvb_draw_below(&draws, length + 1);
    const int32_t up = 1 + (int32_t)kvb_draw_below(&draws, 8);
    call shift = {.kind = SHIFT, .src = s, .p0 = p0, .p1 = KVB_POS_END, .delta = up};
    call_play(p, &shift, 0, true);
    call_play(p, &(call){.kind = STEP, .n = 1, .ids = {STRANGER}}, 1, true);
    call_play(p, &(call){.kind = REMOVE, .src = STRANGER, .p1 = KVB_POS_END}, 0, true);
    shift.p0 += (uint32_t)up;
    shift.delta = -up;
    call_play(p, &shift, 0, true);
    plainly(p, c);
}

/* Each step becomes a chain of draft nodes that are all accepted, after a tree of which none is. */
static void as_trees(player *p, const call *c)
{
    call tree = {.kind = PROPOSE, .n = 1 + kvb_draw_below(&draws, 6)}, chain = {.kind = PROPOSE, .n = c->n},
         all = {.kind = COMMIT, .n = c->n};
    if (c->kind != EXTEND) {
        plainly(p, c);
        return;
    }
    for (uint32_t i = 0; i < 16; i++) {
        tree.parents[i] = (int32_t)kvb_draw_below(&draws, i + 1) - 1;
        chain.parents[i] = (int32_t)i - 1;
        all.ids[i] = i;
    }
    call_play(p, &tree, tree.n, true);
    call_play(p, &(call){.kind = COMMIT}, 0, true);
    call_play(p, &chain, chain.n, false);
    call_play(p, &all, 0, false);
}

typedef struct relation {
    const char *name;
    const kvb_cache_type *first, *second;
    detour *how;
    layers_kind layers;
} relation;

static void histories_compare(const relation *r, const kvb_kernel *kernel)
{
    static player first, second;
    static rules m;
    uint32_t tokens = 0;
    model_make(r->layers);
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        const uint32_t page_cells = (uint32_t[]){1, 4, 7}[seed % 3];
        m.type = r->first;
        m.model = &model;
        m.capacity = 400;
        m.seq_capacity = 60;
        m.n_ids = KVB_SEQ_IDS;
        m.max_seqs = 5;
        m.rollback = m.state_depth = 4;
        m.page_cells = page_cells;
        assert_int_equal(kvb_rules_open(&m), 0);
        draws = (drawer){.state = seed, .seqs = 5, .no_saves = true}; /* both players would write the same files */
        player_open(&first, &m, r->first, page_cells, kernel);
        player_open(&second, &m, r->second, page_cells, kernel);
        for (uint32_t i = 0; i < CALLS_EACH; i++) {
            const call c = kvb_draw_call(&draws, &m);
            const bool can = c.kind != SHIFT || r->first->flags & r->second->flags & KVB_CACHE_SHIFT;
            if (!can || c.kind == PROPOSE || c.kind == COMMIT || kvb_rules_call(&m, &c))
                continue;
            call_play(&first, &c, brings(&c), false);
            r->how(&second, &c);
        }
        kvb_rules_close(&m);
        same_check(&first, &second, r->name);
        tokens += first.based;
        player_close(&first);
        player_close(&second);
    }
    print_message("# %s, %s: %u tokens\n", r->name, kernel->name, tokens);
    assert_true(tokens > HISTORIES * CALLS_EACH / 2);
}

static const relation relations[] = {
    {"paged and dropped is masked", &kvb_cache_paged, &kvb_cache_paged_prefix, plainly, LIMITED},
    {"paged is seq", &kvb_cache_paged, &kvb_cache_seq, plainly, PLAIN},
    {"frozen is shared", &kvb_cache_shared_prefix, &kvb_cache_seq, plainly, PLAIN},
    {"frozen rolled back is never decoded", &kvb_cache_shared_prefix, &kvb_cache_shared_prefix, with_steps_back, PLAIN},
    {"slab is seq", &kvb_cache_slab, &kvb_cache_seq, plainly, PLAIN},
    {"recomputed is kept", &kvb_cache_recompute, &kvb_cache_seq, plainly, PLAIN},
    {"contiguous is seq", &kvb_cache_contiguous, &kvb_cache_seq, plainly, PLAIN},
    {"dropped is masked", &kvb_cache_window, &kvb_cache_seq, plainly, LIMITED},
    {"dropped by pages is masked", &kvb_cache_paged, &kvb_cache_seq, plainly, LIMITED},
    {"seq rolled back is never decoded", &kvb_cache_seq, &kvb_cache_seq, with_steps_back, LIMITED},
    {"paged rolled back is never decoded", &kvb_cache_paged, &kvb_cache_paged, with_steps_back, PLAIN},
    {"paged-prefix rolled back is never decoded", &kvb_cache_paged_prefix, &kvb_cache_paged_prefix, with_steps_back,
     LIMITED},
    {"slab rolled back is never decoded", &kvb_cache_slab, &kvb_cache_slab, with_steps_back, PLAIN},
    {"contiguous rolled back is never decoded", &kvb_cache_contiguous, &kvb_cache_contiguous, with_steps_back, LIMITED},
    {"seq does not care where cells lie", &kvb_cache_seq, &kvb_cache_seq, with_strangers, LIMITED},
    {"paged does not care where pages lie", &kvb_cache_paged, &kvb_cache_paged, with_strangers, PLAIN},
    {"paged-prefix does not care where pages lie", &kvb_cache_paged_prefix, &kvb_cache_paged_prefix, with_strangers,
     PLAIN},
    {"seq put in order is as it was", &kvb_cache_seq, &kvb_cache_seq, with_order, LIMITED},
    {"seq moved there and back is as it was", &kvb_cache_seq, &kvb_cache_seq, with_shifts_back, LIMITED},
    {"slab moved there and back is as it was", &kvb_cache_slab, &kvb_cache_slab, with_shifts_back, PLAIN},
    {"a chain of drafts is a step", &kvb_cache_contiguous, &kvb_cache_tree, as_trees, LIMITED},
    {"states of paged are those of seq", &kvb_cache_paged, &kvb_cache_seq, plainly, SCANNING},
    {"states of slab are those of seq", &kvb_cache_slab, &kvb_cache_seq, plainly, SCANNING},
    {"states computed anew are those that were kept", &kvb_cache_recompute, &kvb_cache_seq, plainly, SCANNING},
    {"states rolled back are as if never decoded", &kvb_cache_seq, &kvb_cache_seq, with_steps_back, SCANNING},
    {"states do not care which slots they have", &kvb_cache_seq, &kvb_cache_seq, with_strangers, SCANNING},
    {"states behind a chain of drafts are those of a step", &kvb_cache_contiguous, &kvb_cache_tree, as_trees, SCANNING},
};

static void test_relation(void **state)
{
    histories_compare(*state, &kvb_kernel_reference);
    histories_compare(*state, &kvb_kernel_flash);
}

int main(void)
{
    for (const relation *r = relations; r < relations + sizeof relations / sizeof *relations; r++)
        tests_add(__LINE__, (struct CMUnitTest){r->name, test_relation, NULL, NULL, (void *)(uintptr_t)r});
    return tests_run();
}
