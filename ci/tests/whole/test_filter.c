/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: bound and filter are kept by honest kernels over real pools, and find mistakes. */
#include "ci/tests/tests.h"
#include "ci/tests/whole/filled.h"
#include "ci/tests/whole/parts.h"
#include "kernels/kernels.h"
#include "oracle/filter.h"
#include "oracle/rounded.h"

/*
 * The bound and the matched filter (oracle/filter.h) over outputs of the built-in kernels, from 64 to 8192 cells in
 * real pools: honest ones stay below both limits, and each mistake is found by one of them, and named by the filter.
 *
 * `test_filter --table CELLS POOL…` prints what each says, as JSON lines.
 */

enum { MOST_CELLS = 32768, QUERIES = 64, HEADS = 8, KV_HEADS = 2, EACH = HEADS / KV_HEADS, DIM = 64 };

static const char model_text[] = "{'kv_cache.schema_version':2,'kv_cache.layers':1,'groups':["
                                 "{'layers':[0],'heads':8,'kv_heads':2,'k_dim':64,'v_dim':64}]}";

static float k_rows[KV_HEADS * MOST_CELLS * DIM],
    v_rows[KV_HEADS * MOST_CELLS * DIM]; /* [KV_HEADS][cells][DIM] decoded */

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

typedef struct attempt {
    const filled *at;
    kvb_attend_spec spec;
    kvb_group group; /* the spec's */
    float q[QUERIES][HEADS][DIM];
    float out[QUERIES][HEADS][DIM], lse[QUERIES][HEADS];
    double error; /* relative, of all outputs alike: the smallest that is to fail */
} attempt;

static uint32_t middle(uint32_t cells)
{
    return cells / 2 - 3;
}

static uint32_t border(uint32_t cells)
{
    return cells / 2 - 1;
}

static uint32_t first(uint32_t cells)
{
    (void)cells;
    return 0;
}

/* Cell `cell` of a query counts `times` times, with V of the cell `as`. */
static void cell_change(attempt *a, uint32_t query, uint32_t cell, double times, uint32_t as)
{
    const filled *r = a->at;
    for (uint32_t h = 0; h < HEADS; h++) {
        const float *k = k_rows + ((size_t)(h / EACH) * r->cells + cell) * DIM;
        const float *v = v_rows + ((size_t)(h / EACH) * r->cells + cell) * DIM;
        const float *other = v_rows + ((size_t)(h / EACH) * r->cells + as) * DIM;
        double s = 0;
        for (uint32_t c = 0; c < DIM; c++)
            s += (double)a->q[query][h][c] * (double)k[c];
        double p = exp(s * a->group.scale - (double)a->lse[query][h]);
        for (uint32_t c = 0; c < DIM; c++) {
            double sum = (double)a->out[query][h][c] + p * (times * (double)other[c] - (double)v[c]);
            a->out[query][h][c] = (float)(sum / (1 + p * (times - 1)));
        }
    }
}

static void cells_change(attempt *a, uint32_t cell, double times, uint32_t as)
{
    uint32_t before = a->at->cells - a->at->queries;
    for (uint32_t i = 0; i < a->at->queries; i++)
        if (cell <= before + i)
            cell_change(a, i, cell, times, as);
}

static void first_dropped(attempt *a)
{
    cells_change(a, 0, 0, 0);
}

static void middle_dropped(attempt *a)
{
    cells_change(a, middle(a->at->cells), 0, 0);
}

static void last_dropped(attempt *a)
{
    for (uint32_t i = 0; i < a->at->queries; i++)
        cell_change(a, i, a->at->cells - a->at->queries + i, 0, 0);
}

static void doubled(attempt *a)
{
    cells_change(a, middle(a->at->cells), 2, middle(a->at->cells));
}

static void stale(attempt *a)
{
    cells_change(a, middle(a->at->cells), 1, 5);
}

