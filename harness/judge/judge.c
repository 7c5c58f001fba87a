/* SPDX-License-Identifier: Apache-2.0 */
/* One KV head of one sequence at a time: its rows are decoded, then queries of it are solved over them. */
#include "harness/judge/judge.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caches/call.h"
#include "harness/interrupt.h"
#include "oracle/claim.h"
#include "oracle/codec.h"
#include "oracle/single.h"
#include "workloads/rng.h"
#include "workloads/trace.h"

#define FAILING 8u /* rows that other readings are tried on */

/* Rows to judge: queries of one KV head of one sequence. */
typedef struct unit {
    uint32_t b, kv_head, n;
    const uint32_t *queries; /* [n] ascending */
} unit;

/* A row that was judged: the query heads of one KV head. */
typedef struct taken {
    const unit *of;
    uint32_t query, heads; /* heads: of the KV head */
    const kvb_diff *diff;  /* of this row alone */
    const void *out;       /* [heads][v_dim] of the output's type */
    const double *exact;   /* the same */
} taken;
typedef void row_take(void *ctx, const taken *row);

/* What a unit's rows are judged over. */
typedef struct bench {
    const kvb_recorded *call;
    const kvb_recorded_reading *reading;
    const kvb_recorded_shape *shape;
    kvb_recorded_sequence sequence;
    kvb_attend attend;
    kvb_single_rows rows;
    kvb_token_run *runs;
    size_t *first;
    uint64_t *seen; /* bits of cells that some query sees */
    double *k, *k_size, *v, *v_size, *exact;
    float *q, *lse, *sinks;
    void *out;
} bench;

static size_t elem_bytes(kvb_elem elem)
{
    return elem == KVB_F32 ? sizeof(float) : sizeof(uint16_t);
}

static uint32_t group_of(const kvb_recorded_shape *s)
{
    return s->heads / s->kv_heads;
}

static uint32_t head_of(const bench *x, uint32_t kv_head, uint32_t i)
{
    const kvb_recorded_shape *s = x->shape;
    return x->reading->heads_interleaved ? i * s->kv_heads + kv_head : kv_head * group_of(s) + i;
}

/* ---- inputs of a unit -------------------------------------------------------------------------------------------- */

static double factor_of(const kvb_recorded_reading *r, uint32_t k_dim)
{
    const double scale = r->scale == KVB_SCALE_ROOT ? 1 / sqrt((double)k_dim) : r->scale;
    return scale * r->q_scale * (r->scale_factor != 0 ? r->scale_factor : 1);
}

static uint64_t place_of(const kvb_axed *a, uint32_t b, uint32_t head, uint64_t token)
{
    return b * a->stride[KVB_AXIS_B] + head * a->stride[KVB_AXIS_H] + token * a->stride[KVB_AXIS_S];
}

static void run_add(bench *x, size_t *n, size_t begin, uint32_t from, uint32_t to)
{
    if (from >= to)
        return;
    if (*n > begin && x->runs[*n - 1].end == from)
        x->runs[*n - 1].end = to;
    else
        x->runs[(*n)++] = (kvb_token_run){from, to};
}

/* What each query of the unit sees, as runs of cells. */
static int sight_make(bench *x, const unit *u)
{
    const uint32_t cells = x->sequence.cells;
    const size_t most = x->shape->mask.tensor ? cells / 2 + 1 : 2;
    size_t n = 0;
    x->runs = malloc((u->n * most + 1) * sizeof *x->runs);
    x->first = calloc(u->n + 1, sizeof *x->first);
    x->seen = calloc(cells / 64 + 1, sizeof *x->seen);
    if (!x->runs || !x->first || !x->seen)
        return -ENOMEM;
    for (uint32_t i = 0; i < u->n; i++) {
        uint32_t sinks, begin, end;
        x->first[i] = n;
        kvb_recorded_sees(x->reading, &x->sequence, u->queries[i], &sinks, &begin, &end);
        if (!x->shape->mask.tensor) {
            run_add(x, &n, x->first[i], 0, sinks);
            run_add(x, &n, x->first[i], begin, end);
        }
        for (uint32_t c = 0; x->shape->mask.tensor && c < end; c++)
            if ((c < sinks || c >= begin) && kvb_recorded_unmasked(x->shape, u->b, u->queries[i], c))
                run_add(x, &n, x->first[i], c, c + 1);
        for (size_t r = x->first[i]; r < n; r++)
            kvb_bits_set(x->seen, x->runs[r].begin, x->runs[r].end);
    }
    x->first[u->n] = n;
    return 0;
}

