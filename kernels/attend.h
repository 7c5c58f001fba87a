/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend.h: the kvbench attention contract, version KVB_ABI_VERSION.
 *
 * Everything needed to write an attention kernel that kvbench can load with `--plugin ./yours.so`.
 * C11, self-contained: copy this one file into your repository.
 *
 * A kernel computes, for every query token t and query head h, with g = n_heads / n_kv_heads,
 *
 *     s_j  = cap(scale * dot(q[t][h], K[h / g][j]))        for each cell j that the mask lets t see
 *     out  = sum_j exp(s_j) * V[h / g][j] / (sum_j exp(s_j) [+ exp(sink[h])])
 *     lse  = log(sum_j exp(s_j) [+ exp(sink[h])])
 *     cap(x) = softcap > 0 ? softcap * tanh(x / softcap) : x
 *
 * A query that sees no cell gets out = 0 and, without a sink, lse = -infinity (with one: the sink).
 *
 * Rules that every kernel keeps:
 *  - attend() allocates nothing, keeps no state between calls and never prints, and no function of the kernel starts a thread (but
 *    see KVB_KERNEL_FOREIGN). It runs its parallel parts on args->team, and uses only args->scratch for working memory.
 *  - It writes every element of out (and of lse when lse is not NULL), and nothing else.
 *  - It reads no cell at or above view.cells. A cell that the mask hides from a query, whoever else sees it, may hold NaN,
 *    and must not change that query's result: 0 times NaN is NaN.
 *  - It declares its arithmetic truthfully. The error bound that it is judged by is derived from that
 *    declaration, so a kernel that rounds more than it declares fails.
 *
 * Units: strides and sizes in bytes unless the name says cells, tokens or words.
 * Errors: functions return 0 or a negative errno; why[] gets one line without a newline.
 */
#ifndef KVB_ATTEND_H
#define KVB_ATTEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or a meaning below changes. A plug-in of another version is refused. */
#define KVB_ABI_VERSION 13u

/* ---- formats: how one row of K or V is encoded ------------------------------------------------ */

/*
 * Element encodings. Codes of 4 and 2 bits lie low bits first: channel 0 in the lowest bits of byte 0.
 * The Q ones are blocks of 32 channels that carry their own scales, laid out as ggml does
 * (ggml-common.h, block_q8_0 and so on): they have no side tables.
 */
typedef enum kvb_elem {
    KVB_F32,      /* IEEE 754 binary32 */
    KVB_F16,      /* IEEE 754 binary16 */
    KVB_BF16,     /* upper half of binary32, rounded to nearest even */
    KVB_E4M3,     /* OCP FP8 E4M3: largest 448 */
    KVB_E5M2,     /* OCP FP8 E5M2: largest 57344 */
    KVB_E2M1,     /* OCP FP4, two a byte: 0 0.5 1 1.5 2 3 4 6 and their negatives */
    KVB_E8M0,     /* OCP power-of-two scale: 2^(code - 127), 255 is NaN */
    KVB_INT8,     /* two's complement, times a scale */
    KVB_UINT8,    /* code * scale + zero */
    KVB_UINT4,    /* the same, two codes a byte */
    KVB_UINT2,    /* the same, four codes a byte */
    KVB_CODEBOOK, /* level[code] * scale; codes of level_bits bits, a bit stream, low bits first */
    KVB_Q8_0,     /* 34 bytes: f16 d, int8 q[32];                          x = d q */
    KVB_Q5_1,     /* 24 bytes: f16 d, f16 m, fifth bits [4], nibbles [16]; x = d q + m */
    KVB_Q5_0,     /* 22 bytes: f16 d, fifth bits [4], nibbles [16];        x = d (q - 16) */
    KVB_Q4_1,     /* 20 bytes: f16 d, f16 m, nibbles [16];                 x = d q + m */
    KVB_Q4_0,     /* 18 bytes: f16 d, nibbles [16];                        x = d (q - 8) */
    KVB_IQ4_NL,   /* 18 bytes: f16 d, nibbles [16];                        x = d kvalues_iq4nl[q] */
    KVB_OPAQUE,   /* a plug-in's own encoding: only format->read() knows it */
    KVB_ELEM_COUNT
} kvb_elem;

