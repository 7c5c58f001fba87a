/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the witness lists exactly the rows a query may see, by code, and lists damaged rows as torn. */
#include "ci/tests/kernels/fixture.h"
#include "kernels/kernels.h"
#include "kernels/witness.h"

static uint32_t code_of(uint32_t side, uint32_t h, uint32_t c)
{
    return 0x9e3779b1u * (side * 100003 + h * 1009 + c + 1);
}

/* Overwrite every cell, hidden ones too, with its code. */
static void rows_tag(const struct fixture *f, const kvb_view *view, void *rows, uint32_t side)
{
    size_t bytes = elem_bytes(view->format->elem);
    for (uint32_t h = 0; h < f->args.problem.n_kv_heads; h++)
        for (uint32_t c = 0; c < view->cells; c++)
            for (uint32_t d = 0; d < view->dim; d++) {
                float symbol = (float)(code_of(side, h, c) >> 2 * (d % 16) & 3);
                elem_store(view->format->elem, (char *)rows + h * view->head_stride + c * view->cell_stride + d * bytes,
                           2 * symbol - 3);
            }
}

static struct shape shape_of(uint32_t i)
{
    return (struct shape){.n_tok = 1 + i % 4,
                          .n_kv_heads = 2,
                          .group = 3,
                          .k_dim = i % 5 ? 20 : 16,
                          .v_dim = i % 2 ? 33 : 64,
                          .n_cells = 1 + i % 4 + 19 * (i % 11),
                          .mask = (kvb_mask_kind)(i / 3 % KVB_MASK_KINDS),
                          .k_elem = (kvb_elem)(i % 3),
                          .v_elem = (kvb_elem)(i / 2 % 3),
                          .out_elem = (kvb_elem)(i % 3),
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
        rows_tag(&f, &f.args.k, f.k, 0);
        rows_tag(&f, &f.args.v, f.v, 1);
        attend_keep_scratch(&f);
        const kvb_problem *p = &f.args.problem;
        for (uint32_t t = 0; t < p->n_tok; t++)
            for (uint32_t h = 0; h < p->n_kv_heads; h++) {
                const uint32_t *seen = kvb_witness_seen(f.args.scratch, p, t, h);
                uint32_t n = 0;
                for (uint32_t c = 0; c < p->n_cells; c++) {
                    if (!f.visible[(size_t)t * p->n_cells + c])
                        continue;
                    assert_int_equal(seen[2 * n], code_of(0, h, c));
                    assert_int_equal(seen[2 * n + 1], code_of(1, h, c));
                    n++;
                }
                assert_int_equal(*kvb_witness_count(f.args.scratch, p, t, h), n);
            }
        for (size_t b = 0; b < (size_t)p->n_tok * p->n_heads * p->v_dim * elem_bytes(p->out_elem); b++)
            assert_int_equal(((char *)f.out)[b], 0);
        free(f.args.scratch);
        fixture_free(&f);
    }
}

/* One element of one row changed, in any channel, to another symbol, to no symbol, to NaN. */
static void damage_is_torn(void **state)
{
    static const float damage[] = {0.0f, 2.0f, 5.0f, (float)NAN};
    (void)state;
    for (uint32_t d = 0; d < 20; d++)
        for (size_t i = 0; i < 5; i++) {
            struct shape s = shape_of(2);
            struct fixture f;
            s.n_cells = 4;
            s.n_tok = 1;
            s.mask = KVB_MASK_NONE;
            s.k_dim = 20;
            s.k_elem = KVB_F32;
            fixture_build(&f, &s);
            rows_tag(&f, &f.args.k, f.k, 0);
            rows_tag(&f, &f.args.v, f.v, 1);
            float *x = (float *)f.k + 2 * 20 + d;
            *x = i < 4 ? damage[i] : -*x; /* the last one is another symbol: seen where the pattern repeats */
            attend_keep_scratch(&f);
            uint32_t got = kvb_witness_seen(f.args.scratch, &f.args.problem, 0, 0)[2 * 2];
            if (i < 4 || d < 4 || d >= 16)
                assert_int_equal(got, KVB_WITNESS_TORN);
            else
                assert_int_not_equal(got, code_of(0, 0, 2));
            free(f.args.scratch);
            fixture_free(&f);
        }
}

static void short_rows_are_declined(void **state)
{
    struct shape s = shape_of(0);
    struct fixture f;
    char why[80];
    (void)state;
    s.v_dim = 15;
    fixture_build(&f, &s);
    assert_false(kvb_kernel_witness.supports(&f.args.problem, why, sizeof why));
    assert_non_null(strstr(why, "16"));
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_what_is_visible),
        cmocka_unit_test(damage_is_torn),
        cmocka_unit_test(short_rows_are_declined),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("witness", tests, NULL, NULL);
}
