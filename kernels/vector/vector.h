/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of kernels flash-* and scan. The Makefile compiles most sources of this folder once for each level of
 * kernels/cpu.h, with -DKVB_ISA=name. Public names end with the level: KVB_ISA_NAME(f) is f_avx2. Loops over floats
 * (SRC_floats) and loops that read stored rows (SRC_rows) are compiled only where they differ from those of a lower
 * level. Other levels use the lower one's, KVB_FLOATS_NAME(f) and KVB_ROWS_NAME(f). bf16_*.c and f16_*.c are compiled
 * for levels with such products. kvb_loops_at() finds the loops of a level.
 *
 * A query row is one token and one query head. Rows of K and V come a block at a time: at most BLOCK cells of one KV
 * head, as pointers, so strided, paged and scattered cells are all alike. Scores and weights are [row][BLOCK] f32,
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
#ifndef KVB_FLOATS /* the level with the loops over floats that this level uses: usually itself */
#define KVB_FLOATS KVB_ISA
#endif
#ifndef KVB_ROWS /* the same for loops that read stored rows */
#define KVB_ROWS KVB_ISA
#endif
#define KVB_ISA_JOIN(name, isa)  name##_##isa
#define KVB_ISA_JOIN_(name, isa) KVB_ISA_JOIN(name, isa)
#define KVB_ISA_NAME(name)       KVB_ISA_JOIN_(name, KVB_ISA)
#define KVB_FLOATS_NAME(name)    KVB_ISA_JOIN_(name, KVB_FLOATS)
#define KVB_ROWS_NAME(name)      KVB_ISA_JOIN_(name, KVB_ROWS)

#define BLOCK 64u /* cells of a block: a bit of a word for each */

/* ---- rows as floats: load.c, hadamard.c -------------------------------------------------------------------------- */

/*
 * Decodes the rows of KV head h in the n listed cells. The transform is not undone and the head scale is not applied:
 * the caller applies both once, to q or to the result. rows: [n][stride] f32, 64-byte aligned; stride is a multiple of
 * 16 and at least view->dim; channels from view->dim on are set to 0. An element is code * scale + zero, in the
 * order of format->read. Without transform and head scale it has the same bits as from format->read.
 */
typedef void kvb_load(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, float *rows, size_t stride);

/* Finds the load of a format. NULL: there is none, as for a plug-in's own format; format->read reads the rows. */
kvb_load *KVB_ISA_NAME(kvb_load_of)(const kvb_format *format);

/* Transforms a row in place. inverse: SIGNED flips the signs last, not first; otherwise the inverse is the same. */
void KVB_ISA_NAME(kvb_hadamard)(kvb_transform transform, uint32_t dim, bool inverse, float *row);

/* ---- few query rows, stored rows where they lie ------------------------------------------------------------------ */

#define DOTS_ROWS 8u  /* most query rows of a call */
#define FP8_DIM   64u /* rows of E4M3 and E5M2 have a multiple of this many channels */

/* Stored rows of one block. No loop reads past the end of a row. */
typedef struct kvb_stored_rows {
    kvb_elem elem;
    uint32_t n, dim;
    const void *const *at; /* [n] */
    kvb_row_ahead ahead;
    /* The rows' view, cells and KV head. Only f16_in_place.c uses them, to find the scales and zeros of UINT8. */
    const kvb_view *view;
    const uint32_t *cells; /* [n] */
    uint32_t kv_head;
} kvb_stored_rows;

/* at[i] = address of the row of cell[i], for i < n <= BLOCK: first + cell[i] * stride. first: the row of cell 0.
 * neighbours: every cell[i] is cell[0] + i. */
void KVB_ISA_NAME(kvb_rows_at)(const void *first, size_t stride, const uint32_t *cell, uint32_t n, bool neighbours,
                               const void **at);

/* Encodes one query row q [dim], once for all blocks. k: the format of the K rows that q is multiplied with. */
typedef void kvb_query_fn(const kvb_format *k, uint32_t dim, const float *q, void *encoded);

