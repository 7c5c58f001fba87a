/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: every scan kernel, and the example plug-in built from the two public headers, computes every recurrence, with
 * states and outputs of every type, at every level of instruction sets, within the oracle's bound, and writes nothing
 * else. Prompts, decoding in place, forks, snapshots and trees are mixed in one call. Neither the size of the team nor
 * the way in which outputs are stored changes a bit.
 */
#include <dlfcn.h>

#include "ci/tests/tests.h"
#include "ci/tests/whole/scan_rig.h"
#include "ci/tests/kernels/levels.h"

enum { SLOTS = 12, MOST = 200, CALLS = 3 };

static const kvb_elem plain[] = {KVB_F32, KVB_F16, KVB_BF16};

static const kvb_scan_problem shapes[] = {
    {.heads = 1, .groups = 1, .d_k = 16, .d_v = 80}, {.heads = 4, .groups = 1, .d_k = 16, .d_v = 64},
    {.heads = 6, .groups = 3, .d_k = 64, .d_v = 16}, {.heads = 2, .groups = 2, .d_k = 80, .d_v = 48},
    {.heads = 6, .groups = 3, .d_k = 3, .d_v = 5},
};

/* Draws the tokens of a call: sequences that begin and end in any slot, or in none. */
static uint32_t history_draw(scan_rig *r)
{
    uint32_t n = 1 + rig_below(r, rig_below(r, 3) ? 12 : MOST), keep = rig_below(r, 4);
    for (uint32_t t = 0; t < n; t++) {
        uint32_t slot = rig_below(r, SLOTS);
        bool begins = t == 0 || rig_below(r, keep ? 64 : 2) == 0;
        r->from[t] = !begins ? KVB_SCAN_PREVIOUS : KVB_SCAN_ZERO;
        for (uint32_t earlier = 0; begins && earlier < t; earlier++)
            if (r->to[earlier] == slot)
                r->from[t] = slot; /* a node of a tree */
        if (begins && r->written[slot])
            r->from[t] = slot;
        r->to[t] = rig_below(r, keep == 1 ? 2 : 40) == 0 || t + 1 == n ? rig_below(r, SLOTS) : KVB_SCAN_NONE;
        if (begins && r->from[t] == slot && rig_below(r, 2))
            r->to[t] = slot; /* in place */
    }
    return n;
}

static void kernel_check(const kvb_kernel *kernel, const kvb_scan_problem *p, uint64_t seed)
{
    scan_rig r;
    rig_open(&r, kernel, p, SLOTS, seed);
    for (int call = 0; call < CALLS; call++) {
        const uint32_t n = history_draw(&r);
        rig_call(&r, n, (uint32_t)call % 3, NULL);
        rig_untouched(&r, n);
        if (!(r.rho_out <= 1 && r.rho_state <= 1 && r.worst <= 1))
            fail_msg("%s, %s, heads %u of %u x %u, %u tokens: rho %g of out, %g of the state", kernel->name,
                     kvb_scan_kind_name(p->kind), p->heads, p->d_k, p->d_v, n, r.rho_out, r.rho_state);

        /* the same call by another team, over the same slots */
        const size_t bytes = (size_t)n * p->heads * p->d_v * kvb_elem_bytes(p->out_elem);
        const size_t all = r.slots * r.args.states.slot_bytes;
        char *out = rig_memory(bytes), *slots = rig_memory(all);
        memcpy(out, r.args.out, bytes);
        memcpy(slots, r.args.states.base, all);
        memcpy(r.args.states.base, r.before, all);
        r.args.team = &rig_teams[(call + 1) % 3];
        assert_int_equal(kernel->scan->scan(&r.args), 0);
        assert_memory_equal(out, r.args.out, bytes);
        assert_memory_equal(slots, r.args.states.base, all);
        free(out);
        free(slots);
    }
    rig_close(&r);
}

/* Checks every recurrence, types and shape that the kernel takes; returns their number. half: any two of them meet. */
static uint32_t problems_check(const kvb_kernel *kernel, bool half)
{
    char why[128];
    uint32_t taken = 0;
    for (uint32_t i = 0; i < KVB_SCAN_KINDS * 9 * 5; i++) {
        kvb_scan_problem p = shapes[i / KVB_SCAN_KINDS / 9];
        if (half && (i / KVB_SCAN_KINDS / 9 + i / KVB_SCAN_KINDS % 9 + i % KVB_SCAN_KINDS) % 2)
            continue;
        p.n_tok = p.run = MOST;
        p.kind = (kvb_scan_kind)(i % KVB_SCAN_KINDS);
        p.state_elem = plain[i / KVB_SCAN_KINDS % 3];
        p.out_elem = plain[i / KVB_SCAN_KINDS / 3 % 3];
        p.silu = i % 2;
        if (p.kind == KVB_SCAN_CONV || p.kind == KVB_SCAN_MAMBA1)
            p.heads = p.groups = 1;
        if (p.kind == KVB_SCAN_CONV)
            p.d_k = 1 + i % 4;
        if (!kernel->scan->supports(&p, why, sizeof why))
            continue;
        kernel_check(kernel, &p, i);
        taken++;
    }
    return taken;
}

