/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges whole engines. An engine keeps sequences of tokens; its calls decode, copy, remove, shift, save and load them.
 * A history is a list of such calls. The shadow is an account of the history in integers: it has the tokens of each
 * sequence. The engine's logits must be those of a fresh decode of exactly these tokens.
 */
#ifndef KVB_ENGINE_H
#define KVB_ENGINE_H

#include "harness/engine/adapter.h"
#include "workloads/array.h"
#include "workloads/trace.h"

extern const kvb_engine kvb_engine_llama, kvb_engine_live;

/* ---- histories --------------------------------------------------------------------------------------------------- */

#define KVB_ENGINE_LIB   "build/engines/ggml" /* folder of llama's library without --lib */
#define KVB_ENGINE_CALLS 2048u                /* most calls of a history */
#define KVB_ENGINE_USUAL 4u                   /* sequences of random histories; fewest sequences of a session */

typedef struct kvb_engine_call {
    kvb_engine_verb verb;
    uint32_t seq, to;            /* to: destination of a copy */
    int32_t p0, p1, delta;       /* p0 .. p1 - 1 */
    uint32_t n[KVB_ENGINE_SEQS]; /* decode: tokens of each sequence */
} kvb_engine_call;

typedef struct kvb_engine_history {
    kvb_engine_call at[KVB_ENGINE_CALLS];
    uint32_t n;
} kvb_engine_history;

/* Parses "d 0 3; cp 0 1; rm 0 4 12; add 0 12 end -8; keep 0; save 0; load 1; save all". 0, or -EINVAL with why. */
int kvb_engine_history_parse(const char *text, kvb_engine_history *history, char *why, size_t why_bytes);
/* Makes the history of a recorded workload, NAME or FILE.jsonl. -1, or an exit code: `command` printed the error. */
int kvb_engine_history_find(const char *command, const char *word, kvb_engine_history *history);
void kvb_engine_history_print(const kvb_engine_history *history, char *text, size_t bytes);
/* Writes the history as a trace of one layer with seeded values, for kvbench's caches. 0; -ENOTSUP with why: a trace
 * cannot express it; or kvb_trace_create()'s error. */
int kvb_engine_history_write(const kvb_engine_history *history, const kvb_engine_facts *facts, const char *path,
                             const char *source, char *why, size_t why_bytes);

typedef struct kvb_shadow_token {
    int32_t id, pos;
    uint32_t row;    /* number of the decoded token; all copies have the same */
    uint32_t cell;   /* number of the stored token; shared copies have the same */
    uint32_t shifts; /* how often the token was moved */
    uint64_t seen;   /* hash of the tokens that it saw when it was decoded: ids and distances */
} kvb_shadow_token;

#define KVB_SHADOW_TOKENS    1024u      /* most tokens of a sequence */
#define KVB_SHADOW_POSITIONS 8192       /* positions 0 .. 8191 */
#define KVB_SHADOW_ROWS      (1u << 16) /* numbers of tokens (and of cells) in a history */

typedef struct kvb_shadow_seq {
    kvb_shadow_token at[KVB_SHADOW_TOKENS]; /* ascending by position */
    uint32_t n;
} kvb_shadow_seq;

typedef struct kvb_shadow {
    kvb_shadow_seq seq[KVB_ENGINE_SEQS], saved, saved_all[KVB_ENGINE_SEQS];
    bool has_saved, has_saved_all;
    uint32_t seqs;          /* sequences from here on were never used */
    uint32_t cells, tokens; /* numbers given so far */
} kvb_shadow;

/* The struct is large: these two touch only the used parts. */
void kvb_shadow_clear(kvb_shadow *shadow);
void kvb_shadow_copy(kvb_shadow *to, const kvb_shadow *from);
/* Applies a call; decoded tokens become the last ones of their sequences. 0; -EINVAL: the call is illegal here; -ENOSPC:
 * a decode has no room, and nothing changes. */
int kvb_shadow_apply(kvb_shadow *shadow, const kvb_engine_facts *facts, const kvb_engine_call *call, const char **why);