/*
 * scores[r][i] = q[r] . row i, for n_rows <= DOTS_ROWS encoded query rows. Scores from n on, up to a multiple of 16,
 * are arbitrary. The loops of f16 return false if a score exceeded f16's range or is itself not finite; all scores are
 * then arbitrary. The other loops return true.
 */
typedef bool kvb_dots_fn(const kvb_stored_rows *keys, const void *const *q, uint32_t n_rows, float *scores);

/*
 * sums[r][c] += weights[r][i] * element c of row i. An element that is not finite gives NaN even with weight 0. The
 * loops of f16 return false if a sum is not finite; the sums are then unchanged. The other loops return true.
 */
typedef bool kvb_sums_fn(const kvb_stored_rows *values, const float *weights, uint32_t n_rows, float *const *sums);

/*
 * The loops for floats, over rows of F32, F16 and BF16 (dim a multiple of 16) and of E4M3 and E5M2 (dim a multiple of
 * FP8_DIM). Query rows and sums are `dim` floats, 64-byte aligned. Chains of f32 roundings (kvb_arithmetic): dots() has
 * dim / VL + log2(VL), at most dim / 4 + 2. sums() has n, and one more for the addition to earlier sums. So the sums of
 * a row over all cells have a chain of BLOCK, and one more for each block.
 */
kvb_dots_fn KVB_ISA_NAME(kvb_dots), KVB_FLOATS_NAME(kvb_dots);
kvb_sums_fn KVB_ISA_NAME(kvb_sums), KVB_FLOATS_NAME(kvb_sums);
kvb_dots_fn KVB_FLOATS_NAME(kvb_plain_dots); /* plain: F32, F16 and BF16 only */
kvb_sums_fn KVB_FLOATS_NAME(kvb_plain_sums);

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
 * c[r][j] = sum over k < depth of a[r][k] b[k][j], for j < width; with `add` c[r][j] += that sum. width and b_row are
 * multiples of 16. b is [depth][b_row], 64-byte aligned; its first `width` columns are used. Chain: depth.
 */
void KVB_ISA_NAME(kvb_product)(uint32_t rows, uint32_t depth, uint32_t width, const float *const *a, const float *b,
                               uint32_t b_row, float *const *c, bool add);

/* ---- softmax: weights.c ------------------------------------------------------------------------------------------ */

/*
 * Softmax of one query row so far, in powers of two: a weight is 2^(s log2(e) - max). max is a whole number, so a new
 * max multiplies earlier sums by a power of two, which is exact.
 */
typedef struct kvb_row_state {
    float max;  /* -infinity: nothing seen yet */
    double sum; /* of the weights; in float a sum of thousands of equal weights would drift */
} kvb_row_state;

/* How scores become exponents of two. */
typedef struct kvb_logits {
    float scale;   /* scale * log2(e); with a softcap scale / softcap */
    float softcap; /* 0: none; else softcap * log2(e), the factor on tanh */
} kvb_logits;

/*
 * Turns the n >= 1 scores of each row, scores[r * BLOCK + i], into weights, in place. A weight is 0 if bit i of
 * visible[r] is not set, whatever the score is. Weights from n on, up to a multiple of 16, are 0. A row's max is raised
 * only by the first visible block, or if a weight would exceed 2^8: to the block's largest exponent, rounded up.
 * earlier[r] becomes the factor on the row's earlier sums: a power of two; 1 if max is not raised or nothing was seen
 * before. The relative error of the exponential is WEIGHT_ERROR. The exponent is rounded besides: s * scale, and the
 * difference from max.
 */
void KVB_ISA_NAME(kvb_weigh)(kvb_logits logits, float *scores, uint32_t n, uint32_t n_rows, const uint64_t *visible,
                             kvb_row_state *const *state, float *earlier);
#define MOST_OVER    8.0f     /* exponent that a weight may reach before max is raised */
#define WEIGHT_ERROR 0x1p-23  /* found by trying every float: ci/tests/kernels/test_weights.c */
#define WEIGHT_FLOOR 0x1p-125 /* a weight below this, relative to the row's largest, may have become 0 */
#define TANH_ERROR   0x1p-22  /* absolute, of tanh(scale s); found the same way */

