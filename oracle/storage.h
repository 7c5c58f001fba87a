/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows after a format has stored them: transform, encode, decode, transform undone. In double, with the magnitudes that
 * an error bound needs. Used by the oracle, its tests, and the check of pools by themselves.
 *
 * size[c] replaces |row[c]| in the bound (oracle/bound.h):
 *   without a transform  |code * scale| + |zero|: products and sums over decoded elements round relative to it.
 *                        centred: at least |row[c] - m| + |m|, m half-way between the least and largest element of a
 *                        group. m is the middle code's value to half a step
 *   with a transform     the root mean square of those over the transform's block. The bound for K uses the 2-norm of
 *                        size. For V (is_v) a size is at least that of the transform's stages: oracle/bound.h
 */
#ifndef KVB_STORAGE_H
#define KVB_STORAGE_H

#include "kernels/model.h"
#include "oracle/attention.h"
#include "oracle/codec.h"

/* One side, K or V, of one layer and KV head. */
typedef struct kvb_storage {
    const kvb_codec *codec; /* NULL: an opaque format with a reference of its own */
    const kvb_format *format;
    uint32_t dim;
    float head_scale;
    /* Both are set after kvb_storage_init(). */
    bool centred; /* for a kernel with steps, which multiplies codes less the middle one */
    bool is_v;    /* rows are summed over cells: sizes are V_ic of oracle/bound.h */
} kvb_storage;

/* 0, or -ENOTSUP with why: no codec for the format, or it does not take rows of that dim. */
int kvb_storage_init(kvb_storage *store, const kvb_format *format, uint32_t dim, const float *amax, uint32_t n_kv_heads,
                     uint32_t h, char *why, size_t why_bytes);
/* Bytes of scratch that the calls below need. */
size_t kvb_storage_scratch(const kvb_storage *store);

/* Stores n rows, the i-th at rows[i] [dim], as a sequence of their own. With residual cells, the last residual_blocks
 * blocks are f16, and the blocks before them are encoded. stored, size: [n][dim]. scratch is aligned for floats. */
void kvb_storage_rows(const kvb_storage *store, const float *const *rows, uint32_t n, void *scratch, double *stored,
                      double *size);

/* A row as the codec takes it: transformed, and rounded to f16 if the format has residual cells. */
void kvb_storage_turn(const kvb_storage *store, const float *row, float *turned);
/* Encodes n rows together and decodes them again: rows, sizes [n][dim], still transformed. scratch begins with the
 * turned rows. */
void kvb_storage_code(const kvb_storage *store, uint32_t n, void *scratch, double *rows, double *sizes);
/* Undoes the transform of a decoded row and of its sizes. */
void kvb_storage_finish(const kvb_storage *store, double *row, double *size);

/* Is an element code * scale + zero? */
static inline bool kvb_storage_has_zeros(const kvb_format *format)
{
    return kvb_format_has_zeros(format) || format->elem == KVB_Q4_1 || format->elem == KVB_Q5_1;
}

/* Does kvb_storage_read() hold for this format? Not if a product with an f32 scale is rounded before a zero is added. */
static inline bool kvb_storage_reads(const kvb_format *format)
{
    return format->elem != KVB_OPAQUE && !(kvb_format_has_zeros(format) && format->scale_elem == KVB_F32);
}
/* A decoded row, still transformed, as format->read of a pool returns it: in f32, one rounding for each step. */
void kvb_storage_read(const kvb_storage *store, const double *decoded, float *row);
/* Turns the K rows of a token, [heads][dim], by `delta` positions. Each step is rounded to f32, as kvb_rope_turn() does
 * (kernels/model.h). */
void kvb_storage_shift(const kvb_rope *rope, int32_t delta, float *rows, uint32_t heads, uint32_t dim);

/*
 * K and V rows of one KV head as its formats store them, in double, for an exact attention: by token identity, or gathered
 * for one query, since rows in formats with residual cells depend on their neighbours. Inside the oracle only.
 */

/* The formats of both sides, of one layer and KV head. */
typedef struct kvb_storages {
    kvb_storage k, v;
} kvb_storages;

/* One side's rows. */
typedef struct kvb_stored {
    double *rows;  /* [n][dim] */
    double *sizes; /* [n][dim]; NULL: |row| */
    double *sums;  /* [n] sum of each row's sizes */
    uint32_t dim;
    bool paged; /* rows and sizes are kvb_pages_alloc()'s, else of the heap */
} kvb_stored;

/* Are rows stored unchanged? */
static inline bool kvb_storage_is_exact(const kvb_storage *store)
{
    return store->format->elem == KVB_F32 && !store->format->transform;
}

static inline bool kvb_storage_has_residual(const kvb_storage *store)
{
    return store->format->residual_cells > 0;
}

/* Room for n rows. 0 or -ENOMEM; close it in either case. */
int kvb_stored_open(kvb_stored *side, const kvb_storage *store, size_t n);
void kvb_stored_close(kvb_stored *side);

/* Doubles of scratch that the calls below need. */
size_t kvb_stored_scratch(const kvb_storage *store);
/* Stores n rows, a sequence of their own, as rows at .. at+n-1. */
void kvb_stored_put(const kvb_stored *side, const kvb_storage *store, size_t at, const float *const *rows, uint32_t n,
                    double *scratch);

/* Sets row `at` to a decoded row, still transformed. Changes row and size. */
void kvb_stored_take(const kvb_stored *side, const kvb_storage *store, size_t at, double *row, double *size);

/* Set K, or V, of an attention: rows, sizes and transform. */
void kvb_attention_take_k(kvb_attention *attention, const kvb_storage *store, const kvb_stored *side, bool gathered);
void kvb_attention_take_v(kvb_attention *attention, const kvb_storage *store, const kvb_stored *side, bool gathered);

#endif
