/* SPDX-License-Identifier: Apache-2.0 */
/* Calls any kernel with any spec. Scratch, expanded masks and staged rows are kept from call to call. */
#include "caches/call.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "caches/allocator.h"

void kvb_bits_set(uint64_t *row, uint32_t begin, uint32_t end)
{
    for (uint32_t c = begin; c < end;) {
        uint32_t low = c % 64, n = end - c < 64 - low ? end - c : 64 - low;
        row[c / 64] |= (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1) << low;
        c += n;
    }
}

void kvb_mask_expand(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint64_t *bits, size_t row_words)
{
    assert(row_words >= ((size_t)n_cells + 63) / 64);
    memset(bits, 0, n_tok * row_words * sizeof *bits);
    for (uint32_t t = 0; t < n_tok; t++) {
        uint32_t cursor = 0;
        kvb_run run;
        while (kvb_mask_next(mask, n_tok, n_cells, t, &cursor, &run))
            kvb_bits_set(bits + t * row_words, run.begin, run.end);
    }
}

/* Makes a block of a call at least `bytes` long; its content is lost. */
static int block_fit(const kvb_memory_source *source, const char *name, void **block, size_t *old_bytes, size_t bytes)
{
    if (bytes <= *old_bytes)
        return 0;
    void *grown = kvb_memory_take(source, name, bytes);
    if (!grown)
        return -ENOMEM;
    kvb_memory_give(source, *block, *old_bytes);
    *block = grown;
    *old_bytes = bytes;
    return 0;
}

/* The group's place for its expanded mask, or a free one. There is one for each group of a model. */
static kvb_expanded *expanded_of(kvb_call *call, const kvb_group *group)
{
    kvb_expanded *e = call->expanded;
    while (e < call->expanded + KVB_MODEL_GROUPS - 1 && e->group && e->group != group)
        e++;
    if (e->group != group)
        e->generation = 0;
    e->group = group;
    return e;
}

/* The kind of mask that the kernel gets in place of this one. */
static kvb_mask_kind kind_taken(const kvb_kernel *kernel, kvb_mask_kind kind)
{
    const bool runs = kind == KVB_MASK_PAGES && kernel->masks & KVB_MASK_BIT(KVB_MASK_RUNS);
    return kernel->masks & KVB_MASK_BIT(kind) ? kind : runs ? KVB_MASK_RUNS : KVB_MASK_EXPLICIT;
}

/* Makes e->mask in e->block, of e->mask.kind: 0 or -ENOMEM. */
static int mask_turn(kvb_call *call, kvb_expanded *e, const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells)
{
    const bool to_runs = e->mask.kind == KVB_MASK_RUNS;
    const size_t row_words = n_cells ? ((size_t)n_cells + 63) / 64 : 1, held = e->bytes;
    size_t n_runs = 0, starts = (((size_t)n_tok + 2) / 2) * sizeof(kvb_run);
    for (uint32_t t = 0; t < n_tok && to_runs; t++) {
        uint32_t cursor = 0;
        for (kvb_run run; kvb_mask_next(mask, n_tok, n_cells, t, &cursor, &run);)
            n_runs++;
    }
    int rc = block_fit(call->source, "mask", &e->block, &e->bytes,
                       to_runs ? starts + n_runs * sizeof(kvb_run) : n_tok * row_words * sizeof(uint64_t));
    call->expanded_bytes += e->bytes - held;
    if (rc)
        return rc;
    if (!to_runs) {
        kvb_mask_expand(mask, n_tok, n_cells, e->block, row_words);
        e->mask = (kvb_mask){.kind = KVB_MASK_EXPLICIT, .bits = e->block, .row_words = row_words};
        return 0;
    }
    uint32_t *start = e->block, n = 0;
    kvb_run *runs = (kvb_run *)(void *)((char *)e->block + starts);
    for (uint32_t t = 0; t < n_tok; t++) {
        uint32_t cursor = 0;
        start[t] = n;
        for (kvb_run run; kvb_mask_next(mask, n_tok, n_cells, t, &cursor, &run);)
            runs[n++] = run;
    }
    start[n_tok] = n;
    e->mask = (kvb_mask){.kind = KVB_MASK_RUNS, .row_start = start, .runs = runs};
    return 0;
}

