/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: at every level, rows of every built-in format are loaded as format->read reads them: bit for bit without
 * transform and head scale, else up to these; from scattered cells, within and past the residual windows; for every
 * dim. No byte beyond a row is read, and padding is cleared. Rows are rotated as the transform is defined.
 */
#include <sys/mman.h>

#include "ci/tests/tests.h"
#include "caches/pools/codec/codec.h"
#include "caches/pools/rows.h"
#include "caches/pools/pool.h"
#include "ci/tests/kernels/levels.h"
#include "workloads/special_rows.h"

enum { HEADS = 3, CELLS = 200, LISTED = 75, DIM_MAX = 288, STRIDE = 304 };

/* 16 and less, real heads, and more scales than one pass of a loop handles. */
static const uint32_t dims[] = {1, 2, 5, 12, 16, 17, 20, 31, 64, 80, 96, 100, 120, 128, 192, 256, 272, DIM_MAX};

static uint64_t seed = 1;

static bool same(float a, float b)
{
    return a == b ? signbit(a) == signbit(b) : isnan(a) && isnan(b);
}

/* ---- views ----------------------------------------------------------------------------------------------------- */

typedef struct opened {
    kvb_pool *pool;
    kvb_allocator allocator;
    kvb_view view;
} opened;

static bool pool_fill(const kvb_pool_type *type, uint32_t dim, opened *o)
{
    static const float amax[HEADS] = {3, 700, 0.01f};
    static float rows[CELLS * HEADS * DIM_MAX];
    char why[200];
    *o = (opened){0};
    kvb_pool_options options = {.n_kv_heads = HEADS,
                                .dim = dim,
                                .min_chunk = CELLS,
                                .capacity = CELLS,
                                .growth = KVB_GROWTH_DOUBLE,
                                .amax = amax,
                                .allocator = &o->allocator};
    if (!type->supports(type, dim, why, sizeof why))
        return false;
    for (uint32_t i = 0; i < CELLS * HEADS; i++)
        row_fill(type->format->residual_cells ? ROW_NORMAL : (row_kind)(i / HEADS % ROW_KINDS), rows + i * dim, dim,
                 &seed);
    assert_int_equal(type->open(type, &options, &o->pool), 0);
    assert_int_equal(type->ensure(o->pool, CELLS), 0);
    type->write_run(o->pool, 0, CELLS, rows);
    type->view(o->pool, CELLS, &o->view);
    return true;
}

/* Fills codes with random bytes, also such as no encoder makes. Any NaN equals any other. */
static void codes_scramble(kvb_view *v)
{
    uint8_t *codes = (uint8_t *)(uintptr_t)v->base;
    for (size_t i = 0; i < v->cell_stride * CELLS; i++)
        codes[v->head_stride + i] = (uint8_t)row_random(&seed);
}

/* ---- one row against format->read -------------------------------------------------------------------------------- */

static void row_check(const kvb_view *v, kvb_cpu_level level, uint32_t h, uint32_t cell, const float *row)
{
    float want[DIM_MAX], got[STRIDE];
    const kvb_format *f = v->format;
    float scale = v->head_scales ? v->head_scales[h] : 1.0f;
    v->format->read(v, h, cell, 1, want);
    for (uint32_t c = 0; c < v->dim; c++)
        got[c] = row[c] * scale;
    if (f->transform) /* the codecs' rotation */
        kvb_codec_isas[0]->rotate(f->transform, v->dim, true, got);
    for (uint32_t c = 0; c < v->dim; c++)
        if (!same(v->head_scales || f->transform ? got[c] : row[c], want[c]))
            fail_msg("%s, %s, dim %u, head %u, cell %u, channel %u: %a, not %a", f->name, kvb_cpu_level_names[level],
                     v->dim, h, cell, c, (double)got[c], (double)want[c]);
    for (uint32_t c = v->dim; c < STRIDE; c++)
        if (row[c] != 0)
            fail_msg("%s, %s, dim %u: channel %u is not cleared", f->name, kvb_cpu_level_names[level], v->dim, c);
}

static void view_check(const kvb_view *v, const uint32_t *cells, uint32_t n)
{
    static _Alignas(64) float rows[LISTED * STRIDE + 16];
    for (uint32_t l = 0; l < KVB_CPU_LEVELS; l++) {
        if (!level_tried((kvb_cpu_level)l))
            continue;
        kvb_load *load = kvb_vector_at((kvb_cpu_level)l)->load_of(v->format);
        assert_non_null(load);
        for (uint32_t h = 0; h < HEADS; h++) {
            for (uint32_t i = 0; i < LISTED * STRIDE + 16; i++)
                rows[i] = NAN;
            load(v, h, cells, n, rows, STRIDE);
            for (uint32_t i = 0; i < n; i++)
                row_check(v, (kvb_cpu_level)l, h, cells[i], rows + i * STRIDE);
            assert_true(isnan(rows[n * STRIDE]));
        }
    }
}

