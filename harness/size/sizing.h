/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a model and its context, as each engine allocates it: KV rows, recurrent states, weights, activations and
 * runtime, for a length, a number of sequences and a storage format; and the contexts that fit a budget. All sizes are
 * bytes on ONE rank of tp x pp. Sums above 64 bits are refused with -EOVERFLOW.
 */
#ifndef KVB_SIZING_SIZING_H
#define KVB_SIZING_SIZING_H

#include "harness/size/model.h"
#include "results/table.h"

/* A format of rows. A row is one head's K or V of one token, or the one row of MLA. */
typedef struct kvb_kv_format {
    const char *name;     /* as in `kvbench list pools`: f32 f16 bf16 e4m3 int8 q8_0 a4g64 nvfp4 fp8_ds_mla … */
    const char *also;     /* engines' names for it, separated by spaces; "": the same */
    uint32_t group;       /* elements stored together; a row must be a multiple */
    uint32_t group_bytes; /* bytes of a group, with the scales and zeros inside it */
    uint32_t extra_bytes; /* bytes of a row's own scale */
} kvb_kv_format;

const kvb_kv_format *kvb_kv_format_find(const char *name); /* by any name; NULL: unknown */
extern const kvb_kv_format kvb_kv_formats[];               /* ends with name NULL */
/* Bytes of a row. 0: the row is not a multiple of the group. */
uint64_t kvb_kv_row_bytes(const kvb_kv_format *format, uint64_t elements);

uint64_t kvb_unit_bytes(const char *word); /* "GiB", "GB", "": 1; in any case. 0: no unit of bytes */

/* A device that serves models. */
typedef struct kvb_device {
    const char *name; /* a word of --gpu: "H100-80GB" */
    uint64_t memory;  /* bytes, from its driver's tool; a process sees up to 2 % less */
    bool large;       /* vLLM serves larger batches on it: from 70 GiB on, except A100 (engine/arg_utils.py) */
    bool mac;         /* memory: Metal's limit for one process */
} kvb_device;

const kvb_device *kvb_device_find(const char *name); /* or by its driver's tool's name; NULL: unknown */
extern const kvb_device kvb_devices[];               /* ends with name NULL */

#define KVB_VERSION(major, minor) (1000 * (major) + (minor))

/* A question to an engine. If a comment names a default, 0 stands for it. */
typedef struct kvb_size_ask {
    uint64_t context; /* tokens of each sequence */
    uint64_t sequences;
    const kvb_kv_format *k, *v;
    const char *state;    /* dtype of recurrent states: "f32", "bf16", "f16"; NULL: the engine's */
    uint64_t tp, pp;      /* ranks, at least 1 */
    uint32_t part, parts; /* this stage of the pipeline has `part` of `parts` shares of the layers; 0: one of pp */
    bool before_last;     /* a later stage of the pipeline has the output: this one computes no logits */
    uint64_t spec_depth;  /* drafted tokens in a step; recurrent states are kept 1 + spec_depth times */
    bool mtp;             /* serve the model's own multi-token prediction layers too */
    uint64_t block;       /* tokens of a block; 0: the engine's */
    uint64_t batch;       /* most tokens of one forward pass (prefill chunk); 0: the engine's */
    uint64_t max_seqs;    /* sequences of an engine's buffers, if more than `sequences`; 0: the engine's */
    bool unified;         /* llama.cpp: one cache for all sequences, its server's default */
    uint64_t outputs; /* llama.cpp: most tokens of a pass with logits; 0: each sequence and draft, as in its server */
    uint32_t copies;  /* llama.cpp: of the tensors that a device passes on; 0: 4 in a pipeline, else 1 */
    bool no_flash;    /* llama.cpp: without flash attention */
    bool prefix;      /* vllm: cache beginnings of prompts beside recurrent states, even if not by default */
    bool whole;       /* vllm, sglang, llama.cpp: windows keep every token, as by an option of theirs */
    uint32_t version; /* of the engine, a KVB_VERSION; 0: the newest with known rules */
    const kvb_device *device; /* NULL: none */
    uint32_t utilization;     /* of the device's memory, in thousandths; 0: the engine's */
} kvb_size_ask;

/* Memory for rows and states in an engine. Recurrent states do not grow, and are counted by themselves. */
typedef struct kvb_size_allocation {
    double bytes_per_token;            /* of one more token of a long sequence */
    uint64_t fixed_bytes_per_sequence; /* full windows and states, which no longer grow */
    uint64_t kv_bytes;                 /* KV rows of all sequences at this context, with windows */
    uint64_t state_bytes;              /* recurrent states and convolutions of all sequences */
} kvb_size_allocation;

