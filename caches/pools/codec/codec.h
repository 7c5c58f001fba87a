/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs: how rows of f32 become codes, scales and zeros, and back. The rules are written once, in the headers beside
 * this one (floats.h, levels.h, rotate.h), as plain loops that a compiler vectorises. isa.c is compiled once for each
 * instruction set into a table of functions. All tables store the same bytes: where a rule sums, it fixes the order.
 *
 * NaN and infinity: formats with NaN among their codes (f32, f16, bf16, e4m3, e5m2) keep a NaN; others store it as 0.
 * f32, f16 and bf16 overflow to infinity. Every other format saturates: an element beyond its rule's limit, infinities
 * included, is stored as the limit of that sign.
 */
#ifndef KVB_CODEC_H
#define KVB_CODEC_H

#include "kernels/view.h"

/* How rows are encoded. Several rules can share a decoder, which depends on the format only (kvb_decode_rule). */
typedef enum kvb_rule {
    KVB_RULE_F32,
    KVB_RULE_F16,
    KVB_RULE_BF16,
    KVB_RULE_FP8,      /* e4m3, e5m2: no scale, a head scale, or a scale for each row */
    KVB_RULE_INT8,     /* symmetric, an f32 scale for each row */
    KVB_RULE_UINT8,    /* from least to largest, f32 scale and zero for each row */
    KVB_RULE_GGML,     /* q8_0 ... iq4_nl: by elem */
    KVB_RULE_AFFINE,   /* MLX, KIVI's V: f16 scale and zero for each group of channels */
    KVB_RULE_CHANNELS, /* KIVI's K: the same for each channel of residual_cells rows */
    KVB_RULE_FP4,      /* mxfp4, nvfp4 */
    KVB_RULE_CODEBOOK,
    KVB_RULES
} kvb_rule;

/* Where the codes, scales and zeros of encoded rows lie. */
typedef struct kvb_coded {
    const kvb_format *format;
    void *codes, *scales, *zeros; /* scales, zeros: NULL if the format has none. Decoding only reads */
    float head_scale;             /* the factor that decoding applies; 1: the format has none */
    uint64_t held;                /* encoding CHANNELS: bit i: cell i holds a row */
} kvb_coded;

/* Encodes rows [n][dim], already transformed, into codes [n][kvb_codes_bytes], scales and zeros. n is 1, but CHANNELS
 * encodes the n cells of a group: rows of cells that hold none are not read, and their codes are set to 0. */
typedef void kvb_encode(const kvb_coded *to, const float *rows, uint32_t dim);

/* Decodes one row, which is still transformed. CHANNELS: scales and zeros [dim] are those of the row's group. */
typedef void kvb_decode(const kvb_coded *from, uint32_t dim, float *row);

/* Transforms one row in place. inverse: signs are applied last. */
typedef void kvb_rotate(kvb_transform transform, uint32_t dim, bool inverse, float *row);

typedef struct kvb_codec_isa {
    const char *name; /* "portable", "avx2", "avx512" */
    bool (*available)(void);
    kvb_encode *encode[KVB_RULES];
    kvb_decode *decode[KVB_RULES]; /* by the rule that kvb_decode_rule() gives */
    kvb_rotate *rotate;
} kvb_codec_isa;

extern const kvb_codec_isa *const kvb_codec_isas[]; /* of this build, best last; ends with NULL */
const kvb_codec_isa *kvb_codec_best(void);          /* the best that is available and within the limit */

/* Allows no codecs better than those of this name; NULL: all, the default. Not while a pool is open. 0, or -EINVAL:
 * this build has none of that name. */
int kvb_codec_limit(const char *name);

/* The rule with the decoder for this format. */
kvb_rule kvb_decode_rule(const kvb_format *format);

/* Bytes of the codes of one row; of one scale or zero element. */
size_t kvb_codes_bytes(const kvb_format *format, uint32_t dim);
size_t kvb_scale_bytes(kvb_elem elem);

/* Does the format take rows of this dim: do groups divide it, and can the transform mix channels? */
bool kvb_format_fits(const kvb_format *format, uint32_t dim, char *why, size_t why_bytes);

/* The format's head scale for head h. amax [n_kv_heads]: largest magnitudes; NULL: the scale is 1. */
float kvb_head_scale(const kvb_format *format, const float *amax, uint32_t n_kv_heads, uint32_t h);

/* format->read of every built-in format. */
kvb_rows_read kvb_codec_read;

/* Codebook levels: the Lloyd-Max quantiser of N(0, 1) (J. Max, IRE Trans. Inf. Theory 6, 1960, table I). */
extern const float kvb_levels_3[8], kvb_levels_4[16];

#endif
