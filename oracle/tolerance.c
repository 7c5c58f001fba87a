/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/tolerance.h"

#include <math.h>

const char *const kvb_tolerance_names[] = {
    [KVB_TOLERANCE_NONE] = "none",
    [KVB_TOLERANCE_NMSE] = "nmse",
    [KVB_TOLERANCE_CLOSE] = "close",
};

static double ratio(double found, double allowed)
{
    if (isnan(found))
        return INFINITY;
    return found == 0 ? 0 : allowed > 0 ? found / allowed : INFINITY;
}

static void closeness_take(kvb_closeness *c, const kvb_tolerance *rule, double got, double exact)
{
    if (!isfinite(exact))
        return;
    const double error = isfinite(got) ? fabs(got - exact) : INFINITY;
    c->elements++;
    c->error2 += error * error;
    c->exact2 += exact * exact;
    if (rule->kind == KVB_TOLERANCE_CLOSE)
        c->farthest = fmax(c->farthest, ratio(error, rule->limit + rule->relative * fabs(exact)));
}

void kvb_closeness_row(kvb_closeness *c, const kvb_tolerance *rule, kvb_elem out_elem, const void *out, uint32_t v_dim,
                       const double *exact, size_t step)
{
    for (uint32_t i = 0; i < v_dim; i++)
        closeness_take(c, rule, kvb_output_value(out_elem, out, i), exact[i * step]);
}

void kvb_closeness_add(kvb_closeness *c, const kvb_closeness *other)
{
    c->error2 += other->error2;
    c->exact2 += other->exact2;
    c->farthest = fmax(c->farthest, other->farthest);
    c->elements += other->elements;
}

double kvb_closeness_share(const kvb_closeness *c, const kvb_tolerance *rule)
{
    return rule->kind == KVB_TOLERANCE_CLOSE ? c->farthest : ratio(c->error2, rule->limit * c->exact2);
}
