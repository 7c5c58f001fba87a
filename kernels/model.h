/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h: a replayed model as caches, kernels and oracle see it: layers in groups. Layers of one group have rows of the
 * same shape and let a query see the same tokens; layers of different groups may differ in both.
 * C11: the trace header, kvb_cache_open(), the oracle and plug-ins take this one description.
 *
 * A group attends or scans. A layer that scans keeps for each sequence one recurrent state [heads][d_k][d_v] and, with a
 * convolution before it, the convolution's state [conv_width - 1][conv_channels]. Both are defined by kernels/scan.h, and have
 * one size however long the sequence is. Recurrence and types are plain numbers here: a model needs neither attend.h nor scan.h.
 *
 * What a query at position p sees of its sequence in a layer: the tokens at positions j with
 *
 *     first(p) <= j <= p   or   j < sinks and j <= p
 *
 *     first(p) = p + 1 - window  (0 where that is negative)   with a window: the last `window` positions, its own included
 *                p / chunk * chunk                            with a chunk: the positions of its own chunk
 *                0                                            with neither
 *
 * In a draft tree the tokens are those of the committed sequence and of the node's ancestors, each at its own position.
 */
#ifndef KVB_MODEL_H
#define KVB_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVB_MODEL_LAYERS 1024u /* most layers of a model */
#define KVB_MODEL_GROUPS 32u   /* most groups */
#define KVB_MODEL_WIDTH  4096u /* most heads, and most elements of a row */
#define KVB_MODEL_TAPS   64u   /* most taps of a convolution */
#define KVB_MODEL_ROW    65536u /* most elements of a token's q, v or convolved row, all heads of a recurrence together */

/*
 * The positional part of a group's K rows, needed to move a stored token to another position. `dims` elements of each KV
 * head's row, from element `first` on, are pairs: (first + i, first + i + dims/2), or with `neighbours` (first + 2i,
 * first + 2i + 1). At position p pair i has been turned by the angle p * base^(-2i/dims).
 */
typedef struct kvb_rope {
    bool known;      /* false: positions cannot be shifted */
    bool neighbours; /* pairing */
    uint32_t first;  /* element */
    uint32_t dims;   /* even; 0: K rows have no positional part, and are never turned */
    double base;
} kvb_rope;

/* The states of a layer that scans. Both states have the same slot number. */
typedef struct kvb_group_scan {
    uint32_t kind;                  /* the recurrence, a kvb_scan_kind: any but KVB_SCAN_CONV */
    uint32_t heads, groups;         /* heads of v and of the state; heads of q and k, which divide `heads` */
    uint32_t d_k, d_v;              /* rows of a head's state; elements of a row */
    uint32_t conv_width;            /* taps, at least 2; 0: no convolution */
    uint32_t conv_channels;         /* 0 without one */
    bool silu;                      /* behind the convolution */
    uint32_t state_elem, conv_elem; /* how the states are stored, a kvb_elem: KVB_F32, KVB_F16 or KVB_BF16 */
} kvb_group_scan;

typedef enum kvb_group_kind { KVB_GROUP_ATTEND, KVB_GROUP_SCAN } kvb_group_kind;

typedef struct kvb_group {
    uint32_t heads;        /* query heads, a multiple of kv_heads */
    uint32_t kv_heads;     /* heads of K and V */
    uint32_t k_dim, v_dim; /* elements of a K (and q) row, of a V (and output) row */
    bool latent;           /* V is the first v_dim elements of the K row (MLA, absorbed): one row is stored */
    uint32_t window;       /* positions; 0: no window */
    uint32_t sinks;        /* every query also sees the first `sinks` positions; needs a window */
    uint32_t chunk;        /* positions; 0: no chunks. Not together with a window */
    double scale;          /* factor on q.k; kernels get it as f32 */
    kvb_rope rope;         /* of K */
    float softcap;         /* of the scaled logits: softcap tanh(x / softcap); 0: none */
    /* [heads] one more logit for each query head, learned, without a V row. Owned by the maker of the model, and kept as
     * long as the model is used. NULL: none. */
    const float *sink_logits;
    kvb_group_kind kind;
    kvb_group_scan scan; /* KVB_GROUP_SCAN only; the members before `kind` are 0 then */
} kvb_group;

/* A plain value: may be copied. */
typedef struct kvb_model {
    uint32_t n_layers, n_groups;
    uint8_t group_of[KVB_MODEL_LAYERS]; /* [n_layers] index in groups */
    kvb_group groups[KVB_MODEL_GROUPS]; /* [n_groups] */
} kvb_model;

static inline const kvb_group *kvb_model_group(const kvb_model *model, uint32_t layer)
{
    return &model->groups[model->group_of[layer]];
}

/* Number of layers of a group. */
static inline uint32_t kvb_model_layers_of(const kvb_model *model, uint32_t group)
{
    uint32_t n = 0;
    for (uint32_t layer = 0; layer < model->n_layers; layer++)
        n += model->group_of[layer] == group;
    return n;
}

/* Does a query of this group see less than its whole past? */
static inline bool kvb_group_limits(const kvb_group *group)
{
    return group->window || group->chunk;
}

static inline bool kvb_group_scans(const kvb_group *group)
{
    return group->kind == KVB_GROUP_SCAN;
}

static inline bool kvb_model_scans(const kvb_model *model)
{
    uint32_t g = 0;
    while (g < model->n_groups && !kvb_group_scans(&model->groups[g]))
        g++;
    return g < model->n_groups;
}

/* The first group without a known rope: its positions cannot be shifted. -1: none. States have no positions. */
static inline int kvb_model_unknown_rope(const kvb_model *model)
{
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (!kvb_group_scans(&model->groups[g]) && !model->groups[g].rope.known)
            return (int)g;
    return -1;
}

/* Bytes of a slot for a layer's recurrent state, or (conv) for its convolution's: whole lines of 64. 0: no convolution. */
size_t kvb_group_slot_bytes(const kvb_group *group, bool conv);

/* The rope of a group that gives none: base 10000, halves, over the whole K row; latent: over the part behind V. */
kvb_rope kvb_rope_usual(const kvb_group *group);
/*
 * Turn a row in place to a position that is `by` further. angles [rope->dims]: the same for all rows that turn by as much.
 * For each pair (x, y), with c and s the cosine and sine of by * base^(-2i/dims), computed in double and rounded to f32:
 * (x c - y s, x s + y c), each product, the sum and the difference rounded to f32.
 */
void kvb_rope_angles(const kvb_rope *rope, int64_t by, float *angles);
void kvb_rope_turn(const kvb_rope *rope, const float *angles, float *row);

/* The name of a kvb_scan_kind: "mamba1", "mamba2", "lightning", "delta", "conv". */
const char *kvb_scan_kind_name(uint32_t kind);

/* 0, or -EINVAL with the group and the field at fault in why. */
int kvb_model_check(const kvb_model *model, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