/* What an engine keeps of one group's layers on a rank: streams x cells rows in each layer, and states of each sequence. */
typedef struct kvb_size_layer {
    uint64_t layers;
    uint64_t row; /* bytes */
    uint64_t streams, cells;
    double tokens;        /* of a long sequence for one row more; 0: its rows do not grow */
    uint64_t fixed_cells; /* rows of a sequence that do not grow */
    uint64_t states;      /* of a sequence in a layer */
    uint64_t state;       /* bytes of one */
} kvb_size_layer;

#define KVB_LACK_TEXT 256u

/* An engine's rules of allocation. */
typedef struct kvb_size_engine {
    char name[24];            /* a word of --engine, with the version if one is asked for: "vllm@0.24" */
    const char *source;       /* of the formulas */
    const char *since;        /* the version since which its newest rules hold; NULL: no rule depends on the version */
    const char *states_since; /* the same for recurrent states */
    const char *pooled_why;   /* why rows of several tokens are not modelled; NULL: no source describes them */
    uint32_t version;         /* for kvb_size_ask.version, in a copy of the engine for a version */
    const char *stored;       /* formats that it stores, separated by spaces; NULL: all */
    const char *stored_why;   /* why it stores no other format; a blank at the end: the format's name follows */
    const char *alike_why;    /* why K and V must have one format; NULL: they need not */
    const char *weights;      /* words of --weights that it serves, the largest first; NULL: not suggested */
    uint32_t batch;           /* default for the most tokens of one forward pass; 0: one for each sequence */
    uint64_t (*batch_on)(const kvb_device *device); /* the same if it depends on the device, which can be NULL */
    uint32_t fraction; /* most of a device, in thousandths; --gpu-memory-utilization changes it. 0: all, fixed */
    /* Memory besides weights and context during a pass, as the engine's code makes or reserves it. NULL: the least that
     * one layer needs. 0 or -EOVERFLOW. */
    int (*beside)(const kvb_sized_model *model, const kvb_size_ask *ask, uint64_t *bytes);
    const char *beside_source;
    const char *draft_why; /* why it serves no draft model in a pipeline; NULL: it does, on the last stage like vLLM */
    bool apart;            /* a draft model's passes have memory of their own; else the larger of both counts */
    bool least;            /* beside() counts for passes only the least that one layer needs */
    /* Prints the derivation of pages, padding and groups after "  NAME:". NULL: --explain's factors are enough. */
    void (*explain)(const kvb_sized_model *model, const kvb_size_ask *ask, FILE *out);
    uint32_t most_sequences, most_tokens; /* limits for any amount of memory; 0: none */
    uint32_t knows;                       /* set of 1 << kind: of POOLED and CROSS, the kinds with known allocation */
    bool costly; /* allocate() plays a history, and takes no less than ideal: limits are searched below ideal's, in
                  * few tries */
    /* Why the engine cannot hold such layers; NULL: it can. text [KVB_LACK_TEXT]: for a reason with numbers. */
    const char *(*lack)(const kvb_sized_model *model, const kvb_sized_group *group, const kvb_size_ask *ask,
                        char *text);
    /* Sets a layer's states, and changes what kvb_layers_sum has set before: held layers, bytes of a row, and for each
     * sequence a stream with a cell for each token. 0 or -EOVERFLOW. */
    int (*layer)(const kvb_sized_model *model, const kvb_sized_group *group, const kvb_size_ask *ask,
                 kvb_size_layer *layer);
    /* In place of the sum over layers. A longer context or more sequences must not take less. 0; -ENOTSUP with why;
     * -EOVERFLOW. NULL: kvb_layers_sum. */
    int (*allocate)(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                    size_t why_bytes);
} kvb_size_engine;

/* What the engine allocates for rows and states. 0; -ENOTSUP with why: this engine has no such layer or format, or its
 * allocation is not known; -EOVERFLOW with why. */
int kvb_size_hold(const kvb_size_engine *engine, const kvb_sized_model *model, const kvb_size_ask *ask,
                  kvb_size_allocation *out, char *why, size_t why_bytes);

extern const kvb_size_engine kvb_size_engine_ideal, kvb_size_engine_llama_cpp, kvb_size_engine_vllm,
    kvb_size_engine_sglang, kvb_size_engine_trtllm, kvb_size_engine_mlx;

/* The most tokens of one forward pass: the asked number, else the engine's default. */
uint64_t kvb_size_batch(const kvb_size_engine *engine, const kvb_size_ask *ask);

#define KVB_SIZE_STAGES 64 /* most stages of an uneven pipeline */

/* A stage of a pipeline with uneven stages. */
typedef struct kvb_size_stage {
    uint32_t part;            /* of kvb_size_ask.parts */
    const kvb_device *device; /* NULL: the asked one */
    uint64_t weight_bytes;
} kvb_size_stage;