/* scores[r * BLOCK + i] becomes tanh(scale * itself), i < n rounded up to 16. */
void KVB_ISA_NAME(kvb_cap)(float scale, float *scores, uint32_t n, uint32_t n_rows);

/* to[c] = from[c] * factor for c < dim, a multiple of 16. `to` may be `from`. */
void KVB_ISA_NAME(kvb_rescale)(float *to, const float *from, uint32_t dim, float factor);

/* Are all sums[c], c < dim, finite? */
bool KVB_ISA_NAME(kvb_all_finite)(const float *sums, uint32_t dim);

/* ---- recurrent layers: scan_steps.c, scan_chunk.c ---------------------------------------------------------------- */

/* One token of one head (kernels/scan.h), for `columns` columns of its state: a multiple of 16. */
typedef struct kvb_scan_step {
    kvb_scan_kind kind; /* not CONV */
    kvb_elem elem;      /* of from and to: plain */
    uint32_t d_k, columns;
    uint32_t row, a_row; /* elements from one row to the next: of from and to; of a */
    const void *from;    /* NULL: zeros */
    void *to;            /* may be `from`; NULL: the new state is not stored */
    const float *q, *k, *v;
    float decay, gate;      /* MAMBA2, LIGHTNING: decay of the state, factor on v; DELTA: alpha and beta */
    const float *gates, *a; /* MAMBA1: gate and a of these columns */
    bool add;               /* MAMBA1: out already holds the sums of other rows */
    float *out;             /* [columns] */
} kvb_scan_step;
void KVB_ISA_NAME(kvb_scan_token)(const kvb_scan_step *step);

/* Does a call store its outputs past the caches? It does if they are f32, start at a cache line and take 16 MiB. */
static inline bool kvb_scan_streams(const kvb_scan *call)
{
    const kvb_scan_problem *p = &call->problem;
    return p->out_elem == KVB_F32 && (uintptr_t)call->out % 64 == 0 &&
           (size_t)p->n_tok * p->heads * p->d_v * sizeof(float) >= 16u << 20;
}

/* out[t][c] = act(bias[c] + sum over i < taps of a[i][c] rows[t + i][c]) for t < n and c < columns. Rows of a and of out
 * are d_v elements apart. bias NULL: zeros. streams: out is stored past the caches. */
void KVB_ISA_NAME(kvb_scan_taps)(uint32_t taps, uint32_t n, uint32_t d_v, uint32_t columns, const float *const *rows,
                                 const float *a, const float *bias, bool silu, float *out, bool streams);

/*
 * At most SCAN_CHUNK tokens of the heads of one group, by matrix products, for MAMBA2, LIGHTNING and DELTA. d_k and d_v
 * are multiples of 16. L[t] is the sum of the log decays of the chunk's tokens up to t, t included:
 *
 *     U[j] = gate v[j], or for DELTA, solved by substitution,
 *     U[j] = beta (v[j] - exp(L[j]) k[j]^T S - sum over i < j of exp(L[j] - L[i]) k[j].k[i] U[i])
 *     out[t] = exp(L[t]) q[t]^T S + sum over i <= t of exp(L[t] - L[i]) q[t].k[i] U[i]
 *     S = exp(L[n-1]) S + sum of exp(L[n-1] - L[i]) k[i] U[i]^T                 (n tokens)
 *
 * Mamba-2's dual form (arXiv 2405.21060, section 6), Gated DeltaNet's chunkwise form (arXiv 2412.06464, section 3.3).
 */
