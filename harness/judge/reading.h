/* SPDX-License-Identifier: Apache-2.0 */
/* A reading: what the arrays of a recorded call do not show. Its keys are set by name. */
#ifndef KVB_JUDGE_READING_H
#define KVB_JUDGE_READING_H

#include "kernels/attend.h"
#include "kernels/scan.h"

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

#endif
