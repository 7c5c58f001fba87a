/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: what kernels declare, what the witness lists, and which core of OpenBLAS fits a level. */
#include "ci/tests/tests.h"
#include "ci/tests/kernels/fixture.h"
#include "kernels/blas.h"
#include "kernels/kernels.h"
#include "kernels/witness.h"

/* Shows: which problems each kernel takes, with which reason it declines others, and what decoding adds to its declared
 * arithmetic. */

#define ROWS(...)                                                                                                      \
    &(const kvb_format)                                                                                                \
    {                                                                                                                  \
        .read = rows_read, __VA_ARGS__                                                                                 \
    }
#define F32 &test_formats[KVB_F32]
#define MUTE                                                                                                           \
    &(const kvb_format)                                                                                                \
    {                                                                                                                  \
        .name = "e4m3", .elem = KVB_E4M3                                                                               \
    } /* a read() would make it acceptable */
#define INT8                                                                                                           \
    ROWS(.name = "int8", .elem = KVB_INT8, .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32)

/* How a problem differs from the plain one: one query, one head, 4 cells, f32 rows of 16 channels. */
static const struct row {
    const kvb_kernel *kernel; /* NULL: all that take f32 */
    const char *words;        /* the reason for declining; NULL: the kernel takes the problem */
    const kvb_format *k, *v;  /* v NULL: the same as k */
    uint32_t k_dim, v_dim, n_heads, n_kv_heads, n_cells;
    kvb_elem out;
    bool v_in_k;
} declared_rows[] = {
    {.k = F32},
    {.words = "e4m3", .k = F32, .v = MUTE},
    {.words = "e4m3", .k = MUTE, .v = F32},
    {.words = "", .k = F32, .out = KVB_E5M2},
    {.words = "3 query heads", .k = F32, .n_heads = 3, .n_kv_heads = 2},
    {&kvb_kernel_flash, "more than 512 query heads", F32, .n_heads = 513},
    {&kvb_kernel_openblas, "32-bit integers", F32, .n_cells = 1u << 31},
    {&kvb_kernel_witness, "16", F32, .v_dim = 15},
    {&kvb_kernel_witness, "transformed turned rows are too coarse", F32,
     .v = ROWS(.name = "turned", .elem = KVB_UINT2, .transform = KVB_TRANSFORM_HADAMARD)},
    {&kvb_kernel_flash_int8, NULL, INT8, .k_dim = 128, .v_dim = 64},
    {&kvb_kernel_flash_int8, "V in K's rows: they have one scale", INT8, .k_dim = 128, .v_dim = 64, .v_in_k = true},
#define BF16_TAKES(elem_, head_scaled)                                                                                 \
    {&kvb_kernel_flash_bf16, NULL, .k = ROWS(.name = "rows", .elem = elem_), .k_dim = 576},                            \
        {&kvb_kernel_flash_bf16, "multiple of 16", .k = ROWS(.name = "rows", .elem = elem_), .v_dim = 72},             \
        {&kvb_kernel_flash_bf16, "at most 1024", .k = ROWS(.name = "rows", .elem = elem_), .k_dim = 1040},             \
        {&kvb_kernel_flash_bf16, head_scaled,                                                                          \
         .k = ROWS(.name = "rows", .elem = elem_, .head_scale = KVB_STATIC_HEAD)},                                     \
        {&kvb_kernel_flash_bf16, "scales beside", .k = ROWS(.name = "rows", .elem = elem_, .group = KVB_GROUP_ROW)},   \
    {                                                                                                                  \
        &kvb_kernel_flash_bf16, "transformed",                                                                         \
            .k = ROWS(.name = "rows", .elem = elem_, .transform = KVB_TRANSFORM_HADAMARD)                              \
    }
    BF16_TAKES(KVB_BF16, "scales beside"),
    BF16_TAKES(KVB_E4M3, NULL),
    BF16_TAKES(KVB_E5M2, NULL),
    {&kvb_kernel_flash_bf16, "half", .k = ROWS(.name = "half", .elem = KVB_F16)},
};

static void row_check(const struct row *r, const kvb_kernel *kernel)
{
    const kvb_problem p = {.n_tok = 1,
                           .n_heads = r->n_heads ? r->n_heads : 1,
                           .n_kv_heads = r->n_kv_heads ? r->n_kv_heads : 1,
                           .k_dim = r->k_dim ? r->k_dim : 16,
                           .v_dim = r->v_dim ? r->v_dim : 16,
                           .n_cells = r->n_cells ? r->n_cells : 4,
                           .scale = 1,
                           .v_in_k = r->v_in_k,
                           .out_elem = r->out,
                           .k_format = r->k,
                           .v_format = r->v ? r->v : r->k};
    char why[200] = "";
    const bool takes = kernel->supports(&p, why, sizeof why);
    if (takes != !r->words || (r->words && !strstr(why, r->words)))
        fail_msg("%s, row %td: %s '%s', not '%s'", kernel->name, r - declared_rows, takes ? "takes" : "declines", why,
                 r->words ? r->words : "takes");
}

