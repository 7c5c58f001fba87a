/* SPDX-License-Identifier: Apache-2.0 */
/* Attention calls, judged. */
#include "harness/calls/attend_judge.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/calls/attend_scene.h"
#include "harness/replay/kernel_io.h"
#include "harness/replay/poison.h"
#include "oracle/tolerance.h"
#include "workloads/rng.h"

/* Products of the oracle for one call: beyond them rows are sampled. */
#define JUDGED_PRODUCTS 3e6

/* The call under judgement. */
typedef struct trial {
    const kvb_kernel *kernel;
    kvb_attend_scene scene;
    kvb_single *truth;
    kvb_poison poison;
    uint64_t *sight; /* bits of cells */
    char *before;    /* outputs of the first run */
    double *exact;   /* [heads of a KV head][v_dim] */
    kvb_call_verdict *verdict;
    uint64_t key;
} trial;

static bool has_failed(const trial *x)
{
    return x->verdict->check != KVB_CHECK_NONE;
}

static size_t row_count(const trial *x)
{
    return (size_t)x->scene.shape.problem.n_tok * x->scene.shape.problem.n_heads;
}

/* ---- one run of the kernel ----------------------------------------------------------------------------------- */

static void written_check(trial *x)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const size_t bytes = p->out_elem == KVB_F32 ? 4 : 2, n = row_count(x) * p->v_dim, rows = row_count(x);
    const size_t at = kvb_outputs_left(x->scene.call.out, n, bytes);
    const size_t lse = x->scene.call.lse ? kvb_outputs_left(x->scene.call.lse, rows, sizeof(float)) : rows;
    const size_t row = at < n ? at / p->v_dim : lse;
    if (at < n || lse < rows)
        kvb_call_wrong(x->verdict, KVB_CHECK_WRITTEN, "%s of query %zu, head %zu is left unwritten",
                       at < n ? "out" : "lse", row / p->n_heads, row % p->n_heads);
}

static int call_make(void *ctx)
{
    const trial *x = ctx;
    return x->kernel->attend(&x->scene.call);
}

/* Makes the call on the scene as it is, and checks what needs no oracle. */
static void kernel_run(trial *x)
{
    kvb_attend_scene *s = &x->scene;
    kvb_attend_scene_reset(s);
    kvb_attend_scene_protect(s, true);
    kvb_call_watch(&s->buffers, "attend()", call_make, x, x->kernel->flags & KVB_KERNEL_FOREIGN, x->verdict);
    kvb_attend_scene_protect(s, false);
    written_check(x);
}

/* Fills what the bits do not show, of both sides. */
static int hidden_poison(trial *x, const uint64_t *visible)
{
    kvb_attend_scene *s = &x->scene;
    const uint32_t heads = s->shape.problem.n_kv_heads;
    int error = kvb_poison_fill(&x->poison, &s->call.k, heads, kvb_attend_scene_row_bytes(s, false), visible);
    if (!error && !s->shape.problem.v_in_k)
        error = kvb_poison_fill(&x->poison, &s->call.v, heads, kvb_attend_scene_row_bytes(s, true), visible);
    return error;
}

/* ---- comparing with the oracle --------------------------------------------------------------------------------- */

static void place_words(const kvb_problem *p, const kvb_diff *diff, char *words, size_t bytes)
{
    const kvb_diff_place *at = &diff->first;
    char channel[32] = "";
    if (at->channel < p->v_dim)
        snprintf(channel, sizeof channel, ", channel %u", at->channel);
    snprintf(words, bytes,
             "%s of query %u, head %u%s is %.6g, exact %.6g, bound %.2g (%" PRIu64 " of %" PRIu64 " elements wrong)",
             at->channel < p->v_dim ? "out" : "lse", at->query, at->head, channel, at->got, at->want, at->bound,
             diff->failed, diff->elements);
}

/* Compares the query heads of one KV head of a query. */
static int rows_judge(trial *x, uint32_t t, uint32_t kv_head, kvb_diff *diff, kvb_closeness *close)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const uint32_t each = p->n_heads / p->n_kv_heads;
    const size_t bytes = p->v_dim * (p->out_elem == KVB_F32 ? sizeof(float) : sizeof(uint16_t));
    char why[256];
    int error = kvb_single_judge(x->truth, t, kv_head * each, each, diff, x->exact, why, sizeof why);
    if (error && error != -ENOMEM) {
        kvb_call_wrong(x->verdict, KVB_CHECK_DECLARATION, "%s", why);
        return 0;
    }
    for (uint32_t i = 0; i < each && !error && x->kernel->tolerance.kind; i++)
        kvb_closeness_row(close, &x->kernel->tolerance, p->out_elem,
                          (const char *)x->scene.call.out + ((size_t)t * p->n_heads + kv_head * each + i) * bytes,
                          p->v_dim, x->exact + (size_t)i * p->v_dim, 1);
    return error;
}

