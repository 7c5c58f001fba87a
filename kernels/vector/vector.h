/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of the flash kernels. Most sources of this folder are compiled once for each level of kernels/cpu.h
 * (the Makefile says which, with -DKVB_ISA=name and the compiler's flags), and their public names carry the level:
 * KVB_ISA_NAME(f) is f_avx2. Loops over floats alone are compiled only where they differ from those of a lower level
 * (SRC_floats); the other levels have those, KVB_FLOATS_NAME(f). So it is with loops that read stored rows
 * (SRC_rows, KVB_ROWS_NAME(f)). bf16_*.c and f16_*.c are compiled for levels with such products. kvb_loops_at() finds them all.
 *
 * A query row is one token and one query head. Rows of K and V come a block at a time: at most BLOCK cells of one KV
 * head, as pointers, so that strided, paged and scattered cells are all alike. Scores and weights are [row][BLOCK] f32,
 * 64-byte aligned.
 */
#ifndef KVB_VECTOR_H
#define KVB_VECTOR_H

#include "kernels/cpu.h"
#include "kernels/prefetch.h"
#include "kernels/scan.h"

#ifndef KVB_ISA
#define KVB_ISA portable
#endif
#ifndef KVB_FLOATS /* this level uses the loops over floats of level KVB_FLOATS; usually its own */
#define KVB_FLOATS KVB_ISA
#endif
#ifndef KVB_ROWS /* and those that read stored rows of level KVB_ROWS */
#define KVB_ROWS KVB_ISA
#endif
#define KVB_ISA_JOIN(name, isa)  name##_##isa
#define KVB_ISA_JOIN_(name, isa) KVB_ISA_JOIN(name, isa)
#define KVB_ISA_NAME(name)       KVB_ISA_JOIN_(name, KVB_ISA)
#define KVB_FLOATS_NAME(name)    KVB_ISA_JOIN_(name, KVB_FLOATS)
#define KVB_ROWS_NAME(name)      KVB_ISA_JOIN_(name, KVB_ROWS)

#define BLOCK 64u /* cells; the bits of a word */

/* ---- rows as floats: load.c, hadamard.c -------------------------------------------------------------------------- */

/*
 * Rows of KV head h in the n cells listed, as they are stored: the transform is not undone and the head scale is not
 * applied (the caller applies both once, to q or to the result). rows: [n][stride] f32, 64-byte aligned; stride is a
 * multiple of 16 and at least view->dim; channels from view->dim on are set to 0. An element is code * scale + zero,
 * with the factors and in the order of format->read, and so, without transform and head scale, with the same bits.
 */
typedef void kvb_load(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, float *rows, size_t stride);

/* The load of a format. NULL where there is none: a plug-in's own format is read by format->read. */
kvb_load *KVB_ISA_NAME(kvb_load_of)(const kvb_format *format);

/* Transforms a row in place. `inverse` differs in one thing: the signs come last. */
void KVB_ISA_NAME(kvb_hadamard)(kvb_transform transform, uint32_t dim, bool inverse, float *row);

/* ---- few query rows, stored rows where they lie ------------------------------------------------------------------ */

#define DOTS_ROWS 8u  /* most query rows of a call */
#define FP8_DIM   64u /* rows of E4M3 and E5M2 have a multiple of so many channels */

/* Stored rows of one block. Never read past their ends. */
typedef struct kvb_stored_rows {
    kvb_elem elem;
    uint32_t n, dim;
    const void *const *at; /* [n] */
    kvb_row_ahead ahead;
    /* Which cells the rows are, and of which KV head. Only for f16_in_place.c, which finds the scales and zeros of
     * UINT8 so. */
    const kvb_view *view;
    const uint32_t *cells; /* [n] */
    uint32_t kv_head;
} kvb_stored_rows;

/* at[i] = where the row of cell[i] starts, i < n <= BLOCK, if that of cell 0 starts at `first`. neighbours: cell[i] is
 * cell[0] + i. */
void KVB_ISA_NAME(kvb_rows_at)(const void *first, size_t stride, const uint32_t *cell, uint32_t n, bool neighbours,
                               const void **at);

/* Encodes one query row q [dim], once for all blocks. k: the format of the rows that it will meet. */
typedef void kvb_query_fn(const kvb_format *k, uint32_t dim, const float *q, void *encoded);

/*
 * scores[r][i] = q[r] . row i, for n_rows <= DOTS_ROWS encoded query rows. Scores from n on, up to a multiple of 16,
 * are arbitrary. Returns false only with f16: a score passed f16's range, or is truly not finite; then all scores are
 * arbitrary.
 */
typedef bool kvb_dots_fn(const kvb_stored_rows *keys, const void *const *q, uint32_t n_rows, float *scores);

/*
 * sums[r][c] += weights[r][i] * element c of row i. An element that is not finite gives NaN even with weight 0. Returns
 * false only with f16: a sum is not finite; then the sums are unchanged.
 */
typedef bool kvb_sums_fn(const kvb_stored_rows *values, const float *weights, uint32_t n_rows, float *const *sums);

/*
 * The loops for floats. They take F32, F16 and BF16, dim a multiple of 16, and E4M3 and E5M2, dim a multiple of
 * FP8_DIM. Query rows and sums are `dim` floats, 64-byte aligned. Chains of f32 roundings (kvb_arithmetic): dots() dim
 * / VL + log2(VL), at most dim / 4 + 2; sums() n, and one more for the addition to what is there. So a row's sums over
 * all cells have a chain of BLOCK, and one more for each block.
 */
kvb_dots_fn KVB_ISA_NAME(kvb_dots), KVB_FLOATS_NAME(kvb_plain_dots); /* plain: of F32, F16 and BF16 alone */
kvb_sums_fn KVB_ISA_NAME(kvb_sums), KVB_FLOATS_NAME(kvb_plain_sums);

/*
 * Does dots() of `keys` and sums() of `values` in one loop: some rows of K, then as many of V, and so on. The bits are
 * the same. n_rows is 1 to 4 or 8. Rows have BESIDE_DIM channels. All elements are plain and of one type. There are as
 * many values as keys, a multiple of BESIDE_CELLS. scores and weights may be the same memory: a cell's weights are read
 * before its scores are written.
 */
void KVB_ISA_NAME(kvb_beside)(const kvb_stored_rows *keys, const void *const *q, float *scores,
                              const kvb_stored_rows *values, const float *weights, uint32_t n_rows, float *const *sums);
#define BESIDE_ROWS 8u
static inline bool kvb_beside_takes(uint32_t n_rows)
{
    return n_rows <= 4 || n_rows == BESIDE_ROWS;
}
#define BESIDE_CELLS 16u
#define BESIDE_DIM   128u

/* ---- many query rows, stored rows packed: packed.c --------------------------------------------------------------- */

/* packed [dim][BLOCK] f32: packed[c][i] = element c of keys[i]; 0 from n on. Plain elements, dim a multiple of 16. */
void KVB_ISA_NAME(kvb_pack_keys)(kvb_elem elem, const void *const *keys, uint32_t n, uint32_t dim, float *packed);

/* packed [BLOCK][dim] f32: a copy of the rows, 0 from n on. */
void KVB_ISA_NAME(kvb_pack_values)(kvb_elem elem, const void *const *values, uint32_t n, uint32_t dim, float *packed);

/*
 * c[r][j] = sum over k of a[r][k] b[k][j], added to what c holds when `add`; any number of rows, k < depth,
 * j < width, a multiple of 16. b [depth][b_row], of which `width` columns are taken, is 64-byte aligned, b_row a
 * multiple of 16. Chain: depth.
 */
void KVB_ISA_NAME(kvb_product)(uint32_t rows, uint32_t depth, uint32_t width, const float *const *a, const float *b,
                               uint32_t b_row, float *const *c, bool add);

/* ---- softmax: weights.c ------------------------------------------------------------------------------------------ */

/*
 * Softmax of one query row so far, in powers of two: a weight is 2^(s log2(e) - max). max is a whole number, so that
 * changing it multiplies by a power of two, which is exact.
 */
typedef struct kvb_row_state {
    float max;  /* -infinity: nothing seen yet */
    double sum; /* of the weights. In double: thousands of equal weights drift in float */
} kvb_row_state;

/* How scores become exponents of two. */
typedef struct kvb_logits {
    float scale;   /* scale * log2(e); with a softcap scale / softcap */
    float softcap; /* 0: none; else softcap * log2(e), the factor on tanh */
} kvb_logits;

/*
 * Turns the n >= 1 scores of each row, scores[r * BLOCK + i], into weights, in place. A weight is 0 if bit i of
 * visible[r] is not set, whatever its score is, and from n on, up to a multiple of 16. The state's max is raised only
 * if a weight would pass 2^8 (or the first time), to the largest exponent of the block, rounded up. earlier[r] becomes
 * the factor on the row's earlier sums: a power of two; 1 if nothing was seen before. The relative error of a weight's
 * exponential is WEIGHT_ERROR. To it come the roundings of the exponent: of s * scale (if there is no fused
 * multiply-add) and of its difference from max.
 */
void KVB_ISA_NAME(kvb_weigh)(kvb_logits logits, float *scores, uint32_t n, uint32_t n_rows, const uint64_t *visible,
                             kvb_row_state *const *state, float *earlier);
#define WEIGHT_ERROR 0x1p-23  /* found by trying every float: ci/tests/kernels/test_weights.c */
#define WEIGHT_FLOOR 0x1p-125 /* a weight below this, relative to the row's largest, may have become 0 */
#define TANH_ERROR   0x1p-22  /* absolute, of tanh(scale s); found the same way */

/* to[c] = from[c] * factor for c < dim, a multiple of 16. They may be the same. */
void KVB_ISA_NAME(kvb_rescale)(float *to, const float *from, uint32_t dim, float factor);

/* Are all sums[c], c < dim, finite? */
bool KVB_ISA_NAME(kvb_all_finite)(const float *sums, uint32_t dim);

/* ---- recurrent layers: scan_steps.c, scan_chunk.c ---------------------------------------------------------------- */

/* One token of one head (kernels/scan.h), for `columns` columns of its state: a multiple of 16. */
typedef struct kvb_scan_step {
    kvb_scan_kind kind; /* not CONV */
    kvb_elem elem;      /* of from and to: plain */
    uint32_t d_k, columns;
    uint32_t row, a_row; /* elements between rows of from and to; of a */
    const void *from;    /* NULL: zeros */
    void *to;            /* may be `from`; NULL: nowhere */
    const float *q, *k, *v;
    float decay, gate;      /* MAMBA2, LIGHTNING: decay of the state, factor on v; DELTA: alpha and beta */
    const float *gates, *a; /* MAMBA1: of these columns */
    float *out;             /* [columns] */
} kvb_scan_step;
void KVB_ISA_NAME(kvb_scan_token)(const kvb_scan_step *step);

/* out[c] = act(bias[c] + sum over i < taps of a[i][c] rows[i][c]), of `columns` columns. Rows of a lie d_v apart. bias
 * NULL: zeros. */
void KVB_ISA_NAME(kvb_scan_taps)(uint32_t taps, uint32_t d_v, uint32_t columns, const float *const *rows,
                                 const float *a, const float *bias, bool silu, float *out);

/*
 * SCAN_CHUNK tokens of the heads of one group at a time, by matrix products. d_k and d_v are multiples of 16. Kinds MAMBA2, LIGHTNING,
 * DELTA. With L the sums of log decays within the chunk, U[i] = gate v[i], and for DELTA the solution of
 *
 *     U[j] = beta (v[j] - exp(L[j]) k[j]^T S - sum over i < j of exp(L[j] - L[i]) k[j].k[i] U[i]),
 *     out[t] = exp(L[t]) q[t]^T S + sum over i <= t of exp(L[t] - L[i]) q[t].k[i] U[i]
 *     S = exp(L[n-1]) S + sum of exp(L[n-1] - L[i]) k[i] U[i]^T                 (n tokens)
 *
 * which is Mamba-2's dual form (arXiv 2405.21060, section 6) and Gated DeltaNet's chunkwise form (arXiv 2412.06464, section 3.3) solved
 * by substitution.
 */
#define SCAN_CHUNK 16u
typedef struct kvb_scan_chunk {
    const kvb_scan *args;
    uint32_t first, n; /* tokens of the call: n <= SCAN_CHUNK */
    uint32_t head;     /* the first one, and how many: of one group */
    uint32_t heads;
    uint32_t then_first, then_head; /* token and head that are taken next; n_tok: none */
    float *states;                  /* [heads][d_k][d_v], 64-byte aligned */
    float *scratch;                 /* kvb_scan_chunk_floats(), 64-byte aligned */
} kvb_scan_chunk;
void KVB_ISA_NAME(kvb_scan_take)(const kvb_scan_chunk *chunk);
static inline size_t kvb_scan_chunk_floats(uint32_t d_k, uint32_t d_v)
{
    return (size_t)SCAN_CHUNK * (4 * (size_t)d_k + 3 * (size_t)d_v + 3 * SCAN_CHUNK + 8);
}

/* ---- prefetching rows that are decoded or packed first ----------------------------------------------------------- */

/* The rows, scales and zeros of KV head h that the next turn will read: `run` cells, `ahead` further on than each of n
 * cells. */
typedef struct kvb_lookahead {
    const kvb_view *view;
    const uint32_t *cells; /* [n] */
    uint32_t h, n, ahead, run;
    bool steadily; /* kvb_lookahead_step() prefetches too */
    uint32_t done; /* prefetched so far: of the n cells, or, if n is 1, of its run */
} kvb_lookahead;

static inline uint32_t kvb_lookahead_all(const kvb_lookahead *next)
{
    return next->n > 1 ? next->n : next->run;
}

/* The lines of one table: codes, scales or zeros. */
static inline void kvb_lookahead_lines(const kvb_lookahead *next, const void *base, size_t stride)
{
    const uintptr_t line = 64;
    for (uint32_t i = 0; i < next->n; i++) {
        uintptr_t at = (uintptr_t)base + (next->cells[i] + next->ahead) * stride, end = at + next->run * stride;
        for (at &= -line; at < end; at += line)
            __builtin_prefetch((const void *)at, 0, 2);
    }
}

/* Prefetch the part of the first `end` that has not been prefetched yet. */
static inline void kvb_lookahead_to(kvb_lookahead *next, uint32_t end)
{
    const kvb_view *v = next->view;
    const uint32_t first = next->done;
    kvb_lookahead part = *next;
    if (first >= end)
        return;
    next->done = end;
    if (next->n > 1) {
        part.cells += first;
        part.n = end - first;
    } else {
        part.ahead += first;
        part.run = end - first;
    }
    kvb_lookahead_lines(&part, (const char *)v->base + next->h * v->head_stride, v->cell_stride);
    if (v->scales)
        kvb_lookahead_lines(&part, (const char *)v->scales + next->h * v->scale_head_stride, v->scale_cell_stride);
    if (v->zeros)
        kvb_lookahead_lines(&part, (const char *)v->zeros + next->h * v->zero_head_stride, v->zero_cell_stride);
}

/* Prefetch up to i of `of` equal parts. NULL: nothing. */
static inline void kvb_lookahead_until(kvb_lookahead *next, uint32_t i, uint32_t of)
{
    if (next)
        kvb_lookahead_to(next, kvb_lookahead_all(next) * i / of);
}

/* Prefetch the next eighth, if `steadily`. NULL: nothing. */
static inline void kvb_lookahead_step(kvb_lookahead *next)
{
    if (!next || !next->steadily)
        return;
    const uint32_t all = kvb_lookahead_all(next), end = next->done + all / 8;
    kvb_lookahead_to(next, end < all ? end : all);
}

/* ---- block products ---------------------------------------------------------------------------------------------- */

/*
 * Products that read and pack the rows of a block themselves, for any number of query rows. `next`: what to prefetch
 * meanwhile; NULL: nothing. scratch is 64-byte aligned.
 *
 * Scores: scores[r][i] = q[r] . K row of cells[i], i < n <= BLOCK. Scores from n on, up to a multiple of 16, are
 * arbitrary.
 */
typedef void kvb_block_scores_fn(const kvb_view *k, uint32_t h, const uint32_t *cells, uint32_t n,
                                 const void *const *queries, uint32_t n_rows, float *scores, kvb_lookahead *next,
                                 void *scratch);

/*
 * Sums: sums[r][c] += weights[r][i] * V row of cells[i], for the first v->dim channels. Weights are not negative. Those
 * from n up to the next multiple of 16 are 0. Behind these a row still holds what scores() wrote there. sums: [v->dim
 * rounded up to 16].
 */
typedef void kvb_block_sums_fn(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, const float *weights,
                               uint32_t n_rows, float *const *sums, kvb_lookahead *next, void *scratch);

/*
 * Integers: q and weights rounded to 8 bits, codes as they are stored. int8.h has the formats and the sizes. The
 * elements of a query row are rounded to multiples of INT8_QUERY_STEP * the row's largest magnitude; weight * scale of
 * a V group to multiples of INT8_WEIGHT_STEP * the largest such product of the row in this block.
 */
#define INT8_QUERY_STEP  (1.0 / 127)
#define INT8_WEIGHT_STEP (1.0 / 127)
kvb_query_fn KVB_ISA_NAME(kvb_int8_query);
/* The q [dim] that an encoded query row stands for. */
void KVB_ISA_NAME(kvb_int8_decoded)(const kvb_format *k, uint32_t dim, const void *encoded, double *q);
kvb_block_scores_fn KVB_ISA_NAME(kvb_int8_scores);
kvb_block_sums_fn KVB_ISA_NAME(kvb_int8_sums);

/* ---- bf16: bf16_in_place.c, bf16_blocks.c (AVX-512 BF16, AArch64's BF16) ----------------------------------------- */

/*
 * An instruction multiplies pairs of bf16 and adds both products to a float. q and weights are rounded to bf16; rows of
 * BF16, E4M3 and E5M2 are exact; sums are of f32, with the chains of the loops for floats. dim is a multiple of 16.
 *
 * The instruction takes numbers below BF16_LEAST for 0, also as results. A query row whose largest magnitude is below
 * BF16_LEAST_Q is therefore multiplied by a power of two first: at most BF16_LOST of that magnitude is lost.
 */
#define BF16_MAX_DIM 1024u
#define BF16_LEAST   0x1p-126
#define BF16_LEAST_Q 0x1p-40
#define BF16_LOST    (BF16_LEAST / BF16_LEAST_Q)

/*
 * x86 adds one product after the other, rounding to nearest. AArch64 adds the two products first, then their sum, and
 * rounds both to odd (BFDOT where FPCR.EBF is 0, as Linux leaves it: Arm DDI 0487, BFDotAdd): off by up to a whole unit
 * in the last place, as two roundings to nearest are. A term so passes through as many of these as on x86, and through
 * those of its own pair.
 */
#if defined(__aarch64__)
#define BF16_OWN_PAIR 2u
#else
#define BF16_OWN_PAIR 0u
#endif

/* Channels of a row, or of a tile made of rows: a multiple of 64. */
static inline uint32_t kvb_bf16_width(uint32_t dim)
{
    return (dim + 63) / 64 * 64;
}

/* An encoded query row: the factor that undoes its scaling; from byte 64 on bf16, zeros behind the last. */
static inline size_t kvb_bf16_query_bytes(uint32_t dim)
{
    return 64 + (size_t)kvb_bf16_width(dim) * 2;
}

/* Scratch of the block products, for rows of at most dim channels: the packed block, then query rows of a panel. */
#define AMX_PANEL 32u
static inline size_t kvb_bf16_scratch_bytes(uint32_t dim)
{
    return (size_t)kvb_bf16_width(dim) * BLOCK / 2 * sizeof(int32_t);
}
static inline size_t kvb_amx_scratch_bytes(uint32_t dim)
{
    return kvb_bf16_scratch_bytes(dim) + (size_t)kvb_bf16_width(dim) * AMX_PANEL * 2;
}

/* Few rows in place, or a block packed for any number: both take the same encoded query rows. */
typedef struct kvb_bf16_loops {
    kvb_query_fn *query;
    kvb_dots_fn *dots;
    kvb_sums_fn *sums;
    kvb_block_scores_fn *block_scores;
    kvb_block_sums_fn *block_sums;
} kvb_bf16_loops;

/*
 * The same block products by AMX: amx_blocks.c. An instruction makes 16 x 16 sums of 16 pairs each: even and odd elements
 * in a chain each, from 0 on, then those two are added, then that is added to what is there. So a score of dim channels has
 * a chain of 17 + dim / 32, rounded up; a sum one of 17, and up to AMX_ADDITIONS to what is there. Numbers below BF16_LEAST
 * are 0 here, too.
 */
#define AMX_ADDITIONS (BLOCK / 32)
typedef struct kvb_amx_loops {
    kvb_block_scores_fn *block_scores;
    kvb_block_sums_fn *block_sums;
} kvb_amx_loops;

/* ---- f16: f16_in_place.c (AVX-512 FP16) -------------------------------------------------------------------------- */

/*
 * Products and short sums of f16, in twice the lanes of f32. Sums of f16 are kept short. In sums() a lane adds
 * F16_CELLS cells, then the few such sums of a block; in dots() it adds a part of a dot product, then the parts are
 * added as a tree.
 *
 * Rows are F16; E4M3, read as f16 with 2^-8 of its value; or codes of 8 bits with f16 scales, Q8_0 and UINT8: a code is
 * exact as f16, the element made of it is rounded once. dim is a multiple of 16, of 64 for E4M3, of the group for
 * codes. q is scaled by a power of two to a largest magnitude in [2^3, 2^4), for E4M3 2^8 times that. Weights, at most
 * 2^8, are scaled by 2, for E4M3 by 2^7. Where that passes f16's range the functions return false, and the caller takes
 * floats.
 */
#define F16_MAX_DIM 1024u
#define F16_CELLS   16u

/* Chains of roundings to f16. With 8 lanes a row, dim / 8 products each and a tree of 3 additions; with 16 or 32 lanes
 * fewer products and trees of 4 or 5. A sum over a block adds F16_CELLS cells at a time. */
#define F16_DOT_CHAIN(dim) ((dim) / 8 + 4)
#define F16_SUM_CHAIN      (F16_CELLS + BLOCK / F16_CELLS)

/* Below f16's normal numbers a product is off by at most half of the smallest subnormal. */
#define F16_ERROR     0x1p-25
#define F16_LARGEST_Q 0x1p3 /* of a scaled query row, at least */
/* Factors on weights, of which a row's largest is at least a half in the end. For E4M3 without the 2^8 that undo its
 * 2^-8. */
#define F16_WEIGHTS      2.0
#define F16_WEIGHTS_E4M3 0.5

/* An encoded query row: the factor that undoes its scaling; from byte 64 on f16. */
static inline size_t kvb_f16_query_bytes(uint32_t dim)
{
    return 64 + (size_t)(dim + 31) / 32 * 64;
}

typedef struct kvb_f16_loops {
    kvb_query_fn *query;
    kvb_dots_fn *dots;
    kvb_sums_fn *sums;
} kvb_f16_loops;

/* ---- how they are reached ---------------------------------------------------------------------------------------- */

/* The functions that each level has: of its own, or of level KVB_ROWS or KVB_FLOATS. */
#define KVB_VECTOR_FUNCTIONS(OWN, ROWS, FLOATS)                                                                        \
    ROWS(load_of)                                                                                                      \
    ROWS(rows_at)                                                                                                      \
    ROWS(dots)                                                                                                         \
    ROWS(sums)                                                                                                         \
    OWN(int8_query)                                                                                                    \
    OWN(int8_decoded)                                                                                                  \
    OWN(int8_scores)                                                                                                   \
    OWN(int8_sums)                                                                                                     \
    FLOATS(hadamard)                                                                                                   \
    FLOATS(beside)                                                                                                     \
    FLOATS(pack_keys)                                                                                                  \
    FLOATS(pack_values)                                                                                                \
    FLOATS(product)                                                                                                    \
    FLOATS(weigh)                                                                                                      \
    FLOATS(rescale)                                                                                                    \
    FLOATS(all_finite)                                                                                                 \
    FLOATS(scan_token)                                                                                                 \
    FLOATS(scan_taps)                                                                                                  \
    FLOATS(scan_take)

typedef struct kvb_vector {
    kvb_cpu_level level;
    uint32_t lanes; /* floats of a vector */
#define FIELD(f) __typeof__(KVB_ISA_NAME(kvb_##f)) *f;
    KVB_VECTOR_FUNCTIONS(FIELD, FIELD, FIELD)
#undef FIELD
} kvb_vector;

extern const kvb_vector KVB_ISA_NAME(kvb_vector);

typedef struct kvb_loops {
    const kvb_vector *vector;
    const kvb_bf16_loops *bf16; /* NULL where the level has none */
    const kvb_f16_loops *f16;
    const kvb_amx_loops *amx; /* beside bf16 */
} kvb_loops;

/* NULL where this build has no such level. */
const kvb_loops *kvb_loops_at(kvb_cpu_level level);

/* The member of kvb_loops at this offset, of a level. NULL where the level, or this build, has none such. */
static inline const void *kvb_loops_part(kvb_cpu_level level, size_t offset)
{
    const kvb_loops *loops = kvb_loops_at(level);
    return loops ? *(const void *const *)(const void *)((const char *)loops + offset) : NULL;
}

/* Do they differ from those of every lower level? */
static inline bool kvb_loops_own(kvb_cpu_level level, size_t offset)
{
    const void *part = kvb_loops_part(level, offset);
    for (int below = 0; below < (int)level; below++)
        if (kvb_loops_part((kvb_cpu_level)below, offset) == part)
            return false;
    return part;
}

static inline const kvb_vector *kvb_vector_at(kvb_cpu_level level)
{
    const kvb_loops *loops = kvb_loops_at(level);
    return loops ? loops->vector : NULL;
}

#endif
