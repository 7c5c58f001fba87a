/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: declarations that are too wide, and rows that the witness can read. */
#include "ci/tests/tests.h"
#include "ci/tests/oracle/hand.h"
#include "ci/tests/whole/parts.h"
#include "caches/pools/pool.h"
#include "kernels/kernels.h"
#include "kernels/witness.h"
#include "oracle/attention.h"
#include "oracle/claim.h"
#include "workloads/values.h"

/*
 * Shows: a declaration with any field too wide is refused, or the field is named; no built-in kernel declares too much,
 * over any format and shape; a row counts only if the wrong outputs tried with it differ from the right one.
 */

enum { DIM = 64, CELLS = 200, ROWS = 40 };

/* Rows over the first cells of CELLS keys and values of N(0,1). */
typedef struct rows {
    double q[ROWS][DIM], k[CELLS * DIM], v[CELLS * DIM], k_sum[CELLS];
    kvb_token_run run[ROWS];
    kvb_bound_term terms[ROWS][DIM];
    kvb_expect expect[ROWS];
} rows;

static rows *rows_new(double k_factor, double step)
{
    rows *r = calloc(1, sizeof *r);
    double *scratch = malloc(kvb_attention_scratch(CELLS, DIM) * sizeof *scratch);
    uint64_t seed = 9;
    assert_true(r && scratch);
    for (size_t i = 0; i < CELLS * DIM; i++) {
        r->k[i] = k_factor * hand_gauss(&seed);
        r->v[i] = hand_gauss(&seed);
        r->k_sum[i / DIM] += fabs(r->k[i]);
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        for (size_t c = 0; c < DIM; c++)
            r->q[i][c] = hand_gauss(&seed);
        r->run[i] = (kvb_token_run){0, 1 + (i + 1) * (CELLS - 1) / ROWS};
        const uint32_t visible = r->run[i].end;
        const kvb_attention a = {.q = r->q[i],
                                 .k = r->k,
                                 .k_sum = r->k_sum,
                                 .v = r->v,
                                 .v_mix = 1,
                                 .step = step,
                                 .k_dim = DIM,
                                 .v_dim = DIM,
                                 .v_row = DIM,
                                 .scale = 0.125,
                                 .runs = &r->run[i],
                                 .n_runs = 1,
                                 .visible = visible};
        r->expect[i] = (kvb_expect){.visible = visible, .terms = r->terms[i]};
        kvb_attention_solve(&a, scratch, &r->expect[i].row, &r->expect[i].lse, r->terms[i]);
    }
    free(scratch);
    return r;
}

/* The claim that a diff of the exact outputs finds for that declaration. */
static kvb_claim claim_of(const rows *r, const kvb_arithmetic *a)
{
    kvb_diff diff = {.claim = {.k_dim = DIM, .cells = CELLS}};
    for (uint32_t i = 0; i < ROWS; i++) {
        float out[DIM];
        for (size_t c = 0; c < DIM; c++)
            out[c] = (float)r->terms[i][c].o;
        kvb_diff_row(&diff, &r->expect[i], DIM, a, 0.125, 0, KVB_F32, out, NULL);
    }
    assert_int_equal(diff.rows, ROWS);
    return diff.claim;
}

static const kvb_arithmetic plain = {
    .accumulator = KVB_F32, .dot_chain = DIM, .cell_chain = CELLS, .exp_error = 0x1p-23, .exp_floor = 0x1p-126};

/* ---- the table of lies ------------------------------------------------------------------------------------------- */

#define LIE(name, ...)                                                                                                 \
    {                                                                                                                  \
        name,                                                                                                          \
        {                                                                                                              \
            .accumulator = KVB_F32, .dot_chain = DIM, .cell_chain = CELLS, __VA_ARGS__                                 \
        }                                                                                                              \
    }

/* Impossible declarations are refused; the reason names the field. */
TEST(lies_are_refused)
{
    static const struct {
        const char *field;
        kvb_arithmetic lie;
    } lies[] = {
        LIE("query.step is 1:", .query.step = 1),
        LIE("query.step is -0.01:", .query.step = -0.01),
        LIE("query.floor is 3:", .query.floor = 3),
        LIE("scores.step is 2:", .scores.step = 2),
        LIE("scores.floor is 1:", .scores.floor = 1),
        LIE("scores.floor is nan:", .scores.floor = NAN),
        LIE("sums.step is 1e+09:", .sums.step = 1e9),
        LIE("sums.step is nan:", .sums.step = NAN),
        LIE("sums.floor is 10:", .sums.floor = 10),
        LIE("sums.floor is inf:", .sums.floor = INFINITY),
        LIE("exp_error is 1:", .exp_error = 1),
        LIE("exp_error is -1e-07:", .exp_error = -1e-7),
        LIE("exp_floor is 1:", .exp_floor = 1),
        LIE("exp_floor is 5.9", .exp_floor = 0x1.01p-24),
        LIE("exp_floor is -1:", .exp_floor = -1),
        {"accumulator is element 4:", {.accumulator = KVB_E5M2}},
        {"accumulator is element 99:", {.accumulator = (kvb_elem)99}},
    };
    char why[256];
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        tests_refused(kvb_claim_check(&lies[i].lie, why, sizeof why), -EINVAL, why, lies[i].field);
    }
    const kvb_arithmetic widest = {.exp_error = 0.999, .exp_floor = 0x1p-24, .sums = {.step = 0.999, .floor = 0.999}};
    assert_int_equal(kvb_claim_check(&widest, why, sizeof why), 0);
    assert_int_equal(kvb_claim_check(&plain, why, sizeof why), 0);
}