/* Gives the call the mask in a kind that the kernel takes. */
static int mask_bind(kvb_call *call, const kvb_attend_spec *spec, uint32_t n_tok, uint32_t n_cells)
{
    const kvb_mask_kind kind = kind_taken(call->kernel, spec->mask.kind);
    if (kind == spec->mask.kind) {
        call->args.mask = spec->mask;
        return 0;
    }
    kvb_expanded *e = expanded_of(call, spec->group);
    if (e->generation != spec->generation || e->generation == 0 || e->mask.kind != kind) {
        e->generation = 0;
        e->mask.kind = kind;
        int rc = mask_turn(call, e, &spec->mask, n_tok, n_cells);
        if (rc)
            return rc;
        e->generation = spec->generation;
    }
    call->args.mask = e->mask;
    return 0;
}

/* ---- staging ------------------------------------------------------------------------------------------------- */

static void staged_read(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(rows + (size_t)i * view->dim, kvb_view_row(view, h, c + i), view->dim * sizeof *rows);
}

const kvb_format kvb_format_staged = {.name = "f32", .elem = KVB_F32, .read = staged_read};

/* Would staging change rows of this format? */
static bool format_stages(const kvb_format *f)
{
    return f->read && (f->elem != KVB_F32 || f->transform);
}

/* Finds the fewest sides to stage so that the kernel takes the problem, K first. Both sides if the views have fronts
 * and the kernel does not read two regions. 0 or -ENOTSUP. */
static int stage_choose(kvb_call *call, kvb_problem *problem, bool fronts, char *why, size_t why_bytes)
{
    const kvb_kernel *kernel = call->kernel;
    const bool joins = fronts && !(kernel->flags & KVB_KERNEL_FRONTS);
    const kvb_format *kf = problem->k_format, *vf = problem->v_format;
    char other[256] = ""; /* unused: why keeps the reason against the rows as stored */

    if (!joins && (!kernel->supports || kernel->supports(problem, why, why_bytes)))
        return 0;
    if (joins)
        snprintf(why, why_bytes, "kernel %s reads no rows in two regions", kernel->name);
    if (kernel->flags & KVB_KERNEL_WITNESS) /* rows that it refuses are illegible, also when decoded */
        return -ENOTSUP;
    for (int sides = joins ? 3 : 1; sides <= 3; sides++) {
        bool k = sides & 1, v = sides & 2;
        kvb_problem staged = *problem;
        staged.k_format = k ? &kvb_format_staged : staged.k_format;
        staged.v_format = v ? &kvb_format_staged : staged.v_format;
        if ((!joins && ((k && !format_stages(kf)) || (v && !format_stages(vf)))) || (problem->v_in_k && k != v) ||
            (kernel->supports && !kernel->supports(&staged, other, sizeof other)))
            continue;
        if (call->no_staging && joins)
            return -ENOTSUP;
        if (call->no_staging) {
            const char *k_name = staged.k_format->name, *v_name = staged.v_format->name;
            bool two = k && v && kf != vf, same = strcmp(k_name, v_name) == 0;
            snprintf(why, why_bytes, "kernel %s reads no %s%s%s rows and staging is off; --pool %s%s%s%s would work",
                     kernel->name, k ? kf->name : vf->name, two ? " and " : "", two ? vf->name : "",
                     same ? "" : "k=", k_name, same ? "" : ",v=", same ? "" : v_name);
            return -ENOTSUP;
        }
        call->staged_k = k;
        call->staged_v = v;
        *problem = staged;
        return 0;
    }
    if (!*why)
        snprintf(why, why_bytes, "its supports() declines the problem, and gives no reason");
    return -ENOTSUP;
}

/* Are V's rows decoded by themselves? Latent ones are the beginning of K's. */
static bool stages_v(const kvb_call *call)
{
    return call->staged_v && !call->args.problem.v_in_k;
}

/* Decodes part i of n of the chosen sides: the rows of all heads, one after the other, are cut into n equal parts. */
static void stage_part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_call *call = ctx;
    const kvb_view *const views[] = {&call->args.k, &call->args.v};
    float *const to[] = {call->staged_k ? call->stage_k : NULL, stages_v(call) ? call->stage_v : NULL};
    for (int s = 0; s < 2; s++) {
        const kvb_view *view = views[s];
        uint64_t rows = (uint64_t)call->args.problem.n_kv_heads * view->cells, end = rows * (i + 1) / n;
        for (uint64_t row = rows * i / n, some; to[s] && row < end; row += some) {
            uint32_t h = (uint32_t)(row / view->cells), c = (uint32_t)(row % view->cells);
            some = end - row < view->cells - c ? end - row : view->cells - c;
            kvb_view_read(view, h, c, (uint32_t)some, to[s] + row * view->dim);
        }
    }
}

