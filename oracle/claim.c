/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that are too wide: oracle/claim.h. */
#include "oracle/claim.h"
#include "workloads/files.h"

#include <errno.h>
#include <math.h>

#define PLAIN_BOUNDS     4
#define QUERY_STEP       (1.0 / 64)
#define SUMS_STEP        (1.0 / 32)
#define QUERY_FLOOR      0x1p-8
#define FLOOR            0x1p-10
#define NARROW_SUM_ERROR (1.0 / 16)
#define EXP_ERROR        0x1p-8
#define EXP_FLOOR        0x1p-24
#define CHAIN_FACTOR     4
#define CHAIN_OWN        256

/* Every field that widens a bound: a name here, the name in messages. */
#define FIELDS_OF(F)                                                                                                   \
    F(ACCUMULATOR, "accumulator")                                                                                      \
    F(DOT_CHAIN, "dot_chain")                                                                                          \
    F(CELL_CHAIN, "cell_chain")                                                                                        \
    F(RESCALES, "rescales")                                                                                            \
    F(EXP_ERROR_OF, "exp_error")                                                                                       \
    F(EXP_FLOOR_OF, "exp_floor")                                                                                       \
    F(QUERY_ROUNDING, "query.rounding")                                                                                \
    F(QUERY_STEP_OF, "query.step")                                                                                     \
    F(QUERY_FLOOR_OF, "query.floor")                                                                                   \
    F(SCORES_ROUNDING, "scores.rounding")                                                                              \
    F(SCORES_CHAIN, "scores.chain")                                                                                    \
    F(SCORES_FLOOR, "scores.floor")                                                                                    \
    F(SUMS_ROUNDING, "sums.rounding")                                                                                  \
    F(SUMS_CHAIN, "sums.chain")                                                                                        \
    F(SUMS_STEP_OF, "sums.step")                                                                                       \
    F(SUMS_FLOOR, "sums.floor")
#define NUMBER(field, name) field,
#define NAME(field, name)   name,
typedef enum field { FIELDS_OF(NUMBER) FIELDS } field;
static const char *const names[FIELDS] = {FIELDS_OF(NAME)};

/* ---- values that make no sense ----------------------------------------------------------------------------------- */

static const char no_meaning[] = "arithmetic() declares impossible values";

int kvb_claim_check(const kvb_arithmetic *a, char *why, size_t why_bytes)
{
    const struct {
        const char *name;
        double value, below;
    } numbers[] = {
        {"exp_error", a->exp_error, 1},     {"query.step", a->query.step, 1},     {"query.floor", a->query.floor, 1},
        {"scores.step", a->scores.step, 1}, {"scores.floor", a->scores.floor, 1}, {"sums.step", a->sums.step, 1},
        {"sums.floor", a->sums.floor, 1},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value >= 0 && numbers[i].value < numbers[i].below))
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: %s is %g: expected 0 at least, and less than %g",
                               no_meaning, numbers[i].name, numbers[i].value, numbers[i].below);
    if (!(a->exp_floor >= 0 && a->exp_floor <= EXP_FLOOR))
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: exp_floor is %g: expected 0 at least, and 2^-24 at most",
                           no_meaning, a->exp_floor);
    if (a->accumulator == KVB_F32 || a->accumulator == KVB_F16 || a->accumulator == KVB_BF16)
        return 0;
    return kvb_why_set(-EINVAL, why, why_bytes, "%s: accumulator is element %d: expected KVB_F32, KVB_F16 or KVB_BF16",
                       no_meaning, (int)a->accumulator);
}

int kvb_claim_check_scan(const kvb_scan_arithmetic *a, const kvb_scan_problem *p, char *why, size_t why_bytes)
{
    const uint32_t chunk = a->chunk < p->run ? a->chunk : p->run;
    const double chain = CHAIN_FACTOR * ((double)p->d_k + p->d_v + chunk) + CHAIN_OWN;
    const struct {
        const char *name;
        double value, least, most;
    } numbers[] = {
        {"chunk", a->chunk, 1, UINT32_MAX},
        {"state_chain", a->state_chain, 0, chain},
        {"read_chain", a->read_chain, 0, chain},
        {"solve_chain", a->solve_chain, 0, chain},
        {"exponent_chain", a->exponent_chain, 0, chain},
        {"exp_error", a->exp_error, 0, EXP_ERROR},
        {"exp_floor", a->exp_floor, 0, EXP_FLOOR},
        {"the unit roundoff of carried", kvb_unit_roundoff(a->carried), 0x1p-24, kvb_unit_roundoff(KVB_BF16)},
        {"the unit roundoff of operands", kvb_unit_roundoff(a->operands), 0x1p-24, kvb_unit_roundoff(KVB_E4M3)},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most))
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: %s is %g: expected %g to %g", no_meaning, numbers[i].name,
                               numbers[i].value, numbers[i].least, numbers[i].most);
    return 0;
}

/* ---- what arithmetic in 8 or 16 bits needs ----------------------------------------------------------------------- */

static uint32_t number_cut(double *number, double most, field of)
{
    if (*number <= most)
        return 0;
    *number = most;
    return 1u << of;
}