static void diff_tell(trial *x, const kvb_diff *diff, const kvb_closeness *close, const char *when, kvb_check check)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const kvb_tolerance *rule = &x->kernel->tolerance;
    char where[200];
    if (rule->kind) { /* its own project's rule decides */
        const double share = kvb_closeness_share(close, rule);
        if (share > 1)
            kvb_call_wrong(x->verdict, KVB_CHECK_TOLERANCE,
                           "%soutputs are off by %.3g times what its project tolerates", when, share);
        return;
    }
    x->verdict->rho = fmax(x->verdict->rho, diff->rho);
    if (!diff->any_failed)
        return;
    place_words(p, diff, where, sizeof where);
    kvb_call_wrong(x->verdict, check, "%s%s", when, where);
}

/* Are the outputs of all query heads of one KV head and query finite? They lie one behind the other. */
static bool are_finite(const trial *x, size_t set)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const size_t n = (size_t)(p->n_heads / p->n_kv_heads) * p->v_dim;
    bool finite = true;
    for (size_t i = set * n; i < (set + 1) * n; i++)
        finite &= isfinite(kvb_output_value(p->out_elem, x->scene.call.out, i)) != 0;
    return finite;
}

/* Judges the outputs that lie in the scene. Of a call that is too large a sample: first and last queries, then any. */
static int outputs_judge(trial *x, const char *when)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const uint32_t each = p->n_heads / p->n_kv_heads;
    const size_t sets = (size_t)p->n_tok * p->n_kv_heads;
    kvb_diff diff = {0};
    kvb_closeness close = {0};
    double products = 0;
    uint64_t rng = x->key, judged = 0;
    int error = 0;
    for (size_t i = 0; i < sets && products < JUDGED_PRODUCTS && !error; i++) {
        /* all in turn where there is room for all; else first, last, and others anywhere */
        const double all = (double)sets * each * (p->k_dim + p->v_dim) * p->n_cells;
        rng = kvb_rng_key(rng, i);
        const size_t at = all <= JUDGED_PRODUCTS * 4 ? i : i == 0 ? 0 : i == 1 ? sets - 1 : (rng >> 16) % sets;
        const uint32_t t = (uint32_t)(at / p->n_kv_heads);
        size_t visible = 0;
        for (size_t r = x->scene.first[t]; r < x->scene.first[t + 1]; r++)
            visible += x->scene.runs[r].end - x->scene.runs[r].begin;
        error = rows_judge(x, t, (uint32_t)(at % p->n_kv_heads), &diff, &close);
        products += (double)each * (p->k_dim + p->v_dim) * ((double)visible + 8);
        judged += each;
    }
    for (size_t at = 0; at < sets && judged < row_count(x) && !error && !diff.any_failed; at++)
        if (!are_finite(x, at)) { /* no sample holds them, perhaps */
            error = rows_judge(x, (uint32_t)(at / p->n_kv_heads), (uint32_t)(at % p->n_kv_heads), &diff, &close);
            break;
        }
    diff_tell(x, &diff, &close, when, KVB_CHECK_BOUND);
    x->verdict->rows += row_count(x);
    x->verdict->judged += judged;
    x->verdict->silent += diff.silent;
    return error;
}

/* ---- the checks, one after the other ---------------------------------------------------------------------------- */

static size_t outputs_keep(const trial *x, char *to)
{
    const kvb_attend_scene *s = &x->scene;
    const size_t lse = s->call.lse ? s->lse_bytes : 0;
    if (to) {
        memcpy(to, s->call.out, s->out_bytes);
        memcpy(to + s->out_bytes, s->call.lse ? (const void *)s->call.lse : "", lse);
    }
    return s->out_bytes + lse;
}

static bool outputs_differ(const trial *x)
{
    const kvb_attend_scene *s = &x->scene;
    return memcmp(x->before, s->call.out, s->out_bytes) ||
           (s->call.lse && memcmp(x->before + s->out_bytes, s->call.lse, s->lse_bytes));
}