/* Which elements share one scale: `group` neighbouring channels of one token, or one channel of `group` neighbouring
 * cells. */
typedef enum kvb_axis { KVB_AXIS_NONE, KVB_AXIS_CHANNELS, KVB_AXIS_TOKENS } kvb_axis;

#define KVB_GROUP_ROW UINT32_MAX /* as group: all channels of a row */

/* A factor fixed before the first row is stored, for all rows of a KV head; TENSOR: the same for every KV head of the
 * layer. */
typedef enum kvb_static_scale { KVB_STATIC_NONE, KVB_STATIC_TENSOR, KVB_STATIC_HEAD } kvb_static_scale;

/*
 * Orthogonal transform applied to a row before encoding. A kernel that uses rows as they are stored applies it to q
 * (for K) and to out (for V). Walsh-Hadamard in natural order, divided by sqrt(block), on each block of channels; a
 * block is the largest power of two that divides dim. It is its own inverse. SIGNED first negates the channels for
 * which kvb_sign_flip() holds; on the way back it does so last.
 */
typedef enum kvb_transform { KVB_TRANSFORM_NONE, KVB_TRANSFORM_HADAMARD, KVB_TRANSFORM_SIGNED_HADAMARD } kvb_transform;

typedef struct kvb_view kvb_view;
typedef struct kvb_format kvb_format;

/*
 * Rows of KV head h, cells c .. c+n-1, as floats, the transform undone: rows [n][view->dim]. An element passes through
 * at most kvb_format_roundings() roundings. Safe to call from several threads.
 */
typedef void kvb_rows_read(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows);

/*
 * What a row of dim elements must become when a pool stores it: decode(encode(row)). Computed from the format's
 * definition in plain C, and not by the pool's own code, which it judges. stored [dim]: exact, in double. size [dim]:
 * for each element the sum of the magnitudes of its terms, which is |stored| if it is one product.
 */
typedef void kvb_row_reference(const kvb_format *format, uint32_t dim, const float *row, double *stored, double *size);

/*
 * K and V formats are independent. `name` is unique: two formats of one name are the same.
 * A stored element is code * scale (of its group) * head scale + zero (of its group). Scales that a format lacks are 1,
 * zeros are 0; no format has both a zero and a head scale.
 */
struct kvb_format {
    const char *name;             /* "a4g64+had" */
    kvb_elem elem;                /* encoding of one element */
    kvb_axis axis;                /* of the groups */
    uint32_t group;               /* elements that share a scale; 0 without scales; KVB_GROUP_ROW */
    kvb_elem scale_elem;          /* meaningful when group > 0 and the element is no block */
    kvb_elem zero_elem;           /* meaningful when the elements are unsigned codes */
    kvb_static_scale head_scale;  /* view.head_scales */
    kvb_transform transform;      /* applied before encoding */
    uint32_t residual_cells;      /* cells encoded together; until then view.recent holds them as f16. 0: each row is
                                   * encoded when it is stored. With axis TOKENS it equals group */
    uint32_t residual_blocks;     /* at most so many blocks of residual_cells are f16 at a time: those last written */
    const float *levels;          /* CODEBOOK: [2^level_bits], ascending */
    uint32_t level_bits;          /* CODEBOOK: 3 or 4 */
    kvb_rows_read *read;          /* never NULL */
    kvb_row_reference *reference; /* OPAQUE: what the oracle expects. NULL: kernels over it are not judged */
    uint32_t read_roundings;      /* OPAQUE: kvb_format_roundings() */
};

/* Do its elements carry a zero point in a side table? */
static inline bool kvb_format_has_zeros(const kvb_format *f)
{
    return f->elem == KVB_UINT8 || f->elem == KVB_UINT4 || f->elem == KVB_UINT2;
}

/* Are its elements blocks with scales of their own inside? */
static inline bool kvb_elem_is_block(kvb_elem elem)
{
    return elem >= KVB_Q8_0 && elem <= KVB_IQ4_NL;
}

/* Are rows plain f32, with no transform, scales or residual cells? A kernel may then read them by kvb_view_row() alone.
 */
