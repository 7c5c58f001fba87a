/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: if the C library or the system refuses any single request for memory, the oracle returns -ENOMEM and can be
 * freed; the address sanitizer finds what leaks. Linked with --wrap.
 */
#include <sys/mman.h>

#include "ci/tests/tests.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/filter.h"
#include "oracle/opinion.h"
#include "oracle/oracle.h"
#include "oracle/window.h"

/* ---- requests ------------------------------------------------------------------------------------------------- */

static uint64_t fail_in; /* requests until one is refused; 0: none */

static bool refused(void)
{
    return fail_in && --fail_in == 0;
}

#define WRAP(refusal, name, names, ...)                                                                                \
    void *__real_##name __VA_ARGS__;                                                                                   \
    void *__wrap_##name __VA_ARGS__;                                                                                   \
    void *__wrap_##name __VA_ARGS__                                                                                    \
    {                                                                                                                  \
        return refused() ? refusal : __real_##name names;                                                              \
    }
WRAP(NULL, malloc, (bytes), (size_t bytes))
WRAP(NULL, calloc, (n, bytes), (size_t n, size_t bytes))
WRAP(NULL, realloc, (block, bytes), (void *block, size_t bytes))
WRAP(MAP_FAILED, mmap, (at, bytes, prot, flags, file, from),
     (void *at, size_t bytes, int prot, int flags, int file, off_t from))

/* ---- calls of an oracle ------------------------------------------------------------------------------------------ */

enum { K = 16, V = 8, FIRST = 28 };
#define KIVI .axis = KVB_AXIS_TOKENS, .group = 32, .scale_elem = KVB_F16, .zero_elem = KVB_F16, .residual_cells = 32
static const kvb_format f32 = {.name = "f32", .elem = KVB_F32}, f16 = {.name = "f16", .elem = KVB_F16},
                        kivi_k = {.name = "kivi4-k", .elem = KVB_UINT4, KIVI},
                        int8_asym = {.name = "int8-asym",
                                     .elem = KVB_UINT8,
                                     .axis = KVB_AXIS_CHANNELS,
                                     .group = KVB_GROUP_ROW,
                                     .scale_elem = KVB_F32,
                                     .zero_elem = KVB_F32};
static const kvb_model model = {
    .n_layers = 2,
    .n_groups = 2,
    .group_of = {0, 1},
    .groups = {{.heads = 4, .kv_heads = 2, .k_dim = K, .v_dim = V, .scale = 0.25},
               {.heads = 2, .kv_heads = 1, .k_dim = K, .v_dim = V, .scale = 0.3, .latent = true, .window = 40}}};

/* A fork, a hole, two sequences in a step; a tree whose leaf sees more than the rows before it; a commit. */
static void trace_make(hand *h, kvb_values *values)
{
    hand_extend(h, KVB_EVENT_PREFILL, 0, 0, FIRST);
    hand_cp(h, 0, 1, 0, 6);
    hand_rm(h, 1, 2, 4);
    hand_step(h, 2, (const uint32_t[]){FIRST, 6}, (const uint32_t[]){0, 1});
    hand_propose(h, 8, (const int32_t[]){-1, 0, 1, 2, 3, 4, 5, 6});
    hand_commit(h, 2, (const uint32_t[]){0, 1});
    hand_extend(h, KVB_EVENT_STEP, 0, FIRST + 3, 3);
    hand_values(h, model, 4, values);
}

static int as_it_is(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    (void)k, (void)head;
    hand_doubles(q, p->k_dim, rounded);
    return 0;
}

static int rounded_rows(kvb_oracle *oracle, const kvb_format *k)
{
    const kvb_kernel kernel = {.name = "k", .round_query = as_it_is};
    const kvb_attend call = {.problem = {.n_tok = FIRST, .k_dim = K, .v_dim = V, .k_format = k}};
    kvb_arithmetic a = {.query.step = 0.1, .sums.step = 0.01};
    kvb_rounded *rounded;
    const kvb_expect *rows;
    size_t n;
    char why[128];
    int error = kvb_rounded_open(oracle, &kernel, &rounded);
    error = error ? error : kvb_rounded_rows(rounded, &call, 0, 0, &a, &rows, &n, why, sizeof why);
    kvb_rounded_free(rounded);
    return error;
}