/* The arrays of a decode's event. */
typedef struct kvb_engine_step {
    uint32_t pos[KVB_SHADOW_TOKENS], seq[KVB_SHADOW_TOKENS];
    int32_t tok[KVB_SHADOW_TOKENS];
} kvb_engine_step;
/* The event of a decode that was applied to the shadow: tokens of sequences first .. last - 1, arrays in *step. */
kvb_event kvb_engine_step_event(const kvb_shadow *shadow, const kvb_engine_call *call, uint32_t first, uint32_t last,
                                kvb_engine_step *step);
/* Makes any other call, and returns what the engine returns. */
int kvb_engine_control(const kvb_engine *engine, void *session, const kvb_engine_call *call);
/* The event of any other call. */
kvb_event kvb_engine_control_event(const kvb_engine_call *call);
/* Does each token of the sequence still see the tokens that it saw when it was decoded? */
bool kvb_shadow_is_plain(const kvb_shadow_seq *seq);
/* How many tokens of the sequence a token at this position sees, itself included. rows: their numbers, or NULL. */
uint32_t kvb_shadow_sees(const kvb_shadow_seq *seq, const kvb_engine_facts *facts, int32_t pos, uint32_t *rows);

/* Draws a legal history. */
void kvb_engine_history_random(uint64_t seed, const kvb_engine_facts *facts, kvb_engine_history *history);
/* Sequences that a session needs for the history. */
uint32_t kvb_engine_history_seqs(const kvb_engine_history *history);
/* Is the history legal for an engine with these facts? 0, or -EINVAL with why. */
int kvb_engine_history_check(const kvb_engine_history *history, const kvb_engine_facts *facts, char *why,
                             size_t why_bytes);

/* ---- kvbench's decoder ------------------------------------------------------------------------------------------- */

/* A decoder in double over the weights of a GGUF file. */
typedef struct kvb_decoder kvb_decoder;

/* 0, or a negative errno with why: the file holds an unknown tensor or key, or another vocabulary. */
int kvb_decoder_open(const char *path, uint32_t vocab, kvb_decoder **decoder, char *why, size_t why_bytes);
void kvb_decoder_close(kvb_decoder *decoder);
/* Makes the rows of the sequence's last n tokens; the other tokens were decoded before. Returns the last token's logits
 * [vocab], valid until the next call; NULL: no memory. */
const float *kvb_decoder_decode(kvb_decoder *decoder, const kvb_shadow_seq *seq, uint32_t n);

/* ---- judging ----------------------------------------------------------------------------------------------------- */

/* A planted fault in the calls of a verb. */
typedef struct kvb_engine_fault {
    const char *name, *summary;
    kvb_engine_verb verb;
    enum {
        KVB_FAULT_SWALLOWED, /* the engine gets no such call; each seems to return 0 */
        KVB_FAULT_STALE,     /* the engine gets the first such call only; the others seem to return 0 */
        KVB_FAULT_SHORT,     /* one token or position less */
        KVB_FAULT_ELSEWHERE, /* a copy to the next sequence */
        KVB_FAULT_RENEWED,   /* tokens to shift are removed and decoded again */
        KVB_FAULT_ANOTHER    /* another first token */
    } twist;
} kvb_engine_fault;
extern const kvb_engine_fault kvb_engine_faults[]; /* ends with name NULL */

typedef enum kvb_engine_kind {
    KVB_ENGINE_RIGHT,
    KVB_ENGINE_LOGITS,    /* logits are not those of a fresh decode */
    KVB_ENGINE_POSITIONS, /* a sequence has another least or largest position */
    KVB_ENGINE_RETURNS,   /* a call fails that must not, or does not fail and must */
    KVB_ENGINE_DIES,      /* the engine aborts, exits or hangs */
    KVB_ENGINE_KINDS
} kvb_engine_kind;
extern const char *const kvb_engine_kind_names[KVB_ENGINE_KINDS];

typedef struct kvb_engine_outcome {
    kvb_engine_kind kind;
    uint32_t event;      /* the first wrong call, from 0 on; else the number of calls made */
    uint32_t judged;     /* tokens with compared logits */
    uint32_t unjudged;   /* decoded tokens without: a fresh decode is not exact for them, and there is no decoder */
    double error, limit; /* largest difference of logits / largest logit, and its limit */
    char what[320];      /* one line */
    bool threads;        /* the engine has started threads */
} kvb_engine_outcome;

