/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the witness can read tags back from every pool, or says that it cannot: rows of profile `tags` are stored,
 * and each must be listed with its own code, whatever the format and the length of the row; also where V is the
 * beginning of the K row.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/whole/parts.h"
#include "kernels/kernels.h"
#include "kernels/witness.h"
#include "workloads/values.h"

enum { CELLS = 320, HEADS = 4, LAYERS = 40 };

static const kvb_tag tag = {.token_bits = 23, .layer_bits = 6}; /* LAYERS and HEADS leave so many */

static uint64_t token_of(uint32_t cell)
{
    return cell < CELLS / 2 ? cell : kvb_tag_token(tag, cell * 7919u * 1031u);
}

/* Of the rows of one side, how many come back with another code. */
static uint32_t rows_lost(const kvb_pool_type *type, uint32_t dim, bool is_v, const kvb_attend *witness)
{
    bool v_code = is_v && !witness->problem.v_in_k;
    uint32_t lost = 0;
    for (uint32_t h = 0; h < HEADS; h++) {
        const uint32_t *seen = kvb_witness_seen(witness->scratch, &witness->problem, 0, h);
        assert_int_equal(*kvb_witness_count(witness->scratch, &witness->problem, 0, h), CELLS);
        for (uint32_t c = 0; c < CELLS; c++)
            lost += seen[2 * c + is_v] != kvb_tag_code(tag, token_of(c), c % LAYERS, h, v_code);
    }
    if (lost)
        print_error("%s, rows of %u: %u of %u lost\n", type->name, dim, lost, HEADS * CELLS);
    return lost;
}

static void rows_store(const kvb_pool_type *type, const kvb_model *model, kvb_rows kind, kvb_allocator *a,
                       kvb_pool **pool, kvb_view *view)
{
    static float row[HEADS * 256];
    const kvb_profile *tags = kvb_profile_find("tags");
    kvb_pool_options options = {.n_kv_heads = HEADS,
                                .dim = kind == KVB_ROWS_K ? model->groups[0].k_dim : model->groups[0].v_dim,
                                .min_chunk = CELLS,
                                .capacity = CELLS,
                                .allocator = a};
    assert_int_equal(type->open(type, &options, pool), 0);
    assert_int_equal(type->ensure(*pool, CELLS), 0);
    for (uint32_t c = 0; c < CELLS; c++) {
        tags->rows(model, 1, kind, c % LAYERS, token_of(c), c, row);
        type->write_run(*pool, c, 1, row);
    }
    type->view(*pool, CELLS, view);
}

/* v_dim: of the beginning of K's rows; 0: V is a side of its own. */
static uint32_t pool_lost(const kvb_pool_type *type, uint32_t dim, uint32_t v_dim)
{
    const kvb_model model = {.n_layers = LAYERS,
                             .n_groups = 1,
                             .groups = {{.heads = HEADS,
                                         .kv_heads = HEADS,
                                         .k_dim = dim,
                                         .v_dim = v_dim ? v_dim : dim,
                                         .latent = v_dim,
                                         .scale = 1}}};
    const kvb_tag own = kvb_tag_of(&model);
    assert_true(own.token_bits == tag.token_bits && own.layer_bits == tag.layer_bits);
    kvb_allocator a = {0};
    kvb_pool *k, *v = NULL;
    char why[200];
    kvb_attend args = {.problem = {.n_tok = 1,
                                   .n_heads = HEADS,
                                   .n_kv_heads = HEADS,
                                   .k_dim = dim,
                                   .v_dim = model.groups[0].v_dim,
                                   .v_in_k = model.groups[0].latent,
                                   .n_cells = CELLS,
                                   .scale = 1,
                                   .k_format = type->format,
                                   .v_format = type->format},
                       .team = &team_of_one};
    if (!type->supports(type, dim, why, sizeof why) ||
        !kvb_profile_find("tags")->supports(&model, &model.groups[0], why, sizeof why))
        return 0;
    if (!kvb_kernel_witness.supports(&args.problem, why, sizeof why)) {
        assert_non_null(strstr(why, type->name));
        assert_true(type->format->transform != KVB_TRANSFORM_NONE);
        return 0;
    }
    rows_store(type, &model, KVB_ROWS_K, &a, &k, &args.k);
    if (v_dim) {
        args.v = args.k;
        args.v.dim = v_dim;
    } else {
        rows_store(type, &model, KVB_ROWS_V, &a, &v, &args.v);
    }
    args.out = malloc(sizeof(float) * HEADS * dim);
    args.scratch = malloc(kvb_kernel_witness.scratch_bytes(&args.problem, 1));
    assert_true(args.out && args.scratch);
    assert_int_equal(kvb_kernel_witness.attend(&args), 0);
    uint32_t lost = rows_lost(type, dim, false, &args) + rows_lost(type, dim, true, &args);
    free(args.out);
    free(args.scratch);
    type->close(k);
    if (v)
        type->close(v);
    return lost;
}

static void every_pool_is_legible(void **state)
{
    static const uint32_t dims[] = {16, 20, 31, 32, 48, 64, 96, 128, 256};
    uint32_t lost = 0;
    (void)state;
    for (size_t i = 0; kvb_builtin_pools[i]; i++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (const kvb_pool_type *type = kvb_builtin_pools[i]; type; type = type->rotated) {
                lost += pool_lost(type, dims[d], 0);
                lost += pool_lost(type, dims[d], dims[d] - dims[d] / 5);
            }
    assert_int_equal(lost, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_pool_is_legible)};
    return cmocka_run_group_tests_name("legible", tests, NULL, NULL);
}