static inline bool kvb_format_is_f32(const kvb_format *f)
{
    return f->elem == KVB_F32 && f->axis == KVB_AXIS_NONE && f->group == 0 && !f->head_scale && !f->transform &&
           f->residual_cells == 0;
}

/* Channels that a transform mixes: the largest power of two that divides dim. */
static inline uint32_t kvb_transform_block(uint32_t dim)
{
    return dim & (0u - dim);
}

/* Channels negated by KVB_TRANSFORM_SIGNED_HADAMARD: a hash, so that no row is likely to be a Walsh function. */
static inline bool kvb_sign_flip(uint32_t channel)
{
    uint32_t x = (channel + 1) * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x >> 31;
}

/*
 * How many f32 roundings, at most, lie between stored bytes and an element decoded by format->read() or by a kernel:
 * one for each factor and term, one for each stage of the transform and one for its factor. A kernel that reads the
 * format adds them to its chains.
 */
static inline uint32_t kvb_format_roundings(const kvb_format *f, uint32_t dim)
{
    uint32_t n = (f->group > 0) + (f->head_scale != KVB_STATIC_NONE) + kvb_format_has_zeros(f) +
                 (f->elem == KVB_Q5_1 || f->elem == KVB_Q4_1);
    if (f->elem == KVB_OPAQUE)
        n = f->read_roundings;
    if (f->transform)
        for (uint32_t block = 2 * kvb_transform_block(dim); block > 1; block /= 2)
            n++;
    return n;
}

/* ---- views: where rows lie -------------------------------------------------------------------- */

#define KVB_SLOT_NONE UINT32_MAX

/*
 * Rows of K or V of one layer, head-major [n_kv_heads][cells][dim].
 * The row of KV head h in cell c starts at base + h * head_stride + c * cell_stride.
 * Owned by the pool; valid until the next change to the cache that produced it.
 *
 * Side tables (NULL where the format has none). Axis CHANNELS: the scales of head h, cell c are the
 * dim / group (KVB_GROUP_ROW: 1) elements at scales + h * scale_head_stride + c * scale_cell_stride; axis TOKENS:
 * the dim elements at scales + h * scale_head_stride + c / group * scale_cell_stride; zeros by the same rule.
 *
 * Formats with residual_cells = w: if recent_slot[c / w] = s is not KVB_SLOT_NONE, the row is not encoded yet. It is
 * then dim f16 at recent + s * recent_slot_stride + h * recent_head_stride + c % w * dim * 2.
 *
 * A view may have two regions. Cells below front->cells are those of `front`, a view of the same format, dim and head
 * scales that has no front itself; the others are the view's own, the first of them at `base`: kvb_view_row() and
 * kvb_view_read() know. `cells` counts both. Formats with residual_cells have no front. A kernel without
 * KVB_KERNEL_FRONTS never meets one, and format->read neither.
 */
struct kvb_view {
    const void *base;
    size_t head_stride; /* bytes from one KV head to the next */
    size_t cell_stride; /* bytes from one cell to the next */
    uint32_t cells;     /* readable cells: 0 .. cells-1 */
    uint32_t dim;       /* elements of a row */
    const kvb_format *format;
    const void *scales; /* side table of scales */
    size_t scale_head_stride;
    size_t scale_cell_stride;
    const void *zeros; /* side table of zero points or biases */
    size_t zero_head_stride;
    size_t zero_cell_stride;
    const float *head_scales; /* [n_kv_heads] */
    const void *recent;
    const uint32_t *recent_slot; /* [(cells + w - 1) / w] */
    size_t recent_slot_stride, recent_head_stride;
    const kvb_view *front; /* the first cells, which may lie elsewhere; NULL: all are the view's own */
};

/* ---- masks: which cells a query sees ---------------------------------------------------------- */

typedef enum kvb_mask_kind {
    KVB_MASK_NONE,     /* every query sees cells 0 .. view.cells-1 */
    KVB_MASK_CAUSAL,   /* lower-right aligned: query t of n sees cells 0 .. cells-n+t */
    KVB_MASK_EXPLICIT, /* bit rows: query t sees cell c iff bit c%64 of bits[t*row_words + c/64] */
    KVB_MASK_RUNS,     /* CSR: query t sees runs[row_start[t]] .. runs[row_start[t+1]-1] */
    KVB_MASK_PAGES,    /* page tables, which queries share: query t sees positions of pages[row_start[t]], … */
    KVB_MASK_KINDS
} kvb_mask_kind;