#if defined(__x86_64__)
TEST(cores_of_openblas_fit_the_level)
{
    assert_string_equal(kvb_blas_better("Prescott", KVB_CPU_AVX512BF16), "SkylakeX");
    assert_string_equal(kvb_blas_better("Haswell", KVB_CPU_AVX512), "SkylakeX");
    assert_string_equal(kvb_blas_better("Nehalem", KVB_CPU_AVX2), "Haswell");
    assert_string_equal(kvb_blas_better("Cooperlake", KVB_CPU_AVXVNNI), "Haswell"); /* --cpu-mask */
    assert_string_equal(kvb_blas_better("Haswell", KVB_CPU_PORTABLE), "Prescott");
    assert_null(kvb_blas_better("Cooperlake", KVB_CPU_AMX));
    assert_null(kvb_blas_better("HASWELL", KVB_CPU_AVX2));
    assert_null(kvb_blas_better("Sandybridge", KVB_CPU_PORTABLE));
}
#endif

TEST(others_are_declined_in_words)
{
    for (const struct row *r = declared_rows; r < declared_rows + sizeof declared_rows / sizeof *declared_rows; r++)
        for (const kvb_kernel *const *k = kvb_builtin_kernels; *k; k++) {
            const bool takes_f32 = (*k)->attend && *k != &kvb_kernel_flash_int8 && *k != &kvb_kernel_flash_bf16 &&
                                   *k != &kvb_kernel_flash_f16 && *k != &kvb_kernel_flash_amx;
            if (r->kernel ? *k == r->kernel : takes_f32)
                row_check(r, *k);
        }
}

/* Declared chains include the roundings of decoding. V in K's rows is decoded with them. */
TEST(decoding_is_declared)
{
    static const kvb_kernel *const kernels[] = {&kvb_kernel_reference, &kvb_kernel_openblas, &kvb_kernel_flash};
    const kvb_format *turned = ROWS(.name = "turned", .elem = KVB_F32, .transform = KVB_TRANSFORM_HADAMARD),
                     *opaque = ROWS(.name = "opaque", .elem = KVB_OPAQUE, .read_roundings = 5);
    const struct {
        const kvb_format *k, *v;
        bool v_in_k;
        uint32_t dot, cell;                                      /* chains longer by this than over f16 */
    } more[] = {{&test_formats[KVB_UINT8], turned, false, 2, 7}, /* scale, zero; 6 stages of 64, and the factor */
                {turned, turned, true, 5, 5},                    /* 48 is made of blocks of 16 */
                {opaque, F32, false, 5, 0}};                     /* roundings of read() */
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        kvb_problem p = {.n_tok = 1, .n_heads = 1, .n_kv_heads = 1, .k_dim = 48, .v_dim = 64, .n_cells = 100};
        kvb_arithmetic bare, a;
        p.k_format = p.v_format = &test_formats[KVB_F16];
        kernels[k]->arithmetic(&p, &bare);
        for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
            p.k_format = more[i].k;
            p.v_format = more[i].v;
            p.v_in_k = more[i].v_in_k;
            p.v_dim = p.v_in_k ? 32 : 64;
            kernels[k]->arithmetic(&p, &a);
            assert_int_equal(a.dot_chain, bare.dot_chain + more[i].dot);
            assert_int_equal(a.cell_chain, bare.cell_chain + more[i].cell);
        }
    }
    assert_int_equal(kvb_format_roundings(opaque, 16), 5);
    assert_int_equal(kvb_format_roundings(F32, 16), 0);
}

/* A product in a state is rounded three times: itself, the addition, a gate. Reading adds d_k products and their sum; a
 * convolution also adds the newest row. */
