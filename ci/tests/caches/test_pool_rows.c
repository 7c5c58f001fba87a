/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: names of pools, their growth, and the memory that it takes; the choice of an instruction set.
 * whole/test_stored_bytes and whole/test_load show their rows. */
#include "ci/tests/tests.h"
#include "ci/tests/caches/pools.h"
#include "caches/pools/codec/codec.h"
#include "caches/pools/growth.h"
#include "caches/pools/pool.h"

/* Each name of a format, as --pool takes it, occurs once. */
TEST(names_are_unique)
{
    uint32_t at = 0;
    for (const kvb_pool_type *type; (type = pools_next(&at));) {
        uint32_t others = 0, same = 0;
        assert_string_equal(type->name, type->format->name);
        assert_true(type->summary[0] != 0 && type->format->read);
        for (const kvb_pool_type *other; (other = pools_next(&others));)
            same += !strcmp(type->name, other->name);
        assert_int_equal(same, 1);
    }
    assert_string_equal(kvb_builtin_pools[0]->name, "f32");
    for (uint32_t i = 0; kvb_builtin_pools[i]; i++)
        if (kvb_builtin_pools[i]->rotated) {
            const char *plain = kvb_builtin_pools[i]->name, *turned = kvb_builtin_pools[i]->rotated->name;
            assert_int_equal(strncmp(turned, plain, strlen(plain)), 0);
            assert_string_equal(turned + strlen(plain), "+had");
            assert_int_equal(kvb_builtin_pools[i]->rotated->format->transform, KVB_TRANSFORM_HADAMARD);
        }
}

/* Shows: doubling follows its rule, policies are found by name, and a pool keeps its rows under every policy. A failed
 * request for memory changes nothing. */

