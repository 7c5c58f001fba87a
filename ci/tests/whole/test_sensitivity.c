/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the bound is neither violated nor vacuous on real parts: over 4096 cells in real pools, honest kernels
 * stay below rho 1 and above 1e-3, and mistakes go above 1, small ones too: one key dropped, a window off by one, a
 * softcap forgotten. For layers with and without limits, with latent rows, and for a choice of formats that has every
 * kind of scale, zero, transform and residual cells in it.
 */
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/whole/parts.h"

#include "ci/tests/whole/filled.h"
#include "kernels/kernels.h"
#include "oracle/rounded.h"

enum { CELLS = 4096, HEADS = 8, DIM = 64, WINDOW = 512, SINKS = 2 };
enum { PLAIN, LIMITED, LATENT }; /* layers, each of a group of its own */

static const char model_text[] =
    "{'kv_cache.schema_version':2,'kv_cache.layers':3,'groups':["
    "{'layers':[0],'heads':8,'kv_heads':2,'k_dim':64,'v_dim':64},"
    "{'layers':[1],'heads':8,'kv_heads':2,'k_dim':64,'v_dim':64,'scale':0.15,'window':512,'sinks':2,'softcap':10,"
    "'sink_logits':[1,3,2.5,0.5,2,1.5,3.5,0]},"
    "{'layers':[2],'heads':4,'kv_heads':1,'k_dim':64,'v_dim':48,'latent':true}]}";
