/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that pools with residual cells keep every row readable in any order of writes: exact as f16 while its block is
 * among the latest ones written, else within half a step for each time that it was encoded. Rows move across blocks,
 * memory is as predicted, and failed requests change nothing. A model that keeps whole rows gives the right answers.
 */
#include "ci/tests/caches/named.h"
#include "caches/pools/codec/codec.h"

enum { HEADS = 2, DIM = 96, CAPACITY = 9 * 32 + 5, W = 32, OPEN = 4, BLOCKS = (CAPACITY + W - 1) / W };

static const char *const names[] = {"kivi4-k", "kivi4-v", "kivi2-k", "kivi2-v"};

/* ---- pool and model ------------------------------------------------------------------------------------------ */

typedef struct rig {
    kvb_allocator allocator;
    kvb_pool *pool;
    uint32_t usable;
    bool held[CAPACITY];
    uint32_t token[CAPACITY]; /* the token of each cell's row */
    uint32_t times[CAPACITY]; /* how often each cell's row was encoded */
    uint32_t open[OPEN + 1];  /* open blocks, last written first */
    uint32_t n_open, next_token;
} rig;

static void rig_open(rig *r, const kvb_pool_type *type, kvb_growth growth, uint32_t min_chunk)
{
    *r = (rig){0};
    kvb_pool_options o = {HEADS, DIM, min_chunk, CAPACITY, growth, NULL, &r->allocator};
    assert_int_equal(type->open(type, &o, &r->pool), 0);
}

static void rig_close(rig *r)
{
    r->pool->type->close(r->pool);
    assert_int_equal(r->allocator.current_bytes, 0);
}

static void rig_grow(rig *r, uint32_t cells)
{
    assert_int_equal(r->pool->type->ensure(r->pool, cells), 0);
    if (cells > r->usable)
        r->usable = cells;
}

/* Element i of a token's row, between -1 and 1. */
static float element(uint32_t token, uint32_t i)
{
    uint32_t x = (token * HEADS * DIM + i + 1) * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return (float)(int32_t)(x ^ x >> 16) * 0x1p-31f;
}

static void model_touch(rig *r, uint32_t block)
{
    uint32_t at = 0;
    while (at < r->n_open && r->open[at] != block)
        at++;
    r->n_open += at == r->n_open;
    memmove(r->open + 1, r->open, at * sizeof *r->open);
    r->open[0] = block;
    if (r->n_open > OPEN)
        for (uint32_t i = 0, c = r->open[--r->n_open] * W; i < W && c + i < CAPACITY; i++)
            r->times[c + i]++;
}

static void model_write(rig *r, uint32_t cell)
{
    model_touch(r, cell / W);
    r->held[cell] = true;
    r->token[cell] = r->next_token++;
    r->times[cell] = 0;
}

static const float *rows_next(const rig *r, uint32_t n)
{
    static float rows[CAPACITY * HEADS * DIM];
    for (uint32_t i = 0; i < n * HEADS * DIM; i++)
        rows[i] = element(r->next_token, i);
    return rows;
}

static void write_run(rig *r, uint32_t start, uint32_t n)
{
    r->pool->type->write_run(r->pool, start, n, rows_next(r, n));
    for (uint32_t i = 0; i < n; i++)
        model_write(r, start + i);
}

static void scatter(rig *r, const uint32_t *cells, uint32_t n)
{
    r->pool->type->scatter(r->pool, cells, n, rows_next(r, n));
    for (uint32_t i = 0; i < n; i++)
        model_write(r, cells[i]);
}

static void gather(rig *r, uint32_t base, const uint32_t *cells, uint32_t n)
{
    r->pool->type->gather_into(r->pool, base, cells, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t token = r->token[cells[i]], times = r->times[cells[i]];
        if (cells[i] == base + i)
            continue;
        model_touch(r, (base + i) / W); /* may close the source's block; the row was read before that */
        r->held[base + i] = true;
        r->token[base + i] = token;
        r->times[base + i] = times;
    }
}