static void of_a_neighbour(attempt *a)
{
    cells_change(a, border(a->at->cells), 1, border(a->at->cells) + 1);
}

/* What all rows have alike is no cell's. */
static void offset(attempt *a)
{
    for (uint32_t i = 0; i < a->at->queries * HEADS * DIM; i++)
        (&a->out[0][0][0])[i] += i % DIM % 3 ? 0.004f : -0.008f;
}

static void scaled_by_101(attempt *a)
{
    a->group.scale *= 1.01;
}

static void scaled_by_1001(attempt *a)
{
    a->group.scale *= 1.001;
}

static void heads_swapped(attempt *a)
{
    float head[DIM];
    for (uint32_t i = 0; i < a->at->queries; i++) {
        memcpy(head, a->q[i][1], sizeof head);
        memcpy(a->q[i][1], a->q[i][2], sizeof head);
        memcpy(a->q[i][2], head, sizeof head);
    }
}

static void zero(attempt *a)
{
    memset(a->out, 0, sizeof a->out);
}

static void outputs_off(attempt *a)
{
    for (uint32_t i = 0; i < a->at->queries * HEADS * DIM; i++)
        (&a->out[0][0][0])[i] = (float)((double)(&a->out[0][0][0])[i] * (1 + a->error));
}

static const struct {
    const char *name;
    void (*before)(attempt *a);
    void (*after)(attempt *a);
    const char *words;                 /* of the message */
    uint32_t (*which)(uint32_t cells); /* token or cell that it names */
} ways[] = {
    {"honest", NULL, NULL, NULL, NULL},
    {"first dropped", NULL, first_dropped, "is missing", first},
    {"middle dropped", NULL, middle_dropped, "is missing", middle},
    {"last dropped", NULL, last_dropped, "from the last of those that each query sees is missing", first},
    {"doubled", NULL, doubled, "is doubled", middle},
    {"stale row", NULL, stale, "has a wrong V row", middle},
    {"neighbour's V", NULL, of_a_neighbour, "has a wrong V row", border},
    {"scale * 1.01", scaled_by_101, NULL, "the scale is off by about +", NULL},
    {"scale * 1.001", scaled_by_1001, NULL, "the scale is off by about +0.", NULL},
    {"heads swapped", heads_swapped, NULL, "outputs of heads 1 and 2 look swapped", NULL},
    {"an offset", NULL, offset, NULL, NULL},
    {"out = 0", NULL, zero, "the outputs are off by about -100 %", NULL},
    {"outputs off", NULL, outputs_off, "the outputs are off by about +", NULL},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* What a kernel's call is judged by. */
typedef struct judge {
    kvb_arithmetic arithmetic;
    const kvb_expect *rows, *own; /* [n] of the q that the kernel rounded to; the oracle's */
    size_t n;
} judge;

/* What bound and filter say. */
typedef struct finding {
    double rho, z;
    char words[256];
} finding;

/* An honest call, and what it is judged by, with or without a mistake. Returns whether the kernel reads these rows. */
static bool attempt_make(filled *r, const kvb_kernel *kernel, kvb_rounded *rounded, attempt *a, judge *by)
{
    char why[256];
    a->at = r;
    a->spec = *r->spec;
    a->group = *r->spec->group;
    a->spec.group = &a->group;
    a->spec.generation = 0; /* no other's mask */
    memcpy(a->q, filled_q(r, 0), r->queries * sizeof *a->q);
    if (!filled_attend(r, kernel, &a->spec, &a->q[0][0][0], KVB_F32, a->out, &a->lse[0][0]))
        return false;
    kvb_call_arithmetic(&r->call, &by->arithmetic);
    by->own = kvb_oracle_rows(r->oracle, 1, 0, &by->n);
    if (kvb_rounded_rows(rounded, &r->call.args, 1, 0, &by->arithmetic, &by->rows, &by->n, why, sizeof why))
        fail_msg("%s", why);
    a->error = by->arithmetic.sums.step > 0              ? r->cells > 4096 ? 0.3 : 0.1
               : by->arithmetic.sums.rounding == KVB_F32 ? 1e-5
                                                         : 1e-3;
    return true;
}

/* A mistake in an honest call. */
static void attempt_spoil(filled *r, const kvb_kernel *kernel, int way, attempt *a)
{
    a->spec.group = &a->group;
    if (ways[way].before) {
        ways[way].before(a);
        assert_true(filled_attend(r, kernel, &a->spec, &a->q[0][0][0], KVB_F32, a->out, &a->lse[0][0]));
    }
    if (ways[way].after)
        ways[way].after(a);
}

static finding attempt_judge(const attempt *a, const judge *by)
{
    kvb_diff diff = {0};
    kvb_filter *filter;
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    finding f;
    assert_int_equal(kvb_filter_open(a->at->oracle, &filter), 0);
    for (size_t i = 0; i < by->n; i++) {
        const kvb_expect *row = &by->rows[i];
        const float *out = a->out[row->query][row->head];
        kvb_diff_row(&diff, row, DIM, &by->arithmetic, a->at->spec->group->scale, 0, KVB_F32, out,
                     &a->lse[row->query][row->head]);
        kvb_filter_add(filter, &by->own[i], row, &by->arithmetic, KVB_F32, out);
    }
    f.rho = diff.rho;
    f.z = kvb_filter_peaks(filter, peaks);
    kvb_filter_words(peaks, f.words, sizeof f.words);
    kvb_filter_free(filter);
    return f;
}

/* Does the message say what is wrong, and where? */
static bool is_named(int way, uint32_t cells, const char *words)
{
    char token[32] = "", cell[32] = "";
    if (ways[way].which) {
        snprintf(token, sizeof token, "token %u ", ways[way].which(cells));
        snprintf(cell, sizeof cell, "cell %u ", ways[way].which(cells));
    }
    return strstr(words, ways[way].words) && (strstr(words, token) || strstr(words, cell));
}

static void rows_open(filled *r, uint32_t cells, const char *pool, const char *profile)
{
    filled_open(r, model_text, cells, cells > 2 * QUERIES ? QUERIES : cells - 8, pool_named(pool), pool_named(pool),
                profile);
    for (uint32_t h = 0; h < KV_HEADS; h++) {
        r->spec->k.format->read(&r->spec->k, h, 0, cells, k_rows + (size_t)h * cells * DIM);
        r->spec->v.format->read(&r->spec->v, h, 0, cells, v_rows + (size_t)h * cells * DIM);
    }
}

/* What is found over rows of that format: by every kernel of that name that reads them, in the first n_ways. */
static void findings(uint32_t cells, const char *pool, const char *profile, int n_ways, const char *name,
                     void (*take)(uint32_t cells, const char *pool, const char *kernel, int way, const attempt *a,
                                  const judge *by))
{
    static filled r;
    static attempt honest, a;
    judge by;
    char why[200];
    rows_open(&r, cells, pool, profile);
    for (size_t k = 0; kvb_builtin_kernels[k]; k++) {
        const kvb_kernel *kernel = kvb_builtin_kernels[k];
        kvb_rounded *rounded;
        if (!kernel->attend || strncmp(kernel->name, name, strlen(name)) || kernel->flags & KVB_KERNEL_WITNESS ||
            (kernel->available && !kernel->available(why, sizeof why)))
            continue;
        assert_int_equal(kvb_rounded_open(r.oracle, kernel, &rounded), 0);
        const bool reads = attempt_make(&r, kernel, rounded, &honest, &by);
        for (int way = 0; way < n_ways && reads; way++) {
            a = honest;
            attempt_spoil(&r, kernel, way, &a);
            take(cells, pool, kernel->name, way, &a, &by);
        }
        kvb_rounded_free(rounded);
    }
    filled_close(&r);
}

static void finding_check(uint32_t cells, const char *pool, const char *kernel, int way, const attempt *a,
                          const judge *by)
{
    const finding f = attempt_judge(a, by);
    const bool stands_out = f.z > KVB_FILTER_LIMIT;
    print_message("# %u cells, %s, %s, %s: rho %.3g, z %.1f %s\n", cells, pool, kernel, ways[way].name, f.rho, f.z,
                  f.words);
    assert_true(stands_out == (*f.words != 0));
    assert_null(strstr(f.words, "the scale is off by about -")); /* none of the ways makes it smaller */
    if (way == 0)
        assert_true(f.rho <= 1 && !stands_out);
    else if (ways[way].words)
        assert_true(f.rho > 1 || (sums_in_f16(kernel) ? stands_out : is_named(way, cells, f.words)));
}

/* The smallest relative error of all outputs alike that fails, by bisection. */
static double smallest_failing(const attempt *honest, const judge *by)
{
    static attempt a;
    double low = 1e-9, high = 100;
    while (high / low > 1.02) {
        a = *honest;
        a.error = sqrt(low * high);
        outputs_off(&a);
        finding f = attempt_judge(&a, by);
        *(f.rho > 1 || f.z > KVB_FILTER_LIMIT ? &high : &low) = a.error;
    }
    return high;
}

/* The largest error over the largest output. */
static double own_error(const attempt *honest, const judge *by)
{
    double error = 0, largest = 0;
    for (size_t i = 0; i < by->n; i++)
        for (uint32_t c = 0; c < DIM; c++) {
            double exact = by->rows[i].terms[c].o;
            error = fmax(error, fabs((double)honest->out[by->rows[i].query][by->rows[i].head][c] - exact));
            largest = fmax(largest, fabs(exact));
        }
    return error / largest;
}

static void finding_print(uint32_t cells, const char *pool, const char *kernel, int way, const attempt *a,
                          const judge *by)
{
    const finding f = attempt_judge(a, by);
    printf("{\"together\":\"%s\",\"kernel\":\"%s\",\"format\":\"%s\",\"cells\":%u,\"rho\":%.6g,\"z\":%.6g",
           ways[way].name, kernel, pool, cells, f.rho, isnan(f.z) ? 0 : f.z);
    if (way == 0)
        printf(",\"smallest\":%.4g,\"own_error\":%.4g", smallest_failing(a, by), own_error(a, by));
    printf("}\n");
    fflush(stdout);
}

/* The formats after the first two, which a kernel of its own reads, at one length alone. */
static void gaussian(void **state)
{
    static const char *const pools[] = {"bf16", "int8", "f16", "q8_0", "e4m3"};
    const uint32_t *cells = *state;
    for (size_t p = 0; p < (*cells == 512 ? sizeof pools / sizeof *pools : 2); p++)
        findings(*cells, pools[p], "gaussian", WAYS, "flash", finding_check);
}

/* One cell of so many weighs less than what the bound of zero points, or of rounded products, allows. `make
 * table-power-of-check` has the others. */
static void gaussian_of_many(void **state)
{
    findings(8192, "a4g64", "gaussian", WAYS, "flash", finding_check);
}

/* Where one cell has nearly all the weight, or all cells have the same, or weights beside a sink are lost together. */
static void honest_over_profiles(void **state)
{
    static const char *const profiles[] = {"llama", "qwen", "peaked", "flat"}, *const pools[] = {"f16", "bf16", "int8",
                                                                                                 "e4m3"};
    for (size_t i = 0; i < 16; i++)
        findings(512, pools[i % 4], profiles[i / 4], 1, "flash", finding_check);
}

/* Where a step for a row loses all but one channel; where logits in f16 are off by more than their spread. */
static void honest_at_the_ends(void **state)
{
    static const char *const pools[] = {"q8_0", "q4_0", "a8g32"};
    for (size_t i = 0; i < 3; i++)
        findings(512, pools[i], "giant-channel", 1, "flash", finding_check);
    findings(512, "f16", "far-below", 1, "flash", finding_check);
}

/*
 * Shows that the bound is neither violated nor vacuous on real parts: over 4096 cells in real pools, honest kernels
 * stay below rho 1 and above 1e-3, and mistakes go above 1, small ones too: one key dropped, a window off by one, a
 * softcap forgotten. For layers with and without limits, with latent rows, and for a choice of formats that has every
 * kind of scale, zero, transform and residual cells in it.
 */

enum { CELLS = 4096, WINDOW = 512, SINKS = 2 };
enum { PLAIN, LIMITED, LATENT }; /* layers, each of a group of its own */

static const char limited_text[] =
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
typedef struct spoilt {
    const kvb_model *model;
    kvb_attend_spec spec;
    kvb_group group; /* the spec's */
    float q[HEADS * DIM];
    float sink_logits[HEADS];
    kvb_run runs[3];
    uint32_t first_channel; /* of V in an output row */
} spoilt;

static void nothing(spoilt *a)
{
    (void)a;
}

/* The runs [0, a) [b, c) [d, CELLS) in place of the mask. */
static void see(spoilt *a, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth)
{
    static const uint32_t row_start[] = {0, 3};
    a->runs[0] = (kvb_run){0, first};
    a->runs[1] = (kvb_run){second, third};
    a->runs[2] = (kvb_run){fourth, CELLS};
    a->spec.mask = (kvb_mask){.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = a->runs};
}

static void one_key_dropped(spoilt *a)
{
    see(a, 1234, 1235, 2000, 2000);
}

static void itself_not_seen(spoilt *a)
{
    see(a, 1000, 1000, 2000, 2000);
    a->runs[2].end--;
}

static void window_one_short(spoilt *a)
{
    see(a, SINKS, CELLS - WINDOW + 1, CELLS - 1, CELLS - 1);
}

static void window_one_long(spoilt *a)
{
    see(a, SINKS, CELLS - WINDOW - 1, CELLS - 1, CELLS - 1);
}

static void sink_not_seen(spoilt *a)
{
    see(a, SINKS - 1, CELLS - WINDOW, CELLS - 1, CELLS - 1);
}

static void scale_by_1001(spoilt *a)
{
    a->group.scale *= 1.001;
}

static void scale_of_another_group(spoilt *a)
{
    a->group.scale = a->model->groups[PLAIN].scale;
}

static void first_heads_swapped(spoilt *a)
{
    float head[DIM];
    memcpy(head, a->q, sizeof head);
    memcpy(a->q, a->q + DIM, sizeof head);
    memcpy(a->q + DIM, head, sizeof head);
}

static void softcap_forgotten(spoilt *a)
{
    a->group.softcap = 0;
}

static void sink_logit_forgotten(spoilt *a)
{
    a->group.sink_logits = NULL;
}

static void sink_logits_of_other_heads(spoilt *a)
{
    for (uint32_t h = 0; h < HEADS; h++)
        a->sink_logits[h] = a->model->groups[LIMITED].sink_logits[HEADS - 1 - h];
    a->group.sink_logits = a->sink_logits;
}

/* The whole K row is attended, of which the first v_dim channels are V; the last ones are not. */
static void v_to_the_end_of_k(spoilt *a)
{
    a->spec.v.dim = a->group.v_dim = a->group.k_dim;
}

static void v_taken_past_v_dim(spoilt *a)
{
    v_to_the_end_of_k(a);
    a->first_channel = 1;
}

typedef struct spoil {
    const char *name;
    uint32_t layer;
    void (*make)(spoilt *a);
    enum { WRONG, HONEST } is;
} spoil;

static const spoil spoils[] = {
    {"plain", PLAIN, nothing, HONEST},
    {"key dropped", PLAIN, one_key_dropped, WRONG},
    {"itself not seen", PLAIN, itself_not_seen, WRONG},
    {"scale * 1.001", PLAIN, scale_by_1001, WRONG},
    {"heads swapped", PLAIN, first_heads_swapped, WRONG},
    {"limited", LIMITED, nothing, HONEST},
    {"window one short", LIMITED, window_one_short, WRONG},
    {"window one long", LIMITED, window_one_long, WRONG},
    {"sink not seen", LIMITED, sink_not_seen, WRONG},
    {"softcap forgotten", LIMITED, softcap_forgotten, WRONG},
    {"sink logit forgotten", LIMITED, sink_logit_forgotten, WRONG},
    {"sink logits of other heads", LIMITED, sink_logits_of_other_heads, WRONG},
    {"another group's scale", LIMITED, scale_of_another_group, WRONG},
    {"heads swapped", LIMITED, first_heads_swapped, WRONG},
    {"latent", LATENT, nothing, HONEST},
    {"latent, V longer", LATENT, v_to_the_end_of_k, HONEST},
    {"V past v_dim", LATENT, v_taken_past_v_dim, WRONG},
};
enum { SPOILS = sizeof spoils / sizeof *spoils };

/* rho of what a kernel makes of it; -1: it does not read these rows. */
static double rho_of(filled *r, const kvb_kernel *kernel, const spoil *w)
{
    const kvb_group *group = r->spec[w->layer].group;
    static float out[HEADS * DIM], lse[HEADS];
    char why[256];
    size_t n;
    kvb_diff diff = {0};
    kvb_arithmetic arithmetic;
    spoilt a = {.model = &r->trace->header.model, .spec = r->spec[w->layer], .group = *group};
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
    filled_open(&r, limited_text, CELLS, 1, pool_named(pair[0]), pool_named(pair[1]), NULL);
    assert_int_equal(r.oracle->n_rows, r.oracle->total_rows);
    for (size_t k = 0; kvb_builtin_kernels[k]; k++) {
        const kvb_kernel *kernel = kvb_builtin_kernels[k];
        char why[256];
        if (!kernel->attend || kernel->flags & KVB_KERNEL_WITNESS ||
            (kernel->available && !kernel->available(why, sizeof why)))
            continue;
        bool rounds = kernel->round_query; /* and weights: one visible cell of many leaves much to it, many little */
        double found = 1;
        for (const spoil *w = spoils; w < spoils + SPOILS; w++) {
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

int main(int argc, char **argv)
{
    for (int i = 3; i < argc && !strcmp(argv[1], "--table"); i++)
        findings((uint32_t)strtoul(argv[2], NULL, 10), argv[i], "gaussian", WAYS, "", finding_print);
    if (argc > 1)
        return 0;
    enum { FILTERED = 6 };
    static uint32_t lengths[] = {64, 512, 4096};
    char names[PAIRS][64];
    struct CMUnitTest tests[FILTERED + PAIRS] = {
        {"gaussian_64", gaussian, NULL, NULL, &lengths[0]},
        {"gaussian_512", gaussian, NULL, NULL, &lengths[1]},
        {"gaussian_4096", gaussian, NULL, NULL, &lengths[2]},
        cmocka_unit_test(gaussian_of_many),
        cmocka_unit_test(honest_over_profiles),
        cmocka_unit_test(honest_at_the_ends),
    };
    for (size_t p = 0; p < PAIRS; p++) {
        snprintf(names[p], sizeof names[p], "k_%s_v_%s", pairs[p][0], pairs[p][1]);
        tests[FILTERED + p] = (struct CMUnitTest){
            .name = names[p], .test_func = kernels_over_a_pair, .initial_state = (void *)(uintptr_t)pairs[p]};
    }
    return cmocka_run_group_tests_name("filter", tests, NULL, NULL);
}
