/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of attention and of scans that a kernel elsewhere made, recorded as arrays in a file, and how these are to be read.
 *
 * Arrays of attention: q, k, v, out; if there are such: lse, sinks (one logit for each query head), mask (bool or additive),
 * lengths (cells of each sequence), cu_seqlens_q, cu_seqlens_k, block_table, k_scale, v_scale, q_rounded (the q that the kernel
 * multiplied, in q's place and units, where it rounds q itself). Arrays of a scan are those that
 * kernels/scan.h names: q, k, v, out, gate, beta, a, bias, by its recurrence; if there are such: initial_state, final_state (of each
 * sequence), lengths (tokens of each sequence), cu_seqlens. A convolution's v and a may be named x and taps. A file with several calls
 * names them CALL.q, CALL.k, … or CALL/q, ….
 */
#ifndef KVB_JUDGE_RECORDED_H
#define KVB_JUDGE_RECORDED_H

#include "harness/judge/reading.h"
#include "harness/judge/tensors.h"

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
    KVB_RECORDED_GATE,
    KVB_RECORDED_BETA,
    KVB_RECORDED_A,
    KVB_RECORDED_BIAS,
    KVB_RECORDED_INITIAL,
    KVB_RECORDED_FINAL,
    KVB_RECORDED_Q_ROUNDED,
    KVB_RECORDED_PARTS
} kvb_recorded_part;
extern const char *const kvb_recorded_parts[KVB_RECORDED_PARTS]; /* "q", … */

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
    kvb_axed q, q_rounded, k, v, out, lse, mask, scale[2];
    uint32_t batch, heads, kv_heads, k_dim, v_dim, page;
    uint64_t pages;
    kvb_elem out_elem;
    bool latent; /* V is the first v_dim channels of K */
    /* A scan has its groups as kv_heads, and no rows: q and k of a convolution are v. states: initial, final. Rows of a state, of taps
     * and of mamba1's a lie along axis P. */
    bool scans;
    kvb_scan_problem scan; /* n_tok and run: tokens of the longest sequence */
    kvb_axed gate, beta, a, bias, states[2];
} kvb_recorded_shape;
/* 0; -EINVAL with why: the arrays are none of such a call. */
int kvb_recorded_shape_of(const kvb_recorded *call, const kvb_recorded_reading *reading, kvb_recorded_shape *shape,
                          char *why, size_t why_bytes);

/* Of sequence b: its queries and cells, and where they begin in arrays of sequences one behind the other. Of a scan: its tokens, and
 * those after which it has its final state. */
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