#define KVB_MASK_BIT(kind) (1u << (kind))
#define KVB_MASKS_ALL      (KVB_MASK_BIT(KVB_MASK_KINDS) - 1) /* of a kernel that reads masks by kvb_mask_next() */

/* Cells begin .. end-1. Runs of one query are disjoint and not empty, in any order. */
typedef struct kvb_run {
    uint32_t begin, end;
} kvb_run;

/*
 * PAGES: page p is cells p * page_cells .. (p + 1) * page_cells - 1. Position i of the sequence of query t lies in page
 * pages[row_start[t] + i / page_cells], at its place i % page_cells; tables of two sequences may name the same page.
 * The query sees positions seen[t].begin .. seen[t].end-1, and before them the first `sinks` ones, as far as there are
 * any. An entry for positions that no query of its table sees may hold anything: its page may be gone.
 */
typedef struct kvb_mask {
    kvb_mask_kind kind;
    const uint64_t *bits;      /* EXPLICIT: [n_tok][row_words] */
    size_t row_words;          /* EXPLICIT: (cells + 63) / 64 or more */
    const uint32_t *row_start; /* RUNS: [n_tok + 1]; PAGES: [n_tok], of queries of one sequence the same */
    const kvb_run *runs;       /* RUNS: [row_start[n_tok]] */
    const uint32_t *pages;     /* PAGES */
    const kvb_run *seen;       /* PAGES: [n_tok], positions */
    uint32_t page_cells, sinks;
} kvb_mask;

/* ---- the problem: supports(), scratch_bytes() and arithmetic() depend on nothing else ------------ */

typedef struct kvb_problem {
    uint32_t n_tok;   /* query tokens */
    uint32_t n_heads; /* query heads, a multiple of n_kv_heads */
    uint32_t n_kv_heads;
    uint32_t k_dim;    /* elements of a q or K row */
    uint32_t v_dim;    /* elements of a V or out row */
    uint32_t n_cells;  /* readable cells of both views */
    float scale;       /* factor on q.k, usually 1/sqrt(k_dim) */
    float softcap;     /* 0: none */
    bool has_sinks;    /* one extra logit per query head, without a V row */
    bool v_in_k;       /* V is the first v_dim elements of the K row: v_format is k_format, and v repeats k's place */
    kvb_elem out_elem; /* KVB_F32, KVB_F16 or KVB_BF16 */
    kvb_mask_kind mask;
    const kvb_format *k_format, *v_format;
    bool deterministic; /* the same bits whatever the size of the team */
} kvb_problem;

/* ---- threads ----------------------------------------------------------------------------------- */

/*
 * A team of n threads, each bound to a core by the harness, the caller being one of them.
 * run() calls part(ctx, i, n) once for each i in 0 .. n-1, possibly at once, and returns when all have.
 */
typedef struct kvb_team {
    uint32_t n;
    void (*run)(const struct kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx);
} kvb_team;

/* ---- one call ---------------------------------------------------------------------------------- */

typedef struct kvb_attend {
    kvb_problem problem;
    const float *q; /* [n_tok][n_heads][k_dim] */
    kvb_view k, v;
    kvb_mask mask;
    const float *sinks; /* [n_heads] when has_sinks, else NULL */
    void *out;          /* [n_tok][n_heads][v_dim] of out_elem */
    float *lse;         /* [n_tok][n_heads], or NULL when not asked for */
    void *scratch;      /* scratch_bytes(problem, team->n) bytes, 64-byte aligned, content arbitrary */
    const kvb_team *team;
} kvb_attend;

/*
 * Declared arithmetic: what a kernel rounds. The error bound that it is judged by is computed from this (oracle/bound.h
 * has the formula). A declaration by which outputs of 0 would pass fails (oracle/claim.h). A kernel that works in f32
 * throughout sets the first six fields and leaves the three records 0; kvb_arithmetic_plain() does so for plain loops.
 *
 * A chain counts the roundings that one term passes through on its way into a sum, at most: a plain loop over n terms
 * has chain n; 16 lanes followed by a tree of 4 additions have n / 16 + 4.
 */