/* The same for scans. The narrowest and the widest possible declarations pass. */
TEST(scan_lies_are_refused)
{
    static const kvb_scan_problem problem = {.n_tok = 40, .run = 20, .d_k = 16, .d_v = 32};
    const uint32_t chain = 4 * (16 + 32 + 20) + 256;
    const struct {
        const char *field;
        kvb_scan_arithmetic lie;
    } lies[] = {
        {"chunk is 0:", {.chunk = 0}},
        {"state_chain is 529:", {.chunk = 64, .state_chain = chain + 1}},
        {"read_chain is 529:", {.chunk = 64, .read_chain = chain + 1}},
        {"solve_chain is 453:", {.chunk = 1, .solve_chain = chain - 75}},
        {"exponent_chain is 529:", {.chunk = 64, .exponent_chain = chain + 1}},
        {"exp_error is 0.5:", {.chunk = 1, .exp_error = 0.5}},
        {"exp_error is nan:", {.chunk = 1, .exp_error = NAN}},
        {"exp_floor is 1e-07:", {.chunk = 1, .exp_floor = 1e-7}},
        {"carried is 0.0625:", {.chunk = 1, .carried = KVB_E4M3}},
        {"operands is 0.125:", {.chunk = 1, .operands = KVB_E5M2}},
    };
    char why[256];
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        tests_refused(kvb_claim_check_scan(&lies[i].lie, &problem, why, sizeof why), -EINVAL, why, lies[i].field);
    }
    const kvb_scan_arithmetic widest = {.chunk = 64,
                                        .carried = KVB_BF16,
                                        .operands = KVB_E4M3,
                                        .state_chain = chain,
                                        .read_chain = chain,
                                        .solve_chain = chain,
                                        .exponent_chain = chain,
                                        .exp_error = 0x1p-8,
                                        .exp_floor = 0x1p-24};
    assert_int_equal(kvb_claim_check_scan(&widest, &problem, why, sizeof why), 0);
    assert_int_equal(kvb_claim_check_scan(&(kvb_scan_arithmetic){.chunk = 1}, &problem, why, sizeof why), 0);
}

/* Declarations that are not refused, but let wrong outputs pass in most rows, are found; the field is named. */
TEST(lies_are_named)
{
    static const struct {
        const char *field;
        kvb_arithmetic lie;
    } lies[] = {
        LIE("query.step", .query.step = 0.5),
        LIE("query.floor", .query.floor = 0.25),
        LIE("query.rounding", .query.rounding = KVB_E2M1),
        LIE("scores.floor", .scores.floor = 0.9),
        LIE("scores.rounding", .scores = {KVB_E5M2, .chain = 9}),
        LIE("scores.chain", .scores = {KVB_BF16, .chain = 4000}),
        LIE("scores.chain", .scores = {KVB_F16, .chain = 400000}),
        LIE("sums.step", .sums.step = 0.5),
        LIE("sums.floor", .sums.floor = 0.9),
        LIE("sums.rounding", .sums = {KVB_E2M1, .chain = 3}),
        LIE("sums.chain", .sums = {KVB_BF16, .chain = 100}),
        LIE("rescales", .rescales = 10000000, .exp_error = 0x1p-23),
        LIE("exp_error", .exp_error = 0.5),
        {"dot_chain", {.accumulator = KVB_F32, .dot_chain = UINT32_MAX, .cell_chain = UINT32_MAX}},
        {"accumulator", {.accumulator = KVB_BF16, .dot_chain = DIM, .cell_chain = CELLS}},
    };
    rows *r = rows_new(1, 0);
    char words[256];
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        const kvb_claim claim = claim_of(r, &lies[i].lie);
        kvb_claim_words(claim.fields, words, sizeof words);
        if (!((double)claim.wide > KVB_CLAIM_LIMIT * ROWS))
            fail_msg("%s: %u of %u", lies[i].field, (unsigned)claim.wide, ROWS);
        assert_contains(words, lies[i].field);
        assert_true(claim.unsaid >= claim.wide);
        for (uint32_t other = 0; other < KVB_CLAIM_KINDS; other++)
            assert_true(claim.passing[other] <= claim.unsaid);
    }
    free(r);
}

