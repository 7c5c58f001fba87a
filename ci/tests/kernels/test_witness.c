/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the witness lists exactly the rows a query may see, by code, noise or not, and lists damaged rows as torn.
 */
#include "ci/tests/kernels/fixture.h"
#include "kernels/kernels.h"
#include "kernels/witness.h"

static uint32_t code_of(uint32_t side, uint32_t h, uint32_t c)
{
    return 0x9e3779b1u * (side * 100003 + h * 1009 + c + 1);
}

/* What channel d of a row of that many holds. */
static float symbol_of(uint32_t code, uint32_t dim, uint32_t d)
{
    return dim < 32 ? (float)(code >> 2 * (d % 16) & 3) * 2 - 3 : (float)(code >> d % 32 & 1) * 2 - 1;
}

/* Overwrite every cell, hidden ones too, with its code, each element up to `noise` off. */
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

static void lists_what_is_visible(void **state)
{
    (void)state;
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

/* The code that is listed for a K row of `dim` whose channel d holds x in place of its symbol; the true one in *was. */
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

/* One element of one row, in any channel, is no symbol; or another symbol, which shows where the pattern repeats. */
static void damage_is_torn(void **state)
{
    static const uint32_t dims[] = {20, 40, 96};
    static const float none[] = {0.0f, -0.0f, (float)NAN, -2.0f, 2.0f, 4.0f, -5.0f};
    uint32_t was;
    (void)state;
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

/* Rows of a format that is no plain one are decoded whole, each window as it is stored. */
static void other_formats_are_read(void **state)
{
    struct shape s = shape_of(4);
    struct fixture f;
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_what_is_visible),
        cmocka_unit_test(damage_is_torn),
        cmocka_unit_test(other_formats_are_read),
    };
    return cmocka_run_group_tests_name("witness", tests, NULL, NULL);
}