/* The needs of one rank besides the context, and the budget for everything. */
typedef struct kvb_size_terms {
    bool weights_known;
    char weights_why[400]; /* why they are unknown, or an upper limit; or "" */
    uint64_t weight_bytes, runtime_bytes;
    uint64_t all_weight_bytes;    /* of all ranks; 0: not counted, or not known */
    uint64_t all_draft_bytes;     /* the same for the draft model */
    uint32_t margin;              /* added to the sum of the rest, in thousandths of a per cent: 5 % is 5000 */
    bool sized_only;              /* do not search for limits */
    bool most_only;               /* search only for the most sequences: max_context stays 0 */
    const kvb_sized_model *draft; /* a draft model, served beside the model by the same engine; NULL: none */
    uint64_t draft_weight_bytes;
    kvb_size_stage stages[KVB_SIZE_STAGES]; /* of an uneven pipeline: the stage with the least room is sized */
    uint32_t n_stages;
    uint64_t budget; /* bytes; 0: the engine's share of the asked device, if there is one */
} kvb_size_terms;

/* Sets one rank's share of the weights: weight_bytes and draft_weight_bytes, and weight_bytes of the stages. Errors are
 * those of kvb_weights_rank. */
int kvb_size_weights_share(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_terms *terms, char *why,
                           size_t why_bytes);

#define KVB_SIZE_UNBOUNDED UINT64_MAX /* no limit */

typedef struct kvb_size {
    kvb_size_allocation held;
    uint64_t weight_bytes, activation_bytes, runtime_bytes, margin_bytes, total_bytes;
    uint64_t draft_bytes;  /* all memory of a draft model */
    uint64_t stage;        /* the sized stage, from 1; 0: all are equal */
    uint64_t budget_bytes; /* 0: none */
    uint64_t max_context; /* the longest context of the asked sequences that fits the budget; at most the model's own */
    uint64_t max_sequences; /* the most sequences of the asked context that fit */
    bool at_model_limit;    /* the model limits max_context, not the budget */
    bool at_engine_limit;   /* the engine limits max_sequences, not the budget */
} kvb_size;

/* Computes all terms. Unknown weights count as 0; the caller must say so. Without a budget both limits are 0. Errors are
 * those of kvb_size_hold. */
int kvb_size_compute(const kvb_sized_model *model, const kvb_size_engine *engine, const kvb_size_ask *ask,
                     const kvb_size_terms *terms, kvb_size *out, char *why, size_t why_bytes);

/* ---- printing (sizing_text.c, sizing_page.c) ---------------------------------------------------- */

/* One engine's answer for one model, format, context and number of sequences. */
typedef struct kvb_size_row {
    const kvb_sized_model *model;
    const kvb_size_engine *engine;
    kvb_size_ask ask;
    kvb_size_terms terms;
    kvb_size size;
    int error;     /* of kvb_size_compute; not 0: size is not valid */
    char why[256]; /* of the error */
} kvb_size_row;

/* The rows of one command: by model, format, context, sequences; engines change fastest. */
typedef struct kvb_sizes {
    kvb_size_row *at;
    size_t n, n_engines, n_formats; /* n is a multiple of n_engines; each model has n_formats formats */
    bool matrix;                    /* for people: totals by context and sequences in place of parts */
} kvb_sizes;

#define KVB_KV_TEXT 32u
/* "f16", or "q8_0:q4_0" if K and V differ. */
void kvb_kv_text(const kvb_size_ask *ask, char text[KVB_KV_TEXT]);

/* Prints the rows. Text, Markdown and HTML are for people: the engines side by side, then all needs of each. CSV and JSON
 * are for programs: one list of numbers. 0, -EIO or -ENOMEM. */
int kvb_size_table(const kvb_sizes *rows, kvb_table_format format, FILE *out);

/* Prints the source of each factor, and the products of the factors in the ask's format. 0 or -EIO. */
int kvb_size_explain(const kvb_sized_model *model, const kvb_size_ask *ask, FILE *out);

/* Prints an HTML page that loads no other file: a plot of memory against context for each model, then the tables. */
int kvb_size_page(const kvb_sizes *rows, FILE *out);

/* Prints for each row with a budget whether it fits, and if not, the changes of options that make it fit: another format
 * of KV rows or weights, more ranks, fewer sequences, a shorter context. The cheapest change comes first. Its cost is the
 * share that is given up, in thousandths: of the bytes of KV rows or weights, of the sequences or of the context; or the
 * added ranks as a share of the asked ones. 0, -EIO or -ENOMEM. */
int kvb_size_suggest(const kvb_sizes *rows, kvb_table_format format, FILE *out);

#endif