TEST(doubling_follows_its_rule)
{
    static const struct {
        uint32_t held, needed, min_chunk, capacity, cells;
    } cases[] = {
        {0, 0, 16, 100, 0},     {0, 1, 16, 100, 16},
        {0, 17, 16, 100, 32},   {0, 33, 16, 100, 64},
        {16, 16, 16, 100, 16},  {16, 17, 16, 100, 32},
        {64, 65, 16, 100, 100}, {0, 1, 200, 100, 100},
        {100, 3, 16, 100, 100}, {0, 5, 3, 100, 6},
        {6, 100, 3, 100, 100},  {0, 7, 1, 7, 7},
        {0, 1, 1, 1, 1},        {1u << 31, (1u << 31) + 1, 1, UINT32_MAX, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t cells = kvb_growth_double(cases[i].held, cases[i].needed, cases[i].min_chunk, cases[i].capacity);
        assert_int_equal(cells, cases[i].cells);
    }
}

TEST(policies_have_names)
{
    static const struct {
        const char *name;
        kvb_growth growth;
        bool reserves;
        size_t grain; /* 0: the system's page size */
    } policies[KVB_GROWTHS] = {
        {"double", KVB_GROWTH_DOUBLE, false, 1},  {"double+thp", KVB_GROWTH_DOUBLE_THP, false, 2u << 20},
        {"reserve", KVB_GROWTH_RESERVE, true, 0}, {"reserve+thp", KVB_GROWTH_RESERVE_THP, true, 2u << 20},
        {"exact", KVB_GROWTH_EXACT, false, 1},
    };
    char why[160] = "";
    for (size_t i = 0; i < KVB_GROWTHS; i++) {
        kvb_growth g = policies[i].growth;
        assert_string_equal(kvb_growth_names[g], policies[i].name);
        assert_int_equal(kvb_growth_reserves(g), policies[i].reserves);
        size_t grain = kvb_growth_grain(g);
        assert_true(policies[i].grain ? grain == policies[i].grain : grain >= 4096 && grain < 2u << 20);
        assert_true(kvb_growth_available(g, why, sizeof why) || why[0]);
    }
    assert_true(kvb_growth_available(KVB_GROWTH_DOUBLE, why, sizeof why));
    assert_true(kvb_growth_available(KVB_GROWTH_RESERVE, why, sizeof why));
}

/* ---- rows through growth ------------------------------------------------------------------------------------- */

enum { GROWTH_CELLS = 168 }; /* enough to encode the first windows of a format with residual cells */

static void token_write(kvb_pool *pool, uint32_t cell)
{
    float rows[HEADS * DIM];
    rows_make(rows, cell, 1);
    pool->type->write_run(pool, cell, 1, rows);
}

/* All rows of cells 0 .. n-1 as the format reads them: [HEADS][n][DIM]. */
static void rows_read(const kvb_pool *pool, uint32_t n, float *rows)
{
    kvb_view view;
    pool->type->view(pool, n, &view);
    assert_int_equal(view.cells, n);
    for (uint32_t h = 0; h < HEADS; h++)
        view.format->read(&view, h, 0, n, rows + (size_t)h * n * DIM);
}

/* Compares with a pool that had room for all from the start. Each growth by copies changes the head stride. */
TEST(growth_keeps_rows)
{
    static float x[HEADS * GROWTH_CELLS * DIM], y[HEADS * GROWTH_CELLS * DIM];
    char why[160];
    for (uint32_t g = 0; g < KVB_GROWTHS; g++) {
        if (!kvb_growth_available((kvb_growth)g, why, sizeof why))
            continue;
        uint32_t at = 0;
        for (const kvb_pool_type *type; (type = pools_next(&at));) {
            kvb_allocator a = {0};
            kvb_pool *grown = pool_open(type, &a, (kvb_growth)g, 1, GROWTH_CELLS);
            kvb_pool *whole = pool_open(type, &a, KVB_GROWTH_DOUBLE, GROWTH_CELLS, GROWTH_CELLS);
            assert_int_equal(type->ensure(whole, GROWTH_CELLS), 0);
            for (uint32_t cell = 0; cell < GROWTH_CELLS; cell++) {
                assert_int_equal(type->ensure(grown, cell + 1), 0);
                if (cell == 100)
                    assert_int_equal(type->ensure(grown, 2), 0); /* never shrinks: rows above 2 stay */
                token_write(grown, cell);
                token_write(whole, cell);
            }
            rows_read(grown, GROWTH_CELLS, x);
            rows_read(whole, GROWTH_CELLS, y);
            assert_memory_equal(x, y, sizeof x);
            type->close(grown);
            type->close(whole);
            assert_int_equal(a.current_bytes, 0);
        }
    }
}

/* Opens a pool and grows it to 4 and to 70 cells; request number `fail` is refused. Did any call fail? */
static bool grow_with_failure(const kvb_pool_type *type, kvb_growth growth, uint64_t fail)
{
    static const uint32_t lengths[] = {4, 70};
    static float before[HEADS * 70 * DIM], after[HEADS * 70 * DIM];
    kvb_allocator a = {.fail_request = fail};
    kvb_pool *pool = pool_open(type, &a, growth, 4, 80);
    bool noticed = !pool;
    uint32_t usable = 0;
    if (!pool) {
        assert_int_equal(a.current_bytes, 0);
        pool = pool_open(type, &a, growth, 4, 80);
        assert_non_null(pool);
    }
    for (int i = 0; i < 2; i++) {
        kvb_view x, y;
        size_t held = a.current_bytes, reserved = type->reserved(pool);
        uint64_t growths = pool->growths, copied = pool->copied_bytes;
        type->view(pool, usable, &x);
        rows_read(pool, usable, before);
        int error = type->ensure(pool, lengths[i]);
        if (error) {
            assert_int_equal(error, -ENOMEM);
            assert_false(noticed);
            noticed = true;
            type->view(pool, usable, &y);
            assert_true(x.base == y.base && x.scales == y.scales && x.zeros == y.zeros && x.recent == y.recent);
            assert_true(x.head_stride == y.head_stride && x.scale_head_stride == y.scale_head_stride);
            rows_read(pool, usable, after);
            assert_memory_equal(before, after, (size_t)HEADS * usable * DIM * sizeof *before);
            assert_int_equal(a.current_bytes, held);
            assert_int_equal(type->reserved(pool), reserved);
            assert_int_equal(pool->growths, growths);
            assert_int_equal(pool->copied_bytes, copied);
            assert_int_equal(type->ensure(pool, lengths[i]), 0); /* the next try works */
        }
        for (; usable < lengths[i]; usable++)
            token_write(pool, usable);
    }
    type->close(pool);
    assert_int_equal(a.current_bytes, 0);
    return noticed;
}

TEST(failed_growth_changes_nothing)
{
    char why[160];
    for (uint32_t g = 0; g < KVB_GROWTHS; g++) {
        if (!kvb_growth_available((kvb_growth)g, why, sizeof why))
            continue;
        uint32_t at = 0;
        for (const kvb_pool_type *type; (type = pools_next(&at));) {
            uint64_t fail = 1;
            while (grow_with_failure(type, (kvb_growth)g, fail))
                fail++;
            assert_true(fail > 3); /* one request for the pool, two for its codes */
        }
    }
}

/*
 * Shows that one formula gives a pool's bytes from its options and length: those that the allocator holds, bytes() and
 * row_bytes(), the peak (old and new blocks while a copy is made; with reserved pages never more than is held), and the
 * bytes copied. Reserved rows never move.
 */

/* What each format stores, from its published description; "+had" adds a row of floats. */
static const struct form {
    const char *name;
    uint32_t bits, block_bytes;        /* of an element; or of a block of 32 */
    uint32_t group, scale, zero;       /* elements that share a scale (0: a row), bytes of one scale and zero */
    bool scaled_head, turned, windows; /* besides: a float per head; a row of floats; f16 windows */
    bool down;                         /* groups lie along tokens */
} forms[] = {
    {.name = "f32", .bits = 32},
    {.name = "f16", .bits = 16},
    {.name = "bf16", .bits = 16},
    {.name = "e4m3", .bits = 8},
    {.name = "e4m3-tensor", .bits = 8, .scaled_head = true},
    {.name = "e4m3-head", .bits = 8, .scaled_head = true},
    {.name = "e4m3-token", .bits = 8, .scale = 4},
    {.name = "e5m2", .bits = 8},
    {.name = "e5m2-tensor", .bits = 8, .scaled_head = true},
    {.name = "e5m2-head", .bits = 8, .scaled_head = true},
    {.name = "e5m2-token", .bits = 8, .scale = 4},
    {.name = "int8", .bits = 8, .scale = 4},
    {.name = "int8-asym", .bits = 8, .scale = 4, .zero = 4},
    {.name = "q8_0", .block_bytes = 34},
    {.name = "q5_1", .block_bytes = 24},
    {.name = "q5_0", .block_bytes = 22},
    {.name = "q4_1", .block_bytes = 20},
    {.name = "q4_0", .block_bytes = 18},
    {.name = "iq4_nl", .block_bytes = 18},
    {.name = "a8g32", .bits = 8, .group = 32, .scale = 2, .zero = 2},
    {.name = "a8g64", .bits = 8, .group = 64, .scale = 2, .zero = 2},
    {.name = "a8g128", .bits = 8, .group = 128, .scale = 2, .zero = 2},
    {.name = "a4g32", .bits = 4, .group = 32, .scale = 2, .zero = 2},
    {.name = "a4g64", .bits = 4, .group = 64, .scale = 2, .zero = 2},
    {.name = "a4g128", .bits = 4, .group = 128, .scale = 2, .zero = 2},
    {.name = "a2g32", .bits = 2, .group = 32, .scale = 2, .zero = 2},
    {.name = "a2g64", .bits = 2, .group = 64, .scale = 2, .zero = 2},
    {.name = "a2g128", .bits = 2, .group = 128, .scale = 2, .zero = 2},
    {.name = "kivi4-k", .bits = 4, .group = 32, .scale = 2, .zero = 2, .windows = true, .down = true},
    {.name = "kivi2-k", .bits = 2, .group = 32, .scale = 2, .zero = 2, .windows = true, .down = true},
    {.name = "kivi4-v", .bits = 4, .group = 32, .scale = 2, .zero = 2, .windows = true},
    {.name = "kivi2-v", .bits = 2, .group = 32, .scale = 2, .zero = 2, .windows = true},
    {.name = "mxfp4", .bits = 4, .group = 32, .scale = 1},
    {.name = "nvfp4", .bits = 4, .group = 16, .scale = 1, .scaled_head = true},
    {.name = "tq4", .bits = 4, .scale = 2, .turned = true},
    {.name = "tq3", .bits = 3, .scale = 2, .turned = true},
};

/* A pool and the form of its storage. */
typedef struct subject {
    const kvb_pool_type *type;
    struct form form;
    size_t struct_bytes;
    kvb_pool_options o;
} subject;

enum { LANES = 3, WINDOW = 32, WINDOW_BLOCKS = 4 };

/* Codes, scales, zeros of one KV head for so many cells. */
static void head_bytes(const subject *s, uint64_t cells, uint64_t lane[LANES])
{
    const struct form *f = &s->form;
    uint64_t dim = s->o.dim;
    uint64_t scales = f->down ? (cells + f->group - 1) / f->group * dim : cells * (f->group ? dim / f->group : 1);
    lane[0] = cells * (f->block_bytes ? dim / 32 * f->block_bytes : (dim * f->bits + 7) / 8);
    lane[1] = scales * f->scale;
    lane[2] = scales * f->zero;
}

static uint64_t up_to(uint64_t bytes, uint64_t grain)
{
    return (bytes + grain - 1) / grain * grain;
}

/* Cells that the pool has room for after a request for so many. */
static uint64_t room(const subject *s, uint64_t cells)
{
    uint64_t held = s->o.min_chunk;
    if (cells == 0 || (s->o.growth != KVB_GROWTH_DOUBLE && s->o.growth != KVB_GROWTH_DOUBLE_THP))
        return cells;
    while (held < cells)
        held *= 2;
    return held < s->o.capacity ? held : s->o.capacity;
}

static uint64_t lanes_bytes(const subject *s, uint64_t cells)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), huge = 2u << 20;
    uint64_t lane[LANES], sum = 0, heads = s->o.n_kv_heads;
    head_bytes(s, room(s, cells), lane);
    for (int l = 0; l < LANES; l++)
        switch (s->o.growth) {
        case KVB_GROWTH_DOUBLE:
        case KVB_GROWTH_EXACT:
            sum += heads * lane[l];
            break;
        case KVB_GROWTH_DOUBLE_THP:
            sum += up_to(heads * lane[l], huge);
            break;
        case KVB_GROWTH_RESERVE:
            sum += heads * up_to(lane[l], page);
            break;
        case KVB_GROWTH_RESERVE_THP:
            sum += heads * up_to(lane[l], huge);
            break;
        case KVB_GROWTHS:
            break;
        }
    return sum;
}