/* Half a step for each time that a row was encoded, and the f16 rounding for each time that it became residual. */
static double tolerance(const kvb_format *f, uint32_t times)
{
    double step = 2.0 / (f->elem == KVB_UINT2 ? 3 : 15);
    return times * step / 2 * 1.01 + (times + 1) * 0x1p-11;
}

static void row_check(const rig *r, const kvb_view *v, uint32_t h, uint32_t cell)
{
    float row[DIM], want[DIM], given[DIM];
    uint16_t half[DIM];
    for (uint32_t i = 0; i < DIM; i++)
        given[i] = element(r->token[cell], h * DIM + i);
    v->format->read(v, h, cell, 1, row);
    if (r->times[cell] == 0 && !v->format->transform) {
        const kvb_coded coded = {.format = v->format, .codes = half};
        kvb_codec_best()->encode[KVB_RULE_F16](&coded, given, DIM);
        kvb_codec_best()->decode[KVB_RULE_F16](&coded, DIM, want);
        assert_memory_equal(row, want, sizeof row);
        return;
    }
    /* Elements of rotated rows are sums of 32 over sqrt(32), up to 5; their errors spread over the row. */
    double limit = tolerance(v->format, r->times[cell]) * (v->format->transform ? 5 : 1), square = 0;
    for (uint32_t i = 0; i < DIM; i++) {
        double error = fabs((double)row[i] - (double)given[i]);
        assert_true(v->format->transform || error <= limit);
        square += error * error;
    }
    assert_true(square / DIM <= limit * limit);
}

static void rig_check(const rig *r)
{
    kvb_view v;
    r->pool->type->view(r->pool, r->usable, &v);
    for (uint32_t block = 0; block * W < r->usable; block++) {
        bool open = false;
        for (uint32_t i = 0; i < r->n_open; i++)
            open |= r->open[i] == block;
        assert_int_equal(v.recent_slot[block] != KVB_SLOT_NONE, open);
    }
    for (uint32_t h = 0; h < HEADS; h++)
        for (uint32_t cell = 0; cell < r->usable; cell++)
            if (r->held[cell])
                row_check(r, &v, h, cell);
}

/* ---- orders of writing --------------------------------------------------------------------------------------- */

static void one_by_one(rig *r)
{
    for (uint32_t c = 0; c < CAPACITY; c++) {
        rig_grow(r, c + 1);
        write_run(r, c, 1);
        rig_check(r);
    }
}

static void in_runs(rig *r)
{
    for (uint32_t c = 0, n = 1; c < CAPACITY; c += n, n = n * 3 < CAPACITY - c ? n * 3 : CAPACITY - c) {
        rig_grow(r, c + n);
        write_run(r, c, n);
        rig_check(r);
    }
}

static void in_reverse(rig *r)
{
    rig_grow(r, CAPACITY);
    for (uint32_t c = CAPACITY; c-- > 0;) {
        write_run(r, c, 1);
        rig_check(r);
    }
}

static void scattered(rig *r)
{
    rig_grow(r, CAPACITY);
    for (uint32_t c = 0; c < CAPACITY; c += 7) {
        uint32_t cells[7], n = 0;
        for (uint32_t i = c; i < CAPACITY && n < 7; i++)
            cells[n++] = i * 101 % CAPACITY; /* each once: 101 does not divide it */
        scatter(r, cells, n);
        rig_check(r);
    }
}

/* After a rewind new rows overwrite old ones in closed blocks; the other rows of such a block are encoded once more. */
static void rewound(rig *r)
{
    rig_grow(r, CAPACITY);
    write_run(r, 0, 290);
    for (uint32_t c = 45; c < 290; c++) {
        write_run(r, c, 1);
        rig_check(r);
    }
}

