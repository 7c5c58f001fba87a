/* SPDX-License-Identifier: Apache-2.0 */
/* One way to call any kernel with any spec. Scratch and expanded masks are kept from call to call. */
#include "caches/call.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

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

/* Room for at least `bytes` in a block that the call owns; the content is not kept. */
static int block_fit(const kvb_call *call, const char *name, void **block, size_t *old_bytes, size_t bytes)
{
    void *grown;

    if (bytes <= *old_bytes)
        return 0;
    grown = kvb_memory_take(call->source, name, bytes);
    if (!grown)
        return -ENOMEM;
    kvb_memory_give(call->source, *block, *old_bytes);
    *block = grown;
    *old_bytes = bytes;
    return 0;
}

static int bits_fit(kvb_call *call, size_t words)
{
    void *block = call->bits;
    size_t bytes = call->bits_words * sizeof *call->bits;
    int rc = block_fit(call, "mask", &block, &bytes, words * sizeof *call->bits);

    call->bits = block;
    call->bits_words = bytes / sizeof *call->bits;
    return rc;
}

/* The mask as the kernel takes it. `before`: the mask handed over by the last call, for reuse. */
static int mask_bind(kvb_call *call, const kvb_mask *mask, const kvb_mask *before, uint32_t n_tok, uint32_t n_cells,
                     bool reuse)
{
    size_t row_words = ((size_t)n_cells + 63) / 64;
    int rc;

    if (call->kernel->masks & KVB_MASK_BIT(mask->kind)) {
        call->args.mask = *mask;
        return 0;
    }
    if (!row_words)
        row_words = 1; /* a query that can see nothing still has a row */
    if (reuse && call->bits && before->bits == call->bits && before->row_words == row_words) {
        call->args.mask = *before;
        return 0;
    }
    rc = bits_fit(call, n_tok * row_words);
    if (rc)
        return rc;
    kvb_mask_expand(mask, n_tok, n_cells, call->bits, row_words);
    call->args.mask = (kvb_mask){.kind = KVB_MASK_EXPLICIT, .bits = call->bits, .row_words = row_words};
    return 0;
}

int kvb_call_prepare(kvb_call *call, const kvb_attend_spec *spec, const float *q, uint32_t n_tok, bool reuse_mask,
                     char *why, size_t why_bytes)
{
    const kvb_kernel *kernel = call->kernel;
    const kvb_mask before = call->args.mask;
    bool same_shape = call->args.problem.n_tok == n_tok && call->args.problem.n_cells == spec->k.cells;
    kvb_problem problem = {
        .n_tok = n_tok,
        .n_heads = call->n_heads,
        .n_kv_heads = call->n_kv_heads,
        .k_dim = spec->k.dim,
        .v_dim = spec->v.dim,
        .n_cells = spec->k.cells,
        .scale = call->scale,
        .softcap = call->softcap,
        .has_sinks = call->sinks != NULL,
        .paged = spec->k.block_table || spec->v.block_table,
        .v_in_k = spec->v_in_k,
        .out_elem = call->out_elem,
        .mask = kernel->masks & KVB_MASK_BIT(spec->mask.kind) ? spec->mask.kind : KVB_MASK_EXPLICIT,
        .k_format = spec->k.format,
        .v_format = spec->v.format,
    };
    size_t scratch;
    int rc;

    assert(spec->k.cells == spec->v.cells);
    call->args =
        (kvb_attend){.problem = problem, .q = q, .k = spec->k, .v = spec->v, .sinks = call->sinks, .team = call->team};
    if (kernel->supports && !kernel->supports(&problem, why, why_bytes))
        return -ENOTSUP;
    rc = mask_bind(call, &spec->mask, &before, n_tok, problem.n_cells, reuse_mask && same_shape);
    if (rc == 0) {
        scratch = kernel->scratch_bytes ? kernel->scratch_bytes(&problem, call->team->n) : 0;
        rc = block_fit(call, "scratch", &call->scratch, &call->scratch_bytes, scratch);
    }
    if (rc)
        snprintf(why, why_bytes, "out of memory for the scratch or the mask of kernel %s", kernel->name);
    call->args.scratch = call->scratch;
    return rc;
}

int kvb_call_run(kvb_call *call, void *out, float *lse)
{
    call->args.out = out;
    call->args.lse = lse;
    return call->kernel->attend(&call->args);
}

void kvb_call_free(kvb_call *call)
{
    kvb_memory_give(call->source, call->scratch, call->scratch_bytes);
    kvb_memory_give(call->source, call->bits, call->bits_words * sizeof *call->bits);
    call->scratch = NULL;
    call->scratch_bytes = 0;
    call->bits = NULL;
    call->bits_words = 0;
    call->args = (kvb_attend){0};
}