static uint64_t windows_bytes(const subject *s)
{
    return s->form.windows ? (uint64_t)WINDOW_BLOCKS * WINDOW * s->o.n_kv_heads * s->o.dim * 2 : 0;
}

/* Bytes that do not depend on the length: windows, their two tables, head scales, a row to encode. */
static uint64_t fixed_bytes(const subject *s)
{
    uint64_t blocks = s->form.windows ? (s->o.capacity + WINDOW - 1) / WINDOW : 0;
    return windows_bytes(s) + blocks * (4 + 8) + (s->form.scaled_head ? s->o.n_kv_heads * 4u : 0) +
           (s->form.turned ? s->o.dim * 4u : 0);
}

static subject subject_make(const kvb_pool_type *type)
{
    subject s = {.type = type};
    size_t plain = strcspn(type->name, "+");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strlen(forms[i].name) == plain && !strncmp(type->name, forms[i].name, plain))
            s.form = forms[i];
    if (!s.form.name)
        fail_msg("%s: its closed form is not in the table of this test", type->name);
    if (type->name[plain]) {
        assert_string_equal(type->name + plain, "+had");
        s.form.turned = true;
    }
    /* Only the size of the pool's own struct is measured: the smallest pool's bytes, less the rest of the formula. */
    s.o = (kvb_pool_options){.n_kv_heads = 1, .dim = 128, .min_chunk = 1, .capacity = 1};
    s.struct_bytes = type->bytes(type, &s.o, 0) - fixed_bytes(&s);
    assert_true(s.struct_bytes > sizeof(kvb_pool) && s.struct_bytes < 1024);
    return s;
}

