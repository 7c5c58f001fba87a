/* SPDX-License-Identifier: Apache-2.0 */
/* Rows through a reference codec, into parts that end where the codec says they do. */
#ifndef KVB_STORED_ROW_H
#define KVB_STORED_ROW_H

#include "oracle/codec.h"

enum { PART_BYTES = 32 * 1024, CANARY = 0xa5 };

typedef struct stored_row {
    const kvb_codec *codec;
    uint32_t dim;
    float head_scale;
    unsigned char bytes[KVB_PARTS][PART_BYTES];
} stored_row;

static inline size_t part_bytes(const stored_row *s, int part, uint32_t n)
{
    return (s->codec->shared && part != KVB_CODES ? 1 : n) * s->codec->bytes(s->codec, s->dim, part);
}

/* n rows at most codec->block. */
static inline void stored_encode(stored_row *s, const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim,
                                 float head_scale)
{
    unsigned char *part[KVB_PARTS];
    s->codec = codec, s->dim = dim, s->head_scale = head_scale;
    memset(s->bytes, CANARY, sizeof s->bytes);
    for (int p = 0; p < KVB_PARTS; p++)
        part[p] = s->bytes[p];
    codec->encode(codec, rows, n, dim, head_scale, part);
    for (int p = 0; p < KVB_PARTS; p++)
        for (size_t i = part_bytes(s, p, n), end = i + 64; i < end; i++)
            assert_int_equal(s->bytes[p][i], CANARY);
}

static inline void stored_decode(const stored_row *s, uint32_t row_index, double *row, double *size)
{
    const unsigned char *part[KVB_PARTS];
    for (int p = 0; p < KVB_PARTS; p++)
        part[p] = s->bytes[p] + part_bytes(s, p, 1) * (s->codec->shared && p != KVB_CODES ? 0 : row_index);
    s->codec->decode(s->codec, part, s->dim, s->head_scale, row, size);
}

#endif