TEST(scans_by_the_reference_are_declared)
{
    static const struct {
        kvb_scan_kind kind;
        uint32_t state, exponents;
    } kinds[] = {{KVB_SCAN_MAMBA1, 3, 1},
                 {KVB_SCAN_MAMBA2, 3, 1},
                 {KVB_SCAN_LIGHTNING, 2, 0},
                 {KVB_SCAN_DELTA, 3, 0},
                 {KVB_SCAN_CONV, 0, 0}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kvb_scan_problem p = {.kind = kinds[i].kind, .heads = 1, .groups = 1, .d_k = 16, .d_v = 16};
        kvb_scan_arithmetic a;
        kvb_kernel_scan_reference.scan->arithmetic(&p, &a);
        assert_int_equal(a.chunk, 1);
        assert_int_equal(a.state_chain, kinds[i].state);
        assert_int_equal(a.read_chain, kinds[i].state + 16 + (p.kind == KVB_SCAN_CONV ? 2 : 1));
        assert_int_equal(a.solve_chain, 20);
        assert_int_equal(a.exponent_chain, kinds[i].exponents);
    }
}

TEST(flash_adds_16_lanes_and_the_witness_nothing)
{
    const kvb_problem p = {.n_tok = 1,
                           .n_heads = 2,
                           .n_kv_heads = 1,
                           .k_dim = 16,
                           .v_dim = 16,
                           .n_cells = 4,
                           .scale = 1,
                           .k_format = F32,
                           .v_format = F32};
    kvb_arithmetic a = {.dot_chain = 9};
    kvb_kernel_witness.arithmetic(&p, &a);
    assert_true(a.accumulator == KVB_F32 && a.dot_chain == 0 && a.cell_chain == 0);
    kvb_kernel_flash.arithmetic(&p, &a);
    assert_int_equal(a.dot_chain, 16);
}

/* Shows: the witness lists exactly the rows that a query may see, by code, noise or not; damaged rows as torn. */

static uint32_t code_of(uint32_t side, uint32_t h, uint32_t c)
{
    return 0x9e3779b1u * (side * 100003 + h * 1009 + c + 1);
}

/* The symbol of a code in channel d of dim. */
static float symbol_of(uint32_t code, uint32_t dim, uint32_t d)
{
    return dim < 32 ? (float)(code >> 2 * (d % 16) & 3) * 2 - 3 : (float)(code >> d % 32 & 1) * 2 - 1;
}

/* Overwrites every cell, hidden ones too, with its code; each element is off by up to `noise`. */
static void rows_tag(const struct fixture *f, const kvb_view *view, void *rows, uint32_t side, float noise)
{
    size_t bytes = elem_bytes(view->format->elem);
    uint64_t rng = side;
    for (uint32_t h = 0; h < f->args.problem.n_kv_heads; h++)
        for (uint32_t c = 0; c < view->cells; c++)
            for (uint32_t d = 0; d < view->dim; d++)
                elem_store(view->format->elem, (char *)rows + h * view->head_stride + c * view->cell_stride + d * bytes,
                           symbol_of(code_of(side, h, c), view->dim, d) + noise * random_value(&rng) / 2);
}

static struct shape shape_of(uint32_t i)
{
    return (struct shape){.n_tok = 1 + i % 4,
                          .n_kv_heads = 2,
                          .group = 3,
                          .k_dim = (uint32_t[]){16, 20, 31, 32, 80}[i % 5],
                          .v_dim = (uint32_t[]){33, 64, 16}[i % 3],
                          .n_cells = 1 + i % 4 + 19 * (i % 11),
                          .mask = (kvb_mask_kind)(i / 3 % KVB_MASK_KINDS),
                          .k_elem = (kvb_elem)(i % 3),
                          .v_elem = (kvb_elem)(i / 2 % 3),
                          .out_elem = (kvb_elem)(i % 3),
                          .any_order = i % 2,
                          .empty = 4,
                          .threads = 1 + i % 3,
                          .seed = i};
}

static void attend_keep_scratch(struct fixture *f)
{
    char why[160];
    assert_true(kvb_kernel_witness.supports(&f->args.problem, why, sizeof why));
    f->args.scratch = exact_alloc(kvb_kernel_witness.scratch_bytes(&f->args.problem, f->team.n), 0xff);
    assert_int_equal(kvb_kernel_witness.attend(&f->args), 0);
}

