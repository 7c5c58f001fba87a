/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the bytes of every pool are a closed form of its options and its length: what the allocator holds, what
 * bytes() and row_bytes() say, the peak (while a copy is made old and new blocks together; with reserved pages never
 * more than what is held), the bytes copied, and that reserved rows never move.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "caches/pools/pool.h"

/* What each format keeps, from its own description; "+had" adds a row of floats. */
static const struct form {
    const char *name;
    uint32_t bits, block_bytes;        /* of an element, or of a block of 32 */
    uint32_t group, scale, zero;       /* elements that share a scale (0: a row), bytes of one scale and zero */
    bool scaled_head, turned, windows; /* a float a head; a row of floats; f16 windows */
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

/* Cells with room after so many were wanted. */
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

/* What is there from the start, whatever the length: windows, their two tables, head scales, a row in the making. */
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
    /* The pool's own struct is the one size that is not in its description: that of options with little else. */
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

/* Account for a growth from what is usable to `cells`. */
static void history_grow(const subject *s, history *h, uint64_t cells)
{
    uint64_t lane[LANES], old = lanes_bytes(s, h->usable), grown = lanes_bytes(s, cells);
    bool copies = s->o.growth != KVB_GROWTH_RESERVE && s->o.growth != KVB_GROWTH_RESERVE_THP;
    uint64_t held = s->struct_bytes + fixed_bytes(s) + grown;
    if (copies && room(s, cells) > room(s, h->usable)) {
        head_bytes(s, h->usable, lane);
        h->copied += s->o.n_kv_heads * (lane[0] + lane[1] + lane[2]);
        h->growths++;
        held += old; /* every new lane is there before an old one goes */
    } else if (grown > old) {
        h->growths++;
    }
    h->peak = held > h->peak ? held : h->peak;
    h->usable = cells;
}

/* Rows that space is reserved for stay where they are. */
static void place_check(const subject *s, const kvb_pool *pool, history *h)
{
    kvb_view view;
    s->type->view(pool, (uint32_t)h->usable, &view);
    size_t last = s->o.n_kv_heads - 1; /* the head that moves even where the first one does not */
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
        skip();
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

static void doubling(void **state)
{
    (void)state;
    growth_check(KVB_GROWTH_DOUBLE);
}
static void doubling_huge(void **state)
{
    (void)state;
    growth_check(KVB_GROWTH_DOUBLE_THP);
}
static void reserving(void **state)
{
    (void)state;
    growth_check(KVB_GROWTH_RESERVE);
}
static void reserving_huge(void **state)
{
    (void)state;
    growth_check(KVB_GROWTH_RESERVE_THP);
}
static void concatenating(void **state)
{
    (void)state;
    growth_check(KVB_GROWTH_EXACT);
}

/* A row's own bytes and its share of what a group has: the form for 32 cells, by 32. */
static void row_bytes(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubling),       cmocka_unit_test(doubling_huge), cmocka_unit_test(reserving),
        cmocka_unit_test(reserving_huge), cmocka_unit_test(concatenating), cmocka_unit_test(row_bytes),
    };
    return cmocka_run_group_tests_name("bytes of pools in closed form", tests, NULL, NULL);
}
