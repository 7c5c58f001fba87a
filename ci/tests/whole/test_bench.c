/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that `kvbench bench` measures what it claims: its masks are the trees, batches and forks of their names, bytes
 * and operations are counted from them, every copy of the rows exists, ratios use the right limit, and a kernel that is
 * wrong, fails or is unavailable is not timed.
 */
#include "ci/tests/tests.h"
#include "harness/bench/bench.h"
#include "kernels/kernels.h"
#include "workloads/live/live.h"

static void run_here(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    for (uint32_t i = 0; i < team->n; i++)
        part(ctx, i, team->n);
}

static const kvb_team two = {.n = 2, .run = run_here}, one = {.n = 1, .run = run_here};

enum { KV_HEADS = 8, DIM = 128 };

/* ---- visible cells, written anew ------------------------------------------------------------------------------ */

static bool descends(uint32_t node, uint32_t from)
{
    return node == from || (node > 0 && descends(kvb_eagle_shape_25.parents[node], from));
}

/* In a sequence of this length: does cell c lie before the window and behind the four sinks? */
static bool hidden(uint32_t window, uint32_t c, uint32_t length)
{
    return window && c >= 4 && c + window < length;
}

/* [cell] the sequence that has the cell's page; -1: none. */
static int paged[1 << 16];

/* Fills paged[]. All sequences must have as many pages, no page may belong to two, and pages must be shuffled. */
static void pages_note(const kvb_bench_scene *s)
{
    const kvb_mask *m = &s->own.mask;
    const uint32_t page = m->page_cells;
    uint32_t ascending = 0, n = 0;
    memset(paged, -1, sizeof paged);
    assert_true(page == s->work->page || page == s->cells / s->n_tok);
    for (uint32_t t = 0; t < s->n_tok; t++) {
        assert_int_equal(m->row_start[t + 1] - m->row_start[t], s->cells / s->n_tok / page);
        for (uint32_t i = m->row_start[t]; i < m->row_start[t + 1]; i++, n++) {
            ascending += n && m->pages[i] > m->pages[n - 1];
            for (uint32_t c = m->pages[i] * page; c < (m->pages[i] + 1) * page; c++) {
                assert_int_equal(paged[c], -1);
                paged[c] = (int)t;
            }
        }
    }
    assert_true(ascending < 3 * n / 4);
}

static bool sees(const kvb_bench_scene *s, uint32_t t, uint32_t c)
{
    uint32_t tail = s->cells / 16 < 64 ? s->cells / 16 : 64, trunk = s->cells - 8 * tail;
    switch (s->work->shape) {
    case KVB_BENCH_DECODE:
        return true;
    case KVB_BENCH_VERIFY:
        return c < s->cells - 26 || descends(t, c - (s->cells - 26));
    case KVB_BENCH_BATCH:
        return c / (s->cells / 16) == t && !hidden(s->work->window, c % (s->cells / 16), s->cells / 16);
    case KVB_BENCH_STEPS:
        return c % 16 == t && c / 16 < s->cells / 16;
    case KVB_BENCH_FORK:
        return c < trunk || (c - trunk) % 8 == t;
    case KVB_BENCH_PAGED:
        return paged[c] == (int)t;
    case KVB_BENCH_PREFILL:
    case KVB_BENCH_CHUNK:
        return c <= s->cells - s->n_tok + t && !hidden(s->work->window, c, s->cells - s->n_tok + t + 1);
    }
    return false;
}

