/* SPDX-License-Identifier: Apache-2.0 */
/* What the reference codecs share: small helpers, and the list of their families. Inside oracle/codec*.c only. */
#ifndef KVB_CODEC_PARTS_H
#define KVB_CODEC_PARTS_H

#include <string.h>

#include "oracle/codec.h"

/* The families, one file each. */
enum { KVB_FP8S = 8, KVB_INT8S = 2, KVB_GGMLS = 6, KVB_AFFINES = 13, KVB_MXS = 2, KVB_CODEBOOKS = 2 };
extern const kvb_codec kvb_codec_fp8s[KVB_FP8S];
extern const kvb_codec kvb_codec_int8s[KVB_INT8S];
extern const kvb_codec kvb_codec_ggmls[KVB_GGMLS];
extern const kvb_codec kvb_codec_affines[KVB_AFFINES];
extern const kvb_codec kvb_codec_mxs[KVB_MXS];
extern const kvb_codec kvb_codec_codebooks[KVB_CODEBOOKS];

/* 2^e for a normal double. */
static inline double kvb_power_of_two(int e)
{
    uint64_t bits = (uint64_t)(1023 + e) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* x where codes have no NaN: NaN is 0, and a magnitude beyond the limit, infinities too, is the limit. */
float kvb_codec_limited(float x, float limit);
/* The largest |x| of n elements, each as kvb_codec_limited() has it. */
float kvb_codec_amax(const float *x, uint32_t n, float limit);
/* Which of n ascending values is nearest to x; of two equally near ones that of even index. */
int kvb_codec_nearest(const double *values, int n, double x);

/* An OCP FP8 number: KVB_E4M3 or KVB_E5M2. Encoding saturates; a NaN keeps its sign. */
unsigned char kvb_codec_fp8(kvb_elem elem, float x);
double kvb_codec_fp8_value(kvb_elem elem, unsigned char code);

/* Code i of a row of codes of `bits` bits, at most 8, which all formats lay as one stream, low bits first. */
void kvb_codec_put(unsigned char *codes, uint32_t bits, uint32_t i, unsigned code);
unsigned kvb_codec_get(const unsigned char *codes, uint32_t bits, uint32_t i);

/* Element i of a table of f16 or f32. */
void kvb_codec_f16_put(unsigned char *table, uint32_t i, float x);
double kvb_codec_f16_get(const unsigned char *table, uint32_t i);
void kvb_codec_f32_put(unsigned char *table, uint32_t i, float x);
double kvb_codec_f32_get(const unsigned char *table, uint32_t i);

#endif