/* Runs a check with every pool, plain and rotated, and every dim that it takes. */
static void each_pool(void (*check)(opened *o))
{
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++)
        for (const kvb_pool_type *form = *type; form; form = form == *type ? form->rotated : NULL)
            for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
                opened o;
                if (!pool_fill(form, dims[d], &o))
                    continue;
                check(&o);
                form->close(o.pool);
            }
}

static void scattered_check(opened *o)
{
    uint32_t cells[LISTED];
    for (uint32_t i = 0; i < LISTED; i++)
        cells[i] = i < 20 ? i : i < 40 ? 100 + i : row_random(&seed) % CELLS;
    view_check(&o->view, cells, LISTED);
    cells[0] = CELLS - 1;
    view_check(&o->view, cells, 1);
    view_check(&o->view, cells, 0);
    codes_scramble(&o->view);
    view_check(&o->view, cells, 7);
}

TEST(test_scattered)
{
    each_pool(scattered_check);
}

/* ---- no byte beyond a row --------------------------------------------------------------------------------------- */

/* A copy of n bytes that ends where a page without access begins. */
typedef struct fenced {
    uint8_t *map, *at;
    size_t bytes;
} fenced;

static fenced fence(const void *from, size_t n)
{
    const size_t page = 4096;
    size_t room = (n + page - 1) / page * page;
    fenced f = {.bytes = room + page};
    f.map = mmap(NULL, f.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f.map != MAP_FAILED);
    f.at = f.map + room - n;
    memcpy(f.at, from, n);
    assert_int_equal(mprotect(f.map + room, page, PROT_NONE), 0);
    return f;
}

/* Head 0's last cell, with its codes, scales and zeros each before a page without access; then that of the window. */
static void fences_check(opened *o)
{
    const kvb_view *from = &o->view;
    const kvb_format *f = from->format;
    static const uint32_t closed = KVB_SLOT_NONE, open = 0, cell = 0;
    kvb_lane_shape shape[KVB_LANES];
    _Alignas(64) float row[STRIDE];
    fenced part[4];

    kvb_lane_shapes(f, from->dim, shape);
    for (int l = 0; l < KVB_LANES; l++) {
        const void *base = l == KVB_LANE_CODES ? from->base : l == KVB_LANE_SCALES ? from->scales : from->zeros;
        part[l] = fence(base ? base : "", base ? shape[l].unit_bytes : 0);
    }
    part[3] = fence(from->recent ? from->recent : "", from->recent ? from->dim * 2 : 0);
    kvb_view v = {.base = part[KVB_LANE_CODES].at,
                  .cells = 1,
                  .dim = from->dim,
                  .format = f,
                  .scales = from->scales ? part[KVB_LANE_SCALES].at : NULL,
                  .zeros = from->zeros ? part[KVB_LANE_ZEROS].at : NULL,
                  .head_scales = from->head_scales,
                  .recent = from->recent ? part[3].at : NULL,
                  .recent_slot = from->recent ? &closed : NULL};
    for (uint32_t l = 0; l < KVB_CPU_LEVELS; l++) {
        if (!level_tried((kvb_cpu_level)l))
            continue;
        v.recent_slot = from->recent ? &closed : NULL;
        kvb_vector_at((kvb_cpu_level)l)->load_of(f)(&v, 0, &cell, 1, row, STRIDE);
        row_check(&v, (kvb_cpu_level)l, 0, 0, row);
        v.recent_slot = from->recent ? &open : NULL;
        kvb_vector_at((kvb_cpu_level)l)->load_of(f)(&v, 0, &cell, 1, row, STRIDE);
        row_check(&v, (kvb_cpu_level)l, 0, 0, row);
    }
    for (int i = 0; i < 4; i++)
        munmap(part[i].map, part[i].bytes);
}

TEST(test_fences)
{
    each_pool(fences_check);
}

/* ---- formats of plug-ins ----------------------------------------------------------------------------------------- */