static void scene_check(const kvb_bench_work *work, uint32_t cells)
{
    kvb_bench_scene s;
    uint64_t pairs = 0, unique = 0;
    assert_int_equal(kvb_bench_scene_open(&s, &two, work, cells), 0);
    bool *seen = calloc(cells, sizeof *seen);
    uint8_t *shown = calloc(cells, sizeof *shown);
    if (work->shape == KVB_BENCH_PAGED)
        pages_note(&s);
    for (uint32_t t = 0; t < s.n_tok; t++) {
        const kvb_mask *masks[] = {&s.own.mask, &s.bits};
        for (int m = 0; m < 2; m++) {
            uint32_t cursor = 0;
            kvb_run run;
            if (!masks[m]->bits && m)
                continue;
            memset(shown, 0, cells * sizeof *shown);
            while (kvb_mask_next(masks[m], s.n_tok, cells, t, &cursor, &run)) /* pages come in any order */
                for (uint32_t c = run.begin; c < run.end; c++)
                    shown[c]++;
            for (uint32_t c = 0; c < cells; c++)
                assert_int_equal(shown[c], sees(&s, t, c));
        }
        for (uint32_t c = 0; c < cells; c++) {
            pairs += sees(&s, t, c);
            seen[c] = seen[c] || sees(&s, t, c);
        }
    }
    for (uint32_t c = 0; c < cells; c++)
        unique += seen[c];
    assert_int_equal(s.own.pairs, pairs);
    assert_int_equal(s.own.unique, unique);
    if (s.plain.cells) { /* the plain form reads as many cells; with a prompt's windows more */
        assert_true(s.plain.pairs == pairs || (work->shape == KVB_BENCH_CHUNK && s.plain.pairs >= pairs));
        assert_true(s.plain.mask.kind != KVB_MASK_PAGES && s.plain.out == KVB_F32);
        assert_true(s.plain.group.softcap == 0 && !s.plain.group.sink_logits);
    }
    free(seen);
    free(shown);
    kvb_bench_scene_close(&s);
}

TEST(test_masks_are_what_they_are_named_after)
{
    for (const kvb_bench_work *w = kvb_bench_works; w->name; w++) {
        scene_check(w, KVB_BENCH_CELLS_MIN);
        scene_check(w, 500);
        if (w->shape != KVB_BENCH_PREFILL && w->cells)
            scene_check(w, w->cells);
    }
}

TEST(test_works_make_sense)
{
    for (const kvb_bench_work *w = kvb_bench_works; w->name; w++) {
        assert_true(kvb_bench_cell_bytes(w) > 0);
        assert_true(w->group && w->entry[0].kernel);
        assert_true(w->store == 0 || w->store >= w->cells);
        assert_true(kvb_bench_group(w).heads <= KVB_BENCH_HEADS);
        assert_true(w->gain == 0 || w->entry[1].kernel);
        for (const kvb_bench_work *other = kvb_bench_works; other < w; other++)
            assert_string_not_equal(other->name, w->name);
        for (uint32_t e = 0; e < KVB_BENCH_ENTRIES; e++) { /* only a fork's tokens can be attended apart */
            assert_true(w->entry[e].way != KVB_BENCH_APART || w->shape == KVB_BENCH_FORK);
            assert_true(w->entry[e].way != KVB_BENCH_PLAIN || w->plain);
        }
    }
    assert_true(kvb_bench_cell_bytes(&(kvb_bench_work){.format = "f16"}) == 2 * 8 * 128 * 2);
    assert_true(kvb_bench_cell_bytes(&(kvb_bench_work){.format = "f16", .latent = true, .group = 128}) == 576 * 2);
    assert_true(kvb_bench_cell_bytes(&(kvb_bench_work){.format = "q8_0"}) == 2 * 8 * 136);
    assert_true(kvb_bench_cell_bytes(&(kvb_bench_work){.format = "nope"}) == 0);
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

/* Norm of the row in a cell. */
static double norm(const kvb_pool *pool, uint32_t h, uint32_t c, float row[DIM])
{
    kvb_view view;
    double sum = 0;
    pool->type->view(pool, c + 1, &view);
    view.format->read(&view, h, c, 1, row);
    for (uint32_t d = 0; d < DIM; d++)
        sum += row[d] * row[d];
    return sqrt(sum);
}

TEST(test_every_copy_holds_rows)
{
    static const char *const formats[] = {"f16", "q4_0", "a4g64"};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        kvb_bench_store store = {0};
        const kvb_bench_work work = {.format = formats[f]};
        uint32_t cells = 5000; /* more than there are distinct rows */
        assert_int_equal(kvb_bench_store_open(&store, &two, &work, cells, 3), 0);
        kvb_pool *k = store.k[0];
        assert_int_equal(kvb_bench_store_open(&store, &two, &work, cells, 3), 0);
        assert_ptr_equal(store.k[0], k); /* the same store is kept */
        for (uint32_t c = 0; c < cells; c += c + 500 < cells ? 499 : 1)
            for (uint32_t h = 0; h < KV_HEADS; h++) {
                float first[2][DIM], row[DIM];
                assert_float_equal(norm(store.k[0], h, c, first[0]), sqrt(DIM), 4);
                assert_float_equal(norm(store.v[0], h, c, first[1]), sqrt(DIM), 4);
                assert_memory_not_equal(first[0], first[1], sizeof row);
                for (uint32_t l = 1; l < store.layers; l++) {
                    norm(store.k[l], h, c, row);
                    assert_memory_equal(row, first[0], sizeof row);
                    norm(store.v[l], h, c, row);
                    assert_memory_equal(row, first[1], sizeof row);
                }
            }
        kvb_bench_store_close(&store);
    }
}

