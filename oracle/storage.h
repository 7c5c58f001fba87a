/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rows become when a format stores them: transform, encode, decode, transform undone. In double, with the
 * magnitudes that an error bound needs. For the oracle, its tests, and where pools are judged by themselves.
 *
 * size[c] is what replaces |row[c]| in the bound (oracle/bound.h):
 *   without a transform  |code * scale| + |zero|, which a product or sum over decoded elements rounds relative to;
 *                        centred: at least |row[c] - m| + |m|, m half-way between the least and largest element of a
 *                        group, which is the middle code's to half a step
 *   with one             the root mean square of those over the transform's block. The bound for K uses the 2-norm of
 *                        size. For V (is_v) a size is at least what the transform's stages pass through: oracle/bound.h
 */
#ifndef KVB_STORAGE_H
#define KVB_STORAGE_H

#include "kernels/model.h"
#include "oracle/attention.h"
#include "oracle/codec.h"

/* One side, K or V, of one layer and KV head. */
typedef struct kvb_storage {
    const kvb_codec *codec; /* NULL: an opaque format, which has a reference of its own */
    const kvb_format *format;
    uint32_t dim;
    float head_scale;
    bool centred; /* a kernel in steps reads it, which multiplies codes less the middle one. Set after init, as is_v is
                   */
    bool is_v;    /* its rows are summed over cells: sizes are V_ic of oracle/bound.h. Set after kvb_storage_init(). */
} kvb_storage;

/* 0, or -ENOTSUP with why: no codec for the format, or it does not take rows of that dim. */
int kvb_storage_init(kvb_storage *store, const kvb_format *format, uint32_t dim, const float *amax, uint32_t n_kv_heads,
                     uint32_t h, char *why, size_t why_bytes);
/* Bytes of scratch that the calls below need. */
size_t kvb_storage_scratch(const kvb_storage *store);

/* n rows, the i-th at rows[i] -> [dim], as a sequence of its own would be stored: of a format with residual cells, the
 * blocks before the last residual_blocks are encoded, the others f16. stored, size: [n][dim]. scratch aligned for
 * floats. */
void kvb_storage_rows(const kvb_storage *store, const float *const *rows, uint32_t n, void *scratch, double *stored,
                      double *size);

/* A row as the codec encodes it: transformed, and of a format with residual cells rounded to f16. */
void kvb_storage_turn(const kvb_storage *store, const float *row, float *turned);
/* n rows that are encoded together, and decoded again: [n][dim], still transformed. scratch begins with the turned
 * rows. */
void kvb_storage_code(const kvb_storage *store, uint32_t n, void *scratch, double *rows, double *sizes);
/* What is left to do with a decoded row and its sizes: the transform undone. */
void kvb_storage_finish(const kvb_storage *store, double *row, double *size);

/* Is an element code * scale + zero? */
static inline bool kvb_storage_has_zeros(const kvb_format *format)
{
    return kvb_format_has_zeros(format) || format->elem == KVB_Q4_1 || format->elem == KVB_Q5_1;
}

/* Is what the next one says of this format so? Not where products are rounded before a zero is added: of a scale in
 * f32. */
static inline bool kvb_storage_reads(const kvb_format *format)
{
    return format->elem != KVB_OPAQUE && !(kvb_format_has_zeros(format) && format->scale_elem == KVB_F32);
}
/* A decoded row, still transformed, as format->read of a pool gives it back: in f32, one rounding for each step. */
void kvb_storage_read(const kvb_storage *store, const double *decoded, float *row);
/* A K row becomes another one when its token moves by delta positions, in the f32 steps that cache.h prescribes. */
void kvb_storage_shift(const kvb_rope *rope, int32_t delta, float *row);

/*
 * K and V rows of one KV head as its formats store them, in double, where an exact attention can have them: by token
 * identity, or (formats with residual cells, whose rows depend on their neighbours) gathered for one query. Inside the
 * oracle only.
 */

/* The formats of both sides, of one layer and KV head. */
typedef struct kvb_storages {
    kvb_storage k, v;
} kvb_storages;

/* One side's rows. */
typedef struct kvb_stored {
    double *rows;  /* [n][dim] */
    double *sizes; /* [n][dim], or NULL where they are |row|: see oracle/storage.h */
    double *sums;  /* [n]: of each row's sizes */
    uint32_t dim;
} kvb_stored;

/* Are all rows stored as they are? */
static inline bool kvb_storage_is_exact(const kvb_storage *store)
{
    return store->format->elem == KVB_F32 && !store->format->transform;
}

static inline bool kvb_storage_has_residual(const kvb_storage *store)
{
    return store->format->residual_cells > 0;
}

/* Room for n rows: 0 or -ENOMEM (to be closed all the same). */
int kvb_stored_open(kvb_stored *side, const kvb_storage *store, size_t n);
void kvb_stored_close(kvb_stored *side);

/* Doubles of scratch that the calls below need. */
size_t kvb_stored_scratch(const kvb_storage *store);
/* Rows at .. at+n-1 become what the store makes of these n rows, a sequence of its own. */
void kvb_stored_put(const kvb_stored *side, const kvb_storage *store, size_t at, const float *const *rows, uint32_t n,
                    double *scratch);

/* Row `at` becomes a decoded one, still transformed: row and size are changed. */
void kvb_stored_take(const kvb_stored *side, const kvb_storage *store, size_t at, double *row, double *size);

/* What an attention must know about its K and V: rows, sizes and transforms. */
void kvb_attention_take_k(kvb_attention *attention, const kvb_storage *store, const kvb_stored *side, bool gathered);
void kvb_attention_take_v(kvb_attention *attention, const kvb_storage *store, const kvb_stored *side, bool gathered);

#endif