static uint32_t chain_cut(uint32_t *chain, double most, field of)
{
    if (*chain <= most)
        return 0;
    *chain = (uint32_t)most;
    return 1u << of;
}

static uint32_t elem_cut(kvb_elem *elem, kvb_elem coarsest, field of)
{
    if (kvb_unit_roundoff(*elem) <= kvb_unit_roundoff(coarsest))
        return 0;
    *elem = coarsest;
    return 1u << of;
}

/* The chain in a narrow type with a statistical error of NARROW_SUM_ERROR. */
static double narrow_chain(kvb_elem elem)
{
    const double u = kvb_unit_roundoff(elem), root = NARROW_SUM_ERROR / (KVB_LAMBDA * u);
    return u > 0 ? fmax(1, root * root) : 0;
}

uint32_t kvb_claim_cut(kvb_arithmetic *a, uint32_t k_dim, uint32_t cells)
{
    uint32_t cut = elem_cut(&a->accumulator, KVB_F32, ACCUMULATOR);
    cut |= chain_cut(&a->dot_chain, CHAIN_FACTOR * (double)k_dim + CHAIN_OWN, DOT_CHAIN);
    cut |= chain_cut(&a->cell_chain, CHAIN_FACTOR * (double)cells + CHAIN_OWN, CELL_CHAIN);
    cut |= number_cut(&a->exp_error, EXP_ERROR, EXP_ERROR_OF);
    cut |= number_cut(&a->exp_floor, EXP_FLOOR, EXP_FLOOR_OF);
    const double each = a->exp_error + kvb_unit_roundoff(a->accumulator);
    cut |= chain_cut(&a->rescales, fmin((double)cells + CHAIN_OWN, NARROW_SUM_ERROR / each), RESCALES);
    cut |= elem_cut(&a->query.rounding, KVB_BF16, QUERY_ROUNDING);
    cut |= number_cut(&a->query.step, QUERY_STEP, QUERY_STEP_OF);
    cut |= number_cut(&a->query.floor, QUERY_FLOOR, QUERY_FLOOR_OF);
    cut |= elem_cut(&a->scores.rounding, KVB_BF16, SCORES_ROUNDING);
    cut |= chain_cut(&a->scores.chain, narrow_chain(a->scores.rounding), SCORES_CHAIN);
    cut |= number_cut(&a->scores.floor, FLOOR, SCORES_FLOOR);
    cut |= elem_cut(&a->sums.rounding, KVB_E4M3, SUMS_ROUNDING);
    cut |= chain_cut(&a->sums.chain, narrow_chain(a->sums.rounding), SUMS_CHAIN);
    cut |= number_cut(&a->sums.step, SUMS_STEP, SUMS_STEP_OF);
    cut |= number_cut(&a->sums.floor, FLOOR, SUMS_FLOOR);
    return cut;
}

bool kvb_claim_cut_told(kvb_rounding *query)
{
    return number_cut(&query->step, QUERY_STEP, QUERY_STEP_OF) |
           number_cut(&query->floor, QUERY_FLOOR, QUERY_FLOOR_OF) |
           elem_cut(&query->rounding, KVB_E5M2, QUERY_ROUNDING);
}

void kvb_claim_words(uint32_t fields, char *words, size_t bytes)
{
    *words = '\0';
    for (uint32_t i = 0; i < FIELDS; i++)
        if (fields >> i & 1)
            kvb_list_add(words, bytes, ", ", "%s", names[i]);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The wrong outputs that pass within `bounds` times this declaration's bound. */
static uint32_t passing_by(const kvb_arithmetic *a, const kvb_expect *e, uint32_t v_dim, double scale, double softcap,
                           kvb_elem out_elem, double bounds)
{
    kvb_bound_factors factors;
    uint32_t passing = KVB_CLAIM_OTHERS;
    kvb_bound_prepare(a, KVB_BOUND_STATISTICAL, &e->row, scale, softcap, out_elem, &factors);
    for (uint32_t c = 0; c < v_dim && passing; c++)
        passing = kvb_claim_passing(passing, &e->terms[c], bounds * kvb_bound_channel(&factors, &e->terms[c]));
    return passing;
}

void kvb_claim_row(kvb_claim *claim, uint32_t passing, const kvb_expect *e, uint32_t v_dim, const kvb_arithmetic *a,
                   double scale, double softcap, kvb_elem out_elem)
{
    const uint32_t k_dim = claim->k_dim;
    const kvb_arithmetic plain = {.accumulator = KVB_F32,
                                  .dot_chain = k_dim,
                                  .cell_chain = e->row.visible + 1,
                                  .exp_error = 0x1p-23,
                                  .exp_floor = 0x1p-126};
    kvb_arithmetic cut = *a;
    passing &= ~passing_by(&plain, e, v_dim, scale, softcap, KVB_F32, PLAIN_BOUNDS);
    if (!passing)
        return;
    const uint32_t fields = kvb_claim_cut(&cut, k_dim, claim->cells);
    claim->unsaid++;
    for (uint32_t i = 0; i < KVB_CLAIM_KINDS; i++)
        claim->passing[i] += passing >> i & 1;
    if (!fields || !(passing & ~passing_by(&cut, e, v_dim, scale, softcap, out_elem, 1)))
        return;
    claim->wide++;
    claim->fields |= fields;
}
