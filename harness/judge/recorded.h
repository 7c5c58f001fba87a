/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recorded calls of attention and of scans: arrays in a file, written by another program, and how to read them.
 *
 * Arrays of attention: q, k, v, out. Optional: lse, sinks (a logit for each query head), mask (bool or additive),
 * lengths (cells of each sequence), cu_seqlens_q, cu_seqlens_k, block_table, k_scale, v_scale, q_rounded (of a kernel
 * that rounds q: the q that it multiplied, in q's shape and units). Arrays of a scan: those of its recurrence in
 * kernels/scan.h, among q, k, v, out, gate, beta, a, bias. Optional: initial_state, final_state (of each sequence),
 * lengths (tokens of each sequence), cu_seqlens. A convolution's v and a may be named x and taps. A file with several
 * calls names arrays CALL.q, CALL.k, … or CALL/q, ….
 */
#ifndef KVB_JUDGE_RECORDED_H
#define KVB_JUDGE_RECORDED_H

#include "kernels/attend.h"
#include "kernels/scan.h"
#include "workloads/safetensors.h"

/* ---- readings: facts about a call that its arrays do not show ---------------------------------------------------- */

typedef enum kvb_causal { KVB_CAUSAL_UNSAID, KVB_CAUSAL_NO, KVB_CAUSAL_LOWER_RIGHT, KVB_CAUSAL_UPPER_LEFT } kvb_causal;

/* A declaration in JSON. lacks: a declared field that attention lacks, one that scans lack; NULL: none. */
typedef struct kvb_declared {
    kvb_arithmetic attends;
    kvb_scan_arithmetic scans;
    const char *lacks[2];
} kvb_declared;

/* The first members are set by keys (kvb_reading_set). Those from no_softcap on are 0 then: only the other readings
 * that are tried on a wrong call set them (judge.c). */
typedef struct kvb_recorded_reading {
    uint32_t recurrence; /* 1 + kvb_scan_kind; 0: attention */
    uint32_t layout;     /* 1 + index in kvb_layouts; 0: unset */
    kvb_causal causal;
    double scale;        /* on q.k; scans: on q. KVB_SCALE_ROOT: 1/sqrt(k_dim); NaN: unset */
    double window;       /* most cells that a query sees, with its own; 0: no window */
    double window_sinks; /* first cells, which a query sees besides its window */
    double softcap;
    double q_scale, k_scale, v_scale;  /* factors on whole arrays; 1: none */
    uint32_t lse_base, lse_layout;     /* 1 + index in the words of these keys; 0: unset */
    uint32_t k_format, v_format;       /* 1 + index in kvb_codecs; 0: from the array's type */
    uint32_t state_layout, activation; /* 1 + index in the words of these keys; 0: unset */
    uint32_t arithmetic;               /* 1 + index in kvb_presets; 0: unset */
    kvb_declared own;                  /* for the preset "own" */

    bool no_softcap, no_sinks, no_scales, lse_lacks_sink, heads_interleaved, next_lengths, next_table;
    int32_t more_cells;   /* at the end; scans: tokens before the final state */
    uint32_t fewer_cells; /* at the beginning */
    double scale_factor;  /* 0: 1 */
    bool next_gate, plain_write, plain_decay, no_beta, q_for_k, no_initial, taps_reversed, no_bias;
    double decay_factor; /* on the exponents of decays; 0: 1 */
} kvb_recorded_reading;
#define KVB_SCALE_ROOT (-1.0)

/* The kind of a call, as a bit. */
#define KVB_OF_ATTENTION 1u
#define KVB_OF_SCANS     2u
static inline uint32_t kvb_reading_of(const kvb_recorded_reading *reading)
{
    return reading->recurrence ? KVB_OF_SCANS : KVB_OF_ATTENTION;
}

/* Axes of arrays: b batch, h head, s token or cell, d channel, p page. joined: sequences lie one behind the other along
 * s, as cu_seqlens says. A layout without axes of lse is for scans only, a paged one for attention only. */
typedef struct kvb_layout {
    const char *name, *summary, *q, *kv, *lse[2];
    bool joined, paged;
} kvb_layout;
extern const kvb_layout kvb_layouts[]; /* ends with name NULL */

/* Arithmetic by name, with its source. */
typedef struct kvb_preset {
    const char *name, *summary;
    uint32_t of;               /* bits: kvb_reading_of() */
    kvb_arithmetic attends;    /* without chains: those of plain loops */
    kvb_scan_arithmetic scans; /* the same */
} kvb_preset;
extern const kvb_preset kvb_presets[]; /* ends with name NULL; the last one, "own", is kvb_recorded_reading.own */
/* The declared arithmetic of a call, with the chains of plain loops where the reading declares none. */
void kvb_reading_arithmetic(const kvb_recorded_reading *reading, const kvb_problem *problem,
                            kvb_arithmetic *arithmetic);
void kvb_reading_scan_arithmetic(const kvb_recorded_reading *reading, const kvb_scan_problem *problem,
                                 kvb_scan_arithmetic *arithmetic);
/* A declaration as JSON, which the caller releases. Either argument is NULL. */
struct json_t *kvb_declaration_json(const kvb_arithmetic *attends, const kvb_scan_arithmetic *scans);

/* One key of a description: "layout", "scale", …. */
typedef struct kvb_reading_key {
    const char *name, *help;
    size_t at; /* offset of its member in kvb_recorded_reading */
    enum { KVB_KEY_NUMBER, KVB_KEY_COUNT, KVB_KEY_WORD, KVB_KEY_ARITHMETIC } type;
    double least; /* of a number */
    /* Word i sets the member to i + 1. Ends with NULL. words NULL: word(i) returns word i. */
    const char *const *words, *(*word)(uint32_t i);
} kvb_reading_key;
extern const kvb_reading_key kvb_reading_keys[]; /* ends with name NULL */
/* Sets a key. 0, or -EINVAL with why: an unknown key, or a bad value. */
int kvb_reading_set(kvb_recorded_reading *reading, const char *key, const char *value, char *why, size_t why_bytes);
/* Sets all keys of an object except "calls". lenient: ignores unknown keys, as in a safetensors file's metadata. */
int kvb_reading_set_all(kvb_recorded_reading *reading, struct json_t *object, bool lenient, char *why,
                        size_t why_bytes);
/* Does the arithmetic fit the kind of call? 0, or -EINVAL with why. */
int kvb_reading_arithmetic_check(const kvb_recorded_reading *reading, char *why, size_t why_bytes);

/* ---- arrays in .npy and .npz (numpy.lib.format, versions 1 to 3), in .safetensors, in a folder of .npy ---------- */

/* Headers are checked before data is returned. Dtypes, dims and strides: workloads/safetensors.h. Errors: a negative
 * errno, with why: one line with file, array and expectation. */

typedef struct kvb_tensors {
    kvb_tensor *list; /* [n], by name; data may be unaligned: read it with kvb_tensor_value or memcpy */
    uint32_t n;
    const char *metadata; /* __metadata__ of a safetensors file, JSON; NULL: none */
} kvb_tensors;

/* path: FILE.npy (one array, named after the file), FILE.npz, FILE.safetensors, or a folder with .npy files. Files are
 * mapped. Deflated members of a .npz are inflated, and their CRC is checked. */
int kvb_tensors_open(const char *path, kvb_tensors **tensors, char *why, size_t why_bytes);
void kvb_tensors_close(kvb_tensors *tensors); /* NULL: does nothing */

/* The element at offset i of data; i counts elements, as strides do. 64-bit integers above 2^53 are rounded. */
double kvb_tensor_value(const kvb_tensor *tensor, uint64_t i);
const char *kvb_dtype_name(kvb_dtype dtype); /* "f16", "bf16", "e4m3", … */
/* The type of a kernel's output or state that is stored so: KVB_F16, KVB_BF16, or KVB_F32 for all others. */
static inline kvb_elem kvb_dtype_elem(kvb_dtype dtype)
{
    return dtype == KVB_DTYPE_F16 ? KVB_F16 : dtype == KVB_DTYPE_BF16 ? KVB_BF16 : KVB_F32;
}

/* Arrays of a call, and their names. */
#define KVB_RECORDED_PARTS_OF(P)                                                                                       \
    P(Q, "q")                                                                                                          \
    P(K, "k")                                                                                                          \
    P(V, "v")                                                                                                          \
    P(OUT, "out")                                                                                                      \
    P(LSE, "lse")                                                                                                      \
    P(SINKS, "sinks")                                                                                                  \
    P(MASK, "mask")                                                                                                    \
    P(LENGTHS, "lengths")                                                                                              \
    P(CU_Q, "cu_seqlens_q")                                                                                            \
    P(CU_K, "cu_seqlens_k")                                                                                            \
    P(TABLE, "block_table")                                                                                            \
    P(K_SCALE, "k_scale")                                                                                              \
    P(V_SCALE, "v_scale")                                                                                              \
    P(GATE, "gate")                                                                                                    \
    P(BETA, "beta")                                                                                                    \
    P(A, "a")                                                                                                          \
    P(BIAS, "bias")                                                                                                    \
    P(INITIAL, "initial_state")                                                                                        \
    P(FINAL, "final_state")                                                                                            \
    P(Q_ROUNDED, "q_rounded")
#define KVB_RECORDED_PART(part, name) KVB_RECORDED_##part,
typedef enum kvb_recorded_part { KVB_RECORDED_PARTS_OF(KVB_RECORDED_PART) KVB_RECORDED_PARTS } kvb_recorded_part;
extern const char *const kvb_recorded_parts[KVB_RECORDED_PARTS]; /* "q", … */

/* An array by its axes. An axis that the array lacks has n 1 and stride 0. */
enum { KVB_AXIS_B, KVB_AXIS_H, KVB_AXIS_S, KVB_AXIS_D, KVB_AXIS_P, KVB_AXES_OF_ARRAYS };
typedef struct kvb_axed {
    const kvb_tensor *tensor; /* NULL: no such array */
    uint64_t n[KVB_AXES_OF_ARRAYS], stride[KVB_AXES_OF_ARRAYS];
} kvb_axed;
/* The number of an element in the tensor. */
static inline uint64_t kvb_axed_at(const kvb_axed *a, uint64_t b, uint64_t h, uint64_t s, uint64_t p, uint64_t d)
{
    return b * a->stride[KVB_AXIS_B] + h * a->stride[KVB_AXIS_H] + s * a->stride[KVB_AXIS_S] +
           p * a->stride[KVB_AXIS_P] + d * a->stride[KVB_AXIS_D];
}

typedef struct kvb_recorded {
    char name[64];
    const char *path;                           /* of its file */
    const kvb_tensor *part[KVB_RECORDED_PARTS]; /* NULL: no such array */
    kvb_recorded_reading reading;
} kvb_recorded;

typedef struct kvb_recordings {
    kvb_tensors *tensors, *inputs; /* inputs: NULL: one file has all arrays */
    kvb_recorded *calls;
    uint32_t n;
} kvb_recordings;

/*
 * Opens the calls of a file or folder and sets their readings. Later sources override earlier ones: metadata of a
 * safetensors file; the JSON beside it (F.json beside F.npz or F.safetensors, describe.json in a folder); an entry of
 * its "calls" for one call; said: [n] texts "key=value". 0, or a negative errno with why: one line with file, array and
 * expectation. inputs: a second file with the missing arrays of each call and with the description; NULL: none.
 */
int kvb_recordings_open(const char *path, const char *inputs, const char *const *said, size_t n,
                        kvb_recordings *recordings, char *why, size_t why_bytes);
/* Path of the description of a file or folder: FILE.json, FOLDER/describe.json. */
void kvb_recorded_beside(const char *path, char *file, size_t bytes);
void kvb_recordings_close(kvb_recordings *recordings);

/* The shape of a call under a reading. */
typedef struct kvb_recorded_shape {
    const kvb_recorded *call;
    const kvb_recorded_reading *reading;
    const kvb_layout *layout;
    const struct kvb_codec *codec[2]; /* of K and V with k_format, v_format; NULL: plain elements */
    kvb_axed q, q_rounded, k, v, out, lse, mask, scale[2];
    uint32_t batch, heads, kv_heads, k_dim, v_dim, page;
    uint64_t pages;
    kvb_elem out_elem;
    bool latent; /* V is the first v_dim channels of K */
    /* Scans: kv_heads are the groups. A convolution has v in the place of q and k. states: initial, final. Rows of a
     * state, of taps and of mamba1's a lie along axis P. */
    bool scans;
    kvb_scan_problem scan; /* n_tok and run: tokens of the longest sequence */
    kvb_axed gate, beta, a, bias, states[2];
} kvb_recorded_shape;
/* 0, or -EINVAL with why: the arrays do not fit the reading. */
int kvb_recorded_shape_of(const kvb_recorded *call, const kvb_recorded_reading *reading, kvb_recorded_shape *shape,
                          char *why, size_t why_bytes);

/* Sequence b of a call. */
typedef struct kvb_recorded_sequence {
    uint32_t queries, cells; /* scans: tokens; tokens before the final state */
    uint64_t q_at, k_at;     /* joined layouts: where its queries and cells begin */
} kvb_recorded_sequence;
void kvb_recorded_sequence_of(const kvb_recorded_shape *shape, uint32_t b, kvb_recorded_sequence *sequence);

/* Decodes the row of K (side 0) or V of a cell and KV head. row, size: [dim]. size: as in kvb_codec.decode, scaled. */
void kvb_recorded_row(const kvb_recorded_shape *shape, int side, uint32_t b, uint32_t kv_head,
                      const kvb_recorded_sequence *sequence, uint32_t cell, double *row, double *size);

/* Does the array `mask` let query t of sequence b see the cell? Without a mask: true. */
bool kvb_recorded_unmasked(const kvb_recorded_shape *shape, uint32_t b, uint32_t t, uint32_t cell);

/* The cells that query t of the sequence sees, without regard to `mask`: [0, *sinks) and [*begin, *end). */
void kvb_recorded_sees(const kvb_recorded_reading *reading, const kvb_recorded_sequence *sequence, uint32_t t,
                       uint32_t *sinks, uint32_t *begin, uint32_t *end);

#endif