static int not_finite(const bench *x, kvb_recorded_part part, const unit *u, const char *of, uint32_t at,
                      uint32_t channel, double value, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes,
             "%s: array '%s': sequence %u, head %u, %s %u, channel %u is %g: expected inputs that are finite",
             x->call->path, x->call->part[part]->name, u->b, u->kv_head, of, at, channel, value);
    return -EINVAL;
}

static int side_make(bench *x, const unit *u, int side, double *rows, double *sizes, char *why, size_t why_bytes)
{
    const kvb_recorded_shape *s = x->shape;
    const uint32_t dim = side ? s->v_dim : s->k_dim;
    for (uint32_t c = 0; c < x->sequence.cells; c++) {
        if (!(x->seen[c / 64] >> c % 64 & 1))
            continue; /* may hold anything */
        double *row = rows + (size_t)c * dim;
        kvb_recorded_row(x->call, x->reading, s, side, u->b, u->kv_head, &x->sequence, c, row, sizes + (size_t)c * dim);
        for (uint32_t i = 0; i < dim; i++)
            if (!isfinite(row[i]))
                return not_finite(x, side ? KVB_RECORDED_V : KVB_RECORDED_K, u, "cell", c, i, row[i], why, why_bytes);
    }
    return 0;
}

/* Reads an element of an output into what the call has it in. */
static void output_put(kvb_elem elem, const kvb_tensor *t, uint64_t at, void *out, size_t i)
{
    if (elem == KVB_F32)
        ((float *)out)[i] = (float)kvb_tensor_value(t, at);
    else
        memcpy((uint16_t *)out + i, (const char *)t->data + at * sizeof(uint16_t), sizeof(uint16_t));
}

/* A recorded log-sum-exp, natural and with the sink. */
static float lse_of(const bench *x, double lse, uint32_t head)
{
    lse *= x->reading->lse_base == 2 ? log(2) : 1;
    if (x->reading->lse_lacks_sink && x->sinks) {
        const double sink = (double)x->sinks[head], most = fmax(lse, sink);
        lse = most + log(exp(lse - most) + exp(sink - most));
    }
    return (float)lse;
}

static int queries_make(bench *x, const unit *u, char *why, size_t why_bytes)
{
    const kvb_recorded_shape *s = x->shape;
    const uint32_t group = group_of(s);
    for (uint32_t n = 0; n < u->n; n++)
        for (uint32_t i = 0; i < group; i++) {
            const uint32_t head = head_of(x, u->kv_head, i);
            const uint64_t token = x->sequence.q_at + u->queries[n];
            const size_t row = (size_t)n * group + i;
            const uint64_t q = place_of(&s->q, u->b, head, token), out = place_of(&s->out, u->b, head, token);
            for (uint32_t c = 0; c < s->k_dim; c++) {
                const double value = kvb_tensor_value(s->q.tensor, q + c * s->q.stride[KVB_AXIS_D]);
                if (!isfinite(value))
                    return not_finite(x, KVB_RECORDED_Q, u, "query", u->queries[n], c, value, why, why_bytes);
                x->q[row * s->k_dim + c] = (float)value;
                if ((double)x->q[row * s->k_dim + c] == value)
                    continue;
                snprintf(why, why_bytes,
                         "%s: array '%s' is f64 and has more than f32 can hold: expected f32, f16 or bf16",
                         x->call->path, s->q.tensor->name);
                return -EINVAL;
            }
            for (uint32_t c = 0; c < s->v_dim; c++)
                output_put(s->out_elem, s->out.tensor, out + c * s->out.stride[KVB_AXIS_D], x->out, row * s->v_dim + c);
            if (s->lse.tensor)
                x->lse[row] = lse_of(x, kvb_tensor_value(s->lse.tensor, place_of(&s->lse, u->b, head, token)), i);
        }
    return 0;
}