/* An engine's sessions: the judged one, the subject, and those for fresh decodes. */
typedef struct kvb_engine_bench {
    const kvb_engine *engine;
    const kvb_engine_fault *fault; /* NULL: none */
    uint32_t twisted;              /* calls that the fault was applied to */
    uint32_t seqs;                 /* of the subject */
    bool watched;                  /* the engine's blame() is called after the subject's decodes */
    kvb_engine_facts facts;        /* of the subject */
    void *subject, *twin, *exact;  /* twin: configured like the subject; exact: f32 rows, no flash attention */
    kvb_decoder *decoder;          /* NULL: none */
    char without[160];             /* why there is no decoder */
    double apart;                  /* difference of logits: exact from the decoder */
    double noise;                  /* exact decodes with other batch splits; at least `apart` */
    double format;                 /* twin from exact */
    float *logits;                 /* [3][vocab] */
    uint32_t *order, decoded;      /* token's number in the shadow -> in the engine; tokens that the engine decoded */
    kvb_shadow *shadow, *before;   /* before: a copy, in case that a call is refused */
    kvb_arena arena;
} kvb_engine_bench;

int kvb_engine_bench_open(kvb_engine_bench *bench, const kvb_engine *engine, const kvb_engine_config *config,
                          const kvb_engine_fault *fault, char *why, size_t why_bytes);
void kvb_engine_bench_close(kvb_engine_bench *bench);
/* Plays a checked history up to its first wrong call. The outcome may lie in shared memory: its event is always up to
 * date, in case that this process dies. */
void kvb_engine_play(kvb_engine_bench *bench, const kvb_engine_history *history, kvb_engine_outcome *outcome);

/* ---- known differences ------------------------------------------------------------------------------------------- */

typedef struct kvb_engine_known {
    const char *name;
    const char *families; /* words; the name of the seeded model's family begins with one of them; "": any family */
    const char *caches;   /* "unified" or "split"; "": both */
    bool rolls;           /* only in sessions that can roll states back */
    const char *kv;       /* beginnings of formats; "": any */
    kvb_engine_kind kind;
    const char *signature; /* beginnings of calls, in the order in which the smallest history has them */
    uint32_t most;         /* most calls of the smallest history */
    const char *script;    /* a history that shows the difference */
    uint32_t first, last;  /* builds with the difference */
    const char *class;     /* by contract, documented limit, open upstream, fixed upstream, not reported */
    const char *reference; /* contract, or the number */
    const char *advice;    /* what a user of the library should do */
} kvb_engine_known;
extern const kvb_engine_known kvb_engine_known_rows[]; /* ends with name NULL */

/* The row that matches the smallest history; NULL: the difference is new. */
const kvb_engine_known *kvb_engine_known_find(const kvb_engine_facts *facts, const kvb_engine_config *config,
                                              const kvb_engine_history *history, kvb_engine_kind kind);
/* Does the history have the signature's calls, in this order? */
bool kvb_engine_known_signed(const kvb_engine_known *row, const kvb_engine_history *history);
/* Does the row apply to sessions of this kind? */
bool kvb_engine_known_fits(const kvb_engine_known *row, const kvb_engine_facts *facts, const kvb_engine_config *config);

/* ---- the search for differences ---------------------------------------------------------------------------------- */

#define KVB_ENGINE_FINDINGS 24u

typedef struct kvb_engine_finding {
    kvb_engine_history history; /* the smallest that shows the difference */
    kvb_engine_outcome outcome;
    const kvb_engine_known *known; /* NULL: new */
    uint64_t seed;                 /* of the first history; 0: a script */
    uint32_t times;                /* histories that showed it */
} kvb_engine_finding;