/* ---- wrong kernels ---------------------------------------------------------------------------------------------- */

static int calls;

static int attend_last_token_wrong(const kvb_attend *args)
{
    const kvb_problem *p = &args->problem;
    int error = kvb_kernel_reference.attend(args);
    ((float *)args->out)[(size_t)p->n_tok * p->n_heads * p->v_dim - 1] += 1;
    return error;
}

/* The last row is off by more than declared, and by much less than a coarse check would find. */
static int attend_slightly_off(const kvb_attend *args)
{
    const kvb_problem *p = &args->problem;
    int error = kvb_kernel_reference.attend(args);
    float *row = (float *)args->out + ((size_t)p->n_tok * p->n_heads - 1) * p->v_dim;
    for (uint32_t d = 0; d < p->v_dim; d++)
        row[d] *= 1.001f;
    return error;
}

static int attend_writes_nothing(const kvb_attend *args)
{
    (void)args;
    return 0;
}

static int attend_fails_later(const kvb_attend *args)
{
    return ++calls > 4 ? -EINVAL : kvb_kernel_reference.attend(args);
}

static bool supports_nothing(const kvb_problem *problem, char *why, size_t why_bytes)
{
    (void)problem;
    snprintf(why, why_bytes, "not today");
    return false;
}

static const char *text; /* what was printed last */

static kvb_bench_score report(const kvb_bench_run *run)
{
    kvb_bench_score score = {0};
    kvb_table *table = kvb_table_new(kvb_bench_headings);
    assert_int_equal(kvb_bench_run_report(table, run, &score), 0);
    assert_int_equal(kvb_table_print(table, KVB_TABLE_CSV, tests_print()), 0);
    kvb_table_free(table);
    text = tests_printed();
    return score;
}

/* Reports, in CSV, on one work with two contestants of this kernel. */
static kvb_bench_score bench_small(const char *name, const kvb_kernel *kernel)
{
    static kvb_bench_run run;
    kvb_bench_scene scene;
    kvb_bench_store store = {0};
    const kvb_bench_work *work = kvb_bench_works;
    while (strcmp(work->name, name))
        work++;
    assert_int_equal(kvb_bench_store_open(&store, &two, work, KVB_BENCH_CELLS_MIN, 2), 0);
    assert_int_equal(kvb_bench_scene_open(&scene, &two, work, KVB_BENCH_CELLS_MIN), 0);
    run = (kvb_bench_run){.team = {&two, &one}, .scene = &scene, .store = &store, .seconds = 0.001, .n = 2};
    for (uint32_t e = 0; e < 2; e++)
        run.contestant[e] = (kvb_bench_contestant){.entry = &work->entry[e], .name = "small", .kernel = kernel};
    calls = 0;
    assert_int_equal(kvb_bench_run_measure(&run), 0);
    for (uint32_t e = 0; e < 2; e++)
        if (run.contestant[e].turns) {
            assert_true(run.contestant[e].turns >= KVB_BENCH_TURNS_MIN && run.contestant[e].rows);
            const kvb_bench_sight *sight = kvb_bench_sight_of(&scene, work->entry[e].way);
            assert_true(run.contestant[e].ops ==
                        2.0 * (double)sight->pairs * scene.heads * (work->latent ? 576 + 512 : 128 + 128));
            assert_int_equal(run.contestant[e].call.args.problem.out_elem, e ? KVB_F32 : work->out);
        }
    const kvb_bench_score score = report(&run);
    kvb_bench_run_close(&run);
    kvb_bench_scene_close(&scene);
    kvb_bench_store_close(&store);
    return score;
}