#define SCAN_CHUNK 16u
typedef struct kvb_scan_chunk {
    const kvb_scan *args;
    uint32_t first, n; /* tokens of the call: n <= SCAN_CHUNK */
    uint32_t head;     /* the first of `heads` heads, all of one group */
    uint32_t heads;
    uint32_t then_first, then_head; /* first token and head of the next chunk, to prefetch; n_tok: there is none */
    float *states;                  /* [heads][d_k][d_v], 64-byte aligned */
    float *scratch;                 /* kvb_scan_chunk_floats(), 64-byte aligned */
} kvb_scan_chunk;
void KVB_ISA_NAME(kvb_scan_take)(const kvb_scan_chunk *chunk);
static inline size_t kvb_scan_chunk_floats(uint32_t d_k, uint32_t d_v)
{
    return (size_t)SCAN_CHUNK * (2 * (size_t)d_k + 2 * (size_t)d_v + 3 * SCAN_CHUNK);
}

/* ---- prefetching rows that are decoded or packed first ----------------------------------------------------------- */

/* Rows, scales and zeros of KV head h that the next turn reads: `run` cells from each cells[i] + ahead on. */
typedef struct kvb_lookahead {
    const kvb_view *view;
    const uint32_t *cells; /* [n] */
    uint32_t h, n, ahead, run;
    bool steadily; /* kvb_lookahead_step() prefetches; else it does nothing */
    uint32_t done; /* prefetched so far: of the n cells; with n = 1, of the run's cells */
} kvb_lookahead;

static inline uint32_t kvb_lookahead_all(const kvb_lookahead *next)
{
    return next->n > 1 ? next->n : next->run;
}

/* Prefetches the lines of one table: codes, scales or zeros. */
static inline void kvb_lookahead_lines(const kvb_lookahead *next, const void *base, size_t stride)
{
    const uintptr_t line = 64;
    for (uint32_t i = 0; i < next->n; i++) {
        uintptr_t at = (uintptr_t)base + (next->cells[i] + next->ahead) * stride, end = at + next->run * stride;
        for (at &= -line; at < end; at += line)
            __builtin_prefetch((const void *)at, 0, 2);
    }
}

/* Prefetches the cells before number `end` that have not been prefetched yet. */
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

/* Prefetches the first i of `of` equal parts. NULL: nothing. */
static inline void kvb_lookahead_until(kvb_lookahead *next, uint32_t i, uint32_t of)
{
    if (next)
        kvb_lookahead_to(next, kvb_lookahead_all(next) * i / of);
}

/* Prefetches the next eighth, if `steadily`. NULL: nothing. */
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
 * from n up to the next multiple of 16 are 0; later ones are arbitrary. sums: [v->dim rounded up to 16].
 */
typedef void kvb_block_sums_fn(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, const float *weights,
                               uint32_t n_rows, float *const *sums, kvb_lookahead *next, void *scratch);

/*
 * Products of integers: q and weights are rounded to 8 bits, codes are used as stored (formats and sizes: int8.h). The
 * elements of a query row are rounded to multiples of INT8_QUERY_STEP * the row's largest magnitude; weight * scale of
 * a V group to multiples of INT8_WEIGHT_STEP * the largest such product of the row in this block. At level amx tiles multiply
 * more than DOTS_ROWS rows, with the bits of level avx512vnni.
 */
#define INT8_QUERY_STEP  (1.0 / 127)
#define INT8_WEIGHT_STEP (1.0 / 127)
kvb_query_fn KVB_ISA_NAME(kvb_int8_query);
/* Decodes an encoded query row to q [dim]. */
void KVB_ISA_NAME(kvb_int8_decoded)(const kvb_format *k, uint32_t dim, const void *encoded, double *q);
kvb_block_scores_fn KVB_ISA_NAME(kvb_int8_scores);
kvb_block_sums_fn KVB_ISA_NAME(kvb_int8_sums);

/* ---- bf16: bf16_in_place.c, bf16_blocks.c (AVX-512 BF16, AArch64's BF16) ----------------------------------------- */

/*
 * An instruction multiplies pairs of bf16 and adds both products to a float. q and weights are rounded to bf16; rows of
 * BF16, E4M3 and E5M2 are exact; sums are f32, with the chains of the loops for floats. dim is a multiple of 16.
 *
 * The instruction treats factors and results below BF16_LEAST as 0. If the largest magnitude of a query row is below
 * BF16_LEAST_Q, the row is first multiplied by a power of two: at most BF16_LOST of that magnitude is lost.
 */
