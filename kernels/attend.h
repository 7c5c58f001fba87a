/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend.h: the kvbench attention contract, version KVB_ABI_VERSION.
 *
 * Everything needed to write an attention kernel that kvbench can load with `--plugin ./yours.so`.
 * C11, self-contained: copy this file and view.h, which it includes, into your repository.
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
 *  - It reads no cell at or above view.cells. A cell that the mask hides from a query, even if another query sees it, may hold
 *    NaN, and must not change that query's result: 0 times NaN is NaN.
 *  - It declares its arithmetic truthfully. The error bound that it is judged by is derived from that
 *    declaration, so a kernel that rounds more than it declares fails.
 *
 * Units: strides and sizes in bytes unless the name says cells, tokens or words.
 * Errors: functions return 0 or a negative errno; why[] gets one line without a newline.
 */
#ifndef KVB_ATTEND_H
#define KVB_ATTEND_H

#include "view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or a meaning below, in view.h or in scan.h changes. A plug-in of another version is refused. */
#define KVB_ABI_VERSION 13u

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
    bool v_in_k;       /* V is the first v_dim elements of the K row: v_format is k_format, and v has k's addresses */
    kvb_elem out_elem; /* KVB_F32, KVB_F16 or KVB_BF16 */
    kvb_mask_kind mask;
    const kvb_format *k_format, *v_format;
    bool deterministic; /* the same bits whatever the size of the team */
} kvb_problem;

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
 * Declared arithmetic: the roundings of a kernel. Its error bound is computed from them (oracle/bound.h has the formula).
 * A declaration so wide that outputs of 0 would pass fails (oracle/claim.h). A kernel that works in f32 throughout sets
 * the first six fields and leaves the three records 0; kvb_arithmetic_plain() does so for plain loops.
 *
 * A chain is the largest number of roundings that one term passes through on its way into a sum: a plain loop over n
 * terms has chain n; 16 lanes followed by a tree of 4 additions have n / 16 + 4.
 */

/*
 * Roundings to numbers narrower than the accumulator, at one of the three places below. `step` and `floor` are relative
 * to the largest magnitude that the place names.
 */
typedef struct kvb_rounding {
    kvb_elem rounding; /* numbers are rounded to this type; KVB_F32: not at all */
    uint32_t chain;    /* terms are first added in this type, then in the accumulator: most roundings of one term */
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
    /* Weights, and sums over cells. step: weight * v is rounded to the nearest multiple of step * (largest weight) *
     * (largest visible |v|), so its error is at most the product itself. floor: of weight * v, relative to the largest
     * weight. */
    kvb_rounding sums;
} kvb_arithmetic;

/*
 * Declared order. A kernel that declares the order of its additions is also judged to the bit: the oracle repeats its f32
 * arithmetic (oracle/exact.h), and one different bit fails. This check takes only calls over plain rows (f32, f16, bf16;
 * no scales, no transform) with finite rows and outputs. A row of q takes its visible cells in tiles, each cell once. For
 * each tile, in f32 unless said otherwise:
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
    uint32_t v_cells;  /* products of v_cells cells are added up from 0, then to sums; 0: each product to sums */
    /* POWERS: the tile begins a part: max, z and sums begin anew. At the end the parts are added to the first one, in
     * order: z and sums of both are multiplied by 2^(their max - the larger max). */
    bool part;
} kvb_order_tile;

#define KVB_CELL_NONE UINT32_MAX /* in a tile: no cell that the row sees; adds 0 */

/* Takes a tile of a row; cells [tile->cells]. */
typedef void kvb_tile_take(void *ctx, const kvb_order_tile *tile, const uint32_t *cells);

typedef struct kvb_order {
    kvb_softmax softmax;
    bool fused;
    kvb_sum_lanes weights; /* sums a tile's weights, then adds to z in double; n 0: adds each weight to z in double */
    float (*exp)(float);   /* NULL: expf() of the C library */
    kvb_order_tile tile;   /* all tiles, cells in the order of kvb_mask_next(); cells 0: all cells are one tile */
    /* Calls take() for each tile of a row (token * n_heads + head). May overwrite call->scratch. NULL: `tile` counts. */
    void (*tiles)(const kvb_attend *call, uint32_t row, kvb_tile_take *take, void *ctx);
} kvb_order;

