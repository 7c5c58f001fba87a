/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: which problems each kernel takes, and in which words it declines others; what decoding adds to the arithmetic
 * that it declares. */
#include "ci/tests/kernels/fixture.h"
#include "kernels/kernels.h"

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
    } /* with read() it would do */
#define INT8                                                                                                           \
    ROWS(.name = "int8", .elem = KVB_INT8, .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32)

/* What a problem has unlike the plain one: a query, a head, 4 cells, rows of 16 channels of f32. */
static const struct row {
    const kvb_kernel *kernel; /* NULL: all that take f32 */
    const char *words;        /* with which it declines; NULL: it takes the problem */
    const kvb_format *k, *v;  /* v NULL: as k */
    uint32_t k_dim, v_dim, n_heads, n_kv_heads, n_cells;
    kvb_elem out;
    bool v_in_k;
} rows[] = {
    {.k = F32},
    {.words = "e4m3", .k = F32, .v = MUTE},
    {.words = "e4m3", .k = MUTE, .v = F32},
    {.words = "", .k = F32, .out = KVB_E5M2},
    {.words = "3 query heads", .k = F32, .n_heads = 3, .n_kv_heads = 2},
    {&kvb_kernel_flash, "more than 256 query heads", F32, .n_heads = 257},
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
        fail_msg("%s, row %td: %s '%s', not '%s'", kernel->name, r - rows, takes ? "takes" : "declines", why,
                 r->words ? r->words : "takes");
}

static void others_are_declined_in_words(void **state)
{
    (void)state;
    for (const struct row *r = rows; r < rows + sizeof rows / sizeof *rows; r++)
        for (const kvb_kernel *const *k = kvb_builtin_kernels; *k; k++) {
            const bool takes_f32 = (*k)->attend && *k != &kvb_kernel_flash_int8 && *k != &kvb_kernel_flash_bf16 &&
                                   *k != &kvb_kernel_flash_f16;
            if (r->kernel ? *k == r->kernel : takes_f32)
                row_check(r, *k);
        }
}

/* What decoding rounds is in the declared chains; where V lies in K's rows, it is decoded with them. */
static void decoding_is_declared(void **state)
{
    static const kvb_kernel *const kernels[] = {&kvb_kernel_reference, &kvb_kernel_openblas, &kvb_kernel_flash};
    const kvb_format *turned = ROWS(.name = "turned", .elem = KVB_F32, .transform = KVB_TRANSFORM_HADAMARD),
                     *opaque = ROWS(.name = "opaque", .elem = KVB_OPAQUE, .read_roundings = 5);
    const struct {
        const kvb_format *k, *v;
        bool v_in_k;
        uint32_t dot, cell;                                      /* longer than over f16 */
    } more[] = {{&test_formats[KVB_UINT8], turned, false, 2, 7}, /* scale, zero; 6 stages of 64, and the factor */
                {turned, turned, true, 5, 5},                    /* 48 is made of blocks of 16 */
                {opaque, F32, false, 5, 0}};                     /* what reading a row rounds */
    (void)state;
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

static void flash_adds_16_lanes_and_the_witness_nothing(void **state)
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
    (void)state;
    kvb_kernel_witness.arithmetic(&p, &a);
    assert_true(a.accumulator == KVB_F32 && a.dot_chain == 0 && a.cell_chain == 0);
    kvb_kernel_flash.arithmetic(&p, &a);
    assert_int_equal(a.dot_chain, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_declined_in_words),
        cmocka_unit_test(decoding_is_declared),
        cmocka_unit_test(flash_adds_16_lanes_and_the_witness_nothing),
    };
    return cmocka_run_group_tests_name("what kernels declare", tests, NULL, NULL);
}
