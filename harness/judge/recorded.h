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

#include "kernels/attend.h"
#include "kernels/scan.h"
#include "workloads/safetensors.h"

/* A reading: what the arrays of a recorded call do not show. Its keys are set by name. */

typedef enum kvb_causal { KVB_CAUSAL_UNSAID, KVB_CAUSAL_NO, KVB_CAUSAL_LOWER_RIGHT, KVB_CAUSAL_UPPER_LEFT } kvb_causal;

/* A declaration in JSON. lacks: a field of it that attention does not have; that scans do not have; or NULL. */
typedef struct kvb_declared {
    kvb_arithmetic attends;
    kvb_scan_arithmetic scans;
    const char *lacks[2];
} kvb_declared;

/* What arrays do not say of themselves. The last fields are what other readings differ in: 0 of what was said. */
typedef struct kvb_recorded_reading {
    uint32_t recurrence; /* 1 + kvb_scan_kind; 0: attention */
    uint32_t layout;     /* 1 + place in kvb_layouts; 0: unsaid */
    kvb_causal causal;
    double scale;        /* on q.k; of a scan on q; KVB_SCALE_ROOT: 1/sqrt(k_dim); NaN: unsaid */
    double window;       /* cells that a query sees at most, its own among them; 0: no window */
    double window_sinks; /* cells at the beginning that a window keeps */
    double softcap;
    double q_scale, k_scale, v_scale;  /* of the whole array; 1 */
    uint32_t lse_base, lse_layout;     /* 1 + place in the words of these keys; 0: unsaid */
    uint32_t k_format, v_format;       /* 1 + place in kvb_recorded_formats; 0: by the array's type */
    uint32_t state_layout, activation; /* 1 + place in the words of these keys; 0: unsaid */
    uint32_t arithmetic;               /* 1 + place in kvb_presets; 0: unsaid */
    kvb_declared own;                  /* of the preset "own" */

    bool no_softcap, no_sinks, no_scales, lse_lacks_sink, heads_interleaved, next_lengths, next_table;
    int32_t more_cells;   /* at the end; of a scan: tokens before its final state */
    uint32_t fewer_cells; /* at the beginning */
    double scale_factor;  /* 0: 1 */
    bool next_gate, plain_write, plain_decay, no_beta, q_for_k, no_initial, taps_reversed, no_bias;
    double decay_factor; /* of the exponents of decays; 0: 1 */
} kvb_recorded_reading;
#define KVB_SCALE_ROOT (-1.0)

/* What the call is, as a bit. */
#define KVB_OF_ATTENTION 1u
#define KVB_OF_SCANS     2u
static inline uint32_t kvb_reading_of(const kvb_recorded_reading *reading)
{
    return reading->recurrence ? KVB_OF_SCANS : KVB_OF_ATTENTION;
}

/* Axes of arrays: b batch, h head, s token or cell, d channel, p page. Of cu_seqlens: sequences lie one behind the other along s. A
 * layout without axes of lse is for scans only, a paged one for attention only. */
typedef struct kvb_layout {
    const char *name, *q, *kv, *lse[2];
    bool joined, paged;
    const char *summary;
} kvb_layout;
extern const kvb_layout kvb_layouts[]; /* ends with name NULL */

/* Arithmetic by name, with its source. */
typedef struct kvb_preset {
    const char *name, *summary;
    uint32_t of;               /* bits: kvb_reading_of() */
    kvb_arithmetic attends;    /* less the chains, which are plain loops' */
    kvb_scan_arithmetic scans; /* the same */
} kvb_preset;
extern const kvb_preset kvb_presets[]; /* ends with name NULL; the one before it is "own": a declaration of its own */
void kvb_reading_arithmetic(const kvb_recorded_reading *reading, const kvb_problem *problem,
                            kvb_arithmetic *arithmetic);
void kvb_reading_scan_arithmetic(const kvb_recorded_reading *reading, const kvb_scan_problem *problem,
                                 kvb_scan_arithmetic *arithmetic);
/* A declaration as a json_t, to be released: of attention, or of a scan; the other is NULL. */
struct json_t *kvb_declaration_json(const kvb_arithmetic *attends, const kvb_scan_arithmetic *scans);

/* One key of a description: "layout", "scale", …. */
typedef struct kvb_reading_key {
    const char *name, *help;
} kvb_reading_key;
extern const kvb_reading_key kvb_reading_keys[]; /* ends with name NULL */
/* 0, or -EINVAL with why: no such key; no such value of it. */
int kvb_reading_set(kvb_recorded_reading *reading, const char *key, const char *value, char *why, size_t why_bytes);
/* All keys of an object but "calls". lenient: other keys are not ours, as in a safetensors file's metadata. */
int kvb_reading_set_all(kvb_recorded_reading *reading, struct json_t *object, bool lenient, char *why,
                        size_t why_bytes);
/* Is the arithmetic that is said one of such a call? Else -EINVAL with why. */
int kvb_reading_arithmetic_check(const kvb_recorded_reading *reading, char *why, size_t why_bytes);

/*
 * Arrays that another program wrote: .npy and .npz (numpy.lib.format, versions 1 to 3), .safetensors, a folder of .npy.
 * Each claim of a header is checked before data is handed out. Dtypes, dims and strides: workloads/safetensors.h.
 *
 * Errors: a negative errno, and in why one line that names file, array and what was expected.
 */

typedef struct kvb_tensors {
    const char *path;
    kvb_tensor *list; /* [n], by name; data of any alignment: read it with kvb_tensor_value or memcpy */
    uint32_t n;
    const char *metadata; /* __metadata__ of a safetensors file, a JSON text; or NULL */
} kvb_tensors;

/* path: FILE.npy (one array, named after the file), FILE.npz, FILE.safetensors, or a folder, of which the .npy files
 * are read. Files are mapped; deflated members of a .npz are inflated and their CRC is checked. */
int kvb_tensors_open(const char *path, kvb_tensors **tensors, char *why, size_t why_bytes);
void kvb_tensors_close(kvb_tensors *tensors);                                     /* NULL: nothing */
const kvb_tensor *kvb_tensors_find(const kvb_tensors *tensors, const char *name); /* or NULL */

/* The element at offset i of data, counted in elements as strides are. Exact, except for 64-bit integers above 2^53,
 * which are rounded. */
double kvb_tensor_value(const kvb_tensor *tensor, uint64_t i);
const char *kvb_dtype_name(kvb_dtype dtype); /* "f16", "bf16", "e4m3", … */

/* Writes a safetensors file, whole or not at all. Strides that are all 0 mean row-major; other orders become row-major.
 * elements and bytes are not read. metadata: a JSON object of strings, or NULL. */
int kvb_tensors_write(const char *path, const kvb_tensor *list, uint32_t n, const char *metadata, char *why,
                      size_t why_bytes);

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