TEST(lists_what_is_visible)
{
    for (uint32_t i = 0; i < 200; i++) {
        struct shape s = shape_of(i);
        struct fixture f;
        fixture_build(&f, &s);
        rows_tag(&f, &f.args.k, f.k, 0, i % 7 ? 0.98f : 0);
        rows_tag(&f, &f.args.v, f.v, 1, i % 7 ? 0.98f : 0);
        attend_keep_scratch(&f);
        const kvb_problem *p = &f.args.problem;
        for (uint32_t t = 0; t < p->n_tok; t++)
            for (uint32_t h = 0; h < p->n_kv_heads; h++) {
                const uint32_t *seen = kvb_witness_seen(f.args.scratch, p, t, h);
                uint32_t n = 0;
                for (uint32_t c = 0; c < p->n_cells; c++)
                    n += f.visible[(size_t)t * p->n_cells + c];
                assert_int_equal(*kvb_witness_count(f.args.scratch, p, t, h), n);
                kvb_run run;
                for (uint32_t cursor = 0; kvb_mask_next(&f.args.mask, p->n_tok, p->n_cells, t, &cursor, &run);)
                    for (uint32_t c = run.begin; c < run.end; c++, seen += 2) { /* in the order of the mask */
                        assert_true(f.visible[(size_t)t * p->n_cells + c]);
                        assert_int_equal(seen[0], code_of(0, h, c));
                        assert_int_equal(seen[1], code_of(1, h, c));
                    }
            }
        for (size_t b = 0; b < (size_t)p->n_tok * p->n_heads * p->v_dim * elem_bytes(p->out_elem); b++)
            assert_int_equal(((char *)f.out)[b], 0);
        free(f.args.scratch);
        fixture_free(&f);
    }
}

/* The code listed for a K row of `dim` channels whose channel d holds x instead of its symbol. *was: the true code. */
static uint32_t damaged_code(uint32_t dim, uint32_t d, float x, uint32_t *was)
{
    struct shape s = shape_of(2);
    struct fixture f;
    s.n_cells = 4;
    s.n_tok = 1;
    s.mask = KVB_MASK_NONE;
    s.k_dim = dim;
    s.k_elem = KVB_F32;
    fixture_build(&f, &s);
    rows_tag(&f, &f.args.k, f.k, 0, 0);
    rows_tag(&f, &f.args.v, f.v, 1, 0);
    float *at = (float *)f.k + 2 * dim + d;
    *at = isinf(x) ? -*at : x; /* another symbol */
    *was = code_of(0, 0, 2);
    attend_keep_scratch(&f);
    uint32_t got = kvb_witness_seen(f.args.scratch, &f.args.problem, 0, 0)[2 * 2];
    free(f.args.scratch);
    fixture_free(&f);
    return got;
}

/* A row is torn if one element, in any channel, is no symbol, or is another symbol and the pattern repeats there. */
TEST(damage_is_torn)
{
    static const uint32_t dims[] = {20, 40, 96};
    static const float none[] = {0.0f, -0.0f, (float)NAN, -2.0f, 2.0f, 4.0f, -5.0f};
    uint32_t was;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        uint32_t dim = dims[i], period = dim < 32 ? 16 : 32;
        for (uint32_t d = 0; d < dim; d++) {
            for (size_t n = 0; n < (dim < 32 ? 7 : 3); n++)
                assert_int_equal(damaged_code(dim, d, none[n], &was), KVB_WITNESS_TORN);
            uint32_t got = damaged_code(dim, d, INFINITY, &was);
            if (d >= period || d + period < dim)
                assert_int_equal(got, KVB_WITNESS_TORN);
            else
                assert_int_not_equal(got, was);
        }
    }
}

/* Rows of formats with scales or windows are decoded whole, residual windows as f16. */
TEST(other_formats_are_read)
{
    struct shape s = shape_of(4);
    struct fixture f;
    s.k_dim = 48;
    s.n_cells = 23;
    s.mask = KVB_MASK_NONE;
    s.k_elem = KVB_UINT8;
    s.v_elem = KVB_F32;
    fixture_build(&f, &s);
    rows_tag(&f, &f.args.v, f.v, 1, 0);
    for (uint32_t h = 0; h < s.n_kv_heads; h++)
        for (uint32_t c = 0; c < s.n_cells; c++) {
            uint16_t *recent = (uint16_t *)(uintptr_t)recent_row(&f.args.k, h, c);
            ((float *)(uintptr_t)f.args.k.scales)[h * s.n_cells + c] = 0.015f;
            ((float *)(uintptr_t)f.args.k.zeros)[h * s.n_cells + c] = -1.5f;
            for (uint32_t d = 0; d < 48; d++) {
                float x = symbol_of(code_of(0, h, c), 48, d);
                if (recent)
                    elem_store(KVB_F16, recent + d, x);
                else
                    ((unsigned char *)f.k)[(h * s.n_cells + c) * f.args.k.cell_stride + d] = x > 0 ? 140 : 20;
            }
        }
    attend_keep_scratch(&f);
    for (uint32_t h = 0; h < s.n_kv_heads; h++)
        for (uint32_t c = 0; c < s.n_cells; c++)
            assert_int_equal(kvb_witness_seen(f.args.scratch, &f.args.problem, 0, h)[2 * c], code_of(0, h, c));
    free(f.args.scratch);
    fixture_free(&f);
}
