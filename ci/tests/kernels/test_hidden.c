/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: what the mask hides from a query does not reach it, NaN or infinite as it may be, though the other queries of
 * the call see it: every kernel at every level of instruction sets that this CPU has.
 */
#include "ci/tests/kernels/fixture.h"
#include "ci/tests/kernels/levels.h"
#include "kernels/kernels.h"

/* Fills a row with 0xff bytes, NaN in every format; or with infinity, as scale where the format has one. */
static void row_spoil(const kvb_view *v, uint32_t h, uint32_t c, bool infinite)
{
    const kvb_elem elem = v->format->elem;
    char *row = (char *)(uintptr_t)v->base + h * v->head_stride + c * v->cell_stride;

    if (!infinite)
        memset(row, 0xff, row_bytes(elem, v->dim));
    for (uint32_t d = 0; d < v->dim && infinite; d++)
        if (elem == KVB_Q8_0)
            elem_store(KVB_F16, row + d / 32 * 34, INFINITY);
        else if (elem != KVB_UINT8 && elem != KVB_E4M3) /* e4m3 has none */
            elem_store(elem, row + d * elem_bytes(elem), INFINITY);
    if (elem != KVB_UINT8)
        return;
    float *scale =
        (float *)(void *)((char *)(uintptr_t)v->scales + h * v->scale_head_stride + c * v->scale_cell_stride);
    float *zero = (float *)(void *)((char *)(uintptr_t)v->zeros + h * v->zero_head_stride + c * v->zero_cell_stride);
    uint16_t *recent = (uint16_t *)(uintptr_t)recent_row(v, h, c);
    *scale = *zero = infinite ? INFINITY : NAN;
    for (uint32_t d = 0; d < v->dim && recent; d++)
        elem_store(KVB_F16, recent + d, infinite ? INFINITY : NAN);
}

/* Spoils what query t does not see. */
static void hidden_spoil(struct fixture *f, uint32_t t, bool infinite)
{
    const kvb_problem *p = &f->args.problem;
    for (uint32_t c = 0; c < p->n_cells; c++)
        for (uint32_t h = 0; h < p->n_kv_heads && !f->visible[(size_t)t * p->n_cells + c]; h++) {
            row_spoil(&f->args.k, h, c, infinite);
            row_spoil(&f->args.v, h, c, infinite);
        }
}

/* Judges query t alone. */
static void query_check(struct fixture *f, const kvb_kernel *kernel, const struct shape *s, uint32_t t, bool infinite)
{
    const kvb_problem *p = &f->args.problem;
    char note[160];
    fixture_attend(f, kernel);
    snprintf(note, sizeof note, "%s, %s %s, %s cells hidden from query %u, seed %llu mask %d",
             kvb_cpu_level_names[kvb_cpu()], p->k_format->name, p->v_format->name, infinite ? "infinite" : "NaN", t,
             (unsigned long long)s->seed, (int)s->mask);
    answer_judge_rows(&f->answer, &f->args, kernel, note, (size_t)t * p->n_heads, (size_t)(t + 1) * p->n_heads);
}

static bool tries(const kvb_kernel *kernel, const kvb_problem *p)
{
    char why[160];
    return !(kernel->flags & KVB_KERNEL_WITNESS) && kernel->masks & KVB_MASK_BIT(p->mask) &&
           (kernel->flags & KVB_KERNEL_VECTOR || kvb_cpu() == KVB_CPU_PORTABLE) &&
           (!kernel->available || kernel->available(why, sizeof why)) && kernel->supports(p, why, sizeof why);
}

/* A query near the middle, all kernels one after the other on rows that are spoiled once. */
static void shape_check_hidden(const struct shape *s)
{
    struct fixture f;

    fixture_build(&f, s);
    answer_solve(&f.answer, &f.args, f.visible);
    for (int infinite = 0; infinite < 2; infinite++) {
        hidden_spoil(&f, s->n_tok / 2, infinite);
        for (int level = 0; level < KVB_CPU_LEVELS; level++) {
            if (!level_tried((kvb_cpu_level)level))
                continue;
            kvb_cpu_limit((kvb_cpu_level)level);
            for (const kvb_kernel *const *k = kvb_builtin_kernels; *k; k++)
                if (tries(*k, &f.args.problem))
                    query_check(&f, *k, s, s->n_tok / 2, infinite);
        }
        kvb_cpu_limit(KVB_CPU_LEVELS - 1);
    }
    fixture_free(&f);
}

/* Few rows in place or in a tile, and many that are packed; few tokens, and more than a tile of them. */
static void hidden_cells_do_not_reach(void **state)
{
    static const uint32_t n_tok[] = {2, 5, 66};
    static const kvb_elem elems[] = {KVB_F32,  KVB_F16,   KVB_BF16, KVB_E4M3,
                                     KVB_E5M2, KVB_UINT8, KVB_Q8_0, TEST_HADAMARD};
    (void)state;
    for (size_t e = 0; e < sizeof elems / sizeof *elems; e++)
        for (size_t i = 0; i < sizeof n_tok / sizeof *n_tok; i++)
            for (int mask = KVB_MASK_CAUSAL; mask < KVB_MASK_KINDS; mask++)
                for (uint32_t more = 0; more < 2; more++) {
                    struct shape s = {.n_tok = n_tok[i],
                                      .n_kv_heads = 2,
                                      .group = 1 + more,
                                      .k_dim = 64,
                                      .v_dim = 64,
                                      .n_cells = n_tok[i] + 150 * more + 30,
                                      .mask = (kvb_mask_kind)mask,
                                      .k_elem = elems[e],
                                      .v_elem = elems[e],
                                      .v_in_k = more && i == 1,
                                      .softcap = i == 1 ? 2.0f : 0,
                                      .any_order = more,
                                      .threads = 1 + more,
                                      .seed = 100 * e + 10 * i + 2 * (uint32_t)mask + more};
                    shape_check_hidden(&s);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hidden_cells_do_not_reach)};
    return cmocka_run_group_tests_name("hidden", tests, NULL, NULL);
}
