/* SPDX-License-Identifier: Apache-2.0 */
/* The error bound of oracle/bound.h, term by term. */
#include "oracle/bound.h"

#include <math.h>

/* By element type; 0: the type does not round. */
static const double unit_roundoff[KVB_ELEM_COUNT] = {
    [KVB_F32] = 0x1p-24, [KVB_F16] = 0x1p-11, [KVB_BF16] = 0x1p-8,
    [KVB_E4M3] = 0x1p-4, [KVB_E5M2] = 0x1p-3, [KVB_E2M1] = 0x1p-2,
};
static const double smallest_subnormal[KVB_ELEM_COUNT] = {
    [KVB_F32] = 0x1p-149, [KVB_F16] = 0x1p-24,  [KVB_BF16] = 0x1p-133,
    [KVB_E4M3] = 0x1p-9,  [KVB_E5M2] = 0x1p-16, [KVB_E2M1] = 0x1p-1,
};

double kvb_unit_roundoff(kvb_elem elem)
{
    return (unsigned)elem < KVB_ELEM_COUNT ? unit_roundoff[elem] : 0;
}

double kvb_smallest_subnormal(kvb_elem elem)
{
    return (unsigned)elem < KVB_ELEM_COUNT ? smallest_subnormal[elem] : 0;
}

/* Relative error of a sum whose terms pass through at most `chain` roundings. */
static double sum_error(double chain, double u, kvb_bound_strength strength)
{
    double worst = chain * u < 1 ? chain * u / (1 - chain * u) : INFINITY;
    return strength == KVB_BOUND_WORST ? worst : fmin(worst, KVB_LAMBDA * sqrt(chain) * u);
}

/* Relative error of numbers that are rounded to a narrow type, and of sums that are then taken in this type. */
static double narrow_roundoff(const kvb_rounding *r)
{
    return r->rounding == KVB_F32 ? 0 : kvb_unit_roundoff(r->rounding);
}

static double narrow_sum_error(const kvb_rounding *r, kvb_bound_strength strength)
{
    return sum_error(r->chain, kvb_unit_roundoff(r->rounding), strength);
}

/* The sum of n errors of one size, in units of that size. */
static double sum_count(double n, kvb_bound_strength strength)
{
    return strength == KVB_BOUND_WORST ? n : fmin(n, KVB_LAMBDA * sqrt(n));
}

/* Two relative errors, one after the other. */
static double both(double a, double b)
{
    return a + b + a * b;
}

/* expm1(d) / d, and its limit at 0. */
static double expm1_over(double d)
{
    return d > 0 ? expm1(d) / d : 1;
}

void kvb_bound_prepare(const kvb_arithmetic *a, kvb_bound_strength strength, const kvb_bound_row *row, double scale,
                       double softcap, kvb_elem out_elem, kvb_bound_factors *f)
{
    double u = kvb_unit_roundoff(a->accumulator);
    double u_q = narrow_roundoff(&a->query);
    double eta = a->exp_error + a->rescales * (a->exp_error + u);
    double n = row->visible, per_z = row->weight_sum > 0 ? 1 / row->weight_sum : 0;
    double p_subnormal = a->sums.rounding == KVB_F32 ? 0 : kvb_smallest_subnormal(a->sums.rounding) / 2;
    const kvb_bound_strength cells = row->equal ? KVB_BOUND_WORST : strength;
    double gamma_d = both(sum_error(a->dot_chain, u, strength), narrow_sum_error(&a->scores, strength));

    *f = (kvb_bound_factors){
        .a = fabs(scale) * both(gamma_d, u_q),
        .q = fabs(scale) * (1 + gamma_d) * (a->query.step / 2 + a->query.floor),
        .s = 2 * u,
        .flat = (eta < 1 ? -log1p(-eta) : INFINITY) + 4 * u * fabs(softcap) +
                (a->scores.floor > 0 ? fabs(scale) * a->scores.floor * row->q_largest : 0),
        .gamma = sum_error((double)a->cell_chain + a->rescales, u, cells),
        .u = u,
        .u_p = both(narrow_roundoff(&a->sums), narrow_sum_error(&a->sums, cells)),
        .u_out = kvb_unit_roundoff(out_elem) + 2 * u,
        .omega_v = n * per_z * (2 * a->exp_floor + p_subnormal),
        .omega = per_z * (n * kvb_smallest_subnormal(a->accumulator) + sum_count(n, cells) * a->sums.floor) +
                 kvb_smallest_subnormal(out_elem),
        .lse_dropped = n * per_z * a->exp_floor,
        .log_z = row->weight_sum > 1 ? log(row->weight_sum) : 0,
        .v_mix = strength == KVB_BOUND_WORST ? row->v_mix : 1,
    };
    f->d_max = f->a * row->a_max + f->q * row->q_max + f->s * row->s_max + f->flat;
    f->d_mean = f->a * row->a_mean + f->q * row->q_mean + f->s * row->s_mean + f->flat;
    f->growth = expm1_over(f->d_max) * exp(f->d_mean);
    f->raised = exp(f->d_max + f->d_mean);
    if (a->sums.step > 0) /* elsewhere an infinite V of another channel does not matter */
        f->steps_max = a->sums.step / 2 * (row->step > 0 ? n : sum_count(n, cells)) * fmin(row->p_max * f->raised, 1) *
                       row->v_largest;
    if (a->sums.step > 0 && row->step > 0)
        f->steps_factor = f->raised * fmax(1, a->sums.step / row->step);
    f->steps_worst = cells == KVB_BOUND_WORST || a->sums.step > row->step;
}