/* ---- what growing costs ------------------------------------------------------------------------------------- */

typedef struct history {
    uint64_t peak, copied, growths, usable;
    bool placed;
    const void *base[LANES];
} history;

/* Accounts for a growth to `cells`. */
static void history_grow(const subject *s, history *h, uint64_t cells)
{
    uint64_t lane[LANES], old = lanes_bytes(s, h->usable), grown = lanes_bytes(s, cells);
    bool copies = s->o.growth != KVB_GROWTH_RESERVE && s->o.growth != KVB_GROWTH_RESERVE_THP;
    uint64_t held = s->struct_bytes + fixed_bytes(s) + grown;
    if (copies && room(s, cells) > room(s, h->usable)) {
        head_bytes(s, h->usable, lane);
        h->copied += s->o.n_kv_heads * (lane[0] + lane[1] + lane[2]);
        h->growths++;
        held += old; /* all new lanes are made before an old one is freed */
    } else if (grown > old) {
        h->growths++;
    }
    h->peak = held > h->peak ? held : h->peak;
    h->usable = cells;
}

/* Rows in reserved space do not move. */
static void place_check(const subject *s, const kvb_pool *pool, history *h)
{
    kvb_view view;
    s->type->view(pool, (uint32_t)h->usable, &view);
    size_t last = s->o.n_kv_heads - 1; /* its rows move even if the first head's do not */
    const void *now[LANES] = {(const char *)view.base + last * view.head_stride,
                              view.scales ? (const char *)view.scales + last * view.scale_head_stride : NULL,
                              view.zeros ? (const char *)view.zeros + last * view.zero_head_stride : NULL};
    for (int l = 0; l < LANES; l++) {
        if (kvb_growth_reserves(s->o.growth) && h->placed)
            assert_ptr_equal(now[l], h->base[l]);
        h->base[l] = now[l];
    }
    h->placed = true;
}