TEST(test_right_kernels_score)
{
    static const char *const names[] = {"fork-g4",        "batch-in-runs",  "batch-in-steps",  "threads-verify",
                                        "threads-decode", "paged-16",       "window-decode",   "window-chunk",
                                        "sinks-decode",   "softcap-decode", "softcap-prefill", "out-f16-prefill",
                                        "latent-bf16"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const kvb_bench_score score = bench_small(names[i], &kvb_kernel_reference);
        assert_null(strstr(text, "WRONG"));
        assert_null(strstr(text, "unavailable"));
        if (!strcmp(names[i], "paged-16")) {
            assert_int_equal(score.targets, 1);
            assert_contains(text, "gain over in runs");
        }
    }
    assert_int_equal(bench_small("fork-g4", &kvb_kernel_openblas).targets, 2);
    assert_null(strstr(text, "WRONG"));
    /* trunk 32, tails of 4: 8 calls of 36 cells in place of one of 64 */
    assert_contains(text, "4.50x the bytes");
    /* two contestants, one target */
    assert_int_equal(bench_small("decode-f16-g8", &kvb_kernel_reference).targets, 1);
}

TEST(test_wrong_kernels_do_not)
{
    kvb_kernel kernel = kvb_kernel_reference;
    kvb_bench_score score;
    kernel.attend = attend_last_token_wrong;
    score = bench_small("fork-g4", &kernel);
    assert_contains(text, "WRONG: out of query 7, head 31, channel 127 is "); /* all branches in one call */
    assert_contains(text, "WRONG: out of query 0, head 31, channel 127 is "); /* one by one */
    assert_int_equal(score.targets, 2);
    assert_int_equal(score.met, 0);
    kernel.attend = attend_slightly_off;
    score = bench_small("batch-in-steps", &kernel);
    assert_contains(text, "WRONG: out of query 15, head 31, channel ");
    assert_int_equal(score.met, 0);
    kernel.attend = attend_writes_nothing;
    score = bench_small("fork-g4", &kernel);
    assert_contains(text, "nan, exact ");
    assert_int_equal(score.met, 0);
    kernel.tolerance = (kvb_tolerance){.kind = KVB_TOLERANCE_NMSE, .limit = 1e-4};
    kernel.attend = attend_last_token_wrong; /* another project's kernel: a finding, and it is timed */
    score = bench_small("batch-in-runs", &kernel);
    assert_null(strstr(text, "WRONG"));
    assert_contains(text, ">= 0.85,inexact: outputs are off by ");
    assert_contains(text, "times what its project tolerates");
    assert_int_equal(score.met, 0);
    kernel.tolerance.kind = KVB_TOLERANCE_NONE;
    kernel.attend = attend_fails_later;
    score = bench_small("batch-in-runs", &kernel);
    assert_contains(text, "unavailable: attend: Invalid argument");
    assert_int_equal(score.targets, 1);
    assert_int_equal(score.met, 0);
    kernel = kvb_kernel_reference;
    kernel.supports = supports_nothing;
    score = bench_small("fork-g1", &kernel);
    assert_contains(text, "unavailable: not today");
    assert_int_equal(score.targets, 2);
    assert_int_equal(score.met, 0);
}

/* ---- ratios -------------------------------------------------------------------------------------------------- */