#define BF16_MAX_DIM 1024u
#define BF16_LEAST   0x1p-126
#define BF16_LEAST_Q 0x1p-40
#define BF16_LOST    (BF16_LEAST / BF16_LEAST_Q)

/*
 * Roundings of a term that AArch64 adds to those of x86. x86 adds one product after the other and rounds to nearest.
 * AArch64 adds the two products of a pair, then the result to the sum, and rounds both to odd (BFDOT where FPCR.EBF is
 * 0, as Linux leaves it: Arm DDI 0487, BFDotAdd). A rounding to odd is off by up to a whole unit in the last place, as
 * two roundings to nearest are. So the sum of pairs has as many roundings as on x86, and a term's own pair two more.
 */
#if defined(__aarch64__)
#define BF16_OWN_PAIR 2u
#else
#define BF16_OWN_PAIR 0u
#endif

/* Channels of an encoded row, or of a tile of rows: dim rounded up to a multiple of 64. */
static inline uint32_t kvb_bf16_width(uint32_t dim)
{
    return (dim + 63) / 64 * 64;
}

/* Bytes of an encoded query row: a float, the factor that undoes the scaling; from byte 64 on bf16, then zeros. */
static inline size_t kvb_bf16_query_bytes(uint32_t dim)
{
    return 64 + (size_t)kvb_bf16_width(dim) * 2;
}

/* Scratch of the block products, for rows of at most dim channels: the packed block. */
static inline size_t kvb_bf16_scratch_bytes(uint32_t dim)
{
    return (size_t)kvb_bf16_width(dim) * BLOCK / 2 * sizeof(int32_t);
}

/* dots() and sums() take few query rows, block products any number. Both take the same encoded query rows. */
typedef struct kvb_bf16_loops {
    kvb_query_fn *query;
    kvb_dots_fn *dots;
    kvb_sums_fn *sums;
    kvb_block_scores_fn *block_scores;
    kvb_block_sums_fn *block_sums;
} kvb_bf16_loops;

/*
 * Scores, weights and sums by AMX: amx_blocks.c. An instruction makes 16 x 16 sums of 16 pairs. For each it adds up the
 * even and the odd elements in a chain each, from 0 on, then these two sums, then the result to the accumulator. So the
 * chain of a score is 17 + dim / 32, rounded up; that of a sum is 17, plus up to AMX_ADDITIONS for each block.
 * Numbers below BF16_LEAST are 0 here, too. The relative error of the exponential is AMX_WEIGHT_ERROR.
 */
#define AMX_ADDITIONS    (BLOCK / 32)
#define AMX_WEIGHT_ERROR 0x1p-18

#define AMX_PANEL 32u         /* rows, and */
#define AMX_STRIP (4 * BLOCK) /* cells that tiles multiply together */
typedef struct kvb_amx_group {
    const kvb_view *k, *v; /* v->dim: channels of V, also where it lies in K's rows */
    uint32_t kv_head;
    const uint32_t *cells;    /* [n_cells] of the first block */
    uint32_t n_cells, blocks; /* cell i of block b is cells[i] + b * BLOCK; of several, each has BLOCK, all are seen */
    uint32_t n_rows;
    const void *const *queries;  /* [n_rows] from kvb_bf16_loops.query() */
    const uint64_t *visible;     /* [n_rows] bit i: the row sees cell i, i < n_cells */
    kvb_row_state *const *state; /* [n_rows] */
    float *const *sums;          /* [n_rows][v->dim rounded up to 16] */
    kvb_logits logits;
} kvb_amx_group;

/* k_next, v_next: what follows the last block, to be prefetched; NULL: nothing. scratch: kvb_amx_scratch_bytes(), 64-byte
 * aligned. */