static void lengths_check(const subject *s, const uint32_t *lengths, uint32_t n)
{
    kvb_allocator a = {0};
    kvb_pool_options o = s->o;
    kvb_pool *pool;
    history h = {.peak = s->struct_bytes + fixed_bytes(s)};
    o.allocator = &a;
    assert_int_equal(s->type->open(s->type, &o, &pool), 0);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(s->type->ensure(pool, lengths[i]), 0);
        if (lengths[i] > h.usable)
            history_grow(s, &h, lengths[i]);
        uint64_t want = s->struct_bytes + fixed_bytes(s) + lanes_bytes(s, h.usable);
        if (a.current_bytes != want)
            print_message("# %s %s: %u heads, dim %u, chunk %u, capacity %u, %lu cells\n", s->type->name,
                          kvb_growth_names[o.growth], o.n_kv_heads, o.dim, o.min_chunk, o.capacity,
                          (unsigned long)h.usable);
        assert_int_equal(a.current_bytes, want);
        assert_int_equal(s->type->bytes(s->type, &s->o, (uint32_t)h.usable), want);
        assert_int_equal(s->type->reserved(pool), lanes_bytes(s, h.usable) + windows_bytes(s));
        assert_int_equal(a.peak_bytes, h.peak);
        assert_int_equal(pool->copied_bytes, h.copied);
        assert_int_equal(pool->growths, h.growths);
        place_check(s, pool, &h);
    }
    uint64_t requests = a.requests;
    assert_int_equal(s->type->ensure(pool, o.capacity + 1), -ENOSPC);
    assert_int_equal(a.requests, requests);
    if (kvb_growth_reserves(o.growth)) {
        assert_int_equal(pool->copied_bytes, 0);
        assert_int_equal(a.peak_bytes, a.current_bytes);
    }
    s->type->close(pool);
    assert_int_equal(a.current_bytes, 0);
}