TEST(kernels_are_right)
{
    for (const kvb_kernel *const *kernel = scan_kernels; *kernel; kernel++)
        for (int level = 0; level < ((*kernel)->flags & KVB_KERNEL_VECTOR ? KVB_CPU_LEVELS : 1); level++) {
            if (!level_tried((kvb_cpu_level)level))
                continue;
            kvb_cpu_limit((kvb_cpu_level)level);
            assert_true(problems_check(*kernel, level > 0) >= KVB_SCAN_KINDS * 9 * (level ? 2 : 4));
        }
    kvb_cpu_limit(KVB_CPU_LEVELS - 1);
}

/* Large outputs at a cache line are stored past the CPU's caches, others are not: the bits are the same. */
static void large_check(const kvb_scan_problem *p)
{
    const size_t rows = (size_t)p->n_tok * p->d_k, values = (size_t)p->n_tok * p->heads * p->d_v,
                 held = (size_t)p->heads * p->d_k * p->d_v, decays = 4 * (size_t)p->heads * p->d_v;
    float *q = rig_memory(rows * sizeof *q), *v = rig_memory(values * sizeof *v), *a = rig_memory(decays * sizeof *a);
    float *slot = rig_memory(held * sizeof *slot), *out[] = {rig_memory(values * sizeof **out), NULL};
    float *beside = rig_memory((values + 16) * sizeof *beside);
    uint32_t *from = rig_memory(p->n_tok * sizeof *from), *to = rig_memory(p->n_tok * sizeof *to);
    kvb_scan args = {.problem = *p, .q = q, .k = q, .v = v, .a = a, .from = from, .to = to, .team = &rig_teams[1]};
    out[1] = beside + 4;
    for (size_t i = 0; i < values; i++)
        v[i] = (float)(i * 2654435761u % 1000) - 500;
    memcpy(q, v, rows * sizeof *q);
    for (size_t i = 0; i < decays; i++)
        a[i] = -0.01f * (float)(i % 64);
    for (uint32_t t = 0; t < p->n_tok; t++)
        from[t] = t ? KVB_SCAN_PREVIOUS : KVB_SCAN_ZERO, to[t] = t + 1 < p->n_tok ? KVB_SCAN_NONE : 0;
    args.states = (kvb_scan_states){slot, held * sizeof *slot, 1};
    args.scratch = rig_memory(kvb_kernel_scan.scan->scratch_bytes(p, args.team->n));
    for (int level = 0; level < KVB_CPU_LEVELS; level++) {
        if (!level_tried((kvb_cpu_level)level))
            continue;
        kvb_cpu_limit((kvb_cpu_level)level);
        for (uint32_t i = 0; i < 2; i++) {
            memset(out[i], 0xff, values * sizeof **out);
            args.out = out[i];
            assert_int_equal(kvb_kernel_scan.scan->scan(&args), 0);
        }
        assert_memory_equal(out[0], out[1], values * sizeof **out);
    }
    kvb_cpu_limit(KVB_CPU_LEVELS - 1);
    free(q), free(v), free(a), free(slot), free(out[0]), free(beside), free(from), free(to), free(args.scratch);
}

TEST(large_outputs_are_the_same)
{
    enum { TOKENS = 1030 };
    large_check(&(kvb_scan_problem){KVB_SCAN_LIGHTNING, TOKENS, TOKENS, 64, 1, 16, 64, KVB_F32, KVB_F32, false});
    large_check(&(kvb_scan_problem){KVB_SCAN_CONV, TOKENS, TOKENS, 1, 1, 3, 4096, KVB_F32, KVB_F32, true});
}

TEST(the_example_is_right)
{
    char line[3000];
    if (!level_tried(KVB_CPU_PORTABLE)) /* the plug-in has no other level */
        skip();
    const char *folder = tests_folder();
    snprintf(line, sizeof line,
             "cp kernels/view.h kernels/attend.h kernels/scan.h kernels/example-plugin/running.c '%s' && "
             "env -u MAKEFLAGS -u MFLAGS make -s -C '%s' -f \"$PWD/kernels/example-plugin/Makefile\" KVB_INCLUDE=. "
             "running.so",
             folder, folder);
    assert_int_equal(system(line), 0);
    void *object = dlopen(tests_path("%s/running.so", folder), RTLD_NOW | RTLD_LOCAL);
    assert_non_null(object);
    const kvb_plugin_v1 *plugin = dlsym(object, KVB_PLUGIN_SYMBOL);
    assert_non_null(plugin);
    assert_int_equal(plugin->abi_version, KVB_ABI_VERSION);
    assert_null(plugin->kernels[0]->attend);
    assert_int_equal(problems_check(plugin->kernels[0], false), 2 * 5);
    dlclose(object);
}

TEST(what_is_no_problem_is_refused)
{
    const kvb_scan_problem good = {KVB_SCAN_MAMBA2, 1, 1, 4, 2, 16, 16, KVB_F32, KVB_F32, false};
    char why[128];
    for (const kvb_kernel *const *kernel = scan_kernels; *kernel; kernel++)
        for (int bad = 0; bad < 6; bad++) {
            kvb_scan_problem p = good;
            assert_true((*kernel)->scan->supports(&p, why, sizeof why));
            p.kind = bad == 0 ? KVB_SCAN_KINDS : bad == 1 ? KVB_SCAN_CONV : p.kind;
            p.state_elem = bad == 2 ? KVB_INT8 : p.state_elem;
            p.out_elem = bad == 3 ? KVB_E4M3 : p.out_elem;
            p.groups = bad == 4 ? 3 : bad == 5 ? 0 : p.groups;
            why[0] = '\0';
            assert_false((*kernel)->scan->supports(&p, why, sizeof why));
            assert_true(strlen(why) > 0);
        }
}