/*
 * Roundings to numbers narrower than the accumulator, at one of the three places below. `step` and `floor` are relative
 * to the largest magnitude that the place names.
 */
typedef struct kvb_rounding {
    kvb_elem rounding; /* numbers are rounded to this type; KVB_F32: not at all */
    uint32_t chain;    /* terms are then added in this type, before the accumulator: roundings of one term, at most */
    double step;       /* numbers are rounded to multiples of step: each is off by at most step / 2 */
    double floor;      /* a number too small for a relative error is off by at most this */
} kvb_rounding;

typedef struct kvb_arithmetic {
    kvb_elem accumulator; /* of dot products and of the sums over cells: KVB_F32 */
    uint32_t dot_chain;   /* in the accumulator, of one q.k dot product of k_dim terms */
    uint32_t cell_chain;  /* in the accumulator, of the sums over the visible cells, at most n_cells of them */
    uint32_t rescales;    /* most times one partial sum is multiplied by an exp(old max - new max) */
    double exp_error;     /* largest relative error of exp */
    double exp_floor;     /* weights exp(s - max) below this may be taken as 0 */

    kvb_rounding query;  /* of the elements of q before they are multiplied. Relative to the row's largest |q| */
    kvb_rounding scores; /* of the dot products. floor: of a whole dot product, relative to the row's largest |q| */
    /* Of the weights and of the sums over cells. step: of a weight times its V element, relative to the largest weight
     * times the largest visible |v|; to nearest, so that none is off by more than itself. floor: of the same, relative
     * to the largest weight. */
    kvb_rounding sums;
} kvb_arithmetic;

/*
 * Declared order. A kernel that states in which order it adds is judged to the bit besides: the oracle repeats its f32
 * arithmetic (oracle/exact.h), and one different bit fails. That is asked of calls over plain rows alone (f32, f16, bf16;
 * no scales, no transform), where rows and outputs are finite. A row of q meets its visible cells in tiles, each cell
 * once. For each tile, in f32 unless said otherwise:
 *
 *   1. s of each cell, from its dot product        kvb_order_tile.dot, kvb_softmax
 *   2. max                                         kvb_softmax
 *   3. w = exp(s - max) of each cell               kvb_order.exp
 *   4. z, the sum of w, in double                  kvb_order.weights
 *   5. sums[c], the sums of w * v[c]               kvb_order_tile.v_cells
 *
 * Products of 1 and 5 are rounded before they are added, unless `fused`.
 */

/* A sum by lanes: lanes begin with 0, and term i is added to lane i % n, in order. Then, for each fold before the first
 * 0, every lane i becomes the sum of lanes i and i ^ fold. The result is lane 0. */
#define KVB_SUM_LANES 64u /* at most */
typedef struct kvb_sum_lanes {
    uint32_t n, folds[6];
} kvb_sum_lanes;

/*
 * TWO_PASSES  s = scale * dot, with a softcap softcap * tanhf(s / softcap). max is the largest s of all tiles and the
 *             sink, z begins with the sink's weight. out = sums / (float)z, lse = max + logf((float)z)
 * ONLINE      The same s. max begins as the sink and z as 1; without a sink as -infinity and 0. A tile that raises max
 *             multiplies z and sums by exp(old max - max). out = (float)(sums / z), lse = (float)(max + log(z))
 * POWERS      s = (float)(scale * log2(e)) * dot; no softcap. exp() is 2^x. max begins as -infinity; a tile with an s
 *             above max + 8 raises max to its largest s rounded up, and multiplies z and sums by 2^(old max - max). The
 *             sink comes last, in double: s = sink * log2(e); s > max raises max to s rounded up, f = 2^(old max - max),
 *             else f = 1; z = z f + 2^(s - max). out = sums * (float)(f / z), lse = (float)(max ln(2) + log(z))
 */
typedef enum kvb_softmax { KVB_SOFTMAX_TWO_PASSES, KVB_SOFTMAX_ONLINE, KVB_SOFTMAX_POWERS } kvb_softmax;