/* Makes room for the rows of a view. A block grows by at least a quarter, since contexts grow token by token. */
static int stage_fit(kvb_call *call, const char *name, void **block, size_t *held, const kvb_view *view)
{
    size_t bytes = (size_t)call->args.problem.n_kv_heads * view->cells * view->dim * sizeof(float);
    if (bytes > *held && bytes < *held + *held / 4)
        bytes = *held + *held / 4;
    int rc = block_fit(call->source, name, block, held, bytes);
    call->staged_bytes = call->stage_k_bytes + call->stage_v_bytes;
    return rc;
}

static void view_stage(kvb_view *view, const void *rows)
{
    size_t row = view->dim * sizeof(float);
    *view = (kvb_view){.base = rows,
                       .head_stride = view->cells * row,
                       .cell_stride = row,
                       .cells = view->cells,
                       .dim = view->dim,
                       .format = &kvb_format_staged};
}

/* Decodes the chosen sides and points the call's views at the decoded rows. */
static int rows_stage(kvb_call *call, const kvb_attend_spec *spec)
{
    bool latent = spec->group->latent, own_v = stages_v(call);
    int rc = 0;

    call->k_roundings = call->staged_k ? kvb_format_roundings(spec->k.format, spec->k.dim) : 0;
    call->v_roundings = call->staged_v ? kvb_format_roundings(spec->v.format, latent ? spec->k.dim : spec->v.dim) : 0;
    if (call->staged_k)
        rc = stage_fit(call, "staged K rows", &call->stage_k, &call->stage_k_bytes, &spec->k);
    if (own_v && rc == 0)
        rc = stage_fit(call, "staged V rows", &call->stage_v, &call->stage_v_bytes, &spec->v);
    if (rc)
        return rc;
    if (spec->k.cells && (call->staged_k || own_v)) /* a question about no cells has no team */
        call->team->run(call->team, stage_part, call);
    if (call->staged_k)
        view_stage(&call->args.k, call->stage_k);
    if (own_v)
        view_stage(&call->args.v, call->stage_v);
    if (latent && call->staged_k) { /* V is the beginning of K's decoded row */
        call->args.v = call->args.k;
        call->args.v.dim = spec->v.dim;
    }
    return 0;
}

/* ---- calls --------------------------------------------------------------------------------------------------- */

int kvb_call_prepare(kvb_call *call, const kvb_attend_spec *spec, const float *q, uint32_t n_tok, char *why,
                     size_t why_bytes)
{
    const kvb_kernel *kernel = call->kernel;
    const kvb_group *group = spec->group;
    kvb_problem problem = {
        .n_tok = n_tok,
        .n_heads = group->heads,
        .n_kv_heads = group->kv_heads,
        .k_dim = spec->k.dim,
        .v_dim = spec->v.dim,
        .n_cells = spec->k.cells,
        .scale = (float)group->scale,
        .softcap = group->softcap,
        .has_sinks = group->sink_logits != NULL,
        .v_in_k = group->latent,
        .out_elem = call->out_elem,
        .mask = kind_taken(kernel, spec->mask.kind),
        .k_format = spec->k.format,
        .v_format = spec->v.format,
        .deterministic = call->deterministic,
    };
    size_t scratch;
    int rc;

    assert(spec->k.cells == spec->v.cells);
    call->args = (kvb_attend){
        .problem = problem, .q = q, .k = spec->k, .v = spec->v, .sinks = group->sink_logits, .team = call->team};
    call->staged_k = call->staged_v = false;
    rc = stage_choose(call, &problem, spec->k.front, why, why_bytes);
    if (rc)
        return rc;
    call->args.problem = problem;
    rc = mask_bind(call, spec, n_tok, problem.n_cells);
    if (rc == 0) {
        scratch = kernel->scratch_bytes ? kernel->scratch_bytes(&problem, call->team->n) : 0;
        rc = block_fit(call->source, "scratch", &call->scratch, &call->scratch_bytes, scratch);
    }
    if (rc == 0)
        rc = rows_stage(call, spec);
    if (rc)
        snprintf(why, why_bytes, "out of memory for the scratch, the mask or the staged rows of kernel %s",
                 kernel->name);
    call->args.scratch = call->scratch;
    return rc;
}