/* A work that moves 1000 bytes and does 8000 operations, on a machine of 10 GB/s and 100 Gop/s: 100 ns and 80 ns. */
static kvb_bench_score ratio_report(kvb_bench_limit limit, double target, double ns)
{
    static kvb_bench_run run;
    static kvb_bench_store store = {.layers = 1};
    kvb_bench_work work = {.name = "w",
                           .format = "f16",
                           .limit = limit,
                           .entry = {{"k", KVB_BENCH_WHOLE, target}, {"k", KVB_BENCH_ALONE, 0}},
                           .gain = 1.9};
    kvb_bench_scene scene = {.work = &work, .cells = 64, .own.unique = 64};
    run = (kvb_bench_run){.scene = &scene, .store = &store, .n = 2, .turns = 5};
    for (uint32_t e = 0; e < 2; e++)
        run.contestant[e] = (kvb_bench_contestant){
            .entry = &work.entry[e], .name = "k", .team = e, .turns = 5, .bytes = 1000, .ops = 8000};
    for (uint32_t i = 0; i < run.turns; i++) {
        double slow = 1 + i; /* the whole machine becomes slower */
        for (uint32_t e = 0; e < 2; e++) {
            run.read[e][i] = (e ? 6 : 10) / slow;
            run.peak[e][i] = (e ? 50 : 100) / slow;
            run.contestant[e].ns[i] = (e ? 1.7 : 1) * ns * slow;
        }
    }
    const kvb_bench_score score = report(&run);
    return score;
}

/* Leaves out the last cell. Rows repeat after 4679 cells, but calls over more cells are judged, and this is found. */
static int attend_without_last_cell(const kvb_attend *args)
{
    kvb_attend less = *args;
    less.problem.n_cells = less.k.cells = less.v.cells = args->problem.n_cells - 1;
    return kvb_kernel_reference.attend(&less);
}

TEST(test_long_contexts_are_judged)
{
    static kvb_registry registry;
    kvb_kernel kernel = kvb_kernel_reference;
    const kvb_group group = {.heads = 2, .kv_heads = 1, .k_dim = 32, .v_dim = 32};
    const char *const formats[] = {"f16", "q4_0", "a8g32"};
    for (size_t f = 0; f < 2 * sizeof formats / sizeof *formats; f++) {
        const bool wrong = f % 2;
        kvb_bench_sweep sweep = {.registry = &registry, .kernels = {"reference"}, .n_kernels = 1, .seconds = 0.001};
        kvb_bench_row row;
        kernel.attend = wrong ? attend_without_last_cell : kvb_kernel_reference.attend;
        registry.n[KVB_KERNELS] = 1;
        registry.at[KVB_KERNELS][0] = (kvb_registered){"reference", "", "test", &kernel};
        assert_true(kvb_bench_row_make(&kvb_bench_kinds[0], &group, formats[f / 2], NULL, 10000, 1, 2, &row));
        assert_int_equal(kvb_bench_row_measure(&sweep, &two, &row), 0);
        assert_int_equal(row.n, 1);
        const kvb_result *r = &sweep.results.at[0];
        assert_int_equal(r->status, wrong ? KVB_STATUS_FAIL : KVB_STATUS_PASS);
        assert_true(wrong ? r->rho > 1 && !r->time.all.samples
                          : r->rho < 1 && r->time.all.samples >= KVB_BENCH_TURNS_MIN);
        assert_int_equal(r->error.total_rows, 2);
        if (!wrong) {
            assert_true(r->traffic.flops == 2.0 * 10000 * 2 * 64);
            assert_true(r->traffic.cells_read == 10000 && !(r->traffic.of_limit <= 0)); /* NaN: too noisy */
            assert_string_equal(r->workload, "decode-1x32-g2-10000");
        }
        kvb_bench_store_close(&sweep.store);
        free(sweep.results.at);
    }
}