typedef struct kvb_order_tile {
    uint32_t cells;    /* of the tile */
    kvb_sum_lanes dot; /* q.k: terms are its products, by channel */
    uint32_t v_cells;  /* the products of so many cells are added up from 0, then added to sums; 0: each to sums */
    /* POWERS: max, z and sums begin anew. At the end the parts are added to the first one, in order: z and sums of both
     * are multiplied by 2^(their max - the larger max). */
    bool part;
} kvb_order_tile;

#define KVB_CELL_NONE UINT32_MAX /* a place in a tile without a cell that the row sees: adds 0 */

/* Takes a tile of a row; cells [tile->cells]. */
typedef void kvb_tile_take(void *ctx, const kvb_order_tile *tile, const uint32_t *cells);

typedef struct kvb_order {
    kvb_softmax softmax;
    bool fused;
    kvb_sum_lanes weights; /* z: terms are the weights of a tile, whose sum is added in double; n 0: each weight is */
    float (*exp)(float);   /* NULL: expf() of the C library */
    kvb_order_tile tile;   /* of all tiles, cells in the order of kvb_mask_next(); cells 0: all cells are one tile */
    /* Gives the tiles of a row (token * n_heads + head) to take(), in place of `tile`. It may overwrite call->scratch. */
    void (*tiles)(const kvb_attend *call, uint32_t row, kvb_tile_take *take, void *ctx);
} kvb_order;

/* A witness reports what each query saw in place of computing attention: see kernels/witness.h. */
#define KVB_KERNEL_WITNESS 1u
/* A built-in kernel whose code is chosen by the level of instruction sets in use: see kernels/cpu.h. Only shown. */
#define KVB_KERNEL_VECTOR 2u
/* It reads views of two regions. To another kernel the caller gives their rows staged as f32. */
#define KVB_KERNEL_FRONTS 4u
/* It calls somebody else's engine, which allocates, has threads of its own and keeps both: records say so, it is not
 * refused. */
#define KVB_KERNEL_FOREIGN 8u
/* It gives no log-sum-exp: `lse` is NULL in its calls, and is not judged. */
#define KVB_KERNEL_NO_LSE 16u
/* Its project promises nothing where hidden cells are not finite: it is judged over finite ones alone. */
#define KVB_KERNEL_FINITE_CELLS 32u
/* It reads rows of f32, writes f32, and takes neither softcap nor sinks: it needs no supports(). All else is declined,
 * or comes staged as f32. */
#define KVB_KERNEL_PLAIN 64u

/*
 * The rule by which a foreign kernel's own project passes an output, where it declares no arithmetic: the verdict is
 * this rule's, over the outputs of each call that the oracle knows. arithmetic() then says what the formats imply, and
 * errors are reported relative to that bound. NMSE: the sum of squared errors is at most limit times that of the exact
 * outputs. CLOSE: each |error| is at most limit + relative |exact|. source: where the project says so.
 */
typedef enum kvb_tolerance_kind { KVB_TOLERANCE_NONE, KVB_TOLERANCE_NMSE, KVB_TOLERANCE_CLOSE } kvb_tolerance_kind;
typedef struct kvb_tolerance {
    kvb_tolerance_kind kind;
    double limit, relative;
    const char *source;
} kvb_tolerance;

/*
 * The q that a kernel multiplies K's rows with, of one row of one query head: rounded[k_dim], in the terms of the
 * formula above, so for rows of K as they are decoded, transform undone. k is the view that attend() gets, for what
 * belongs to a whole KV head (head_scales); its rows and cells are not to be read. Depends on nothing else: not on
 * n_tok, n_cells, mask or team. 0 or a negative errno.
 */
typedef int kvb_query_round(const kvb_problem *problem, const kvb_view *k, uint32_t head, const float *q,
                            double *rounded);

/*
 * A kernel has two faces, of which it may leave one out: attend(), for layers that attend, and `scan`, for layers that
 * scan. A model with layers of both kinds runs those without a face here by kernel flash, or scan.
 */
