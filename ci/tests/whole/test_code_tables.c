/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that every code of every format under every kind of scale means what code_tables.py says, which knows formats
 * by their names and published definitions alone. The oracle's codecs decode to double; the pools' codecs decode to
 * f32, at every level of instruction sets that this CPU has. Stored bytes are made here, not by an encoder.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caches/pools/codec/codec.h"
#include "caches/pools/pool.h"
#include "oracle/storage.h"
#include "workloads/safetensors.h"

enum { DIM = 256, ROWS = 256, CODES = 4 * DIM, SCALES = 4 * DIM };

static const char python[] = "/usr/bin/python3"; /* Debian's, which has its numpy */
static const float head_scale = 0.37f;

typedef struct table {
    unsigned char codes[ROWS * CODES], scales[ROWS * SCALES], zeros[ROWS * SCALES];
    double oracle[ROWS * DIM], size[DIM];
    float pool[ROWS * DIM];
} table;

static table t;

/* Bit patterns of scales and zeros: of 8 bits all of them; of more: signs, powers, fractions, subnormals, none that
 * overflows. */
static void scale_put(unsigned char *into, kvb_elem elem, uint32_t number, bool zero)
{
    static const uint16_t f16[] = {0x3c00, 0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x2e66,
                                   0xae66, 0x3555, 0x4248, 0xc248, 0x7bff, 0xfbff, 0x57ff, 0x1234};
    static const float f32[] = {1, 0, 0.1f, 3.14159274f, 1e30f, 1e-30f, 0x1p-126f, 0x1p-149f, 0.333333343f, 7e5f};
    if (elem == KVB_F16) {
        uint16_t bits = f16[(number * (zero ? 7 : 1) + zero) % (sizeof f16 / sizeof *f16)];
        memcpy(into, &bits, 2);
    } else if (elem == KVB_F32) {
        float x = f32[(number * (zero ? 3 : 1) + zero) % (sizeof f32 / sizeof *f32)];
        x = zero && number % 2 ? -x : x;
        memcpy(into, &x, 4);
    } else
        *into = (unsigned char)number;
}

/* Bytes of which every stretch of 16 has every value of its low half, its high half and each pair of bits. */
static unsigned char code_byte(uint32_t i, uint32_t row)
{
    uint32_t low = (i + row) % 16, high = (i * 5 + i / 16 + row + 8) % 16;
    return (unsigned char)(low | high << 4);
}

/* One NaN or huge element is all that is left of a row that is turned back: every other such row has none. */
static bool is_tame(const kvb_format *f, uint32_t row)
{
    return f->transform && row % 2;
}

/* One byte for each code of 8 bits, two for 16, each of them once in all rows; else what code_byte says. */
static void codes_fill(const kvb_format *f, size_t row_bytes)
{
    static const uint32_t blocks[KVB_ELEM_COUNT] = {
        [KVB_Q8_0] = 34, [KVB_Q5_1] = 24, [KVB_Q5_0] = 22, [KVB_Q4_1] = 20, [KVB_Q4_0] = 18, [KVB_IQ4_NL] = 18};
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < row_bytes; i++) {
            unsigned char *at = t.codes + r * row_bytes + i;
            *at = f->elem == KVB_F16 || f->elem == KVB_BF16 ? (unsigned char)(i % 2 ? r : i / 2)
                  : row_bytes == DIM                        ? (unsigned char)(i * 5 + r)
                                                            : code_byte(i, r);
            bool high =
                f->elem == KVB_E4M3 || f->elem == KVB_E5M2 || row_bytes == 2 * DIM; /* has an exponent's first bit */
            if (is_tame(f, r) && high)
                *at &= 0xbf;
            if (blocks[f->elem] && row_bytes / (DIM / 32) == 34 && i % 34 > 1)
                *at = (unsigned char)(i % 34 + 32 * r);
        }
    for (uint32_t r = 0; r < ROWS && blocks[f->elem]; r++)
        for (uint32_t b = 0; b < DIM / 32; b++) {
            unsigned char *block = t.codes + r * row_bytes + b * blocks[f->elem];
            scale_put(block, KVB_F16, r / 8 + b, false);
            if (f->elem == KVB_Q5_1 || f->elem == KVB_Q4_1)
                scale_put(block + 2, KVB_F16, r / 8 + b, true);
        }
    for (uint32_t r = 0; r < ROWS && f->elem == KVB_F32; r++)
        for (uint32_t c = 0; c < DIM; c++) {
            uint32_t bits = (r * DIM + c) * 0x9e3779b9u & (is_tame(f, r) ? 0xbfffffffu : 0xffffffffu);
            memcpy(t.codes + (r * DIM + c) * 4, &bits, 4);
        }
}