/* ---- all of them -------------------------------------------------------------------------------------------- */

static const struct {
    uint32_t heads, dim, min_chunk, capacity;
} shapes[] = {{1, 128, 1, 70}, {3, 128, 16, 301}, {2, 64, 33, 100}, {2, 96, 500, 40}, {1, 7, 3, 20}};

static void growth_check(kvb_growth growth)
{
    static const uint32_t jumps[] = {0, 5, 5, 2, 31, 33, 64, 65, 64, 290, 301};
    char why[160];
    uint32_t by_ones[301], checked = 0;
    if (!kvb_growth_available(growth, why, sizeof why)) {
        print_message("# %s: %s\n", kvb_growth_names[growth], why);
        return;
    }
    for (uint32_t i = 0; i < 301; i++)
        by_ones[i] = i + 1;
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
        for (const kvb_pool_type *type = *p; type; type = type == *p ? type->rotated : NULL) {
            subject s = subject_make(type);
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
                if (type->supports && !type->supports(type, shapes[i].dim, why, sizeof why))
                    continue;
                s.o = (kvb_pool_options){.n_kv_heads = shapes[i].heads,
                                         .dim = shapes[i].dim,
                                         .min_chunk = shapes[i].min_chunk,
                                         .capacity = shapes[i].capacity,
                                         .growth = growth};
                uint32_t n = 0;
                while (n < sizeof jumps / sizeof *jumps && jumps[n] <= s.o.capacity)
                    n++;
                lengths_check(&s, by_ones, s.o.capacity);
                lengths_check(&s, jumps, n);
                checked++;
            }
        }
    print_message("# %s: %u pools\n", kvb_growth_names[growth], checked);
}

TEST(bytes_by_growth)
{
    for (int growth = 0; growth < KVB_GROWTHS; growth++)
        growth_check((kvb_growth)growth);
}

/* A row's bytes, with its share of a group's scales: a 32nd of the bytes for 32 cells. */
TEST(row_bytes)
{
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++) {
        subject s = subject_make(*p);
        uint64_t lane[LANES];
        s.o.dim = 128;
        head_bytes(&s, 32, lane);
        double want = (double)(lane[0] + lane[1] + lane[2]) / 32;
        assert_true((*p)->row_bytes(*p, 128) == want);
        assert_true(!(*p)->rotated || (*p)->rotated->row_bytes((*p)->rotated, 128) == want);
    }
}

/* ---- instruction sets of codecs --------------------------------------------------------------------------------- */

TEST(best_is_the_last_available)
{
    const kvb_codec_isa *last = NULL;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++)
        if ((*isa)->available())
            last = *isa;
    assert_ptr_equal(kvb_codec_best(), last);
    assert_string_equal(kvb_codec_isas[0]->name, "portable");
}

TEST(limit_holds)
{
    const kvb_codec_isa *best = kvb_codec_best(), *last = NULL;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++) {
        last = (*isa)->available() ? *isa : last;
        assert_int_equal(kvb_codec_limit((*isa)->name), 0);
        assert_ptr_equal(kvb_codec_best(), last); /* below what is not available: the best there is */
    }
    assert_int_equal(kvb_codec_limit("portable"), 0);
    assert_int_equal(kvb_codec_limit("no such"), -EINVAL);
    assert_ptr_equal(kvb_codec_best(), kvb_codec_isas[0]); /* as before */
    assert_int_equal(kvb_codec_limit(NULL), 0);
    assert_ptr_equal(kvb_codec_best(), best);
}