typedef struct kvb_kernel {
    const char *name;    /* what --kernel takes: lower case, digits, dashes; the first no dash; at most 63 */
    const char *summary; /* one line for `kvbench list` */
    uint32_t flags;      /* KVB_KERNEL_… */
    /* Can it run on this machine (ISA by CPUID)? NULL: always. Where it can, why may name what it found there, such as
     * a library. */
    bool (*available)(char *why, size_t why_bytes);

    int (*attend)(const kvb_attend *args); /* NULL: no such face, and nothing up to `scan` is read */
    uint32_t masks; /* KVB_MASK_BIT()s it takes; 0: all. The caller turns any other mask into EXPLICIT. */
    /* Can it do this problem? Asked before any attend() of the same problem. NULL: always; as KVB_KERNEL_PLAIN says. */
    bool (*supports)(const kvb_problem *problem, char *why, size_t why_bytes);
    /* Scratch that attend() needs with n_threads threads; NULL: none. */
    size_t (*scratch_bytes)(const kvb_problem *problem, uint32_t n_threads);
    void (*arithmetic)(const kvb_problem *problem, kvb_arithmetic *arithmetic); /* NULL: kvb_arithmetic_plain() */
    /* The order in which it adds in this call, if it keeps one that can be said. NULL: in none. */
    bool (*order)(const kvb_attend *call, kvb_order *order);
    /* For a kernel that rounds q. The result is then judged as attention of that q, so `query` of the arithmetic widens
     * no bound: it only says how far rounded may be from q. NULL: the bound allows any q that `query` does. */
    kvb_query_round *round_query;
    kvb_tolerance tolerance; /* of a foreign kernel */

    const struct kvb_scan_face *scan; /* kernels/scan.h; NULL: no such face */
} kvb_kernel;

/* ---- plug-ins ---------------------------------------------------------------------------------- */

/*
 * A shared object exports one symbol of this type, named kvb_plugin.
 * Lists end with NULL; an absent list is NULL. Built-in parts are listed by the same struct.
 */
typedef struct kvb_plugin_v1 {
    uint32_t abi_version; /* KVB_ABI_VERSION: always the first field */
    const char *name;
    const kvb_kernel *const *kernels;
    const struct kvb_cache_type *const *caches; /* caches/cache.h */
    const struct kvb_pool_type *const *pools;   /* caches/pools/pool.h */
} kvb_plugin_v1;

#define KVB_PLUGIN_SYMBOL "kvb_plugin"
#define KVB_PLUGIN_EXPORT __attribute__((visibility("default")))

/* A plug-in of one kernel: KVB_PLUGIN_KERNEL("mine", "my kernel", .flags = KVB_KERNEL_PLAIN, .attend = attend); */
#define KVB_PLUGIN_KERNEL(NAME, SUMMARY, ...)                                                                          \
    static const kvb_kernel kvb_plugin_kernel = {.name = NAME, .summary = SUMMARY, __VA_ARGS__};                       \
    static const kvb_kernel *const kvb_plugin_kernels[] = {&kvb_plugin_kernel, NULL};                                  \
    KVB_PLUGIN_EXPORT extern const kvb_plugin_v1 kvb_plugin;                                                           \
    const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = NAME, .kernels = kvb_plugin_kernels}

/* ---- small helpers every kernel needs ---------------------------------------------------------- */

/* Cells of the view's front; 0 without one. */
static inline uint32_t kvb_view_front_cells(const kvb_view *view)
{
    return view->front ? view->front->cells : 0;
}

/* The view's own region alone. */
static inline kvb_view kvb_view_own(const kvb_view *view)
{
    kvb_view own = *view;
    own.cells -= kvb_view_front_cells(view);
    own.front = NULL;
    return own;
}

/* Row of KV head h in cell c: its codes. */
static inline const void *kvb_view_row(const kvb_view *view, uint32_t h, uint32_t c)
{
    const uint32_t front = kvb_view_front_cells(view);
    const kvb_view *of = c < front ? view->front : view;
    return (const char *)of->base + h * of->head_stride + (c < front ? c : c - front) * of->cell_stride;
}

/* format->read() of cells in either region, or in both. */
static inline void kvb_view_read(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    const uint32_t front = kvb_view_front_cells(view), before = c >= front ? 0 : n < front - c ? n : front - c;
    const kvb_view own = kvb_view_own(view);
    if (before)
        view->format->read(view->front, h, c, before, rows);
    if (n > before)
        view->format->read(&own, h, c + before - front, n - before, rows + (size_t)before * view->dim);
}