/* The same call again. */
static int again_check(trial *x)
{
    kernel_run(x);
    return has_failed(x) || !outputs_differ(x) ? 0 : outputs_judge(x, "called again: ");
}

/* With another team the bits must be the same. */
static int team_check(trial *x, kvb_call_teams *teams)
{
    kvb_attend_scene *s = &x->scene;
    const kvb_team *own = s->call.team, *other = kvb_call_team(teams, own->n == 1 ? 3 : 1);
    int error = other ? kvb_attend_scene_team(s, x->kernel, other) : -ENOMEM;
    if (error)
        return error;
    kernel_run(x);
    if (outputs_differ(x))
        kvb_call_wrong(x->verdict, KVB_CHECK_DETERMINISTIC, "deterministic, but %u and %u threads give other bits",
                       own->n, other->n);
    return kvb_attend_scene_team(s, x->kernel, own);
}

/* Poisons what one query does not see, though others may. Its rows are then as they were. */
static int query_check(trial *x)
{
    const kvb_problem *p = &x->scene.shape.problem;
    const uint32_t t = (uint32_t)(kvb_rng_key(x->key, 5) >> 16) % p->n_tok;
    kvb_diff diff = {0};
    kvb_closeness close = {0};
    kvb_attend_scene_sight(&x->scene, t, x->sight);
    if (!memcmp(x->sight, x->scene.seen, kvb_attend_scene_words(&x->scene) * sizeof *x->sight))
        return 0;
    int error = hidden_poison(x, x->sight);
    if (!error)
        kernel_run(x);
    kvb_poison_restore(&x->poison);
    for (uint32_t h = 0; h < p->n_kv_heads && !error && !has_failed(x); h++)
        error = rows_judge(x, t, h, &diff, &close);
    diff_tell(x, &diff, &close, "with NaN in cells that the query does not see: ", KVB_CHECK_POISON);
    return error;
}

/* Some call of the same kernel before the one that is judged, of a larger or smaller shape. */
static int other_call(const trial *x, bool larger, kvb_call_teams *teams, char *why, size_t why_bytes)
{
    kvb_attend_shape shape = x->scene.shape;
    kvb_problem *p = &shape.problem;
    kvb_attend_scene *s = calloc(1, sizeof *s);
    const uint32_t n_tok = p->n_tok, n_cells = p->n_cells;
    p->n_tok = larger ? n_tok * 2 : (n_tok + 1) / 2;
    p->n_cells = larger ? n_cells * 2 : n_cells / 2;
    if (p->n_tok < shape.batch || p->n_cells / shape.page < shape.batch || p->n_cells < shape.front ||
        p->n_cells < p->n_tok || kvb_attend_cost(&shape) > KVB_ATTEND_COST)
        *p = x->scene.shape.problem;
    if (!s)
        return -ENOMEM;
    int error = 0;
    if (!x->kernel->supports || x->kernel->supports(p, why, why_bytes)) {
        error = kvb_attend_scene_open(&shape, x->kernel, kvb_call_team(teams, shape.threads), kvb_rng_key(x->key, 7), s,
                                      why, why_bytes);
        kvb_attend_scene_reset(s);
        if (!error)
            x->kernel->attend(&s->call);
    }
    kvb_attend_scene_close(s);
    free(s);
    return error;
}

static int trial_open(trial *x, const kvb_attend_shape *shape, const kvb_team *team, char *why, size_t why_bytes)
{
    const kvb_problem *p = &shape->problem;
    int error = kvb_attend_scene_open(shape, x->kernel, team, x->key, &x->scene, why, why_bytes);
    if (!error)
        error = kvb_single_open(&x->scene.call, x->kernel, &x->scene.rows, &x->truth, why, why_bytes);
    if (error)
        return error;
    x->sight = calloc(kvb_attend_scene_words(&x->scene) + 1, sizeof *x->sight);
    x->before = malloc(outputs_keep(x, NULL) + 1);
    x->exact = malloc((size_t)(p->n_heads / p->n_kv_heads) * p->v_dim * sizeof *x->exact);
    if (!x->sight || !x->before || !x->exact)
        return -ENOMEM;
    return 0;
}

static void trial_close(trial *x)
{
    kvb_single_free(x->truth);
    kvb_poison_free(&x->poison);
    kvb_attend_scene_close(&x->scene);
    free(x->sight);
    free(x->before);
    free(x->exact);
    free(x);
}

