/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs: how a row is stored, bit for bit, written for reading and not for speed. The pools'
 * stored bytes are compared with these; the oracle's "stored rows" are decode(encode(row)) of these.
 */
#ifndef KVB_CODEC_H
#define KVB_CODEC_H

#include "kernels/attend.h"

typedef struct kvb_codec {
    const char *name; /* of the kvb_format it stores */
    size_t (*row_bytes)(uint32_t dim);
    void (*encode)(const float *row, uint32_t dim, void *bytes);
    void (*decode)(const void *bytes, uint32_t dim, double *row);
} kvb_codec;

extern const kvb_codec *const kvb_codecs[];               /* ends with NULL */
const kvb_codec *kvb_codec_find(const char *format_name); /* or NULL */

uint16_t kvb_codec_f16(float x);  /* IEEE 754 binary16, to nearest even; NaN stays a quiet NaN */
uint16_t kvb_codec_bf16(float x); /* likewise */
double kvb_codec_f16_value(uint16_t bits);
double kvb_codec_bf16_value(uint16_t bits);

#endif