/* fmin(), inline; the other if one of them is NaN. */
static inline double least(double a, double b)
{
    return a < b || isnan(b) ? a : b;
}

/* R */
static double steps_bound(const kvb_bound_factors *f, const kvb_bound_term *t)
{
    if (f->steps_factor == 0)
        return f->steps_max;
    double sum = f->steps_worst ? t->steps : least(t->steps, t->lost + KVB_LAMBDA * sqrt(t->steps2));
    return least(f->steps_max, f->steps_factor * sum);
}

double kvb_bound_channel(const kvb_bound_factors *f, const kvb_bound_term *t)
{
    /* No choice of weights moves the output further than |o| + max |v|. least() also takes this limit if the other
     * side is infinity * 0. */
    double v_max = t->v_max * f->v_mix;
    double weights = f->growth * (f->a * t->spread_a + f->q * t->spread_q + f->s * t->spread_s + f->flat * t->spread);
    weights = least(weights, fabs(t->o) + v_max);
    double mass = least(t->mass * f->v_mix * f->raised, v_max);
    double rounded = ((1 + f->gamma) * (1 + f->u_p) - 1) * mass + (1 + f->gamma) * steps_bound(f, t);
    double sums = f->gamma < 1 ? (rounded + f->gamma * (fabs(t->o) + weights)) / (1 - f->gamma) : INFINITY;
    return weights + sums + f->u_out * (fabs(t->o) + weights + sums) + f->omega_v * v_max + f->omega;
}

double kvb_bound_log(const kvb_bound_factors *f, double lse)
{
    if (!isfinite(lse)) /* nothing is visible: there is nothing to round */
        return 0;
    double sums = f->gamma < 1 ? f->gamma / (1 - f->gamma) : INFINITY;
    return expm1_over(f->d_max) * f->d_mean + sums + 2 * f->u * fabs(lse) + 4 * f->u * f->log_z + f->lse_dropped +
           smallest_subnormal[KVB_F32];
}

double kvb_bound_output(const kvb_arithmetic *a, kvb_bound_strength strength, const kvb_bound_row *row,
                        const kvb_bound_term *term, double scale, double softcap, kvb_elem out_elem)
{
    kvb_bound_factors factors;
    kvb_bound_prepare(a, strength, row, scale, softcap, out_elem, &factors);
    return kvb_bound_channel(&factors, term);
}

double kvb_bound_lse(const kvb_arithmetic *a, kvb_bound_strength strength, const kvb_bound_row *row, double lse,
                     double scale, double softcap)
{
    kvb_bound_factors factors;
    kvb_bound_prepare(a, strength, row, scale, softcap, KVB_F32, &factors);
    return kvb_bound_log(&factors, lse);
}