/* Steps that are too wide are found, too, if the rows were solved for these steps. */
TEST(steps_are_named)
{
    rows *r = rows_new(1, 0.5);
    kvb_arithmetic a = plain;
    a.sums.step = 0.5;
    assert_true((double)claim_of(r, &a).wide > KVB_CLAIM_LIMIT * ROWS);
    free(r);
}

/* ---- honest declarations ----------------------------------------------------------------------------------------- */

TEST(plain_says_all)
{
    rows *r = rows_new(1, 0);
    assert_int_equal(claim_of(r, &plain).unsaid, 0);
    kvb_arithmetic int8 = plain;
    int8.query.step = int8.sums.step = 1.0 / 127;
    assert_int_equal(claim_of(r, &int8).wide, 0);
    free(r);
}

/* If all keys are 0, the mean of V is right, and does not count as a wrong output. */
TEST(equal_keys_are_not_counted)
{
    rows *r = rows_new(0, 0);
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t c = 0; c < DIM; c++)
            assert_true((double)r->terms[i][c].mean_off < 1e-14);
    const kvb_claim claim = claim_of(r, &plain);
    assert_int_equal(claim.unsaid, 0);
    free(r);
}

/* The wrong outputs agree with their definitions, computed in another way. */
TEST(others_are_as_defined)
{
    rows *r = rows_new(1, 0);
    for (uint32_t i = 0; i < ROWS; i++) {
        double weight[CELLS] = {0}, all = 0, rest = 0;
        uint32_t n = r->run[i].end, heaviest = 0;
        for (uint32_t j = 0; j < n; j++) {
            double s = 0;
            for (uint32_t c = 0; c < DIM; c++)
                s += 0.125 * r->q[i][c] * r->k[j * DIM + c];
            all += weight[j] = exp(s);
            heaviest = weight[j] > weight[heaviest] ? j : heaviest;
        }
        rest = all - weight[heaviest];
        for (uint32_t c = 0; c < DIM; c++) {
            double o = 0, mean = 0, without = 0;
            for (uint32_t j = 0; j < n; j++) {
                o += weight[j] / all * r->v[j * DIM + c];
                mean += r->v[j * DIM + c] / n;
                without += j == heaviest ? 0 : weight[j] / rest * r->v[j * DIM + c];
            }
            assert_true(fabs((double)r->terms[i][c].mean_off - fabs(mean - o)) < 1e-6 * (1 + fabs(o)));
            assert_true(fabs((double)r->terms[i][c].rest_off - fabs(without - o)) < 1e-5 * (1 + fabs(without)));
        }
    }
    free(r);
}

/* With a single cell there is no output without that cell. */
TEST(one_cell_has_no_rest)
{
    double q[DIM] = {1}, k[DIM] = {1}, v[DIM], k_sum[1] = {1}, lse,
           *scratch = malloc(kvb_attention_scratch(1, DIM) * 8);
    kvb_bound_term terms[DIM];
    kvb_bound_row row;
    for (uint32_t c = 0; c < DIM; c++)
        v[c] = 1 + c;
    const kvb_token_run run = {0, 1};
    const kvb_attention a = {.q = q,
                             .k = k,
                             .k_sum = k_sum,
                             .v = v,
                             .v_mix = 1,
                             .k_dim = DIM,
                             .v_dim = DIM,
                             .v_row = DIM,
                             .scale = 1,
                             .runs = &run,
                             .n_runs = 1,
                             .visible = 1};
    kvb_attention_solve(&a, scratch, &row, &lse, terms);
    for (uint32_t c = 0; c < DIM; c++)
        assert_true(terms[c].rest_off == 0 && terms[c].mean_off == 0);
    free(scratch);
}