/* Moves accepted paths down over rejected nodes: within a block, across borders, into closed blocks. */
static void gathered(rig *r)
{
    static const uint32_t path[] = {30, 33, 64, 65, 200, 201}, far[] = {3, 40, 70, 100, 260}, up[] = {90, 5, 31, 32};
    static const uint32_t near[] = {129, 131, 133};
    rig_grow(r, CAPACITY);
    write_run(r, 0, 280);
    gather(r, 30, path, 6);
    rig_check(r);
    gather(r, 2, far, 5);
    rig_check(r);
    gather(r, 286, up, 4); /* to free cells; block 8 is open, 9 is not */
    rig_check(r);
    write_run(r, 0, 128);    /* closes all but blocks 0 to 3 */
    gather(r, 129, near, 3); /* source and destination in one closed block; it takes the slot of block 0 */
    rig_check(r);
    gather(r, 224, (const uint32_t[]){32}, 1); /* takes the slot in which its source lies */
    rig_check(r);
}

static uint32_t draw(uint32_t n)
{
    static uint64_t seed = 88172645463325252u;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 20) % n;
}

static void at_random(rig *r)
{
    for (int op = 0; op < 120; op++) {
        if (r->usable < 8 || (r->usable < CAPACITY && draw(4) == 0))
            rig_grow(r, r->usable + 1 + draw(CAPACITY - r->usable < 60 ? CAPACITY - r->usable : 60));
        uint32_t cells[8], n = 1 + draw(8), start = draw(r->usable), left = r->usable - start;
        uint32_t what = draw(4);
        if (what == 0)
            write_run(r, start, 1 + draw(left < 90 ? left : 90));
        else if (what == 1) {
            for (uint32_t i = 0; i < n; i++)
                cells[i] = draw(r->usable);
            scatter(r, cells, n);
        } else { /* ascending sources, none below its destination */
            uint32_t count = 0;
            for (uint32_t c = start; c < r->usable && count < n; c++)
                if (r->held[c] && draw(3) == 0)
                    cells[count++] = c;
            if (count)
                gather(r, cells[0] - draw(cells[0] < 70 ? cells[0] + 1 : 70), cells, count);
        }
        rig_check(r);
    }
}

static void orders_check(const kvb_pool_type *type, kvb_growth growth, uint32_t min_chunk)
{
    static void (*const orders[])(rig *) = {one_by_one, in_runs, in_reverse, scattered, rewound, gathered, at_random};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        rig r;
        rig_open(&r, type, growth, min_chunk);
        orders[i](&r);
        rig_close(&r);
    }
}

TEST(rows_are_readable_in_any_order)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        orders_check(pool_named(names[i]), i % 2 ? KVB_GROWTH_RESERVE : KVB_GROWTH_DOUBLE, 7);
}

TEST(turned_rows_are_readable)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rig r;
        rig_open(&r, pool_named(names[i])->rotated, KVB_GROWTH_DOUBLE, 100);
        in_runs(&r);
        gathered(&r);
        rig_close(&r);
    }
}

/* ---- the rest ------------------------------------------------------------------------------------------------ */

/* A long run stores the same as its rows one by one: each block is encoded once, when it is full. */
TEST(a_run_is_its_rows)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const kvb_pool_type *type = pool_named(names[i]);
        rig whole, single;
        kvb_view v[2];
        rig_open(&whole, type, KVB_GROWTH_DOUBLE, CAPACITY);
        rig_open(&single, type, KVB_GROWTH_DOUBLE, 1);
        rig_grow(&whole, CAPACITY);
        write_run(&whole, 0, CAPACITY);
        for (uint32_t c = 0; c < CAPACITY; c++) {
            rig_grow(&single, c + 1);
            type->write_run(single.pool, c, 1, rows_next(&(rig){0}, CAPACITY) + (size_t)c * HEADS * DIM);
        }
        type->view(whole.pool, CAPACITY, &v[0]);
        type->view(single.pool, CAPACITY, &v[1]);
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t c = 0; c < CAPACITY; c++) {
                float rows[2][DIM];
                type->format->read(&v[0], h, c, 1, rows[0]);
                type->format->read(&v[1], h, c, 1, rows[1]);
                assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
            }
        rig_close(&whole);
        rig_close(&single);
    }
}

