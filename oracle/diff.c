/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel wrote against what was expected: measurements, not a verdict. NaN becomes infinity and its
 * place is kept.
 */
#include "oracle/claim.h"
#include "oracle/codec.h"
#include "oracle/oracle.h"
#include "oracle/recurrence.h"

#include <assert.h>
#include <math.h>
#include <string.h>

double kvb_output_value(kvb_elem elem, const void *out, size_t i)
{
    if (elem == KVB_F32) {
        float x;
        memcpy(&x, (const char *)out + i * sizeof x, sizeof x);
        return (double)x;
    }
    uint16_t bits;
    memcpy(&bits, (const char *)out + i * sizeof bits, sizeof bits);
    assert(elem == KVB_F16 || elem == KVB_BF16);
    return elem == KVB_F16 ? kvb_codec_f16_value(bits) : kvb_codec_bf16_value(bits);
}

/* From this magnitude on a value rounds to infinity. */
static double overflow_begin(kvb_elem elem)
{
    switch (elem) {
    case KVB_F16:
        return 65520;
    case KVB_BF16:
        return 0x1.ffp127;
    default:
        return 0x1.ffffffp127;
    }
}

/*
 * |got - want|, and infinity when got is not a number that want could have become. An infinite result is
 * right where the bound allows the exact value to round to it, and anything not finite is right where the
 * stored rows make the exact value so (an original that overflows its format).
 */
static double error_between(double got, double want, double bound, kvb_elem elem, uint64_t *not_finite)
{
    if (!isfinite(want))
        return isfinite(got) ? INFINITY : 0;
    if (isfinite(got))
        return fabs(got - want);
    if (isinf(got) && signbit(got) == signbit(want) && fabs(want) + bound >= overflow_begin(elem))
        return 0;
    ++*not_finite;
    return INFINITY;
}

static double ratio(double error, double bound)
{
    if (error == 0)
        return 0;
    if (!(error < INFINITY))
        return INFINITY;
    return bound > 0 ? error / bound : INFINITY; /* a bound of NaN is no bound either */
}

static bool is_of_call(const kvb_diff_place *place, const kvb_diff_place *e)
{
    return place->event == e->event && place->layer == e->layer && place->part == e->part;
}

/* Takes one element into account. */
static void element_take(kvb_diff *diff, double rho, const kvb_diff_place *e)
{
    const kvb_diff_place here = *e;
    bool fails = rho > 1, begins = !is_of_call(&diff->first, e);
    if (rho > diff->rho || diff->elements == 0) {
        diff->rho = rho;
        diff->worst = here;
    }
    if (!diff->any_failed && begins) /* the first's call is counted from its begin on */
        diff->first_elements = 0;
    if (!diff->any_failed && (begins || fails))
        diff->first = here;
    diff->any_failed |= fails;
    if (diff->again)
        return;
    bool counts = is_of_call(&diff->first, e);
    diff->elements++;
    diff->failed += fails;
    diff->first_elements += counts;
    if (!fails || !counts)
        return;
    diff->first_failed++;
    diff->first_heads[e->head / 64] |= UINT64_C(1) << e->head % 64;
    if (e->query < KVB_DIFF_QUERIES)
        diff->first_queries[e->query / 64] |= UINT64_C(1) << e->query % 64;
}

void kvb_diff_row(kvb_diff *diff, const kvb_expect *e, uint32_t v_dim, const kvb_arithmetic *arithmetic, double scale,
                  double softcap, kvb_elem out_elem, const void *out, const float *lse)
{
    kvb_bound_factors statistical, worst;
    kvb_bound_prepare(arithmetic, KVB_BOUND_STATISTICAL, &e->row, scale, softcap, out_elem, &statistical);
    kvb_bound_prepare(arithmetic, KVB_BOUND_WORST, &e->row, scale, softcap, out_elem, &worst);
    bool empty = isinf(e->lse) && e->lse < 0; /* sees nothing, not even a sink: exactly 0 */

    uint32_t passing = empty ? 0 : KVB_CLAIM_OTHERS;
    kvb_diff_place place = {.event = e->event, .layer = e->layer, .query = e->query, .head = e->head};
    for (uint32_t c = 0; c < v_dim; c++) {
        const kvb_bound_term *term = &e->terms[c];
        double got = kvb_output_value(out_elem, out, c);
        double bound = empty ? 0 : kvb_bound_channel(&statistical, term);
        double error = error_between(got, term->o, bound, out_elem, &diff->not_finite);
        double rho = ratio(error, bound);
        passing = kvb_claim_passing(passing, term, bound);
        place.channel = c, place.got = got, place.want = term->o, place.bound = bound;
        element_take(diff, rho, &place);
        if (rho > diff->rho_worst) /* the worst bound is the wider */
            diff->rho_worst = fmax(diff->rho_worst, ratio(error, empty ? 0 : kvb_bound_channel(&worst, term)));
        if (error > diff->max_abs)
            diff->max_abs = error;
        diff->sum_error2 += error * error;
        if (isfinite(term->o))
            diff->sum_exact2 += term->o * term->o;
    }
    if (passing)
        kvb_claim_row(&diff->claim, passing, e, v_dim, arithmetic, scale, softcap, out_elem);
    if (lse) {
        double got = (double)*lse, bound = kvb_bound_log(&statistical, e->lse);
        double error = error_between(got, e->lse, bound, KVB_F32, &diff->not_finite);
        if (empty)
            error = got == e->lse ? 0 : INFINITY;
        double rho = ratio(error, bound);
        place.channel = v_dim, place.got = got, place.want = e->lse, place.bound = bound;
        element_take(diff, rho, &place);
        diff->rho_lse = fmax(diff->rho_lse, rho);
        diff->rho_worst = fmax(diff->rho_worst, ratio(error, kvb_bound_log(&worst, e->lse)));
    }
    diff->rows++;
    diff->silent += empty || (passing & 1);
    diff->rel_l2 = diff->sum_error2 > 0 ? sqrt(diff->sum_error2 / diff->sum_exact2) : 0;
}

void kvb_diff_take(kvb_diff *diff, const kvb_diff_place *first, const kvb_recurrence_want *want, size_t n,
                   kvb_elem elem, const void *got)
{
    kvb_diff_place place = *first;
    for (size_t i = 0; i < n; i++, place.channel++) {
        place.got = kvb_output_value(elem, got, i);
        place.want = want[i].value;
        place.bound = want[i].bound;
        double error = error_between(place.got, place.want, place.bound, elem, &diff->not_finite);
        element_take(diff, ratio(error, place.bound), &place);
        diff->rho_worst = fmax(diff->rho_worst, ratio(error, want[i].worst));
        diff->max_abs = fmax(diff->max_abs, error);
        diff->sum_error2 += error * error;
        diff->sum_exact2 += place.want * place.want;
    }
    diff->rel_l2 = diff->sum_error2 > 0 ? sqrt(diff->sum_error2 / diff->sum_exact2) : 0;
}
