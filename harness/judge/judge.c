/* SPDX-License-Identifier: Apache-2.0 */
/* Judges one head of one sequence at a time. Attention: decodes rows of the KV head, then solves its queries over them.
 * Scans: follows some columns of the head's state from token to token. */
#include "harness/judge/judge.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caches/call.h"
#include "harness/program.h"
#include "harness/replay/verdict.h"
#include "kernels/convert.h"
#include "oracle/claim.h"
#include "oracle/codec.h"
#include "oracle/recurrence.h"
#include "oracle/single.h"
#include "workloads/array.h"
#include "workloads/files.h"
#include "workloads/rng.h"
#include "workloads/trace.h"

#define FAILING      8u         /* failing rows to try other readings on */
#define FILTER_CELLS (1u << 23) /* most cells of all KV heads in the matched filter */

/* Rows to judge. Attention: queries of one KV head of one sequence. Scans: columns of one head, over all tokens. */
typedef struct unit {
    uint32_t b, head, n;       /* head: KV head; scans: head. n: queries; scans: columns */
    const uint32_t *queries;   /* [n] ascending */
    const bool *glanced;       /* [n] gets only a second opinion; NULL: none does */
    uint32_t first;            /* first column */
    kvb_single_filter *filter; /* the matched filter, for attention; NULL: none */
} unit;

typedef struct trial {
    const kvb_recorded *call;
    kvb_recorded_shape shape;
    kvb_recorded_verdict *judged;
    kvb_diff diff, opinion;    /* of judged rows, of second opinions; event of a place: the sequence */
    kvb_single_filter *filter; /* for attention */
    uint64_t sequences[KVB_DIFF_QUERIES / 64];
    struct {
        unit of;
        uint32_t query;
    } failing[FAILING];
    uint32_t n_failing;
    char unrounded[256]; /* what is wrong with q_rounded; "": nothing */
} trial;

/* A unit under a reading: its decoded inputs, and for scans the columns, followed to some token. */
typedef struct bench {
    const kvb_recorded_shape *shape;
    const unit *of;
    trial *into; /* takes the judged rows; NULL: judging ends at the first wrong row */
    bool wrong;  /* a row is wrong, or (into NULL) sees no cell */
    char *why;
    size_t why_bytes;
    kvb_recorded_sequence sequence;
    float *q;
    double *exact;
    void *out;
    kvb_arena arena;
    /* attention */
    kvb_attend attend;
    kvb_single_rows rows;
    kvb_token_run *runs;
    size_t *first;
    uint64_t *seen; /* bits of cells that some query sees */
    double *sides[2], *sizes[2];
    double *q_rounded; /* NULL: no such array */
    float *lse, *sinks;
    /* scans */
    kvb_scan_problem problem; /* with these columns only */
    kvb_recurrence *head;
    kvb_recurrence_token token;
    double sign;                     /* of states and outputs: plain_decay has negative decays */
    float *k, *v, *gate, *own, *now; /* own: a; now: a under the reading, for this token */
    float beta, *bias;
    double *state;
    kvb_recurrence_want *want;
} bench;

/* A judged row. Attention: query heads of one KV head. Scans: columns of a token's output or of a final state's row. */
typedef struct taken {
    uint32_t query, head, heads; /* head: first of `heads` heads */
    const kvb_diff *diff;        /* of this row; its head 0 is `head` */
    kvb_elem elem;
    const void *out; /* [n] of elem; exact ones: in the bench */
    size_t n;
    bool glanced; /* a second opinion */
} taken;

static uint32_t group_of(const kvb_recorded_shape *s)
{
    return s->heads / s->kv_heads;
}

static uint32_t head_of(const bench *x, uint32_t kv_head, uint32_t i)
{
    const kvb_recorded_shape *s = x->shape;
    return s->reading->heads_interleaved ? i * s->kv_heads + kv_head : kv_head * group_of(s) + i;
}

/* ---- judged rows ------------------------------------------------------------------------------------------------- */

