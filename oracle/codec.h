/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs: how rows are stored, bit for bit, written from the published definitions. The pools' stored bytes are
 * compared with these; the oracle's "stored rows" are decode(encode(row)) of these. Decoding is exact: a decoded element is a double without rounding (with a zero point,
 * rounded once). Where a definition prescribes f32 arithmetic, each operation here is one on float variables.
 */
#ifndef KVB_ORACLE_CODEC_H
#define KVB_ORACLE_CODEC_H

#include <string.h>

#include "kernels/view.h"

/* What a stored row consists of. */
enum { KVB_CODES, KVB_SCALES, KVB_ZEROS, KVB_PARTS };

typedef struct kvb_codec kvb_codec;
struct kvb_codec_group;
struct kvb_codec {
    const char *name;    /* of the kvb_format it stores, without "+had" */
    kvb_elem elem;       /* of the codes */
    uint32_t bits;       /* of one code */
    uint32_t block;      /* rows encoded together, once all are there; 1: each by itself */
    uint32_t group;      /* channels that share a scale; divides a row. KVB_GROUP_ROW: the row; 0: no groups */
    kvb_elem scale_elem; /* of scales and zeros */
    /* Scale and zero of the elements of a group, from their definition. */
    struct kvb_codec_fit (*fit)(const kvb_codec *codec, const struct kvb_codec_group *group);
    float limit; /* elements of larger magnitude become this, and NaN becomes 0; 0: they stay */
    bool zeros;  /* an element is code * scale + zero */
    bool shared; /* the rows of a block share the scale of each channel */
    kvb_static_scale head_scale;
};

/* Bytes of one part of one row (of scales and zeros that are shared: of one block). 0: there is none. */
size_t kvb_codec_bytes(const kvb_codec *codec, uint32_t dim, int part);
/* Encodes rows [n][dim] together: 1 <= n <= codec->block. part[i]: [n][kvb_codec_bytes()]; of a shared part
 * [1][kvb_codec_bytes()]. */
void kvb_codec_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                      unsigned char *const part[KVB_PARTS]);
/* Decodes one row from its parts; shared parts are the block's. size [dim]: the sum of the magnitudes of each element's
 * terms, |code * scale| + |zero|, which is |row| where there is no zero. */
void kvb_codec_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                      float head_scale, double *row, double *size);

extern const kvb_codec kvb_codecs[];                      /* ends with a name of NULL */
const kvb_codec *kvb_codec_find(const char *format_name); /* ignores "+had"; NULL: none */
/* The codec with the elements, scales and blocks of this format, under any name. NULL: none. */
const kvb_codec *kvb_codec_alike(const kvb_format *format);

/* The head scale of KV head h in this format. amax: [n_kv_heads] largest magnitudes; NULL: the scale is 1. */
float kvb_codec_head_scale(const kvb_format *format, const float *amax, uint32_t n_kv_heads, uint32_t h);

/* x as a float of at most 16 bits, to nearest even: f16 and bf16 as in IEEE 754, and NaN stays a quiet NaN; OCP's narrower
 * floats saturate, and NaN keeps its sign. E8M0: x is a power of two. */
uint16_t kvb_codec_code(kvb_elem elem, float x);
/* The value of a code of these types, or of f32. */
double kvb_codec_value(kvb_elem elem, uint32_t code);
/* The values of n codes of f16 or bf16; n elements of a row as numbers of such a type. */
void kvb_codec_values(kvb_elem elem, const uint16_t *codes, uint32_t n, double *values);
void kvb_codec_round(kvb_elem elem, float *row, uint32_t n);

/* x as a number of that type. */
static inline double kvb_codec_rounded(kvb_elem elem, float x)
{
    return elem == KVB_F32 ? (double)x : kvb_codec_value(elem, kvb_codec_code(elem, x));
}

/* The transform of view.h, in the f32 arithmetic that rows are stored with: stages of a+b, a-b with distance 1, 2, 4
 * ..., then times the f32 nearest to 1/sqrt(block). */
void kvb_codec_rotate(kvb_transform transform, uint32_t dim, float *row);
/* Its inverse in the same arithmetic: the stages, the factor, then the signs. */
void kvb_codec_unrotate_f32(kvb_transform transform, uint32_t dim, float *row);
/* Its inverse in double, with the same f32 factor: exact up to double rounding. */
void kvb_codec_unrotate(kvb_transform transform, uint32_t dim, double *row);

/* 2^e for a normal double. */
static inline double kvb_power_of_two(int e)
{
    uint64_t bits = (uint64_t)(1023 + e) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