/* Every built-in kernel that reads the rows is right in each scene, at small sizes. */
TEST(test_scenes_are_right)
{
    static kvb_registry registry;
    kvb_registry_init(&registry);
    for (const kvb_bench_kind *kind = kvb_bench_kinds; kind->name; kind++) {
        if (kind->scan)
            continue;
        kvb_bench_sweep sweep = {.registry = &registry,
                                 .kernels = {"flash", "openblas", "reference", "flash-int8"},
                                 .n_kernels = 4,
                                 .seconds = 0.001};
        kvb_group group = {.heads = 8, .kv_heads = 2, .k_dim = 64, .v_dim = 64};
        if (kind->latent)
            group = (kvb_group){.heads = 4, .kv_heads = 1, .k_dim = 96, .v_dim = 64, .latent = true};
        if (kind->window)
            group.window = 48;
        for (int format = 0; format < 2; format++) {
            kvb_bench_row row;
            assert_true(kvb_bench_row_make(kind, &group, format ? "q8_0" : "f16", NULL, 64, kind->batch, 2, &row));
            assert_int_equal(kvb_bench_row_measure(&sweep, &two, &row), 0);
            for (uint32_t k = 0; k < 4; k++) {
                const kvb_result *r = &sweep.results.at[row.first + k];
                const bool declines = k == 3 && !format;
                if (r->status != (declines ? KVB_STATUS_SKIP : KVB_STATUS_PASS))
                    fail_msg("%s, %s, %s: %s", kind->name, r->pool_k, r->kernel, r->reason);
            }
        }
        kvb_bench_store_close(&sweep.store);
        free(sweep.results.at);
    }
}

/* Fills a result of a kernel: its median `ns`, with an interval of this relative width. */
static void result_fill(kvb_result *r, const char *kernel, kvb_status status, double ns, double width)
{
    kvb_result_init(r);
    snprintf(r->kernel, sizeof r->kernel, "%s", kernel);
    r->status = status;
    r->time.all.median = ns;
    r->time.all.low = ns * (1 - width / 2);
    r->time.all.high = ns * (1 + width / 2);
    r->time.all.samples = status == KVB_STATUS_SKIP ? 0 : 10;
    r->traffic.of_limit = 0.5;
}

/* A noisy time is not printed, counts in no ratio, and leaves its row without a best kernel if it may be the best. */
TEST(test_noisy_numbers_are_withheld)
{
    static kvb_result results[6];
    const kvb_group group = {.heads = 8, .kv_heads = 2, .k_dim = 64, .v_dim = 64};
    kvb_bench_sweep sweep = {
        .kernels = {"flash", "mine", "other"}, .foreign = {false, true}, .n_kernels = 3, .results.at = results};
    kvb_bench_row rows[2];
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(kvb_bench_row_make(kvb_bench_kinds, &group, "f16", NULL, 1024 << i, 1, 1, &rows[i]));
        rows[i].first = i * 3;
        rows[i].n = 3;
        result_fill(&results[i * 3], "flash", KVB_STATUS_PASS, 10e6, 0.49);
        result_fill(&results[i * 3 + 1], "mine", KVB_STATUS_PASS, i ? 11e6 : 22e6, i ? 0.51 : 0.1);
        result_fill(&results[i * 3 + 2], "other", i ? KVB_STATUS_PASS : KVB_STATUS_SKIP, 9e6, 0.1);
    }
    assert_int_equal(kvb_bench_best(&sweep, &rows[0]), 0);
    assert_int_equal(kvb_bench_best(&sweep, &rows[1]), 3); /* `mine` may be the best: 8.2 to 13.8 */
    results[4].time.all.low = 9.1e6;
    assert_int_equal(kvb_bench_best(&sweep, &rows[1]), 2);
    results[4].time.all.low = 8.2e6;
    assert_int_equal(kvb_bench_block_print(&sweep, rows, 2, tests_print()), 0);
    text = tests_printed();
    assert_contains(text, "       1k  f16    10.0m  50%* 22.0m  50%           -\n");
    assert_contains(text, "       2k  f16    10.0m  50%       noisy  9.00m  50%\n");
    assert_contains(text, "mine takes 2.2 times the time of flash.\n"); /* from the only row that shows both */
    result_fill(&results[1], "mine", KVB_STATUS_FAIL, NAN, 0);
    results[1].time.all.samples = 0;
    snprintf(results[1].reason, sizeof results[1].reason, "out is 1");
    assert_int_equal(kvb_bench_block_print(&sweep, rows, 2, tests_print()), 0);
    text = tests_printed();
    assert_contains(text, " 10.0m  50%*      WRONG ");
    assert_contains(text, "mine over f16: out is 1\n");
    assert_null(strstr(text, "mine takes"));
}