/* Cells that no query sees hold NaN from the start, unless the kernel's project promises nothing then. */
static int checks_run(trial *x, kvb_call_teams *teams, char *why, size_t why_bytes)
{
    const kvb_attend_shape *shape = &x->scene.shape;
    /* cells between rows that lie apart hold 0xff as it is */
    const bool finite = x->kernel->flags & KVB_KERNEL_FINITE_CELLS || shape->apart;
    const bool others = shape->order == KVB_ORDER_AFTER_LARGER || shape->order == KVB_ORDER_AFTER_SMALLER;
    int error = others ? other_call(x, shape->order == KVB_ORDER_AFTER_LARGER, teams, why, why_bytes) : 0;
    if (!error && !finite)
        error = hidden_poison(x, x->scene.seen);
    if (error)
        return error;
    kernel_run(x);
    outputs_keep(x, x->before);
    error = has_failed(x) ? 0 : outputs_judge(x, "");
    if (!error && !has_failed(x) && shape->order == KVB_ORDER_REPEATED)
        error = again_check(x);
    if (!error && !has_failed(x) && shape->problem.deterministic)
        error = team_check(x, teams);
    const bool reads_hidden = !error && !finite && x->verdict->check == KVB_CHECK_BOUND;
    kvb_poison_restore(&x->poison);
    if (reads_hidden) { /* is it right where hidden cells are finite? */
        const kvb_call_verdict wrong = *x->verdict;
        x->verdict->check = KVB_CHECK_NONE;
        kernel_run(x);
        error = has_failed(x) ? 0 : outputs_judge(x, "");
        const bool right = x->verdict->check == KVB_CHECK_NONE;
        *x->verdict = wrong;
        if (right) {
            x->verdict->check = KVB_CHECK_POISON;
            snprintf(x->verdict->words, sizeof x->verdict->words, "only with NaN in cells that no query sees: %.270s",
                     wrong.words);
        }
    }
    return error || has_failed(x) || finite ? error : query_check(x);
}

int kvb_attend_judge(const kvb_kernel *kernel, const kvb_attend_shape *shape, uint64_t key, kvb_call_teams *teams,
                     kvb_call_verdict *verdict, char *why, size_t why_bytes)
{
    const kvb_team *team = kvb_call_team(teams, shape->threads);
    trial *x = calloc(1, sizeof *x);
    *verdict = (kvb_call_verdict){.check = KVB_CHECK_NONE};
    why[0] = '\0';
    if (!x || !team) {
        free(x);
        return -ENOMEM;
    }
    *x = (trial){.kernel = kernel, .verdict = verdict, .key = key};
    int error = trial_open(x, shape, team, why, why_bytes);
    if (!error)
        error = checks_run(x, teams, why, why_bytes);
    trial_close(x);
    return error;
}

/* ---- as a subject --------------------------------------------------------------------------------------------- */

static bool subject_fits(const kvb_call_subject *s, const kvb_point *point, char *why, size_t why_bytes)
{
    kvb_attend_shape shape;
    return kvb_attend_shape_of(s->shapes, point, &shape, why, why_bytes) &&
           kvb_attend_takes(s->definition, &shape, why, why_bytes);
}

static double subject_cost(const kvb_call_subject *s, const kvb_point *point)
{
    kvb_attend_shape shape;
    char why[256];
    kvb_attend_shape_of(s->shapes, point, &shape, why, sizeof why);
    return kvb_attend_cost(&shape);
}

static uint32_t subject_mutes(const kvb_call_subject *s, const kvb_point *point)
{
    return kvb_attend_mutes(s->shapes, point);
}

static int subject_judge(const kvb_call_subject *s, const kvb_point *point, uint64_t seed, kvb_call_teams *teams,
                         kvb_call_verdict *verdict, char *why, size_t why_bytes)
{
    kvb_attend_shape shape;
    if (!kvb_attend_shape_of(s->shapes, point, &shape, why, why_bytes))
        return -EINVAL;
    return kvb_attend_judge(s->definition, &shape, kvb_point_key(s->space, point, seed), teams, verdict, why,
                            why_bytes);
}

kvb_call_subject kvb_attend_subject(const kvb_attend_space *space, const kvb_kernel *kernel)
{
    return (kvb_call_subject){.kernel = kernel->name,
                              .space = &space->space,
                              .definition = kernel,
                              .shapes = space,
                              .fits = subject_fits,
                              .cost = subject_cost,
                              .mutes = subject_mutes,
                              .judge = subject_judge};
}