static int filtered(const kvb_oracle *oracle)
{
    kvb_filter *filter;
    int error = kvb_filter_open(oracle, &filter);
    kvb_filter_free(filter);
    return error;
}

/* An opinion on a wrong row; on a right one it needs no memory. */
static int opined(const kvb_opinions *opinions)
{
    static const kvb_arithmetic a = {.accumulator = KVB_F32, .dot_chain = K, .cell_chain = FIRST};
    const float out[V] = {99}, lse = 0;
    kvb_diff diff = {.rho = 0};
    size_t n;
    const kvb_opinion_row *row = kvb_opinions_of(opinions, 0, 0, &n);
    assert_true(n > 0);
    return kvb_opinion_diff(&diff, &opinions->heads[0][0], row, V, &a, 0.25, 0, KVB_F32, out, &lse);
}

/* Writes the first event's tokens, moves some far away, and solves its last query. */
static int window_solved(const kvb_oracle *oracle, const kvb_expect *row, const kvb_attend_of *of)
{
    const uint32_t moved[] = {0, 1};
    uint32_t cells[FIRST];
    uint64_t tokens[FIRST];
    kvb_window *w;
    kvb_expect actual;
    kvb_opinion_row opinion;
    for (uint32_t i = 0; i < FIRST; i++)
        tokens[i] = cells[i] = i;
    int error = kvb_window_open(oracle, &w);
    for (uint32_t side = 0; side < 2 && !error; side++)
        error = kvb_window_write(w, 0, side, cells, FIRST, tokens);
    error = error ? error : kvb_window_move(w, 0, false, 300, moved, 2);
    error = error ? error : kvb_window_solve(w, row, of, &actual);
    error = error ? error : kvb_window_look(w, row->layer, of);
    if (!error)
        kvb_window_opinion(w, row, &opinion);
    kvb_window_free(w);
    return error;
}

/* Makes all calls. Returns the first error. */
static int story(const hand *h, const kvb_values *values, const kvb_oracle_options *options)
{
    const kvb_mask all = {.kind = KVB_MASK_NONE};
    const kvb_attend_of of = {.mask = &all, .n_cells = FIRST, .n_tok = 1};
    kvb_oracle *oracle;
    char why[128] = "";
    size_t n;
    int error = kvb_oracle_open(&h->trace, values, options, &oracle, why, sizeof why);
    if (error) {
        assert_null(oracle);
        assert_string_equal(why, "not enough memory for the oracle");
        return error;
    }
    const kvb_expect *last = kvb_oracle_rows(oracle, 0, 0, &n) + n - 1;
    error = rounded_rows(oracle, options->k_format);
    error = error ? error : filtered(oracle);
    if (!error && oracle->opinions)
        error = opined(oracle->opinions);
    if (!error && kvb_oracle_needs_writes(oracle))
        error = window_solved(oracle, last, &of);
    kvb_oracle_free(oracle);
    return error;
}

TEST(every_request)
{
    static const kvb_oracle_options all[] = {
        {.k_format = &int8_asym, .v_format = &f16, .max_pairs = 100, .opinion_pairs = UINT64_MAX, .seed = 1},
        {.k_format = &f32, .v_format = &f32, .max_pairs = UINT64_MAX},
        {.k_format = &kivi_k, .v_format = &f16, .max_pairs = UINT64_MAX},
        {.k_format = &kivi_k, .v_format = &kivi_k, .max_pairs = UINT64_MAX},
    };
    hand h = {0};
    kvb_values values;
    trace_make(&h, &values);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(story(&h, &values, &all[i]), 0);
        for (uint64_t request = 1;; request++) {
            fail_in = request;
            int error = story(&h, &values, &all[i]);
            if (fail_in) {
                assert_int_equal(error, 0);
                print_message("# %lu requests\n", (unsigned long)request - 1);
                break;
            }
            assert_int_equal(error, -ENOMEM);
        }
        fail_in = 0;
    }
    hand_free(&h);
}