TEST(built_in_kernels_are_never_too_wide)
{
    static const uint32_t dims[] = {16, 64, 128, 256, 576, 1024}, cells[] = {1, 60, 4096, 65537};
    uint32_t asked = 0;
    for (size_t k = 0; kvb_builtin_kernels[k]; k++)
        for (const kvb_pool_type *const *pool = kvb_builtin_pools; *pool; pool++)
            for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
                for (size_t n = 0; n < sizeof cells / sizeof *cells; n++)
                    for (int sinks = 0; sinks < 2; sinks++) {
                        const kvb_kernel *kernel = kvb_builtin_kernels[k];
                        const kvb_problem p = {.n_tok = 1,
                                               .n_heads = 4,
                                               .n_kv_heads = 2,
                                               .k_dim = dims[d],
                                               .v_dim = dims[d],
                                               .n_cells = cells[n],
                                               .scale = 0.1f,
                                               .has_sinks = sinks,
                                               .mask = KVB_MASK_EXPLICIT,
                                               .k_format = (*pool)->format,
                                               .v_format = (*pool)->format};
                        char why[256];
                        kvb_arithmetic a;
                        if (!kernel->attend || kernel->flags & KVB_KERNEL_WITNESS ||
                            (kernel->supports && !kernel->supports(&p, why, sizeof why)))
                            continue;
                        kernel->arithmetic(&p, &a);
                        if (kvb_claim_check(&a, why, sizeof why))
                            fail_msg("%s: %s", kernel->name, why);
                        kvb_claim_words(kvb_claim_cut(&a, dims[d], cells[n]), why, sizeof why);
                        if (*why && strlen(why))
                            fail_msg("%s, %s, %u channels, %u cells: %s", kernel->name, (*pool)->name, dims[d],
                                     cells[n], why);
                        asked++;
                    }
    assert_true(asked > 3000);
}

/*
 * Shows that the witness reads tags back from every pool, or declines: rows of profile `tags` are stored, and each must
 * be listed with its code, in every format and length of row, also if V is the beginning of K's rows.
 */

enum { LEGIBLE_CELLS = 320, HEADS = 4, LAYERS = 40 };

static const kvb_tag tag = {.token_bits = 23, .layer_bits = 6}; /* the rest of 32 bits is for heads */

static uint64_t token_of(uint32_t cell)
{
    return cell < LEGIBLE_CELLS / 2 ? cell : kvb_tag_token(tag, cell * 7919u * 1031u);
}

/* Number of rows of one side that are listed with a wrong code. */
static uint32_t rows_lost(const kvb_pool_type *type, uint32_t dim, bool is_v, const kvb_attend *witness)
{
    bool v_code = is_v && !witness->problem.v_in_k;
    uint32_t lost = 0;
    for (uint32_t h = 0; h < HEADS; h++) {
        const uint32_t *seen = kvb_witness_seen(witness->scratch, &witness->problem, 0, h);
        assert_int_equal(*kvb_witness_count(witness->scratch, &witness->problem, 0, h), LEGIBLE_CELLS);
        for (uint32_t c = 0; c < LEGIBLE_CELLS; c++)
            lost += seen[2 * c + is_v] != kvb_tag_code(tag, token_of(c), c % LAYERS, h, v_code);
    }
    if (lost)
        print_error("%s, rows of %u: %u of %u lost\n", type->name, dim, lost, HEADS * LEGIBLE_CELLS);
    return lost;
}

static void rows_store(const kvb_pool_type *type, const kvb_model *model, kvb_rows kind, kvb_allocator *a,
                       kvb_pool **pool, kvb_view *view)
{
    static float row[HEADS * 256];
    const kvb_profile *tags = kvb_profile_find("tags");
    kvb_pool_options options = {.n_kv_heads = HEADS,
                                .dim = kind == KVB_ROWS_K ? model->groups[0].k_dim : model->groups[0].v_dim,
                                .min_chunk = LEGIBLE_CELLS,
                                .capacity = LEGIBLE_CELLS,
                                .allocator = a};
    assert_int_equal(type->open(type, &options, pool), 0);
    assert_int_equal(type->ensure(*pool, LEGIBLE_CELLS), 0);
    for (uint32_t c = 0; c < LEGIBLE_CELLS; c++) {
        kvb_profile_rows(tags, model, 1, kind, c % LAYERS, token_of(c), c, row);
        type->write_run(*pool, c, 1, row);
    }
    type->view(*pool, LEGIBLE_CELLS, view);
}

/* Number of rows that are lost in a pool. v_dim: V is the first v_dim channels of K's rows; 0: V has its own rows. */
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
                                   .n_cells = LEGIBLE_CELLS,
                                   .scale = 1,
                                   .k_format = type->format,
                                   .v_format = type->format},
                       .team = &team_of_one};
    if (!type->supports(type, dim, why, sizeof why) ||
        kvb_profile_supports(kvb_profile_find("tags"), &model, why, sizeof why))
        return 0;
    if (!kvb_kernel_witness.supports(&args.problem, why, sizeof why)) {
        assert_contains(why, type->name);
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

TEST(every_pool_is_legible)
{
    static const uint32_t dims[] = {16, 20, 31, 32, 48, 64, 96, 128, 256};
    uint32_t lost = 0;
    for (size_t i = 0; kvb_builtin_pools[i]; i++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (const kvb_pool_type *type = kvb_builtin_pools[i]; type; type = type->rotated) {
                lost += pool_lost(type, dims[d], 0);
                lost += pool_lost(type, dims[d], dims[d] - dims[d] / 5);
            }
    assert_int_equal(lost, 0);
}