static int bench_make(bench *x, const unit *u, char *why, size_t why_bytes)
{
    static const kvb_format plain = {.name = "f32", .elem = KVB_F32};
    const kvb_recorded_shape *s = x->shape;
    const kvb_tensor *sinks = x->reading->no_sinks ? NULL : x->call->part[KVB_RECORDED_SINKS];
    const uint32_t group = group_of(s);
    const size_t rows = (size_t)u->n * group;
    kvb_recorded_sequence_of(x->call, x->reading, s, u->b, &x->sequence);
    int error = sight_make(x, u);
    if (error)
        return error;
    const size_t cells = (size_t)x->sequence.cells + 1;
    const double needed = 16.0 * (double)cells * ((double)s->k_dim + s->v_dim),
                 has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (needed > has / 2) {
        snprintf(why, why_bytes,
                 "%s: sequence %u: %u cells take %.0f GiB to judge: expected less than half of this machine's memory",
                 x->call->path, u->b, x->sequence.cells, needed / 0x1p30);
        return -EINVAL;
    }
    x->k = calloc(2 * cells * s->k_dim, sizeof *x->k);
    x->v = s->latent ? NULL : calloc(2 * cells * s->v_dim, sizeof *x->v);
    x->q = malloc(rows * s->k_dim * sizeof *x->q);
    x->lse = malloc((rows + 1) * sizeof *x->lse);
    x->sinks = malloc(group * sizeof *x->sinks);
    x->out = malloc(rows * s->v_dim * elem_bytes(s->out_elem));
    x->exact = malloc((size_t)group * s->v_dim * sizeof *x->exact);
    if (!x->k || (!x->v && !s->latent) || !x->q || !x->lse || !x->sinks || !x->out || !x->exact)
        return -ENOMEM;
    x->k_size = x->k + cells * s->k_dim;
    x->v_size = x->v ? x->v + cells * s->v_dim : NULL;
    for (uint32_t i = 0; i < group && sinks; i++)
        x->sinks[i] = (float)kvb_tensor_value(sinks, head_of(x, u->kv_head, i) * sinks->strides[0]);
    error = side_make(x, u, 0, x->k, x->k_size, why, why_bytes);
    error = error || s->latent ? error : side_make(x, u, 1, x->v, x->v_size, why, why_bytes);
    error = error ? error : queries_make(x, u, why, why_bytes);
    x->rows = (kvb_single_rows){.cells = x->sequence.cells,
                                .k_decoded = x->k,
                                .k_sizes = x->k_size,
                                .v_decoded = x->v,
                                .v_sizes = x->v_size,
                                .runs = x->runs,
                                .first = x->first};
    x->attend = (kvb_attend){.problem = {.n_tok = u->n,
                                         .n_heads = group,
                                         .n_kv_heads = 1,
                                         .k_dim = s->k_dim,
                                         .v_dim = s->v_dim,
                                         .n_cells = x->sequence.cells,
                                         .scale = (float)factor_of(x->reading, s->k_dim),
                                         .softcap = x->reading->no_softcap ? 0 : (float)x->reading->softcap,
                                         .has_sinks = sinks != NULL,
                                         .v_in_k = s->latent,
                                         .out_elem = s->out_elem,
                                         .mask = KVB_MASK_EXPLICIT,
                                         .k_format = &plain,
                                         .v_format = &plain},
                             .q = x->q,
                             .sinks = sinks ? x->sinks : NULL,
                             .out = x->out,
                             .lse = s->lse.tensor ? x->lse : NULL};
    return error;
}

