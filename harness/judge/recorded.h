/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention calls that somebody else's kernel made, recorded as arrays in a file, and how these are to be read.
 *
 * Arrays of a call: q, k, v, out; if there are such: lse, sinks (one logit for each query head), mask (bool or additive),
 * lengths (cells of each sequence), cu_seqlens_q, cu_seqlens_k, block_table, k_scale, v_scale. A file with several calls names
 * them CALL.q, CALL.k, … or CALL/q, ….
 */
#ifndef KVB_JUDGE_RECORDED_H
#define KVB_JUDGE_RECORDED_H

#include "harness/judge/tensors.h"
#include "kernels/attend.h"

typedef enum kvb_recorded_part {
    KVB_RECORDED_Q,
    KVB_RECORDED_K,
    KVB_RECORDED_V,
    KVB_RECORDED_OUT,
    KVB_RECORDED_LSE,
    KVB_RECORDED_SINKS,
    KVB_RECORDED_MASK,
    KVB_RECORDED_LENGTHS,
    KVB_RECORDED_CU_Q,
    KVB_RECORDED_CU_K,
    KVB_RECORDED_TABLE,
    KVB_RECORDED_K_SCALE,
    KVB_RECORDED_V_SCALE,
    KVB_RECORDED_PARTS
} kvb_recorded_part;
extern const char *const kvb_recorded_parts[KVB_RECORDED_PARTS]; /* "q", … */

typedef enum kvb_causal { KVB_CAUSAL_UNSAID, KVB_CAUSAL_NO, KVB_CAUSAL_LOWER_RIGHT, KVB_CAUSAL_UPPER_LEFT } kvb_causal;

/* What arrays do not say of themselves. The last fields are what other readings differ in: 0 of what was said. */
typedef struct kvb_recorded_reading {
    uint32_t layout; /* 1 + place in kvb_layouts; 0: unsaid */
    kvb_causal causal;
    double scale;        /* on q.k; KVB_SCALE_ROOT: 1/sqrt(k_dim); NaN: unsaid */
    double window;       /* cells that a query sees at most, its own among them; 0: no window */
    double window_sinks; /* cells at the beginning that a window keeps */
    double softcap;
    double q_scale, k_scale, v_scale; /* of the whole array; 1 */
    uint32_t lse_base, lse_layout;    /* 1 + place in the words of these keys; 0: unsaid */
    uint32_t k_format, v_format;      /* 1 + place in kvb_recorded_formats; 0: by the array's type */
    uint32_t arithmetic;              /* 1 + place in kvb_presets; 0: unsaid */
    kvb_arithmetic own;               /* of the preset "own" */

    bool no_softcap, no_sinks, no_scales, lse_lacks_sink, heads_interleaved, next_lengths, next_table;
    int32_t more_cells;   /* at the end */
    uint32_t fewer_cells; /* at the beginning */
    double scale_factor;  /* 0: 1 */
} kvb_recorded_reading;
#define KVB_SCALE_ROOT (-1.0)

/* Axes of arrays: b batch, h head, s token or cell, d channel, p page. Of cu_seqlens: sequences lie one behind the other along s. */
typedef struct kvb_layout {
    const char *name, *q, *kv, *lse[2];
    bool joined, paged;
    const char *summary;
} kvb_layout;
extern const kvb_layout kvb_layouts[]; /* ends with name NULL */

/* Arithmetic by name, with its source. */
typedef struct kvb_preset {
    const char *name, *summary;
    kvb_arithmetic arithmetic; /* less the chains, which are plain loops' */
} kvb_preset;
extern const kvb_preset kvb_presets[]; /* ends with name NULL; the one before it is "own": a declaration of its own */
void kvb_reading_arithmetic(const kvb_recorded_reading *reading, const kvb_problem *problem,
                            kvb_arithmetic *arithmetic);

/* One key of a description: "layout", "scale", …. */
typedef struct kvb_reading_key {
    const char *name, *help;
} kvb_reading_key;
extern const kvb_reading_key kvb_reading_keys[]; /* ends with name NULL */
/* 0, or -EINVAL with why: no such key; no such value of it. */
int kvb_reading_set(kvb_recorded_reading *reading, const char *key, const char *value, char *why, size_t why_bytes);