/* A witness reports which rows each query saw and computes no attention: see kernels/witness.h. */
#define KVB_KERNEL_WITNESS 1u
/* A built-in kernel with code for several levels of instruction sets: see kernels/cpu.h. Only shown. */
#define KVB_KERNEL_VECTOR 2u
/* The kernel reads views with a front. For a kernel without this flag the caller stages such rows as f32. */
#define KVB_KERNEL_FRONTS 4u
/* The kernel calls another project's engine, which allocates, has threads of its own and keeps both. This is recorded,
 * not refused. */
#define KVB_KERNEL_FOREIGN 8u
/* The kernel gives no log-sum-exp: `lse` is NULL in its calls, and is not judged. */
#define KVB_KERNEL_NO_LSE 16u
/* The kernel's project promises nothing if hidden cells are not finite: it is judged over finite cells only. */
#define KVB_KERNEL_FINITE_CELLS 32u
/* The kernel reads f32 rows, writes f32, and takes neither softcap nor sinks. It needs no supports(): the caller stages
 * other formats as f32, and declines the rest. */
#define KVB_KERNEL_PLAIN 64u

/*
 * The rule by which a foreign kernel's own project passes an output. If the kernel declares no arithmetic, this rule
 * gives the verdict, over the outputs of each call that the oracle knows. arithmetic() then declares what the formats
 * imply, and errors are reported relative to that bound. NMSE: the sum of squared errors is at most limit times that of
 * the exact outputs. CLOSE: each |error| is at most limit + relative |exact|. source: where the project states the rule.
 */
typedef enum kvb_tolerance_kind { KVB_TOLERANCE_NONE, KVB_TOLERANCE_NMSE, KVB_TOLERANCE_CLOSE } kvb_tolerance_kind;
typedef struct kvb_tolerance {
    kvb_tolerance_kind kind;
    double limit, relative;
    const char *source;
} kvb_tolerance;

/*
 * Gives the q that a kernel multiplies K's rows with: rounded [k_dim], for one row q of one query head. It is meant for
 * the formula above, so for decoded rows of K with the transform undone. k is the view of attend(), for facts about a
 * whole KV head (head_scales); its rows and cells must not be read. The result depends on nothing else: not on n_tok,
 * n_cells, mask or team. 0 or a negative errno.
 */
typedef int kvb_query_round(const kvb_problem *problem, const kvb_view *k, uint32_t head, const float *q,
                            double *rounded);

/*
 * A kernel has two faces: attend() for layers that attend, and `scan` for layers that scan. It may leave one out: in a
 * model with layers of both kinds, kernel flash or kernel scan then runs the other layers.
 */
typedef struct kvb_kernel {
    const char *name;    /* for --kernel: lower case, digits and dashes, no dash first, at most 63 characters */
    const char *summary; /* one line for `kvbench list` */
    uint32_t flags;      /* KVB_KERNEL_… */
    /* Can the kernel run on this machine (ISA by CPUID)? If so, why may name what it found, such as a library. NULL:
     * always. */
    bool (*available)(char *why, size_t why_bytes);

    int (*attend)(const kvb_attend *args); /* NULL: no such face, and members up to `scan` are not read */
    uint32_t masks; /* KVB_MASK_BIT()s it takes; the caller expands other masks to EXPLICIT. 0: all */
    /* Can it do this problem? Called before any attend() of the problem. NULL: always, or as KVB_KERNEL_PLAIN says. */
    bool (*supports)(const kvb_problem *problem, char *why, size_t why_bytes);
    /* Scratch that attend() needs with n_threads threads; NULL: none. */
    size_t (*scratch_bytes)(const kvb_problem *problem, uint32_t n_threads);
    void (*arithmetic)(const kvb_problem *problem, kvb_arithmetic *arithmetic); /* NULL: kvb_arithmetic_plain() */
    /* Gives the order of additions in this call; false: kvb_order cannot express it. NULL: always false. */
    bool (*order)(const kvb_attend *call, kvb_order *order);
    /* For a kernel that rounds q. Its result is judged as attention of the rounded q, so `query` of the arithmetic widens
     * no bound: it only limits how far rounded may be from q. NULL: the bound allows any q that `query` does. */
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

/* ---- small helpers ------------------------------------------------------------------------------- */

/* A walk over the cells that row t * n_heads + h of q sees, each cell once. Begin with {0}. */
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

/* The declaration of f32 loops that add one term after the other, with an exp() that is off by at most 1 ulp. */
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