/* kvb_mask_next() under PAGES; *cursor is a position. */
static inline bool kvb_mask_next_pages(const kvb_mask *mask, uint32_t t, uint32_t *cursor, kvb_run *run)
{
    const uint32_t *pages = mask->pages + mask->row_start[t], n = mask->page_cells;
    const kvb_run seen = mask->seen[t];
    uint32_t pos = *cursor < mask->sinks || *cursor > seen.begin ? *cursor : seen.begin;
    const uint32_t end = pos < mask->sinks && mask->sinks < seen.begin ? mask->sinks : seen.end;
    if (pos >= end)
        return false;
    run->begin = run->end = pages[pos / n] * n + pos % n;
    while (pos < end && run->end == pages[pos / n] * n + pos % n) { /* neighbouring pages are one run */
        uint32_t some = n - pos % n < end - pos ? n - pos % n : end - pos;
        run->end += some;
        pos += some;
    }
    *cursor = pos;
    return true;
}

/*
 * The visible cells of query t as runs, for every kind of mask: call with *cursor = 0, again until it returns false.
 * Runs of a RUNS mask come in its own order, which may be any, those of PAGES in the order of positions, others
 * ascending. EXPLICIT rows are scanned word by word.
 */
static inline bool kvb_mask_next(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint32_t t, uint32_t *cursor,
                                 kvb_run *run)
{
    if (mask->kind == KVB_MASK_RUNS) {
        uint32_t i = mask->row_start[t] + *cursor;
        if (i >= mask->row_start[t + 1])
            return false;
        *run = mask->runs[i];
        (*cursor)++;
        return true;
    }
    if (mask->kind == KVB_MASK_PAGES)
        return kvb_mask_next_pages(mask, t, cursor, run);
    if (mask->kind != KVB_MASK_EXPLICIT) {
        run->begin = 0;
        run->end = mask->kind == KVB_MASK_NONE ? n_cells : n_cells - n_tok + t + 1;
        return (*cursor)++ == 0 && run->end > 0;
    }
    const uint64_t *bits = mask->bits + t * mask->row_words;
    uint32_t c = *cursor;
    while (c < n_cells && !(bits[c / 64] >> (c % 64) & 1))
        c += bits[c / 64] >> (c % 64) ? 1 : 64 - c % 64;
    run->begin = c;
    while (c < n_cells && (bits[c / 64] >> (c % 64) & 1))
        c++;
    run->end = *cursor = c;
    return run->begin < run->end;
}

/* A walk over the cells that a row of q sees (row t * n_heads + h): begins with {0}, and has each cell once. */
typedef struct kvb_walk {
    uint32_t cell;
    const void *k, *v; /* the cell's rows, as they are stored */
    uint32_t cursor;   /* of kvb_mask_next() */
    kvb_run ahead;
} kvb_walk;

static inline bool kvb_walk_next(const kvb_attend *args, uint32_t row, kvb_walk *walk)
{
    const kvb_problem *p = &args->problem;
    const uint32_t t = row / p->n_heads, kv_head = row % p->n_heads / (p->n_heads / p->n_kv_heads);
    if (walk->ahead.begin == walk->ahead.end &&
        !kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &walk->cursor, &walk->ahead))
        return false;
    walk->cell = walk->ahead.begin++;
    walk->k = kvb_view_row(&args->k, kv_head, walk->cell);
    walk->v = kvb_view_row(&args->v, kv_head, walk->cell);
    return true;
}

/* What loops over f32 declare that sum one term after the other, with an exp() that is off by at most 1 ulp. */
static inline void kvb_arithmetic_plain(const kvb_problem *problem, kvb_arithmetic *arithmetic)
{
    static const kvb_arithmetic plain = {.exp_error = 0x1p-23, .exp_floor = 0x1p-126};
    *arithmetic = plain;
    arithmetic->dot_chain = problem->k_dim;
    arithmetic->cell_chain = arithmetic->rescales = problem->n_cells;
}

#ifdef __cplusplus
}
#endif
#endif