/* Formats of K and V. */
static const char *const pairs[][2] = {
    {"f32", "f32"},
    {"f16", "f16"},
    {"bf16", "bf16"},
    {"e4m3-token", "e5m2"},
    {"e4m3-head", "e4m3"},
    {"int8", "int8-asym"},
    {"int8+had", "int8-asym+had"},
    {"q8_0", "q5_1"},
    {"q4_1+had", "iq4_nl"},
    {"a8g64", "q8_0"},
    {"a8g64", "a4g64+had"},
    {"a4g32", "a2g32"},
    {"kivi4-k", "kivi4-v"},
    {"kivi2-k+had", "kivi2-v"},
    {"mxfp4", "nvfp4"},
    {"nvfp4+had", "mxfp4+had"},
    {"tq4", "tq3"},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* ---- honest, and mistakes -------------------------------------------------------------------------------------- */

/* What a kernel is handed, to be spoilt. */
typedef struct attempt {
    const kvb_model *model;
    kvb_attend_spec spec;
    kvb_group group; /* the spec's */
    float q[HEADS * DIM];
    float sink_logits[HEADS];
    kvb_run runs[3];
    uint32_t first_channel; /* of V in an output row */
} attempt;

static void nothing(attempt *a)
{
    (void)a;
}

/* The runs [0, a) [b, c) [d, CELLS) in place of the mask. */
static void see(attempt *a, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth)
{
    static const uint32_t row_start[] = {0, 3};
    a->runs[0] = (kvb_run){0, first};
    a->runs[1] = (kvb_run){second, third};
    a->runs[2] = (kvb_run){fourth, CELLS};
    a->spec.mask = (kvb_mask){.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = a->runs};
}

static void one_key_dropped(attempt *a)
{
    see(a, 1234, 1235, 2000, 2000);
}

static void itself_not_seen(attempt *a)
{
    see(a, 1000, 1000, 2000, 2000);
    a->runs[2].end--;
}

static void window_one_short(attempt *a)
{
    see(a, SINKS, CELLS - WINDOW + 1, CELLS - 1, CELLS - 1);
}

static void window_one_long(attempt *a)
{
    see(a, SINKS, CELLS - WINDOW - 1, CELLS - 1, CELLS - 1);
}

static void sink_not_seen(attempt *a)
{
    see(a, SINKS - 1, CELLS - WINDOW, CELLS - 1, CELLS - 1);
}

static void scaled_by_1001(attempt *a)
{
    a->group.scale *= 1.001;
}

static void scale_of_another_group(attempt *a)
{
    a->group.scale = a->model->groups[PLAIN].scale;
}

static void heads_swapped(attempt *a)
{
    float head[DIM];
    memcpy(head, a->q, sizeof head);
    memcpy(a->q, a->q + DIM, sizeof head);
    memcpy(a->q + DIM, head, sizeof head);
}

static void softcap_forgotten(attempt *a)
{
    a->group.softcap = 0;
}

static void sink_logit_forgotten(attempt *a)
{
    a->group.sink_logits = NULL;
}

static void sink_logits_of_other_heads(attempt *a)
{
    for (uint32_t h = 0; h < HEADS; h++)
        a->sink_logits[h] = a->model->groups[LIMITED].sink_logits[HEADS - 1 - h];
    a->group.sink_logits = a->sink_logits;
}

/* The whole K row is attended, of which the first v_dim channels are V; the last ones are not. */
static void v_to_the_end_of_k(attempt *a)
{
    a->spec.v.dim = a->group.v_dim = a->group.k_dim;
}

static void v_taken_past_v_dim(attempt *a)
{
    v_to_the_end_of_k(a);
    a->first_channel = 1;
}

typedef struct way {
    const char *name;
    uint32_t layer;
    void (*make)(attempt *a);
    enum { WRONG, HONEST } is;
} way;

static const way ways[] = {
    {"plain", PLAIN, nothing, HONEST},
    {"key dropped", PLAIN, one_key_dropped, WRONG},
    {"itself not seen", PLAIN, itself_not_seen, WRONG},
    {"scale * 1.001", PLAIN, scaled_by_1001, WRONG},
    {"heads swapped", PLAIN, heads_swapped, WRONG},
    {"limited", LIMITED, nothing, HONEST},
    {"window one short", LIMITED, window_one_short, WRONG},
    {"window one long", LIMITED, window_one_long, WRONG},
    {"sink not seen", LIMITED, sink_not_seen, WRONG},
    {"softcap forgotten", LIMITED, softcap_forgotten, WRONG},
    {"sink logit forgotten", LIMITED, sink_logit_forgotten, WRONG},
    {"sink logits of other heads", LIMITED, sink_logits_of_other_heads, WRONG},
    {"another group's scale", LIMITED, scale_of_another_group, WRONG},
    {"heads swapped", LIMITED, heads_swapped, WRONG},
    {"latent", LATENT, nothing, HONEST},
    {"latent, V longer", LATENT, v_to_the_end_of_k, HONEST},
    {"V past v_dim", LATENT, v_taken_past_v_dim, WRONG},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* rho of what a kernel makes of it; -1: it does not read these rows. */
static double rho_of(filled *r, const kvb_kernel *kernel, const way *w)
{
    const kvb_group *group = r->spec[w->layer].group;
    static float out[HEADS * DIM], lse[HEADS];
    char why[256];
    size_t n;
    kvb_diff diff = {0};
    kvb_arithmetic arithmetic;
    attempt a = {.model = &r->trace->header.model, .spec = r->spec[w->layer], .group = *group};
    a.spec.group = &a.group;
    a.spec.generation = 0; /* no other's mask */
    memcpy(a.q, filled_q(r, w->layer), group->heads * DIM * sizeof *a.q);
    w->make(&a);
    if (!filled_attend(r, kernel, &a.spec, a.q, KVB_F32, out, lse))
        return -1;
    kvb_call_arithmetic(&r->call, &arithmetic);
    const kvb_expect *rows;
    kvb_rounded *rounded;
    assert_int_equal(kvb_rounded_open(r->oracle, kernel, &rounded), 0);
    assert_int_equal(kvb_rounded_rows(rounded, &r->call.args, 1, w->layer, &arithmetic, &rows, &n, why, sizeof why), 0);
    assert_int_equal(n, group->heads);
    for (uint32_t h = 0; h < n; h++) {
        const kvb_attend_spec *honest = &r->spec[w->layer];
        kvb_expect expect = rows[h];
        if (r->window)
            assert_int_equal(
                kvb_window_solve(r->window, &rows[h], &(kvb_attend_of){&honest->mask, honest->k.cells, 1, 0}, &expect),
                0);
        kvb_diff_row(&diff, &expect, group->v_dim, &arithmetic, group->scale, (double)group->softcap, KVB_F32,
                     out + h * a.group.v_dim + a.first_channel, &lse[h]);
    }
    kvb_rounded_free(rounded);
    return diff.rho;
}

static void kernels_over_a_pair(void **state)
{
    const char *const *pair = *state;
    filled r;
    filled_open(&r, model_text, CELLS, 1, pool_named(pair[0]), pool_named(pair[1]), NULL);
    assert_int_equal(r.oracle->n_rows, r.oracle->total_rows);
    for (size_t k = 0; kvb_builtin_kernels[k]; k++) {
        const kvb_kernel *kernel = kvb_builtin_kernels[k];
        char why[256];
        if (!kernel->attend || kernel->flags & KVB_KERNEL_WITNESS ||
            (kernel->available && !kernel->available(why, sizeof why)))
            continue;
        bool rounds = kernel->round_query; /* and weights: one visible cell of many leaves much to it, many little */
        double found = 1;
        for (const way *w = ways; w < ways + WAYS; w++) {
            double rho = rho_of(&r, kernel, w);
            if (rho < 0)
                continue;
            print_message("# %s, %s, %s: %s %.3g\n", pair[0], pair[1], kernel->name, w->name, rho);
            assert_true(w->is == HONEST ? rho <= 1 && rho > (rounds ? 0 : 1e-3) : rho > found);
            if (w->is == HONEST && sums_in_f16(kernel->name))
                found = fmin(found, 4 * rho);
        }
    }
    filled_close(&r);
}

int main(void)
{
    struct CMUnitTest tests[PAIRS];
    char names[PAIRS][64];
    for (size_t p = 0; p < PAIRS; p++) {
        snprintf(names[p], sizeof names[p], "k_%s_v_%s", pairs[p][0], pairs[p][1]);
        tests[p] = (struct CMUnitTest){
            .name = names[p], .test_func = kernels_over_a_pair, .initial_state = (void *)(uintptr_t)pairs[p]};
    }
    return cmocka_run_group_tests_name("sensitivity", tests, NULL, NULL);
}