static void bench_close(bench *x)
{
    void *const all[] = {x->runs, x->first, x->seen, x->k, x->v, x->exact, x->q, x->lse, x->sinks, x->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Judges the rows of a unit under a reading; each is given to `take`. *blind: those that see nothing, which are not. */
static int unit_judge(const kvb_recorded *call, const kvb_recorded_reading *reading, const kvb_recorded_shape *shape,
                      const unit *u, row_take *take, void *ctx, uint64_t *blind, char *why, size_t why_bytes)
{
    bench x = {.call = call, .reading = reading, .shape = shape};
    kvb_single *single = NULL;
    kvb_arithmetic arithmetic;
    const uint32_t group = group_of(shape);
    int error = bench_make(&x, u, why, why_bytes);
    if (!error) {
        kvb_reading_arithmetic(reading, &x.attend.problem, &arithmetic);
        error = kvb_single_open(&x.attend, NULL, &arithmetic, &x.rows, &single, why, why_bytes);
    }
    for (uint32_t i = 0; i < u->n && !error; i++) {
        kvb_diff diff = {.claim = {.k_dim = shape->k_dim, .cells = x.sequence.cells}};
        if (x.first[i] == x.first[i + 1]) {
            *blind += group;
            continue;
        }
        error = kvb_single_judge(single, i, 0, group, &diff, x.exact, NULL, why, why_bytes);
        const taken row = {.of = u,
                           .query = u->queries[i],
                           .heads = group,
                           .diff = &diff,
                           .out = (const char *)x.out + (size_t)i * group * shape->v_dim * elem_bytes(shape->out_elem),
                           .exact = x.exact};
        if (!error)
            take(ctx, &row);
        error = error ? error : kvb_stopped ? -EINTR : 0;
    }
    kvb_single_free(single);
    bench_close(&x);
    return error;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

typedef struct trial {
    const kvb_recorded *call;
    kvb_recorded_shape shape;
    kvb_recorded_verdict *judged;
    kvb_diff diff; /* of all rows; its places have the sequence as event */
    uint64_t sequences[KVB_DIFF_QUERIES / 64];
    struct {
        uint32_t b, kv_head, query;
    } failing[FAILING];
    uint32_t n_failing;
} trial;

/* torch.testing.assert_close: torch/testing/_comparison.py, _DTYPE_PRECISIONS. */
static void tolerance_of(kvb_elem elem, double *relative, double *absolute)
{
    *relative = elem == KVB_F16 ? 1e-3 : elem == KVB_BF16 ? 1.6e-2 : 1.3e-6;
    *absolute = 1e-5;
}

static void usual_take(kvb_usual *u, kvb_elem elem, const void *out, const double *exact, size_t n)
{
    double relative, absolute;
    tolerance_of(elem, &relative, &absolute);
    for (size_t i = 0; i < n; i++) {
        const double got = kvb_output_value(elem, out, i), error = fabs(got - exact[i]);
        u->elements++;
        u->beyond_default += !(error <= absolute + relative * fabs(exact[i]));
        u->beyond_loose += !(error <= 1e-2 + 1e-2 * fabs(exact[i]));
        u->error2 += error * error;
        u->exact2 += exact[i] * exact[i];
        u->got2 += got * got;
        u->cross += got * exact[i];
    }
}

double kvb_usual_cosine(const kvb_usual *u)
{
    return u->got2 > 0 && u->exact2 > 0 ? u->cross / sqrt(u->got2 * u->exact2) : 0;
}

double kvb_usual_nmse(const kvb_usual *u)
{
    return u->exact2 > 0 ? u->error2 / u->exact2 : u->error2 > 0 ? INFINITY : 0;
}

static kvb_diff_place placed(const trial *t, kvb_diff_place place, const taken *row)
{
    place.event = row->of->b;
    place.query = row->query;
    place.head += row->of->kv_head * group_of(&t->shape);
    return place;
}

static void verdict_take(void *ctx, const taken *row)
{
    trial *t = ctx;
    kvb_diff *d = &t->diff;
    const kvb_diff *of = row->diff;
    if (of->rho > d->rho || !d->rows) {
        d->rho = of->rho;
        d->worst = placed(t, of->worst, row);
    }
    if (of->any_failed && !d->any_failed)
        d->first = placed(t, of->first, row);
    d->any_failed |= of->any_failed;
    d->rho_worst = fmax(d->rho_worst, of->rho_worst);
    d->rho_lse = fmax(d->rho_lse, of->rho_lse);
    d->max_abs = fmax(d->max_abs, of->max_abs);
    d->sum_error2 += of->sum_error2;
    d->sum_exact2 += of->sum_exact2;
    d->rows += of->rows;
    d->silent += of->silent;
    d->not_finite += of->not_finite;
    d->elements += of->elements;
    d->failed += of->failed;
    d->claim.wide += of->claim.wide;
    d->claim.unsaid += of->claim.unsaid;
    d->claim.fields |= of->claim.fields;
    usual_take(&t->judged->usual, t->shape.out_elem, row->out, row->exact, (size_t)row->heads * t->shape.v_dim);
    if (!of->any_failed)
        return;
    for (uint32_t i = 0; i < row->heads; i++) {
        const uint32_t head = row->of->kv_head * group_of(&t->shape) + i;
        if (of->first_heads[i / 64] >> i % 64 & 1 && head < KVB_MODEL_WIDTH)
            kvb_bits_set(d->first_heads, head, head + 1);
    }
    if (row->query < KVB_DIFF_QUERIES)
        kvb_bits_set(d->first_queries, row->query, row->query + 1);
    if (row->of->b < KVB_DIFF_QUERIES)
        kvb_bits_set(t->sequences, row->of->b, row->of->b + 1);
    const bool same_unit = t->n_failing && t->failing[t->n_failing - 1].b == row->of->b &&
                           t->failing[t->n_failing - 1].kv_head == row->of->kv_head;
    if (t->n_failing < FAILING && (!same_unit || t->n_failing < FAILING / 2)) {
        t->failing[t->n_failing].b = row->of->b;
        t->failing[t->n_failing].kv_head = row->of->kv_head;
        t->failing[t->n_failing++].query = row->query;
    }
}

/* ---- other readings ---------------------------------------------------------------------------------------------- */

static void any_take(void *ctx, const taken *row)
{
    *(bool *)ctx |= row->diff->any_failed;
}

/* Do the failing rows pass under this reading? */
static bool reads_right(const trial *t, const kvb_recorded_reading *reading)
{
    char why[512];
    kvb_recorded_shape shape;
    bool failed = kvb_recorded_shape_of(t->call, reading, &shape, why, sizeof why) != 0;
    for (uint32_t i = 0; i < t->n_failing && !failed; i++) {
        uint64_t blind = 0;
        const uint32_t each = group_of(&t->shape), head = t->failing[i].kv_head * each;
        const unit u = {t->failing[i].b, reading->heads_interleaved ? head % shape.kv_heads : head / group_of(&shape),
                        1, &t->failing[i].query};
        kvb_recorded_sequence sequence;
        if (u.b >= shape.batch || u.kv_head >= shape.kv_heads)
            return false;
        kvb_recorded_sequence_of(t->call, reading, &shape, u.b, &sequence);
        failed = t->failing[i].query >= sequence.queries ||
                 unit_judge(t->call, reading, &shape, &u, any_take, &failed, &blind, why, sizeof why) || failed ||
                 blind;
    }
    return !failed;
}

/* Other readings: a field of the one that was said becomes something else. */
typedef enum other_kind { OTHER_FLAG, OTHER_WHOLE, OTHER_NUMBER, OTHER_STEP /* added where it is not 0 */ } other_kind;
static const struct other {
    const char *words;
    size_t field;
    other_kind kind;
    double value;
} others[] = {
#define OTHER(words, member, kind, value)                                                                              \
    {                                                                                                                  \
        words, offsetof(kvb_recorded_reading, member), OTHER_##kind, value                                             \
    }
    OTHER("the last cell left out", more_cells, WHOLE, -1),
    OTHER("one cell more at the end", more_cells, WHOLE, 1),
    OTHER("the first cell left out", fewer_cells, WHOLE, 1),
    OTHER("no window", window, NUMBER, 0),
    OTHER("a window of one cell more", window, STEP, 1),
    OTHER("a window of one cell less", window, STEP, -1),
    OTHER("no cells kept before the window", window_sinks, NUMBER, 0),
    OTHER("no softcap", no_softcap, FLAG, 1),
    OTHER("no sinks", no_sinks, FLAG, 1),
    OTHER("a log-sum-exp without the sink", lse_lacks_sink, FLAG, 1),
    OTHER("a log-sum-exp in base 2", lse_base, WHOLE, 2),
    OTHER("a log-sum-exp in base e", lse_base, WHOLE, 1),
    OTHER("log-sum-exps heads first", lse_layout, WHOLE, 1),
    OTHER("log-sum-exps tokens first", lse_layout, WHOLE, 2),
    OTHER("query heads dealt out to KV heads in turn", heads_interleaved, FLAG, 1),
    OTHER("the next sequence's length", next_lengths, FLAG, 1),
    OTHER("the next sequence's pages", next_table, FLAG, 1),
    OTHER("no k_scale and v_scale", no_scales, FLAG, 1),
    OTHER("no causal mask", causal, WHOLE, KVB_CAUSAL_NO),
    OTHER("causal lower-right", causal, WHOLE, KVB_CAUSAL_LOWER_RIGHT),
    OTHER("causal upper-left", causal, WHOLE, KVB_CAUSAL_UPPER_LEFT),
    OTHER("scale 1", scale, NUMBER, 1),
    OTHER("scale 1/sqrt(d)", scale, NUMBER, KVB_SCALE_ROOT),
    OTHER("a scale that is 0.1 % larger", scale_factor, NUMBER, 1.001),
    OTHER("a scale that is 0.1 % smaller", scale_factor, NUMBER, 0.999),
    OTHER("a scale that is 1 % larger", scale_factor, NUMBER, 1.01),
    OTHER("a scale that is 1 % smaller", scale_factor, NUMBER, 0.99),
    OTHER("twice the scale", scale_factor, NUMBER, 2),
    OTHER("half the scale", scale_factor, NUMBER, 0.5),
    OTHER("log2(e) times the scale: its factor twice", scale_factor, NUMBER, 1.4426950408889634),
    OTHER("ln(2) times the scale: exp2 in place of exp", scale_factor, NUMBER, 0.6931471805599453),
#undef OTHER
};
enum { OTHERS = sizeof others / sizeof *others };

/* The i-th other reading, in words: of the table, then other layouts and arithmetics. False: there are no more. */
static bool other_reading(const kvb_recorded_reading *said, uint32_t i, kvb_recorded_reading *r, char *words,
                          size_t bytes)
{
    *r = *said;
    if (i < OTHERS) {
        void *field = (char *)r + others[i].field;
        const double value = others[i].value;
        snprintf(words, bytes, "%s", others[i].words);
        if (others[i].kind == OTHER_FLAG)
            *(bool *)field = true;
        else if (others[i].kind == OTHER_WHOLE)
            *(int32_t *)field = (int32_t)value;
        else if (others[i].kind == OTHER_NUMBER || *(double *)field == 0)
            *(double *)field = others[i].kind == OTHER_NUMBER ? value : 0;
        else
            *(double *)field += value;
        return true;
    }
    i -= OTHERS;
    for (r->layout = 1; kvb_layouts[r->layout - 1].name; r->layout++)
        if (!i--) {
            snprintf(words, bytes, "layout %s", kvb_layouts[r->layout - 1].name);
            return true;
        }
    r->layout = said->layout;
    for (r->arithmetic = 1; kvb_presets[r->arithmetic].name; r->arithmetic++)
        if (!i--) {
            snprintf(words, bytes, "arithmetic %s: it rounds more than was said", kvb_presets[r->arithmetic - 1].name);
            return true;
        }
    return false;
}

/* Of arithmetics the first that passes, where nothing else does: the rest of them is wider. */
static void others_try(trial *t)
{
    kvb_recorded_reading r;
    char words[96];
    uint32_t n = 0;
    for (uint32_t i = 0;
         n < KVB_JUDGED_READINGS && !kvb_stopped && other_reading(&t->call->reading, i, &r, words, sizeof words); i++) {
        const bool other = memcmp(&r, &t->call->reading, sizeof r) != 0;
        if (r.arithmetic != t->call->reading.arithmetic && n)
            return;
        if (other && reads_right(t, &r))
            snprintf(t->judged->reads[n++], sizeof t->judged->reads[0], "%s", words);
    }
}

/* ---- the sample -------------------------------------------------------------------------------------------------- */

static double sequence_products(const kvb_recorded_shape *s, const kvb_recorded_sequence *q)
{
    return (double)q->cells * s->heads * ((double)s->k_dim + s->v_dim);
}

/* Queries of a unit that are judged: all, or the first, the last and some between. */
static uint32_t queries_choose(uint32_t of, double share, uint64_t *rng, uint32_t *queries)
{
    uint32_t want = share >= 1 ? of : (uint32_t)ceil(share * of), n = 0;
    want = want < 2 ? (of < 2 ? of : 2) : want;
    for (uint32_t i = 0; i < want; i++) {
        const uint32_t from = (uint32_t)((uint64_t)of * i / want), to = (uint32_t)((uint64_t)of * (i + 1) / want);
        *rng = kvb_rng_key(*rng, 1);
        queries[n++] = want == of || !i ? from : i + 1 == want ? of - 1 : from + (uint32_t)(*rng % (to - from));
    }
    return n;
}

static int units_judge(trial *t, const kvb_judge_options *o, char *why, size_t why_bytes)
{
    const kvb_recorded *c = t->call;
    const kvb_recorded_shape *s = &t->shape;
    double products = 0, reading = 0;
    uint32_t most = 1, longest = 0;
    uint64_t rng = kvb_rng_key(o->seed, 7), tokens = 0;
    for (uint32_t b = 0; b < s->batch; b++) {
        kvb_recorded_sequence q;
        kvb_recorded_sequence_of(c, &c->reading, s, b, &q);
        products += sequence_products(s, &q) * q.queries;
        reading += sequence_products(s, &q) / group_of(s);
        most = q.queries > most ? q.queries : most;
        longest = q.cells > longest ? q.cells : longest;
        tokens += q.queries;
    }
    const double share = o->products / fmax(products, 1);
    const uint32_t units = s->batch * s->kv_heads,
                   step = reading > o->products ? (uint32_t)ceil(reading / o->products) : 1;
    snprintf(t->judged->shape, sizeof t->judged->shape,
             "%u sequence%s, %u query heads over %u KV heads x %u, %" PRIu64 " token%s, up to %u cells", s->batch,
             s->batch == 1 ? "" : "s", s->heads, s->kv_heads, s->k_dim, tokens, tokens == 1 ? "" : "s", longest);
    t->judged->rows = tokens * s->heads;
    uint32_t *queries = malloc((size_t)most * sizeof *queries);
    int error = queries ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < units && !error; i++) {
        kvb_recorded_sequence q;
        unit u = {.b = i / s->kv_heads, .kv_head = i % s->kv_heads, .queries = queries};
        if (i % step && i + 1 < units)
            continue;
        kvb_recorded_sequence_of(c, &c->reading, s, u.b, &q);
        u.n = queries_choose(q.queries, share * step, &rng, queries);
        error = u.n ? unit_judge(c, &c->reading, s, &u, verdict_take, t, &t->judged->blind, why, why_bytes) : 0;
    }
    free(queries);
    t->judged->judged = t->diff.rows;
    if (!error && !t->diff.rows) {
        snprintf(why, why_bytes, "%s: %s%sno query sees a cell: there is nothing to judge", c->path, c->name,
                 *c->name ? ": " : "");
        error = -EINVAL;
    }
    return error;
}

/* Outputs that are not finite, of all rows, whether they are judged or not; those of joined arrays behind the last sequence do not
 * count. */
static uint64_t outputs_scan(const trial *t)
{
    const kvb_recorded_shape *s = &t->shape;
    uint64_t n = 0;
    for (uint32_t b = 0; b < s->batch; b++) {
        kvb_recorded_sequence q;
        kvb_recorded_sequence_of(t->call, &t->call->reading, s, b, &q);
        for (uint32_t i = 0; i < q.queries; i++) {
            uint32_t sinks, begin, end;
            kvb_recorded_sees(&t->call->reading, &q, i, &sinks, &begin, &end);
            for (uint32_t h = 0; h < s->heads && begin < end && !s->mask.tensor; h++)
                for (uint32_t c = 0; c < s->v_dim; c++)
                    n += !isfinite(kvb_tensor_value(s->out.tensor, place_of(&s->out, b, h, q.q_at + i) +
                                                                       c * s->out.stride[KVB_AXIS_D]));
        }
    }
    return n;
}

/* ---- the record -------------------------------------------------------------------------------------------------- */

static void result_begin(const trial *t, kvb_result *r)
{
    const kvb_recorded *c = t->call;
    const char *slash = strrchr(c->path, '/');
    kvb_result_init(r);
    snprintf(r->workload, sizeof r->workload, "%.40s%s%.20s", slash && slash[1] ? slash + 1 : c->path,
             *c->name ? ":" : "", c->name);
    for (char *at = r->workload; *at; at++) /* a name comes from a file, and goes to a terminal */
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at;
    snprintf(r->cache, sizeof r->cache, "recorded");
    for (int side = 0; side < 2; side++) {
        const kvb_axed *a = side && !t->shape.latent ? &t->shape.v : &t->shape.k;
        const kvb_codec *codec = t->shape.codec[side && !t->shape.latent];
        snprintf(side ? r->pool_v : r->pool_k, KVB_NAME, "%s", codec ? codec->name : kvb_dtype_name(a->tensor->dtype));
    }
    snprintf(r->kernel, sizeof r->kernel, "recorded-%s", kvb_presets[c->reading.arithmetic - 1].name);
    snprintf(r->growth, sizeof r->growth, "double");
    snprintf(r->out, sizeof r->out, "%s",
             t->shape.out_elem == KVB_F16    ? "f16"
             : t->shape.out_elem == KVB_BF16 ? "bf16"
                                             : "f32");
    r->threads = 1;
}

static void fail(kvb_recorded_verdict *j, kvb_check check, const char *reason)
{
    kvb_result *r = &j->result;
    if (r->status == KVB_STATUS_FAIL)
        return;
    r->status = KVB_STATUS_FAIL;
    r->check = check;
    snprintf(r->reason, sizeof r->reason, "%s", reason);
}

static void result_end(trial *t, uint64_t not_finite)
{
    const kvb_diff *d = &t->diff;
    kvb_recorded_verdict *j = t->judged;
    kvb_result *r = &j->result;
    j->unsaid = d->claim.unsaid;
    char words[700], channel[32] = "";
    r->status = KVB_STATUS_PASS;
    r->rho = d->rho;
    r->error.rho_worst = d->rho_worst;
    r->error.rho_lse = d->rho_lse;
    r->error.max_abs = d->max_abs;
    r->error.rel_l2 = sqrt(kvb_usual_nmse(&j->usual));
    r->error.not_finite = d->not_finite > not_finite ? d->not_finite : not_finite;
    r->error.checked_rows = d->rows;
    r->error.total_rows = j->rows;
    r->error.has_place = true;
    r->error.event = d->worst.event;
    r->error.query = d->worst.query;
    r->error.head = d->worst.head;
    r->error.channel = d->worst.channel;
    r->error.got = d->worst.got;
    r->error.want = d->worst.want;
    r->error.bound = d->worst.bound;
    r->error.bits_k = r->error.bits_v = 8 * (double)kvb_dtype_bytes(t->shape.k.tensor->dtype);
    if (d->any_failed) {
        char sequences[80], heads[80], queries[80];
        const kvb_diff_place *at = &d->first;
        if (at->channel < t->shape.v_dim)
            snprintf(channel, sizeof channel, ", channel %u", at->channel);
        snprintf(j->first, sizeof j->first, "%s of sequence %u, query %u, head %u%s: %.6g, exact %.6g, bound %.2g",
                 at->channel < t->shape.v_dim ? "out" : "lse", at->event, at->query, at->head, channel, at->got,
                 at->want, at->bound);
        kvb_set_words("sequence", t->sequences, KVB_DIFF_QUERIES, sequences, sizeof sequences);
        kvb_set_words("head", d->first_heads, KVB_MODEL_WIDTH, heads, sizeof heads);
        kvb_set_words("query", d->first_queries, KVB_DIFF_QUERIES, queries, sizeof queries);
        snprintf(j->pattern, sizeof j->pattern, "%s; %s; %s", sequences, heads, queries);
        snprintf(words, sizeof words, "%s (%" PRIu64 " of %" PRIu64 " elements: %s)", j->first, d->failed, d->elements,
                 j->pattern);
        fail(j, KVB_CHECK_BOUND, words);
    }
    if (not_finite) {
        snprintf(words, sizeof words, "%" PRIu64 " outputs are NaN or infinite", not_finite);
        fail(j, KVB_CHECK_FINITE, words);
    }
    if ((double)d->claim.wide > KVB_CLAIM_LIMIT * (double)d->rows) {
        kvb_claim_words(d->claim.fields, channel, sizeof channel);
        snprintf(words, sizeof words,
                 "the declared arithmetic is too wide: %" PRIu64 " of %" PRIu64
                 " rows would pass without computing them",
                 d->claim.wide, d->rows);
        fail(j, KVB_CHECK_DECLARATION, words);
    }
}

int kvb_recorded_judge(const kvb_recorded *call, const kvb_judge_options *options, kvb_recorded_verdict *judged,
                       char *why, size_t why_bytes)
{
    trial *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    *judged = (kvb_recorded_verdict){.rows = 0};
    t->call = call;
    t->judged = judged;
    int error = kvb_recorded_shape_of(call, &call->reading, &t->shape, why, why_bytes);
    if (!error) {
        result_begin(t, &judged->result);
        error = units_judge(t, options, why, why_bytes);
    }
    if (!error)
        result_end(t, outputs_scan(t));
    if (!error && t->n_failing)
        others_try(t);
    free(t);
    return error;
}