int kvb_call_run(kvb_call *call, void *out, float *lse)
{
    call->args.out = out;
    call->args.lse = call->kernel->flags & KVB_KERNEL_NO_LSE ? NULL : lse;
    return call->kernel->attend(&call->args);
}

void kvb_call_free(kvb_call *call)
{
    kvb_memory_give(call->source, call->scratch, call->scratch_bytes);
    for (uint32_t g = 0; g < KVB_MODEL_GROUPS; g++)
        kvb_memory_give(call->source, call->expanded[g].block, call->expanded[g].bytes);
    kvb_memory_give(call->source, call->stage_k, call->stage_k_bytes);
    kvb_memory_give(call->source, call->stage_v, call->stage_v_bytes);
    call->scratch = call->stage_k = call->stage_v = NULL;
    call->scratch_bytes = call->stage_k_bytes = call->stage_v_bytes = call->staged_bytes = 0;
    memset(call->expanded, 0, sizeof call->expanded);
    call->expanded_bytes = 0;
    call->args = (kvb_attend){0};
}

void kvb_call_arithmetic(const kvb_call *call, kvb_arithmetic *arithmetic)
{
    call->kernel->arithmetic(&call->args.problem, arithmetic);
    arithmetic->dot_chain += call->k_roundings;
    arithmetic->cell_chain += call->v_roundings;
}

/* ---- scan kernels; scratch is kept from call to call ------------------------------------------------------------- */

kvb_scan_problem kvb_scan_call_problem(const kvb_group_scan *s, bool conv, kvb_elem out_elem, uint32_t n_tok,
                                       uint32_t run)
{
    return (kvb_scan_problem){.kind = conv ? KVB_SCAN_CONV : s->kind,
                              .n_tok = n_tok,
                              .run = run,
                              .heads = conv ? 1 : s->heads,
                              .groups = conv ? 1 : s->groups,
                              .d_k = conv ? s->conv_width - 1 : s->d_k,
                              .d_v = conv ? s->conv_channels : s->d_v,
                              .state_elem = conv ? s->conv_elem : s->state_elem,
                              .out_elem = conv ? KVB_F32 : out_elem,
                              .silu = conv && s->silu};
}

int kvb_scan_call_prepare(kvb_scan_call *call, const kvb_scan_spec *spec, bool conv, const kvb_scan *inputs, char *why,
                          size_t why_bytes)
{
    const kvb_scan_face *face = call->kernel->scan;
    call->args = *inputs;
    call->args.from = spec->from;
    call->args.to = spec->to;
    call->args.states = conv ? spec->conv : spec->states;
    call->args.team = call->team;
    call->args.problem = kvb_scan_call_problem(&spec->group->scan, conv, call->out_elem, spec->n_tok, 1);
    kvb_scan_problem *problem = &call->args.problem;
    for (uint32_t t = 0, end; t < spec->n_tok; t = end) {
        end = kvb_scan_run_end(&call->args, t);
        problem->run = problem->run > end - t ? problem->run : end - t;
    }
    if (!face->supports(problem, why, why_bytes))
        return -ENOTSUP;
    const size_t scratch = face->scratch_bytes ? face->scratch_bytes(problem, call->team->n) : 0;
    const int rc = block_fit(call->source, "scratch", &call->scratch[conv], &call->scratch_bytes[conv], scratch);
    if (rc)
        snprintf(why, why_bytes, "out of memory for the scratch of kernel %s", call->kernel->name);
    call->args.scratch = call->scratch[conv];
    return rc;
}

int kvb_scan_call_run(kvb_scan_call *call, void *out)
{
    call->args.out = out;
    return call->kernel->scan->scan(&call->args);
}

void kvb_scan_call_free(kvb_scan_call *call)
{
    for (int i = 0; i < 2; i++) {
        kvb_memory_give(call->source, call->scratch[i], call->scratch_bytes[i]);
        call->scratch[i] = NULL;
        call->scratch_bytes[i] = 0;
    }
}