/* The highest level may exceed the largest f16: rows that are decoded to f16 again must not become infinite. */
TEST(reopened_rows_stay_finite)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        static float rows[CAPACITY * HEADS * DIM];
        float row[DIM];
        kvb_view v;
        rig r;
        for (uint32_t e = 0; e < CAPACITY * HEADS * DIM; e++)
            rows[e] = (e / (HEADS * DIM) + e) % 2 ? 65504 : -65504;
        rig_open(&r, pool_named(names[i]), KVB_GROWTH_DOUBLE, CAPACITY);
        rig_grow(&r, CAPACITY);
        r.pool->type->write_run(r.pool, 0, CAPACITY, rows);
        r.pool->type->write_run(r.pool, 1, 1, rows);
        r.pool->type->view(r.pool, CAPACITY, &v);
        assert_int_not_equal(v.recent_slot[0], KVB_SLOT_NONE);
        v.format->read(&v, 0, 0, 1, row);
        for (uint32_t e = 0; e < DIM; e++)
            assert_true(fabsf(row[e]) <= 65504);
        rig_close(&r);
    }
}

TEST(memory_is_as_predicted)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int growth = KVB_GROWTH_DOUBLE; growth < KVB_GROWTHS; growth++) {
            const kvb_pool_type *type = pool_named(names[i]);
            kvb_pool_options o = {HEADS, DIM, 5, CAPACITY, (kvb_growth)growth, NULL, NULL};
            size_t residual = (size_t)OPEN * HEADS * W * DIM * 2;
            rig r;
            rig_open(&r, type, (kvb_growth)growth, 5);
            assert_int_equal(r.allocator.current_bytes, type->bytes(type, &o, 0));
            assert_int_equal(type->reserved(r.pool), residual);
            for (uint32_t cells = 0; cells <= CAPACITY; cells += 1 + cells % 3) {
                rig_grow(&r, cells);
                assert_int_equal(r.allocator.current_bytes, type->bytes(type, &o, cells));
                assert_int_equal(type->reserved(r.pool),
                                 residual + type->bytes(type, &o, cells) - type->bytes(type, &o, 0));
            }
            assert_int_equal(type->ensure(r.pool, CAPACITY + 1), -ENOSPC);
            rig_close(&r);
        }
}

/* The n-th request fails, for every n: open() holds nothing, ensure() leaves rows and bytes as they were. */
TEST(failed_requests_change_nothing)
{
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++)
        for (int growth = KVB_GROWTH_DOUBLE; growth <= KVB_GROWTH_RESERVE; growth += KVB_GROWTH_RESERVE) {
            const kvb_pool_type *type = i % 2 ? pool_named(names[i / 2])->rotated : pool_named(names[i / 2]);
            bool opened = false, grown = false;
            for (uint64_t n = 1; !grown; n++) {
                rig r = {.allocator.fail_request = n};
                kvb_pool_options o = {HEADS, DIM, 40, CAPACITY, (kvb_growth)growth, NULL, &r.allocator};
                int error = type->open(type, &o, &r.pool);
                opened = !error;
                if (error) {
                    assert_int_equal(error, -ENOMEM);
                    assert_int_equal(r.allocator.current_bytes, 0);
                    continue;
                }
                error = type->ensure(r.pool, 40);
                if (!error) {
                    r.usable = 40;
                    write_run(&r, 0, 40);
                    size_t before = r.allocator.current_bytes;
                    error = type->ensure(r.pool, 200);
                    grown = !error;
                    if (error)
                        assert_int_equal(r.allocator.current_bytes, before);
                    rig_check(&r);
                }
                assert_true(grown || error == -ENOMEM);
                rig_grow(&r, 200); /* the next try works */
                write_run(&r, 30, 150);
                rig_check(&r);
                rig_close(&r);
            }
            assert_true(opened);
        }
}