/* An array by its axes; those that it lacks have 1 and stride 0. */
enum { KVB_AXIS_B, KVB_AXIS_H, KVB_AXIS_S, KVB_AXIS_D, KVB_AXIS_P, KVB_AXES_OF_ARRAYS };
typedef struct kvb_axed {
    const kvb_tensor *tensor; /* NULL: there is none */
    uint64_t n[KVB_AXES_OF_ARRAYS], stride[KVB_AXES_OF_ARRAYS];
} kvb_axed;

typedef struct kvb_recorded {
    char name[64];
    const char *path;                           /* of its file */
    const kvb_tensor *part[KVB_RECORDED_PARTS]; /* NULL: there is none */
    kvb_recorded_reading reading;
} kvb_recorded;

typedef struct kvb_recordings {
    kvb_tensors *tensors, *inputs; /* inputs: NULL where all is in one file */
    kvb_recorded *calls;
    uint32_t n;
} kvb_recordings;

/*
 * The calls of a file or folder. What they are is said by, the later the stronger: metadata of a safetensors file, the JSON beside
 * it (F.json beside F.npz, F.safetensors; describe.json in a folder), under "calls" of that for one call by its name, and `said`:
 * n texts "key=value". inputs: another file, with what the first lacks of each call, and with its description; or NULL. 0, or a
 * negative errno with why, one line: file, array, what was expected.
 */
int kvb_recordings_open(const char *path, const char *inputs, const char *const *said, size_t n,
                        kvb_recordings *recordings, char *why, size_t why_bytes);
/* The description beside a file or folder: FILE.json, FOLDER/describe.json. */
void kvb_recorded_beside(const char *path, char *file, size_t bytes);
void kvb_recordings_close(kvb_recordings *recordings);

/* The shape of a call under a reading. */
typedef struct kvb_recorded_shape {
    const kvb_layout *layout;
    const struct kvb_codec *codec[2]; /* of K and V whose rows are blocks; NULL: elements */
    kvb_axed q, k, v, out, lse, mask, scale[2];
    uint32_t batch, heads, kv_heads, k_dim, v_dim, page;
    uint64_t pages;
    kvb_elem out_elem;
    bool latent; /* V is the first v_dim channels of K */
} kvb_recorded_shape;
/* 0; -EINVAL with why: the arrays are none of such a call. */
int kvb_recorded_shape_of(const kvb_recorded *call, const kvb_recorded_reading *reading, kvb_recorded_shape *shape,
                          char *why, size_t why_bytes);

/* Of sequence b: its queries and cells, and where they begin in arrays of sequences one behind the other. */
typedef struct kvb_recorded_sequence {
    uint32_t queries, cells;
    uint64_t q_at, k_at;
} kvb_recorded_sequence;
void kvb_recorded_sequence_of(const kvb_recorded *call, const kvb_recorded_reading *reading,
                              const kvb_recorded_shape *shape, uint32_t b, kvb_recorded_sequence *sequence);

/* Row of K (side 0) or V of one cell and KV head, decoded: row, size [dim]; size as in kvb_codec.decode, with scales. */
void kvb_recorded_row(const kvb_recorded *call, const kvb_recorded_reading *reading, const kvb_recorded_shape *shape,
                      int side, uint32_t b, uint32_t kv_head, const kvb_recorded_sequence *sequence, uint32_t cell,
                      double *row, double *size);

/* May query t of sequence b see the cell, by the array `mask`? True without one. */
bool kvb_recorded_unmasked(const kvb_recorded_shape *shape, uint32_t b, uint32_t t, uint32_t cell);

/* The cells that query t of the sequence sees but for the array `mask`: [0, *sinks) and [*begin, *end). */
void kvb_recorded_sees(const kvb_recorded_reading *reading, const kvb_recorded_sequence *sequence, uint32_t t,
                       uint32_t *sinks, uint32_t *begin, uint32_t *end);

#endif