typedef struct kvb_amx_loops {
    void (*attend)(const kvb_amx_group *group, kvb_lookahead *k_next, kvb_lookahead *v_next, void *scratch);
} kvb_amx_loops;
static inline size_t kvb_amx_scratch_bytes(uint32_t k_dim, uint32_t v_dim)
{
    const size_t k = kvb_bf16_width(k_dim), v = kvb_bf16_width(v_dim);
    return AMX_STRIP * (k + v) * 2 + AMX_PANEL * ((BLOCK + 16) * sizeof(float) + AMX_STRIP * 2 + k * 2);
}

/* ---- f16: f16_in_place.c (AVX-512 FP16) -------------------------------------------------------------------------- */

/*
 * Products and short sums of f16, in twice the lanes of f32. In sums() a lane adds F16_CELLS cells, then the few such
 * sums of a block. In dots() a lane adds a part of a dot product, then a tree adds the parts.
 *
 * Rows are F16; E4M3, read as f16 with 2^-8 of the value; or Q8_0 and UINT8 with f16 scales: an 8-bit code is exact in
 * f16, its element is rounded once. dim is a multiple of 16; for E4M3 of 64; for codes of the group. q is scaled by a
 * power of two to a largest magnitude in [2^3, 2^4), for E4M3 2^8 times that. Weights, at most 2^8, are scaled by 2;
 * for E4M3 by 2^7. If a result exceeds f16's range, the functions return false, and the caller uses loops for floats.
 */
#define F16_MAX_DIM 1024u
#define F16_CELLS   16u

/* Chains of roundings to f16. A row on 8 lanes has dim / 8 products a lane and a tree of 3 additions; on 16 or 32 lanes
 * fewer products and a tree of 4 or 5. A sum over a block adds F16_CELLS cells at a time. */
#define F16_DOT_CHAIN(dim) ((dim) / 8 + 4)
#define F16_SUM_CHAIN      (F16_CELLS + BLOCK / F16_CELLS)

/* Below f16's normal numbers a product is off by at most half of the smallest subnormal. */
#define F16_ERROR     0x1p-25
#define F16_LARGEST_Q 0x1p3 /* the largest magnitude of a scaled query row is at least this */
/* Factors on weights. In the end a row's largest weight is at least a half. E4M3's leaves out the 2^8 that undoes the
 * 2^-8 of its values. */
#define F16_WEIGHTS      2.0
#define F16_WEIGHTS_E4M3 0.5

/* Bytes of an encoded query row: a float, the factor that undoes the scaling; from byte 64 on f16, then zeros. */
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

/* The functions of a level: its own, those of level KVB_ROWS, or those of level KVB_FLOATS. */
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
    uint32_t lanes; /* floats of a vector */
#define FIELD(f) __typeof__(KVB_ISA_NAME(kvb_##f)) *f;
    KVB_VECTOR_FUNCTIONS(FIELD, FIELD, FIELD)
#undef FIELD
} kvb_vector;

extern const kvb_vector KVB_ISA_NAME(kvb_vector);

typedef struct kvb_loops {
    const kvb_vector *vector;
    const kvb_bf16_loops *bf16; /* these three: NULL where the level has none */
    const kvb_f16_loops *f16;
    const kvb_amx_loops *amx; /* only together with bf16 */
} kvb_loops;

/* NULL: this build lacks the level. */
const kvb_loops *kvb_loops_at(kvb_cpu_level level);

/* The pointer at this offset of a level's kvb_loops. NULL: the level, or this build, has no such loops. */
static inline const void *kvb_loops_part(kvb_cpu_level level, size_t offset)
{
    const kvb_loops *loops = kvb_loops_at(level);
    return loops ? *(const void *const *)(const void *)((const char *)loops + offset) : NULL;
}

/* Does the level have such loops, other than those of every lower level? */
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

/* The level that these functions are compiled for: the lowest that has them. */
static inline kvb_cpu_level kvb_vector_level(const kvb_vector *vector)
{
    kvb_cpu_level level = KVB_CPU_PORTABLE;
    while (kvb_vector_at(level) != vector)
        level++;
    return level;
}

#endif