static int scan_last_token_wrong(const kvb_scan *args)
{
    const kvb_scan_problem *p = &args->problem;
    int error = kvb_kernel_scan_reference.scan->scan(args);
    ((float *)args->out)[(size_t)p->n_tok * p->heads * p->d_v - 1] *= 1.001f;
    return error;
}

/* Three kernels run each recurrence: scan-reference, scan, and a wrong one that changes the last token by 0.1 %. */
TEST(test_scans_are_judged)
{
    static kvb_bench_scan run;
    kvb_scan_face face = *kvb_kernel_scan_reference.scan;
    kvb_kernel wrong = kvb_kernel_scan_reference;
    face.scan = scan_last_token_wrong;
    wrong.scan = &face;
    for (const kvb_bench_scan_work *w = kvb_bench_scan_works; w->name; w++) {
        run = (kvb_bench_scan){.work = w};
        kvb_bench_scanner_add(&run, &kvb_kernel_scan);
        kvb_bench_scanner_add(&run, &kvb_kernel_scan_reference);
        kvb_bench_scanner_add(&run, &wrong);
        assert_int_equal(kvb_bench_scan_measure(&run, &two, 24, 0.001), 0);
        for (uint32_t k = 0; k < 2; k++)
            if (run.of[k].wrong || run.of[k].turns < KVB_BENCH_TURNS_MIN || !run.of[k].rows)
                fail_msg("%s, %s: %s", w->name, run.of[k].kernel->name, run.of[k].finding);
        assert_true(run.of[2].wrong && run.of[2].turns == 0 && run.of[2].rho > 1);
        assert_contains(run.of[2].finding, "out of token ");
    }
}

/* A slow kernel leaves the rounds first: its gain is of the rounds that both made. */
TEST(test_a_scan_gains_over_the_rounds_of_both)
{
    static kvb_bench_scan run = {
        .work = kvb_bench_scan_works, .n = 2, .of = {{.name = "fast", .turns = 5}, {.name = "slow", .turns = 2}}};
    kvb_bench_score score = {0};
    for (uint32_t i = 0; i < 5; i++) {
        run.limit[i] = run.of[0].ns[i] = 100;
        run.of[1].ns[i] = i < 2 ? 250 : NAN;
    }
    kvb_table *table = kvb_table_new(kvb_bench_headings);
    assert_int_equal(kvb_bench_scan_report(table, &run, &score), 0);
    assert_int_equal(kvb_table_print(table, KVB_TABLE_CSV, tests_print()), 0);
    kvb_table_free(table);
    assert_contains(tests_printed(), "gain over slow\",,,,,2.50x,0.00");
}

TEST(test_ratios_are_against_the_right_limit)
{
    /* a common drift has no effect; the target of a gain of threads is 0.95 x (10 / 6) */
    assert_int_equal(ratio_report(KVB_BENCH_READ, 0.8, 125).met, 2);
    assert_contains(text, "read 3.3 GB/s,0.800,0.000,0.800,>= 0.80,yes");
    assert_contains(text, "read gains 1.67x,1.70x,0.00,,>= 1.58x,yes");
    assert_int_equal(ratio_report(KVB_BENCH_READ, 0.81, 125).met, 1);
    assert_contains(text, "0.800,0.000,0.800,>= 0.81,no");
    /* the target is a share of the nearer limit, whichever is printed */
    assert_int_equal(ratio_report(KVB_BENCH_PEAK, 0.8, 125).met, 1);
    assert_contains(text, "f32 33 Gop/s,0.640,0.000,0.800,>= 0.80,yes");
    assert_int_equal(ratio_report(KVB_BENCH_PEAK, 0.81, 125).met, 0);
    assert_contains(text, "1.70x,0.00,,>= 1.90x,no");
    assert_int_equal(ratio_report(KVB_BENCH_LONGER, 0.8, 125).targets, 2);
    assert_contains(text, "read 3.3 GB/s,0.800,0.000,0.800,>= 0.80,yes");
}

TEST(test_figures)
{
    const double values[] = {5, 1, 9, 3, 4};
    kvb_bench_figure f = kvb_bench_figure_of(values, 5);
    assert_true(f.median == 4 && f.mad == 1);
    assert_true(values[0] == 5); /* values are not reordered */
}