void kvb_usual_take(kvb_usual *u, kvb_elem elem, const void *out, const double *exact, size_t n)
{
    /* torch.testing.assert_close: torch/testing/_comparison.py, _DTYPE_PRECISIONS. */
    const double relative = elem == KVB_F16 ? 1e-3 : elem == KVB_BF16 ? 1.6e-2 : 1.3e-6, absolute = 1e-5;
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

static kvb_diff_place placed(kvb_diff_place place, const unit *of, const taken *row)
{
    place.event = of->b;
    place.query = row->query;
    place.head += row->head;
    return place;
}

/* Takes a judged row. False: no more rows are wanted. */
static bool row_take(bench *x, const taken *row)
{
    trial *t = x->into;
    const unit *u = x->of;
    const kvb_diff *of = row->diff;
    x->wrong |= of->any_failed;
    if (!t)
        return !x->wrong;
    kvb_diff *d = row->glanced ? &t->opinion : &t->diff;
    if (of->rho > d->rho || !d->elements) {
        d->rho = of->rho;
        d->worst = placed(of->worst, u, row);
    }
    if (of->any_failed && !d->any_failed)
        d->first = placed(of->first, u, row);
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
    kvb_usual_take(&t->judged->usual, row->elem, row->out, x->exact, row->n);
    if (!of->any_failed)
        return true;
    for (uint32_t i = 0; i < row->heads; i++)
        if (of->first_heads[i / 64] >> i % 64 & 1 && row->head + i < KVB_MODEL_WIDTH)
            kvb_bits_set(d->first_heads, row->head + i, row->head + i + 1);
    if (row->query < KVB_DIFF_QUERIES)
        kvb_bits_set(d->first_queries, row->query, row->query + 1);
    if (u->b < KVB_DIFF_QUERIES)
        kvb_bits_set(t->sequences, u->b, u->b + 1);
    const unit *last = t->n_failing ? &t->failing[t->n_failing - 1].of : NULL;
    const bool same_unit = last && last->b == u->b && last->head == u->head && last->first == u->first;
    /* scans: other readings are tried on a whole unit */
    if (t->n_failing < FAILING && (!same_unit || (!t->shape.scans && t->n_failing < FAILING / 2))) {
        t->failing[t->n_failing].of = *u;
        t->failing[t->n_failing++].query = row->query;
    }
    return true;
}

/* ---- inputs of a unit -------------------------------------------------------------------------------------------- */

static double factor_of(const kvb_recorded_reading *r, uint32_t k_dim)
{
    const double scale = r->scale == KVB_SCALE_ROOT ? 1 / sqrt((double)k_dim) : r->scale;
    return scale * r->q_scale * (r->scale_factor != 0 ? r->scale_factor : 1);
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

/* Makes the runs of cells that each query of the unit sees. */
static int sight_make(bench *x)
{
    const unit *u = x->of;
    const uint32_t cells = x->sequence.cells;
    const size_t most = x->shape->mask.tensor ? cells / 2 + 1 : 2;
    size_t n = 0;
    x->runs = kvb_arena_take(&x->arena, u->n * most + 1, sizeof *x->runs);
    x->first = kvb_arena_take(&x->arena, (size_t)u->n + 1, sizeof *x->first);
    x->seen = kvb_arena_take(&x->arena, cells / 64 + 1u, sizeof *x->seen);
    if (x->arena.failed)
        return -ENOMEM;
    for (uint32_t i = 0; i < u->n; i++) {
        uint32_t sinks, begin, end;
        x->first[i] = n;
        kvb_recorded_sees(x->shape->reading, &x->sequence, u->queries[i], &sinks, &begin, &end);
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

static int input_wrong(const bench *x, kvb_recorded_part part, const char *of, uint32_t at, uint32_t channel,
                       double value, const char *expected)
{
    const kvb_recorded *call = x->shape->call;
    return kvb_why_set(-EINVAL, x->why, x->why_bytes,
                       "%s: array '%s': sequence %u, head %u, %s %u, channel %u is %g: expected %s", call->path,
                       call->part[part]->name, x->of->b, x->of->head, of, at, channel, value, expected);
}
static const char finite_words[] = "inputs that are finite";

/* Converts an input to f32. -EINVAL with why: it is not finite, or f32 cannot hold it. */
static int input_read(const bench *x, kvb_recorded_part part, const char *of, uint32_t at, uint32_t channel,
                      double value, float *to)
{
    const kvb_recorded *call = x->shape->call;
    if (!isfinite(value))
        return input_wrong(x, part, of, at, channel, value, finite_words);
    *to = (float)value;
    if ((double)*to == value)
        return 0;
    return kvb_why_set(-EINVAL, x->why, x->why_bytes,
                       "%s: array '%s' is f64 and has more than f32 can hold: expected f32, f16 or bf16", call->path,
                       call->part[part]->name);
}

static int side_make(bench *x, int side)
{
    const kvb_recorded_shape *s = x->shape;
    const unit *u = x->of;
    const uint32_t dim = side ? s->v_dim : s->k_dim;
    const size_t cells = (size_t)x->sequence.cells + 1;
    x->sides[side] = kvb_arena_take(&x->arena, 2 * cells * dim, sizeof(double));
    if (x->arena.failed)
        return -ENOMEM;
    x->sizes[side] = x->sides[side] + cells * dim;
    for (uint32_t c = 0; c < x->sequence.cells; c++) {
        if (!(x->seen[c / 64] >> c % 64 & 1))
            continue; /* an invisible cell may hold anything */
        double *row = x->sides[side] + (size_t)c * dim;
        kvb_recorded_row(s, side, u->b, u->head, &x->sequence, c, row, x->sizes[side] + (size_t)c * dim);
        for (uint32_t i = 0; i < dim; i++)
            if (!isfinite(row[i]))
                return input_wrong(x, side ? KVB_RECORDED_V : KVB_RECORDED_K, "cell", c, i, row[i], finite_words);
    }
    return 0;
}

/* Copies an output's element into out[i], an array of elem. */
static void output_put(kvb_elem elem, const kvb_tensor *t, uint64_t at, void *out, size_t i)
{
    if (elem == KVB_F32)
        ((float *)out)[i] = (float)kvb_tensor_value(t, at);
    else
        memcpy((uint16_t *)out + i, (const char *)t->data + at * sizeof(uint16_t), sizeof(uint16_t));
}

/* A recorded log-sum-exp, converted to base e and with the sink. */
static float lse_of(const bench *x, double lse, uint32_t head)
{
    lse *= x->shape->reading->lse_base == 2 ? log(2) : 1;
    if (x->shape->reading->lse_lacks_sink && x->sinks) {
        const double sink = (double)x->sinks[head], most = fmax(lse, sink);
        lse = most + log(exp(lse - most) + exp(sink - most));
    }
    return (float)lse;
}

static int queries_make(bench *x)
{
    const kvb_recorded_shape *s = x->shape;
    const unit *u = x->of;
    const uint32_t group = group_of(s);
    for (uint32_t n = 0; n < u->n; n++)
        for (uint32_t i = 0; i < group; i++) {
            const uint32_t head = head_of(x, u->head, i);
            const uint64_t token = x->sequence.q_at + u->queries[n];
            const size_t row = (size_t)n * group + i;
            for (uint32_t c = 0; c < s->k_dim; c++) {
                const int error = input_read(x, KVB_RECORDED_Q, "query", u->queries[n], c,
                                             kvb_tensor_value(s->q.tensor, kvb_axed_at(&s->q, u->b, head, token, 0, c)),
                                             &x->q[row * s->k_dim + c]);
                if (error)
                    return error;
            }
            for (uint32_t c = 0; c < s->k_dim && x->q_rounded; c++)
                x->q_rounded[row * s->k_dim + c] =
                    kvb_tensor_value(s->q_rounded.tensor, kvb_axed_at(&s->q_rounded, u->b, head, token, 0, c));
            for (uint32_t c = 0; c < s->v_dim; c++)
                output_put(s->out_elem, s->out.tensor, kvb_axed_at(&s->out, u->b, head, token, 0, c), x->out,
                           row * s->v_dim + c);
            if (s->lse.tensor)
                x->lse[row] =
                    lse_of(x, kvb_tensor_value(s->lse.tensor, kvb_axed_at(&s->lse, u->b, head, token, 0, 0)), i);
        }
    return 0;
}

static int bench_make(bench *x)
{
    static const kvb_format plain = {.name = "f32", .elem = KVB_F32};
    const kvb_recorded_shape *s = x->shape;
    const kvb_recorded_reading *r = s->reading;
    const kvb_tensor *sinks = r->no_sinks ? NULL : s->call->part[KVB_RECORDED_SINKS];
    const uint32_t group = group_of(s), n = x->of->n;
    const size_t rows = (size_t)n * group;
    kvb_recorded_sequence_of(s, x->of->b, &x->sequence);
    int error = sight_make(x);
    if (error)
        return error;
    const double needed = 16.0 * (x->sequence.cells + 1.0) * ((double)s->k_dim + s->v_dim),
                 has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (needed > has / 2)
        return kvb_why_set(
            -EINVAL, x->why, x->why_bytes,
            "%s: sequence %u: %u cells take %.0f GiB to judge: expected less than half of this machine's memory",
            s->call->path, x->of->b, x->sequence.cells, needed / 0x1p30);
    x->q = kvb_arena_take(&x->arena, rows * s->k_dim, sizeof *x->q);
    x->q_rounded = s->q_rounded.tensor ? kvb_arena_take(&x->arena, rows * s->k_dim, sizeof *x->q_rounded) : NULL;
    x->lse = kvb_arena_take(&x->arena, rows + 1, sizeof *x->lse);
    x->sinks = kvb_arena_take(&x->arena, group, sizeof *x->sinks);
    x->out = kvb_arena_take(&x->arena, rows * s->v_dim, kvb_elem_bytes(s->out_elem));
    x->exact = kvb_arena_take(&x->arena, (size_t)group * s->v_dim, sizeof *x->exact);
    if (x->arena.failed)
        return -ENOMEM;
    for (uint32_t i = 0; i < group && sinks; i++)
        x->sinks[i] = (float)kvb_tensor_value(sinks, head_of(x, x->of->head, i) * sinks->strides[0]);
    error = side_make(x, 0);
    error = error || s->latent ? error : side_make(x, 1);
    error = error ? error : queries_make(x);
    x->rows = (kvb_single_rows){.cells = x->sequence.cells,
                                .k_decoded = x->sides[0],
                                .k_sizes = x->sizes[0],
                                .v_decoded = x->sides[1],
                                .v_sizes = x->sizes[1],
                                .q = x->q_rounded,
                                .runs = x->runs,
                                .first = x->first};
    x->attend = (kvb_attend){.problem = {.n_tok = n,
                                         .n_heads = group,
                                         .n_kv_heads = 1,
                                         .k_dim = s->k_dim,
                                         .v_dim = s->v_dim,
                                         .n_cells = x->sequence.cells,
                                         .scale = (float)factor_of(r, s->k_dim),
                                         .softcap = r->no_softcap ? 0 : (float)r->softcap,
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

/* Judges the rows of a unit of attention. */
static int attention_judge(bench *x)
{
    const kvb_recorded_shape *s = x->shape;
    const unit *u = x->of;
    kvb_single *single = NULL;
    kvb_arithmetic arithmetic;
    const uint32_t group = group_of(s);
    int error = bench_make(x);
    if (!error) {
        kvb_reading_arithmetic(s->reading, &x->attend.problem, &arithmetic);
        error = kvb_single_open(&x->attend, NULL, &arithmetic, &x->rows, &single, x->why, x->why_bytes);
        error = error || !u->filter ? error : kvb_single_filter_begin(u->filter, single, u->b, u->head);
    }
    bool more = true;
    for (uint32_t i = 0; i < u->n && !error && more; i++) {
        kvb_diff diff = {.claim = {.k_dim = s->k_dim, .cells = x->sequence.cells}};
        if (x->first[i] == x->first[i + 1]) {
            x->wrong |= !x->into;
            if (x->into)
                x->into->judged->blind += group;
            continue;
        }
        const bool glanced = u->glanced && u->glanced[i];
        error = kvb_single_judge(single, i, 0, group, glanced, &diff, x->exact, NULL, x->why, x->why_bytes);
        const size_t n = (size_t)group * s->v_dim;
        const taken row = {.query = u->queries[i],
                           .head = u->head * group,
                           .heads = group,
                           .diff = &diff,
                           .elem = s->out_elem,
                           .n = n,
                           .out = (const char *)x->out + i * n * kvb_elem_bytes(s->out_elem),
                           .glanced = glanced};
        more = error || row_take(x, &row);
        error = error ? error : kvb_stopped ? -EINTR : 0;
    }
    kvb_single_free(single);
    return error;
}

/* ---- a unit of a scan -------------------------------------------------------------------------------------------- */

/* Ranges of inputs in scan.h, which keep decays at most 1. */
static const struct {
    kvb_recorded_part part;
    uint32_t kinds;
    double least, most;
    const char *words;
} ranges[] = {
    {KVB_RECORDED_GATE, 1u << KVB_SCAN_MAMBA1 | 1u << KVB_SCAN_MAMBA2, 0, HUGE_VAL,
     "0 at least: Delta, softplus taken"},
    {KVB_RECORDED_GATE, 1u << KVB_SCAN_DELTA, -HUGE_VAL, 0, "0 at most: the log of a decay"},
    {KVB_RECORDED_BETA, 1u << KVB_SCAN_DELTA, 0, 2, "0 to 2"},
    {KVB_RECORDED_A, 1u << KVB_SCAN_MAMBA1 | 1u << KVB_SCAN_MAMBA2 | 1u << KVB_SCAN_LIGHTNING, -HUGE_VAL, 0,
     "0 at most, so that no decay is above 1"},
};

/* Reads n channels of an array, from element `from` on. */
static int inputs_read(const bench *x, kvb_recorded_part part, const kvb_axed *a, uint64_t from, uint32_t n,
                       uint32_t token, float *to)
{
    for (uint32_t i = 0; i < n; i++) {
        const double value = kvb_tensor_value(a->tensor, from + i * a->stride[KVB_AXIS_D]);
        const int error = input_read(x, part, "token", token, i, value, &to[i]);
        for (size_t r = 0; r < sizeof ranges / sizeof *ranges && !error; r++)
            if (ranges[r].part == part && ranges[r].kinds >> (x->shape->scan.kind) & 1 &&
                (value < ranges[r].least || value > ranges[r].most))
                return input_wrong(x, part, "token", token, i, value, ranges[r].words);
        if (error)
            return error;
    }
    return 0;
}

/* The exponent of a decay under the reading. plain_decay multiplies by the exponent itself: then its log. */
static double exponent_of(const bench *x, double exponent)
{
    const double factor = x->shape->reading->decay_factor;
    return x->shape->reading->plain_decay ? fmax(log(fabs(exponent)), -1e4) : exponent * (factor != 0 ? factor : 1);
}

/* Changes the token's decays as the reading says: DELTA's in its gate; all others, with exponent gate * a, in a. */
static void decays_change(bench *x)
{
    const kvb_scan_kind kind = x->shape->scan.kind;
    const bool each = kind == KVB_SCAN_MAMBA1, gated = each || kind == KVB_SCAN_MAMBA2;
    const uint32_t n = each ? x->shape->k_dim * x->of->n : 1;
    if (kind == KVB_SCAN_DELTA)
        x->gate[0] = (float)exponent_of(x, (double)x->gate[0]);
    for (uint32_t i = 0; i < n && kind != KVB_SCAN_DELTA; i++) {
        const double gate = gated ? (double)x->gate[each ? i % x->of->n : 0] : 1,
                     exponent = exponent_of(x, gate * (double)x->own[i]);
        x->now[i] = gate == 0 ? x->own[i] : (float)(x->problem.kind == kind ? exponent / gate : exponent);
    }
}

/* Reads the token's inputs. */
static int token_read(bench *x, uint32_t t)
{
    const kvb_recorded_shape *s = x->shape;
    const kvb_recorded_reading *r = s->reading;
    const kvb_scan_kind kind = s->scan.kind;
    const bool each = kind == KVB_SCAN_MAMBA1, conv = kind == KVB_SCAN_CONV;
    const uint32_t b = x->of->b, h = x->of->head, n = x->of->n, first = x->of->first,
                   group = r->heads_interleaved ? h % s->kv_heads : h / (s->heads / s->kv_heads);
    const uint64_t at = x->sequence.q_at + t, last = x->sequence.queries - 1u;
    const uint64_t gates = kvb_axed_at(&s->gate, b, h, at + (r->next_gate && t < last), 0, 0);
    int error = inputs_read(x, KVB_RECORDED_V, &s->v, kvb_axed_at(&s->v, b, h, at, 0, first), n, t, x->v);
    if (!error && !conv)
        error = inputs_read(x, KVB_RECORDED_Q, &s->q, kvb_axed_at(&s->q, b, group, at, 0, 0), s->k_dim, t, x->q);
    if (!error && !conv)
        error = inputs_read(x, KVB_RECORDED_K, &s->k, kvb_axed_at(&s->k, b, group, at, 0, 0), s->k_dim, t, x->k);
    if (!error && s->gate.tensor)
        error = inputs_read(x, KVB_RECORDED_GATE, &s->gate, gates + (each ? first * s->gate.stride[KVB_AXIS_D] : 0),
                            each ? n : 1, t, x->gate);
    if (!error && s->beta.tensor)
        error = inputs_read(x, KVB_RECORDED_BETA, &s->beta, kvb_axed_at(&s->beta, b, h, at, 0, 0), 1, t, &x->beta);
    const double factor = conv ? 1 : factor_of(r, s->k_dim);
    for (uint32_t i = 0; i < s->k_dim && !conv; i++)
        x->q[i] = (float)(factor * (double)x->q[i]);
    for (uint32_t i = 0; i < n && !conv && r->plain_decay; i++)
        x->v[i] *= (float)-x->sign;
    x->sign = r->plain_decay ? -x->sign : 1;
    if (r->no_beta)
        x->beta = 1;
    if (!conv && (r->plain_decay || r->plain_write || r->decay_factor != 0))
        decays_change(x);
    return error;
}

/* Reads these columns of a and bias. */
static int own_read(bench *x)
{
    const kvb_recorded_shape *s = x->shape;
    const bool rows = s->scan.kind == KVB_SCAN_MAMBA1 || s->scan.kind == KVB_SCAN_CONV;
    const uint32_t n = rows ? (uint32_t)s->a.n[KVB_AXIS_P] : 1, first = x->of->first;
    int error = 0;
    for (uint32_t i = 0; i < n && s->a.tensor && !error; i++) {
        const uint32_t row = s->reading->taps_reversed ? n - 1 - i : i;
        error = inputs_read(x, KVB_RECORDED_A, &s->a, kvb_axed_at(&s->a, 0, x->of->head, 0, row, rows ? first : 0),
                            rows ? x->of->n : 1, 0, x->own + (size_t)i * x->of->n);
    }
    if (!error && s->bias.tensor)
        error = inputs_read(x, KVB_RECORDED_BIAS, &s->bias, first * s->bias.stride[KVB_AXIS_D], x->of->n, 0, x->bias);
    memcpy(x->now, x->own, (size_t)n * x->of->n * sizeof *x->now);
    return error;
}

static int walk_begin(bench *x, const kvb_scan_arithmetic *arithmetic)
{
    const kvb_recorded_shape *s = x->shape;
    const kvb_axed *initial = &s->states[0];
    const uint32_t d_k = s->k_dim, n = x->of->n;
    const size_t each = (size_t)(d_k + 1) * n;
    kvb_recorded_sequence_of(s, x->of->b, &x->sequence);
    x->problem = s->scan;
    x->problem.d_v = n;
    if (s->reading->plain_write && x->problem.kind == KVB_SCAN_MAMBA2)
        x->problem.kind = KVB_SCAN_LIGHTNING;
    x->head = kvb_recurrence_open(&x->problem, arithmetic);
    float **const floats[] = {&x->q, &x->k, &x->v, &x->gate, &x->own, &x->now, &x->bias};
    const size_t counts[] = {d_k, d_k, n, n, each, each, n};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        *floats[i] = kvb_arena_take(&x->arena, counts[i], sizeof **floats[i]);
    x->state = kvb_arena_take(&x->arena, each, sizeof *x->state);
    x->exact = kvb_arena_take(&x->arena, n, sizeof *x->exact);
    x->want = kvb_arena_take(&x->arena, each, sizeof *x->want);
    x->out = kvb_arena_take(&x->arena, n, sizeof(float));
    if (!x->head || x->arena.failed)
        return -ENOMEM;
    int error = own_read(x);
    for (uint32_t i = 0; i < d_k && initial->tensor && !s->reading->no_initial && !error; i++) {
        error = inputs_read(x, KVB_RECORDED_INITIAL, initial,
                            kvb_axed_at(initial, x->of->b, x->of->head, 0, i, x->of->first), n, i, x->v);
        for (uint32_t c = 0; c < n; c++)
            x->state[(size_t)i * n + c] = (double)x->v[c];
    }
    kvb_recurrence_begin(x->head, x->state);
    const bool bias = s->bias.tensor && !s->reading->no_bias;
    x->token = (kvb_recurrence_token){x->q, x->k, x->v, x->gate, &x->beta, x->now, .bias = bias ? x->bias : NULL};
    x->sign = 1;
    return error;
}

/* Compares a row of out, or (row > 0) of the final state, with `want`. */
static bool walk_compare(bench *x, uint32_t t, uint32_t row, kvb_recurrence_want *want)
{
    const kvb_recorded_shape *s = x->shape;
    const kvb_axed *a = row ? &s->states[1] : &s->out;
    const uint64_t token = row ? 0 : x->sequence.q_at + t,
                   from = kvb_axed_at(a, x->of->b, x->of->head, token, row ? row - 1 : 0, x->of->first);
    const kvb_diff_place place = {.query = t, .channel = x->of->first, .row = (uint16_t)row};
    kvb_diff diff = {.rows = !row};
    const taken judged = {t, x->of->head, 1, &diff, row ? s->scan.state_elem : s->out_elem, x->out, x->of->n, false};
    for (uint32_t c = 0; c < x->of->n; c++) {
        want[c].value *= x->sign;
        x->exact[c] = want[c].value;
        output_put(judged.elem, a->tensor, from + c * a->stride[KVB_AXIS_D], x->out, c);
    }
    kvb_diff_take(&diff, &place, want, x->of->n, judged.elem, x->out);
    return row_take(x, &judged);
}

/* Judges the outputs of all tokens and the final state. */
static int scan_judge(bench *x)
{
    const kvb_recorded_shape *s = x->shape;
    kvb_scan_arithmetic arithmetic;
    int exponent;
    kvb_reading_scan_arithmetic(s->reading, &s->scan, &arithmetic);
    if (s->scan.kind != KVB_SCAN_CONV && fabs(frexp(factor_of(s->reading, s->k_dim), &exponent)) > 0.5)
        arithmetic.read_chain++; /* token_read() rounds q * factor */
    int error = walk_begin(x, &arithmetic);
    bool more = true;
    for (uint32_t t = 0; !error && more; t++) {
        if (t == x->sequence.cells && s->states[1].tensor) {
            kvb_recurrence_rest(x->head, true);
            kvb_recurrence_state(x->head, x->want);
            for (uint32_t i = 0; i < s->k_dim && more; i++)
                more = walk_compare(x, t ? t - 1 : 0, i + 1, x->want + (size_t)i * x->of->n);
        }
        if (t >= x->sequence.queries && (t >= x->sequence.cells || !s->states[1].tensor))
            break;
        error = token_read(x, t);
        if (!error) {
            kvb_recurrence_step(x->head, &x->token, x->want);
            more = more && (t >= x->sequence.queries || walk_compare(x, t, 0, x->want));
        }
        error = error ? error : kvb_stopped ? -EINTR : 0;
    }
    kvb_recurrence_close(x->head);
    return error;
}

/* Judges the rows of a unit. into NULL: up to the first that is wrong or sees no cell; then *wrong is true. */
static int unit_judge(const kvb_recorded_shape *shape, const unit *u, trial *into, bool *wrong, char *why,
                      size_t why_bytes)
{
    bench x = {.shape = shape, .of = u, .into = into, .why = why, .why_bytes = why_bytes};
    const int error = (shape->scans ? scan_judge : attention_judge)(&x);
    kvb_arena_free(&x.arena);
    *wrong = x.wrong;
    return error;
}

/* ---- other readings ---------------------------------------------------------------------------------------------- */

/* Do the failing rows pass under this reading? */
static bool reads_right(const trial *t, const kvb_recorded_reading *reading)
{
    char why[512];
    kvb_recorded_shape shape;
    bool failed = kvb_recorded_shape_of(t->call, reading, &shape, why, sizeof why) != 0;
    for (uint32_t i = 0; i < t->n_failing && !failed; i++) {
        unit u = t->failing[i].of;
        u.filter = NULL;
        u.glanced = NULL;
        kvb_recorded_sequence sequence;
        if (!shape.scans) {
            const uint32_t head = u.head * group_of(&t->shape);
            u.head = reading->heads_interleaved ? head % shape.kv_heads : head / group_of(&shape);
            u.queries = &t->failing[i].query;
            u.n = 1;
        }
        if (u.b >= shape.batch || u.head >= (shape.scans ? shape.heads : shape.kv_heads) ||
            (shape.scans && u.first + u.n > shape.v_dim))
            return false;
        kvb_recorded_sequence_of(&shape, u.b, &sequence);
        failed = (!shape.scans && t->failing[i].query >= sequence.queries) ||
                 unit_judge(&shape, &u, NULL, &failed, why, sizeof why) || failed;
    }
    return !failed;
}

/* Other readings: one field of the call's reading gets another value. STEP: is added to a field other than 0. */
typedef enum other_kind { OTHER_FLAG, OTHER_WHOLE, OTHER_NUMBER, OTHER_STEP } other_kind;
static const struct other {
    uint32_t of; /* bits: kvb_reading_of() */
    const char *words;
    size_t field;
    other_kind kind;
    double value;
} others[] = {
#define A KVB_OF_ATTENTION
#define S KVB_OF_SCANS
#define OTHER(of, words, member, kind, value)                                                                          \
    {                                                                                                                  \
        of, words, offsetof(kvb_recorded_reading, member), OTHER_##kind, value                                         \
    }
    OTHER(A, "the last cell left out", more_cells, WHOLE, -1),
    OTHER(A, "one cell more at the end", more_cells, WHOLE, 1),
    OTHER(A, "the first cell left out", fewer_cells, WHOLE, 1),
    OTHER(A, "no window", window, NUMBER, 0),
    OTHER(A, "a window of one cell more", window, STEP, 1),
    OTHER(A, "a window of one cell less", window, STEP, -1),
    OTHER(A, "no cells kept before the window", window_sinks, NUMBER, 0),
    OTHER(A, "no softcap", no_softcap, FLAG, 1),
    OTHER(A, "no sinks", no_sinks, FLAG, 1),
    OTHER(A, "a log-sum-exp without the sink", lse_lacks_sink, FLAG, 1),
    OTHER(A, "a log-sum-exp in base 2", lse_base, WHOLE, 2),
    OTHER(A, "a log-sum-exp in base e", lse_base, WHOLE, 1),
    OTHER(A, "log-sum-exps heads first", lse_layout, WHOLE, 1),
    OTHER(A, "log-sum-exps tokens first", lse_layout, WHOLE, 2),
    OTHER(A, "query heads dealt out to KV heads in turn", heads_interleaved, FLAG, 1),
    OTHER(S, "heads dealt out to groups in turn", heads_interleaved, FLAG, 1),
    OTHER(A | S, "the next sequence's length", next_lengths, FLAG, 1),
    OTHER(A, "the next sequence's pages", next_table, FLAG, 1),
    OTHER(A, "no k_scale and v_scale", no_scales, FLAG, 1),
    OTHER(A, "no causal mask", causal, WHOLE, KVB_CAUSAL_NO),
    OTHER(A, "causal lower-right", causal, WHOLE, KVB_CAUSAL_LOWER_RIGHT),
    OTHER(A, "causal upper-left", causal, WHOLE, KVB_CAUSAL_UPPER_LEFT),
    OTHER(S, "q and k in each other's place", q_for_k, FLAG, 1),
    OTHER(S, "no initial state: zeros", no_initial, FLAG, 1),
    OTHER(S, "a final state before the last token", more_cells, WHOLE, -1),
    OTHER(S, "a final state after one token more", more_cells, WHOLE, 1),
    OTHER(S, "a final state after the padding", more_cells, WHOLE, INT32_MAX),
    OTHER(S, "states with d_k before d_v", state_layout, WHOLE, 1),
    OTHER(S, "states with d_v before d_k: transposed", state_layout, WHOLE, 2),
    OTHER(S, "the gate of the next token", next_gate, FLAG, 1),
    OTHER(S, "no decay", decay_factor, NUMBER, 0x1p-1000),
    OTHER(S, "decays that are not exponentiated: their exponents in place of them", plain_decay, FLAG, 1),
    OTHER(S, "ln(2) times the exponents of decays: exp2 in place of exp", decay_factor, NUMBER, 0.6931471805599453),
    OTHER(S, "log2(e) times the exponents of decays: the factor twice", decay_factor, NUMBER, 1.4426950408889634),
    OTHER(S, "decays of half a token", decay_factor, NUMBER, 0.5),
    OTHER(S, "decays of two tokens", decay_factor, NUMBER, 2),
    OTHER(S, "a write without its gate", plain_write, FLAG, 1),
    OTHER(S, "no beta: 1", no_beta, FLAG, 1),
    OTHER(S, "taps in the other order", taps_reversed, FLAG, 1),
    OTHER(S, "no bias", no_bias, FLAG, 1),
    OTHER(S, "no activation", activation, WHOLE, 1),
    OTHER(S, "silu", activation, WHOLE, 2),
    OTHER(A | S, "scale 1", scale, NUMBER, 1),
    OTHER(A | S, "scale 1/sqrt(d)", scale, NUMBER, KVB_SCALE_ROOT),
    OTHER(A | S, "a scale that is 0.1 % larger", scale_factor, NUMBER, 1.001),
    OTHER(A | S, "a scale that is 0.1 % smaller", scale_factor, NUMBER, 0.999),
    OTHER(A | S, "a scale that is 1 % larger", scale_factor, NUMBER, 1.01),
    OTHER(A | S, "a scale that is 1 % smaller", scale_factor, NUMBER, 0.99),
    OTHER(A | S, "twice the scale", scale_factor, NUMBER, 2),
    OTHER(A | S, "half the scale", scale_factor, NUMBER, 0.5),
    OTHER(A, "log2(e) times the scale: its factor twice", scale_factor, NUMBER, 1.4426950408889634),
    OTHER(A, "ln(2) times the scale: exp2 in place of exp", scale_factor, NUMBER, 0.6931471805599453),
#undef OTHER
#undef A
#undef S
};
enum { OTHERS = sizeof others / sizeof *others };

/* Makes other reading i and its words: from the table, then other layouts, then other arithmetics. False: no more. */
static bool other_reading(const kvb_recorded_reading *said, uint32_t i, kvb_recorded_reading *r, char *words,
                          size_t bytes)
{
    *r = *said;
    if (i < OTHERS && others[i].of & kvb_reading_of(said)) {
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
    }
    if (i < OTHERS)
        return true;
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

/* Tries other readings. If none passes, the first arithmetic that passes is taken: later ones are wider. */
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
        if (other && kvb_presets[r.arithmetic - 1].of & kvb_reading_of(&r) && reads_right(t, &r))
            snprintf(t->judged->reads[n++], sizeof t->judged->reads[0], "%s", words);
    }
}

/* ---- the sample -------------------------------------------------------------------------------------------------- */

typedef enum choice { NOT_CHOSEN, GLANCED, JUDGED } choice;

/* Marks a share of a unit's queries: all, or the first, the last and random ones between. */
static void queries_mark(uint32_t of, double share, uint64_t *rng, choice as, choice *marks)
{
    uint32_t want = share >= 1 ? of : (uint32_t)ceil(share * of);
    want = want < 2 ? (of < 2 ? of : 2) : want;
    for (uint32_t i = 0; i < want; i++) {
        const uint32_t from = (uint32_t)((uint64_t)of * i / want), to = (uint32_t)((uint64_t)of * (i + 1) / want);
        *rng = kvb_rng_key(*rng, 1);
        marks[want == of || !i ? from : i + 1 == want ? of - 1 : from + (uint32_t)(*rng % (to - from))] = as;
    }
}

/* The chosen queries of a unit. Arrays: [most queries of a unit]. */
typedef struct choices {
    choice *marks;
    uint32_t *queries;
    bool *glanced;
} choices;

static uint32_t queries_choose(uint32_t of, double share, double glanced, uint64_t *rng, const choices *c)
{
    uint32_t n = 0;
    memset(c->marks, 0, of * sizeof *c->marks);
    if (share < 1)
        queries_mark(of, glanced, rng, GLANCED, c->marks);
    queries_mark(of, share, rng, JUDGED, c->marks);
    for (uint32_t i = 0; i < of; i++)
        if (c->marks[i] != NOT_CHOSEN) {
            c->glanced[n] = c->marks[i] == GLANCED;
            c->queries[n++] = i;
        }
    return n;
}

/* The division of a call into units, and the oracle's work. */
typedef struct division {
    uint32_t units, columns; /* scans: columns of a unit */
    double products;         /* multiply-adds for all rows */
    double least;            /* multiply-adds for one row of each unit */
    uint32_t most, longest;  /* most queries, most cells of a sequence */
    uint64_t tokens;
} division;

#define STEP        8.0    /* multiply-adds to advance an element of a state and its bound by a token */
#define OPINIONS    4.0    /* rows with a second opinion for each judged row */
#define COLUMN_ROOM 0x1p24 /* most elements of a state that are followed at once */

static division divide(const trial *t, const kvb_judge_options *o)
{
    const kvb_recorded_shape *s = &t->shape;
    division d = {.most = 1};
    for (uint32_t b = 0; b < s->batch; b++) {
        kvb_recorded_sequence q;
        kvb_recorded_sequence_of(s, b, &q);
        const double each =
            s->heads * (s->scans ? STEP * s->k_dim * s->v_dim : q.cells * ((double)s->k_dim + s->v_dim));
        d.products += each * q.queries;
        d.least += s->scans ? each * q.queries : each / group_of(s);
        d.most = q.queries > d.most ? q.queries : d.most;
        d.longest = q.cells > d.longest ? q.cells : d.longest;
        d.tokens += q.queries;
    }
    d.units = s->batch * s->kv_heads;
    if (s->scans) { /* whole heads, if three of them fit */
        const double column = STEP * s->k_dim * d.most,
                     most = fmin(floor(o->products / 3 / column), COLUMN_ROOM / s->k_dim);
        d.columns = most >= s->v_dim ? s->v_dim : most > 1 ? (uint32_t)most : 1;
        d.units = s->batch * s->heads * ((s->v_dim + d.columns - 1) / d.columns);
    }
    return d;
}

static void shape_words(const trial *t, const division *d)
{
    const kvb_recorded_shape *s = &t->shape;
    char heads[128];
    if (s->scans)
        snprintf(heads, sizeof heads, "%s, %u heads x %u x %u over %u groups", kvb_scan_kind_name(s->scan.kind),
                 s->heads, s->k_dim, s->v_dim, s->kv_heads);
    else
        snprintf(heads, sizeof heads, "%u query heads over %u KV heads x %u", s->heads, s->kv_heads, s->k_dim);
    size_t n = (size_t)snprintf(t->judged->shape, sizeof t->judged->shape, "%u sequence%s, %s, %" PRIu64 " token%s",
                                s->batch, s->batch == 1 ? "" : "s", heads, d->tokens, d->tokens == 1 ? "" : "s");
    if (!s->scans && n < sizeof t->judged->shape)
        snprintf(t->judged->shape + n, sizeof t->judged->shape - n, ", up to %u cells", d->longest);
}

/* Opens the matched filter, for as many units as FILTER_CELLS allows. A call larger than KVB_MODEL_WIDTH gets none. */
static int filter_open(trial *t, uint32_t units, uint32_t cells)
{
    const kvb_recorded_shape *s = &t->shape;
    const kvb_recorded_reading *r = &t->call->reading;
    const kvb_problem problem = {
        .k_dim = s->k_dim, .v_dim = s->v_dim, .scale = (float)factor_of(r, s->k_dim), .softcap = (float)r->softcap};
    const uint32_t room = FILTER_CELLS / (cells + 1u) + 1;
    if (s->heads > KVB_MODEL_WIDTH || s->v_dim > KVB_MODEL_WIDTH)
        return 0;
    return kvb_single_filter_open(&problem, units < room ? units : room, cells + 1, s->heads, &t->filter);
}

static int units_judge(trial *t, const kvb_judge_options *o, char *why, size_t why_bytes)
{
    const kvb_recorded *c = t->call;
    const kvb_recorded_shape *s = &t->shape;
    const division d = divide(t, o);
    const double share = o->products / fmax(d.products, 1), glanced = OPINIONS * share;
    const uint32_t step = d.least > o->products ? (uint32_t)ceil(d.least / o->products) : 1,
                   lanes = s->scans ? d.units / (s->batch * s->heads) : 1;
    uint64_t rng = kvb_rng_key(o->seed, 7);
    shape_words(t, &d);
    t->judged->rows = d.tokens * s->heads * lanes;
    kvb_arena arena = {0};
    const choices chosen = {kvb_arena_take(&arena, d.most, sizeof(choice)),
                            kvb_arena_take(&arena, d.most, sizeof(uint32_t)),
                            kvb_arena_take(&arena, d.most, sizeof(bool))};
    int error = arena.failed ? -ENOMEM : 0;
    error = error || s->scans ? error : filter_open(t, d.units, d.longest);
    for (uint32_t i = 0; i < d.units && !error; i++) {
        kvb_recorded_sequence q;
        const uint32_t heads = s->scans ? s->heads : s->kv_heads, head = i / lanes;
        unit u = {.b = head / heads,
                  .head = head % heads,
                  .queries = chosen.queries,
                  .glanced = chosen.glanced,
                  .first = i % lanes * d.columns,
                  .filter = t->filter};
        if (i % step && i + 1 < d.units)
            continue;
        kvb_recorded_sequence_of(s, u.b, &q);
        u.n = !s->scans                        ? queries_choose(q.queries, share * step, glanced * step, &rng, &chosen)
              : s->v_dim - u.first < d.columns ? s->v_dim - u.first
                                               : d.columns;
        bool wrong;
        error = u.n ? unit_judge(s, &u, t, &wrong, why, why_bytes) : 0;
        if (error == -EILSEQ) {
            snprintf(t->unrounded, sizeof t->unrounded, "%s", why);
            error = 0;
        }
    }
    kvb_arena_free(&arena);
    t->judged->judged = t->diff.rows;
    t->judged->glanced = t->opinion.rows;
    if (!error && !t->diff.elements && !*t->unrounded) {
        snprintf(why, why_bytes, "%s: %s%sno query sees a cell: there is nothing to judge", c->path, c->name,
                 *c->name ? ": " : "");
        error = -EINVAL;
    }
    return error;
}

/* Counts outputs of all rows, judged or not, that are not finite. Rows behind the last sequence do not count. */
static uint64_t outputs_scan(const trial *t)
{
    const kvb_recorded_shape *s = &t->shape;
    uint64_t n = 0;
    for (uint32_t b = 0; b < s->batch; b++) {
        kvb_recorded_sequence q;
        kvb_recorded_sequence_of(s, b, &q);
        for (uint32_t i = 0; i < q.queries; i++) {
            uint32_t sinks, begin, end;
            kvb_recorded_sees(&t->call->reading, &q, i, &sinks, &begin, &end);
            for (uint32_t h = 0; h < s->heads && (begin < end || s->scans) && !s->mask.tensor; h++)
                for (uint32_t c = 0; c < s->v_dim; c++)
                    n += !isfinite(kvb_tensor_value(s->out.tensor, kvb_axed_at(&s->out, b, h, q.q_at + i, 0, c)));
        }
    }
    return n;
}

/* ---- the record -------------------------------------------------------------------------------------------------- */

static void result_begin(const trial *t, kvb_result *r)
{
    const kvb_recorded *c = t->call;
    const char *slash = strrchr(c->path, '/'), *pools[2];
    char workload[KVB_NAME], kernel[KVB_NAME];
    kvb_why_set(0, workload, sizeof workload, "%.40s%s%.20s", slash && slash[1] ? slash + 1 : c->path,
                *c->name ? ":" : "", c->name); /* a name from a file may hold control characters */
    for (int side = 0; side < 2; side++) {
        const kvb_axed *a = side && !t->shape.latent ? &t->shape.v : &t->shape.k;
        const kvb_codec *codec = t->shape.codec[side && !t->shape.latent];
        pools[side] = codec ? codec->name : kvb_dtype_name(a->tensor->dtype);
    }
    snprintf(kernel, sizeof kernel, "recorded-%s", kvb_presets[c->reading.arithmetic - 1].name);
    kvb_result_begin(r, workload, "recorded", pools[0], pools[1], kernel);
    snprintf(r->out, sizeof r->out, "%s",
             t->shape.out_elem == KVB_F16    ? "f16"
             : t->shape.out_elem == KVB_BF16 ? "bf16"
                                             : "f32");
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
    const bool by_opinion = !t->diff.any_failed && t->opinion.any_failed;
    const kvb_diff *d = by_opinion ? &t->opinion : &t->diff;
    kvb_recorded_verdict *j = t->judged;
    kvb_result *r = &j->result;
    j->unsaid = d->claim.unsaid;
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    char words[700], channel[32] = "";
    r->status = KVB_STATUS_PASS;
    r->error.rho_worst = d->rho_worst;
    r->error.rho_lse = d->rho_lse;
    r->error.max_abs = d->max_abs;
    r->error.rel_l2 = sqrt(kvb_usual_nmse(&j->usual));
    r->error.not_finite = d->not_finite > not_finite ? d->not_finite : not_finite;
    r->error.checked_rows = t->diff.rows;
    r->error.looked.opinion = t->opinion.rows;
    r->error.total_rows = j->rows;
    r->error.has_place = true;
    kvb_worst_note(d, r);
    r->error.bits_k = r->error.bits_v = 8 * (double)kvb_dtype_bytes(t->shape.k.tensor->dtype);
    if (d->any_failed) {
        char sequences[80], heads[80], queries[80];
        const kvb_diff_place *at = &d->first;
        const char *query = t->shape.scans ? "token" : "query", *what = at->channel < t->shape.v_dim ? "out" : "lse";
        if (at->row)
            snprintf(channel, sizeof channel, ", row %u, channel %u", at->row - 1u, at->channel);
        else if (at->channel < t->shape.v_dim)
            snprintf(channel, sizeof channel, ", channel %u", at->channel);
        snprintf(j->first, sizeof j->first, "%s of sequence %u, %s %u, head %u%s: %.6g, exact %.6g, bound %.2g",
                 at->row ? "final_state" : what, at->event, query, at->query, at->head, channel, at->got, at->want,
                 at->bound);
        kvb_set_words("sequence", t->sequences, KVB_DIFF_QUERIES, sequences, sizeof sequences);
        kvb_set_words("head", d->first_heads, KVB_MODEL_WIDTH, heads, sizeof heads);
        kvb_set_words(query, d->first_queries, KVB_DIFF_QUERIES, queries, sizeof queries);
        snprintf(j->pattern, sizeof j->pattern, "%s; %s; %s", sequences, heads, queries);
        snprintf(words, sizeof words, "%s%s (%" PRIu64 " of %" PRIu64 " elements: %s)",
                 by_opinion ? "second opinion: " : "", j->first, d->failed, d->elements, j->pattern);
        fail(j, by_opinion ? KVB_CHECK_OPINION : at->row ? KVB_CHECK_STATE : KVB_CHECK_BOUND, words);
    }
    if (not_finite) {
        snprintf(words, sizeof words, "%" PRIu64 " outputs are NaN or infinite", not_finite);
        fail(j, KVB_CHECK_FINITE, words);
    }
    kvb_filter_judge(kvb_single_filter_sums(t->filter), true, r);
    kvb_filter_peaks(kvb_single_filter_sums(t->filter), peaks);
    kvb_filter_words(peaks, j->many, sizeof j->many);
    if (*t->unrounded)
        fail(j, KVB_CHECK_DECLARATION, t->unrounded);
    if (t->shape.scans) { /* no row can show that a declaration is too wide */
        kvb_scan_arithmetic declared;
        kvb_reading_scan_arithmetic(&t->call->reading, &t->shape.scan, &declared);
        if (kvb_claim_check_scan(&declared, &t->shape.scan, words, sizeof words))
            fail(j, KVB_CHECK_DECLARATION, words);
    }
    d = &t->diff;
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
    kvb_single_filter_free(t->filter);
    free(t);
    return error;
}
