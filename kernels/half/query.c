/* SPDX-License-Identifier: Apache-2.0 */
/* Query rows as halves, and the table. */
#include "kernels/half/half.h"

#if defined(__AVX512FP16__)
#include "kernels/half/lanes.h"

#include <math.h>
#include <string.h>

static void half_query(kvb_elem elem, uint32_t dim, const float *q, void *to)
{
    _Float16 *half = (_Float16 *)to + 32;
    vf most = vf_set(0);
    int exponent = 0;

    for (uint32_t c = 0; c < dim; c += VL)
        most = vf_max(_mm512_abs_ps(vf_load(q + c)), most);
    const float largest = vf_largest(most);
    if (largest > 0 && isfinite(largest))
        frexpf(largest, &exponent); /* largest = [0.5, 1) 2^exponent */
    exponent = (elem == KVB_E4M3 ? 12 : 4) - exponent;
    const float first = ldexpf(1, exponent / 2),
                second = ldexpf(1, exponent - exponent / 2); /* one may pass f32's range */
    memset(to, 0, kvb_half_query_bytes(dim));
    for (uint32_t c = 0; c < dim; c += VL) {
        vf scaled = vf_load(q + c) * vf_set(first) * vf_set(second);
        _mm256_storeu_si256((__m256i *)(void *)(half + c), _mm512_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT));
    }
    *(float *)to = ldexpf(1, (elem == KVB_E4M3 ? 8 : 0) - exponent);
}

const kvb_half kvb_half_avx512fp16 = {half_query, kvb_half_dots, kvb_half_sums};
#endif
