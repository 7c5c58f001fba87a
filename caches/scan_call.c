/* SPDX-License-Identifier: Apache-2.0 */
/* One way to call any scan kernel. Scratch is kept from call to call. */
#include "caches/scan_call.h"

#include <errno.h>
#include <stdio.h>

#include "caches/allocator.h"

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
    void **block = &call->scratch[conv];
    size_t *held = &call->scratch_bytes[conv];
    if (scratch > *held) {
        kvb_memory_give(call->source, *block, *held);
        *block = kvb_memory_take(call->source, "scratch", scratch);
        *held = *block ? scratch : 0;
        if (!*block) {
            snprintf(why, why_bytes, "out of memory for the scratch of kernel %s", call->kernel->name);
            return -ENOMEM;
        }
    }
    call->args.scratch = *block;
    return 0;
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