TEST(test_strangers)
{
    static const kvb_format strangers[] = {
        {.elem = KVB_F32, .axis = KVB_AXIS_CHANNELS, .group = 32, .scale_elem = KVB_F32},
        {.elem = KVB_UINT4, .axis = KVB_AXIS_CHANNELS, .group = 48, .scale_elem = KVB_F16, .zero_elem = KVB_F16},
        {.elem = KVB_UINT4, .axis = KVB_AXIS_CHANNELS, .group = 32, .scale_elem = KVB_BF16, .zero_elem = KVB_BF16},
        {.elem = KVB_UINT4, .axis = KVB_AXIS_CHANNELS, .group = 32, .scale_elem = KVB_F16, .zero_elem = KVB_UINT8},
        {.elem = KVB_INT8, .axis = KVB_AXIS_TOKENS, .group = 32, .scale_elem = KVB_F16},
        {.elem = KVB_E2M1, .axis = KVB_AXIS_CHANNELS, .group = 16, .scale_elem = KVB_E8M0},
        {.elem = KVB_CODEBOOK,
         .axis = KVB_AXIS_CHANNELS,
         .group = KVB_GROUP_ROW,
         .level_bits = 2,
         .scale_elem = KVB_F16},
        {.elem = KVB_ELEM_COUNT},
    };
    for (uint32_t l = 0; l < KVB_CPU_LEVELS; l++)
        for (size_t i = 0; level_tried((kvb_cpu_level)l) && i < sizeof strangers / sizeof *strangers; i++)
            assert_null(kvb_vector_at((kvb_cpu_level)l)->load_of(&strangers[i]));
}

/* ---- the transform ----------------------------------------------------------------------------------------------- */

static double walsh(const float *x, uint32_t block, uint32_t i)
{
    double sum = 0;
    for (uint32_t j = 0; j < block; j++)
        sum += __builtin_parity(i & j) ? -(double)x[j] : (double)x[j];
    return sum / sqrt(block);
}

static void transform_check(kvb_cpu_level level, kvb_transform t, uint32_t dim, bool inverse)
{
    float x[1153], codec[1152], got[1153];
    uint32_t block = kvb_transform_block(dim);
    double size = 0;
    bool flip = t == KVB_TRANSFORM_SIGNED_HADAMARD;
    for (uint32_t c = 0; c < dim; c++) {
        x[c] = codec[c] = got[c] = row_normal(&seed);
        size += (double)x[c] * x[c];
    }
    got[dim] = x[dim] = 77;
    kvb_vector_at(level)->hadamard(t, dim, inverse, got);
    kvb_codec_isas[0]->rotate(t, dim, inverse, codec);
    assert_true(got[dim] == 77.0f);
    for (uint32_t c = 0; c < dim && flip && !inverse; c++)
        x[c] = kvb_sign_flip(c) ? -x[c] : x[c];
    for (uint32_t c = 0; c < dim; c++) {
        double right = walsh(x + c / block * block, block, c % block);
        right = flip && inverse && kvb_sign_flip(c) ? -right : right;
        if (!same(got[c], codec[c]) || fabs(got[c] - right) > 1e-6 * sqrt(size))
            fail_msg("%s: transform of %u channels: element %u is %a, not %a or %a", kvb_cpu_level_names[level], dim, c,
                     (double)got[c], (double)codec[c], right);
    }
}

TEST(test_transform)
{
    for (uint32_t l = 0; l < KVB_CPU_LEVELS; l++) {
        if (!level_tried((kvb_cpu_level)l))
            continue;
        for (uint32_t dim = 1; dim <= 1152; dim += dim < 258 ? 1 : dim == 258 ? 62 : 64)
            for (int way = 0; way < 4; way++)
                transform_check((kvb_cpu_level)l, way & 1 ? KVB_TRANSFORM_SIGNED_HADAMARD : KVB_TRANSFORM_HADAMARD, dim,
                                way & 2);
        float as_it_is[3] = {1, 2, 3};
        kvb_vector_at((kvb_cpu_level)l)->hadamard(KVB_TRANSFORM_NONE, 2, false, as_it_is);
        assert_true(as_it_is[0] == 1 && as_it_is[1] == 2 && as_it_is[2] == 3);
    }
}

/* All instruction sets rotate hard rows to the same bits. Rows with NaN are among them. */
TEST(rotations_agree)
{
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++)
        for (uint32_t dim = 1; dim <= 1152 && (*isa)->available(); dim += dim < 70 ? 1 : dim == 70 ? 10 : 16)
            for (row_kind kind = 0; kind < ROW_KINDS; kind++)
                for (int way = 0; way < 4; way++) {
                    kvb_transform t = way & 1 ? KVB_TRANSFORM_SIGNED_HADAMARD : KVB_TRANSFORM_HADAMARD;
                    float portable[1152], memory[1153], *row = memory + 1;
                    row_fill(kind, portable, dim, &seed);
                    memcpy(row, portable, dim * sizeof *row);
                    kvb_codec_isas[0]->rotate(t, dim, way & 2, portable);
                    (*isa)->rotate(t, dim, way & 2, row);
                    if (memcmp(portable, row, dim * sizeof *row) != 0)
                        fail_msg("%s: rotation of %u channels, row kind %d, differs", (*isa)->name, dim, (int)kind);
                }
}