static kvb_view view_make(const kvb_format *f)
{
    static uint32_t slots[ROWS];
    size_t row_bytes = kvb_codes_bytes(f, DIM), elem = kvb_scale_bytes(f->scale_elem);
    bool block = kvb_elem_is_block(f->elem), tokens = f->axis == KVB_AXIS_TOKENS;
    size_t per_row = tokens ? DIM : f->group == KVB_GROUP_ROW ? 1 : f->group && !block ? DIM / f->group : 0;
    codes_fill(f, row_bytes);
    for (uint32_t i = 0; i < ROWS * per_row; i++) {
        uint32_t number = (uint32_t)(i / per_row + i % per_row);
        scale_put(t.scales + i * elem, f->scale_elem, number, false);
        if (elem == 1 && is_tame(f, (uint32_t)(i / per_row)))
            t.scales[i] &= 0xbf;
        if (kvb_format_has_zeros(f))
            scale_put(t.zeros + i * elem, f->zero_elem, number, true);
    }
    memset(slots, 0xff, sizeof slots); /* no row waits to be encoded */
    return (kvb_view){.base = t.codes,
                      .cell_stride = row_bytes,
                      .cells = ROWS,
                      .dim = DIM,
                      .format = f,
                      .scales = per_row ? t.scales : NULL,
                      .scale_cell_stride = per_row * elem,
                      .zeros = kvb_format_has_zeros(f) ? t.zeros : NULL,
                      .zero_cell_stride = per_row * elem,
                      .head_scales = f->head_scale ? &head_scale : NULL,
                      .recent = t.codes,
                      .recent_slot = slots};
}

static kvb_tensor tensor(const char *name, kvb_dtype dtype, uint64_t columns, const void *data)
{
    return (kvb_tensor){.name = name,
                        .dtype = dtype,
                        .n_dims = 2,
                        .dims = {ROWS, columns},
                        .data = data,
                        .bytes = ROWS * columns * kvb_dtype_bytes(dtype)};
}

static void format_write(const char *folder, const kvb_format *f, const char *isa)
{
    kvb_view view = view_make(f);
    kvb_storage store;
    char path[400], why[300] = "";
    if (kvb_storage_init(&store, f, DIM, NULL, 1, 0, why, sizeof why))
        fail_msg("%s", why);
    for (uint32_t r = 0; r < ROWS; r++) {
        const size_t scales = (f->axis == KVB_AXIS_TOKENS ? r / f->group : r) * view.scale_cell_stride;
        const unsigned char *part[] = {t.codes + r * view.cell_stride, t.scales + scales, t.zeros + scales};
        store.codec->decode(store.codec, part, DIM, f->head_scale ? head_scale : 1, t.oracle + r * DIM, t.size);
        kvb_storage_finish(&store, t.oracle + r * DIM, t.size);
    }
    f->read(&view, 0, 0, ROWS, t.pool);
    const kvb_tensor tensors[] = {tensor("codes", KVB_DTYPE_U8, view.cell_stride, t.codes),
                                  tensor("scales", KVB_DTYPE_U8, view.scale_cell_stride, t.scales),
                                  tensor("zeros", KVB_DTYPE_U8, view.zeros ? view.zero_cell_stride : 0, t.zeros),
                                  tensor("oracle", KVB_DTYPE_F64, DIM, t.oracle),
                                  tensor("pool", KVB_DTYPE_F32, DIM, t.pool)};
    snprintf(path, sizeof path, "%s/%s.%s", folder, f->name, isa);
    if (kvb_safetensors_write(path, tensors, sizeof tensors / sizeof *tensors, NULL, why, sizeof why))
        fail_msg("%s", why);
}

static void test_tables(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    char folder[256], command[900];
    snprintf(command, sizeof command, "%s -c 'import numpy' 2>/dev/null", python);
    if (system(command))
        skip(); /* no numpy here */
    snprintf(folder, sizeof folder, "%.200s/tables-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++) {
        if (!(*isa)->available())
            continue;
        kvb_codec_limit((*isa)->name);
        for (const kvb_pool_type *const *pool = kvb_builtin_pools; *pool; pool++) {
            format_write(folder, (*pool)->format, (*isa)->name);
            if ((*pool)->rotated)
                format_write(folder, (*pool)->rotated->format, (*isa)->name);
        }
    }
    kvb_codec_limit(NULL);
    snprintf(command, sizeof command,
             "OPENBLAS_NUM_THREADS=1 %s ci/tests/whole/code_tables.py %s/*; code=$?; rm -rf %s; exit $code", python,
             folder, folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables)};
    return cmocka_run_group_tests_name("every code of every format", tests, NULL, NULL);
}