/* A row of the table: one configuration, the histories to play, the results. Lies in shared memory. */
typedef struct kvb_engine_row {
    const kvb_engine *engine;
    kvb_engine_config config;
    const kvb_engine_fault *fault;
    const kvb_engine_history *scripts; /* [n_scripts] */
    uint32_t n_scripts;
    uint64_t seed, n_random;
    bool known;     /* also play the scripts of known differences */
    double seconds; /* time limit of a history */

    kvb_engine_facts facts;
    int error;     /* of open */
    char why[256]; /* of open, or of a script */
    uint64_t histories, judged, unjudged, wrong;
    uint64_t made[KVB_ENGINE_VERBS], wrong_at[KVB_ENGINE_VERBS]; /* calls; calls that were the first wrong one */
    bool threads;
    char without[160]; /* why kvbench's decoder does not judge */
    double worst;      /* largest error / limit of right histories */
    kvb_engine_finding found[KVB_ENGINE_FINDINGS];
    uint32_t n_found, n_lost; /* lost: found[] had no room */
    /* Scripts of known differences: vanished: right in a build that should be wrong; back: wrong in a build that should
     * be right; right: right as expected, or in a format too coarse to tell. */
    const kvb_engine_known *vanished[KVB_ENGINE_FINDINGS], *back[KVB_ENGINE_FINDINGS], *right[KVB_ENGINE_FINDINGS];
    uint32_t n_vanished, n_back, n_right;
    char printed[128]; /* the first line that the engine wrote to stdout or stderr */
} kvb_engine_row;

/* Plays the row's histories in children and fills in its results. 0, or a negative errno: a child cannot be started. */
int kvb_engine_row_run(kvb_engine_row *row);

/* ---- llama.cpp's evaluation callback ----------------------------------------------------------------------------- */

/* ggml's layout of a tensor. Readers confirm `data` and `name` by ggml's getters. */
typedef struct kvb_llama_tensor {
    int32_t type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
    int32_t op, op_params[16], flags;
    const struct kvb_llama_tensor *src[10], *view_src;
    size_t view_offs;
    void *data;
    char name[64];
} kvb_llama_tensor;

enum { KVB_LLAMA_F32, KVB_LLAMA_F16 };
bool kvb_llama_is_plain(const kvb_llama_tensor *tensor); /* F32 or F16? NULL: no */
double kvb_llama_element(const kvb_llama_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
float kvb_llama_parameter(const kvb_llama_tensor *tensor, int i); /* of its operation */

const char *kvb_llama_operation(const kvb_llama_tensor *tensor);

/* Like ggml's callback. ask: is the node wanted? Else the node has been computed, and false ends the decode. node NULL:
 * the library's tensors are laid out otherwise. */
typedef bool kvb_llama_take(void *taker, const kvb_llama_tensor *node, bool ask);
/* From now on `take` gets the nodes of decodes in sessions with config.watched. */
void kvb_llama_show(kvb_llama_take *take, void *taker);

/* ---- recording --------------------------------------------------------------------------------------------------- */

typedef struct kvb_engine_recording {
    kvb_engine_config config; /* one cache for all sequences; K and V in f32 or f16 */
    const kvb_engine_history *history;
    const char *model;          /* in words */
    const char *layers, *heads; /* numbers of layers and of KV heads, "0,3"; NULL: the first, a middle and the last
                                    attending layer; the first and the last head */
    const char *directory, *name;

    int error;     /* result, as of kvb_engine.open() */
    char why[512]; /* reason of an error */
    char layers_taken[64];
} kvb_engine_recording;

/*
 * Plays the history over llama.cpp, in a child, and writes directory/NAME.jsonl and NAME.safetensors. These have, for
 * each sampled layer, q, new rows of K and V as they are stored, and outputs of attention. The recording lies in shared
 * memory. 0, with the result in error and why; or fork()'s error.
 */
int kvb_engine_record(kvb_engine_recording *recording);

/* ---- seeded models ----------------------------------------------------------------------------------------------- */

typedef struct kvb_gguf_family {
    const char *name, *arch, *summary;
    uint32_t layers, hidden, heads, kv_heads, dim, rope, window;
} kvb_gguf_family;
extern const kvb_gguf_family kvb_gguf_families[]; /* ends with name NULL */

/* Writes a family's model, without a vocabulary, into a memory file. Returns its descriptor, for /proc/self/fd/N, or a
 * negative errno. */
int kvb_gguf_write(const kvb_gguf_family *family, uint64_t seed);

#endif
