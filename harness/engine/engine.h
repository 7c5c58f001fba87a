/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole engines before the judge. An engine holds sequences of tokens in a memory of its own; its calls decode, copy,
 * remove, shift, save and load them. A history is a list of such calls. The shadow is an account of a history in
 * integers. It says which tokens each sequence shows, and the engine's logits must be those of a fresh decode of just
 * these tokens.
 */
#ifndef KVB_ENGINE_H
#define KVB_ENGINE_H

#include "harness/engine/adapter.h"
#include "workloads/trace.h"

extern const kvb_engine kvb_engine_llama, kvb_engine_live;

/* ---- histories --------------------------------------------------------------------------------------------------- */

#define KVB_ENGINE_LIB   "build/engines/ggml" /* where llama's library lies unless --lib says */
#define KVB_ENGINE_CALLS 2048u                /* of a history */
#define KVB_ENGINE_USUAL 4u                   /* sequences of random histories, and of a session at least */

typedef struct kvb_engine_call {
    kvb_engine_verb verb;
    uint32_t seq, to;            /* of what; of copy, where to */
    int32_t p0, p1, delta;       /* p0 .. p1 - 1 */
    uint32_t n[KVB_ENGINE_SEQS]; /* decode: tokens of each sequence */
} kvb_engine_call;

typedef struct kvb_engine_history {
    kvb_engine_call at[KVB_ENGINE_CALLS];
    uint32_t n;
} kvb_engine_history;

/* "d 0 3; cp 0 1; rm 0 4 12; add 0 12 end -8; keep 0; save 0; load 1; save all; d 0 1 1 2". 0, or -EINVAL with why. */
int kvb_engine_history_parse(const char *text, kvb_engine_history *history, char *why, size_t why_bytes);
/* Of a recorded workload by its name, or of FILE.jsonl. -1, or an exit code, told by the command. */
int kvb_engine_history_find(const char *command, const char *word, kvb_engine_history *history);
/* The same by its path. 0, -ENOTSUP with why: it has what no engine has a call for; or what kvb_trace_load() says. */
int kvb_engine_history_of(const char *path, kvb_engine_history *history, char *why, size_t why_bytes);
void kvb_engine_history_print(const kvb_engine_history *history, char *text, size_t bytes);
/* Writes it as a trace of one layer with seeded values, for our own caches. 0; -ENOTSUP with why: no trace says such a history; or
 * what kvb_trace_create() says. */
int kvb_engine_history_write(const kvb_engine_history *history, const kvb_engine_facts *facts, const char *path,
                             const char *source, char *why, size_t why_bytes);

typedef struct kvb_shadow_token {
    int32_t id, pos;
    uint32_t row;    /* numbers tokens as they are decoded; copies have one number */
    uint32_t cell;   /* numbers tokens as they are stored; copies that are shared have one number */
    uint32_t shifts; /* how often it was moved */
    uint64_t seen;   /* of what it saw when it was decoded: ids, and distances */
} kvb_shadow_token;

#define KVB_SHADOW_TOKENS    1024u      /* of a sequence */
#define KVB_SHADOW_POSITIONS 8192       /* 0 .. 8191 */
#define KVB_SHADOW_ROWS      (1u << 16) /* numbers of tokens, and of cells, in a history */

typedef struct kvb_shadow_seq {
    kvb_shadow_token at[KVB_SHADOW_TOKENS]; /* ascending by position */
    uint32_t n;
} kvb_shadow_seq;

typedef struct kvb_shadow {
    kvb_shadow_seq seq[KVB_ENGINE_SEQS], saved, saved_all[KVB_ENGINE_SEQS];
    bool has_saved, has_saved_all;
    uint32_t seqs;          /* the others were never used */
    uint32_t cells, tokens; /* numbers given so far */
} kvb_shadow;

/* They touch only what is used of a large struct. */
void kvb_shadow_clear(kvb_shadow *shadow);
void kvb_shadow_copy(kvb_shadow *to, const kvb_shadow *from);
/*
 * Applies a call. 0; -EINVAL: no history may hold it, why says why; -ENOSPC: a decode for which there is no room, which
 * changes nothing. Decoded tokens are the last ones of their sequences.
 */
int kvb_shadow_apply(kvb_shadow *shadow, const kvb_engine_facts *facts, const kvb_engine_call *call, char *why,
                     size_t why_bytes);

/* The tokens of one decode, as an event has them. */
typedef struct kvb_engine_step {
    uint32_t pos[KVB_SHADOW_TOKENS], seq[KVB_SHADOW_TOKENS];
    int32_t tok[KVB_SHADOW_TOKENS];
} kvb_engine_step;
/* The event of a decode that the shadow has taken, of its tokens of sequences first .. last - 1; its arrays are the step's. */
kvb_event kvb_engine_step_event(const kvb_shadow *shadow, const kvb_engine_call *call, uint32_t first, uint32_t last,
                                kvb_engine_step *step);
/* The event of any other call. */
kvb_event kvb_engine_control_event(const kvb_engine_call *call);
/* Does each token of the sequence still see what it saw when it was decoded? */
bool kvb_shadow_is_plain(const kvb_shadow_seq *seq);
/* Tokens of the sequence that one at this position sees, itself included; [n] their numbers, if it is not NULL. */
uint32_t kvb_shadow_sees(const kvb_shadow_seq *seq, const kvb_engine_facts *facts, int32_t pos, uint32_t *rows);

/* A history of this seed: legal by the shadow. */
void kvb_engine_history_random(uint64_t seed, const kvb_engine_facts *facts, kvb_engine_history *history);
/* The sequences that a session needs for it. */
uint32_t kvb_engine_history_seqs(const kvb_engine_history *history);
/* May this engine be given the history? 0, or -EINVAL with why. */
int kvb_engine_history_check(const kvb_engine_history *history, const kvb_engine_facts *facts, char *why,
                             size_t why_bytes);

/* ---- our own decoder --------------------------------------------------------------------------------------------- */

/* A decoder in double over the weights of a GGUF file. */
typedef struct kvb_decoder kvb_decoder;

/* 0, or a negative errno with why: it does not know what the file holds, or that has another vocabulary. */
int kvb_decoder_open(const char *path, uint32_t vocab, kvb_decoder **decoder, char *why, size_t why_bytes);
void kvb_decoder_close(kvb_decoder *decoder);
/* Makes rows of the last n tokens of the sequence. The rows of the others were made as they were decoded. Returns [vocab] of the
 * last token, valid until the next call; NULL: no memory. */
const float *kvb_decoder_decode(kvb_decoder *decoder, const kvb_shadow_seq *seq, uint32_t n);

/* ---- judging ----------------------------------------------------------------------------------------------------- */

/* A planted fault: it changes a call before the engine gets it. */
typedef struct kvb_engine_fault {
    const char *name, *summary;
    kvb_engine_verb verb;
    /* Of the nth such call of a history, from 0 on. False: the engine does not get the call, and 0 is returned. */
    bool (*twist)(kvb_engine_call *call, uint32_t nth);
    bool renews; /* a shift is made by removing and decoding */
} kvb_engine_fault;
extern const kvb_engine_fault kvb_engine_faults[]; /* ends with name NULL */

typedef enum kvb_engine_kind {
    KVB_ENGINE_RIGHT,
    KVB_ENGINE_LOGITS,    /* logits are not those of a fresh decode */
    KVB_ENGINE_POSITIONS, /* least or largest position of a sequence */
    KVB_ENGINE_RETURNS,   /* a call is refused that must not be, or the other way round */
    KVB_ENGINE_DIES,      /* it aborts, exits or hangs */
    KVB_ENGINE_KINDS
} kvb_engine_kind;
extern const char *const kvb_engine_kind_names[KVB_ENGINE_KINDS];

typedef struct kvb_engine_outcome {
    kvb_engine_kind kind;
    uint32_t event;  /* the first wrong call, from 0 on; else the number of calls made */
    uint32_t judged; /* tokens with logits that were compared */
    uint32_t
        unjudged; /* decoded tokens without logits to compare with: a fresh decode is not exact, and there is no decoder */
    double error, limit; /* largest difference of logits over the largest logit, and what it may be */
    char what[320];      /* one line */
    bool threads;        /* the engine has started some */
} kvb_engine_outcome;

/* An engine's sessions: the one that is judged, and those of fresh decodes. */
typedef struct kvb_engine_bench {
    const kvb_engine *engine;
    const kvb_engine_fault *fault; /* or NULL */
    uint32_t twisted;              /* calls that met it */
    uint32_t seqs;                 /* of the subject */
    bool watched;                  /* the subject's decodes are looked at */
    kvb_engine_facts facts;        /* of the subject */
    void *subject, *twin, *exact;  /* twin: as the subject; exact: f32 rows, no flash attention */
    kvb_decoder *decoder;          /* NULL: there is none, */
    char without[160];             /* and why */
    double apart;                  /* exact from the decoder */
    double noise;                  /* of exact decodes between batch splits, and apart */
    double format;                 /* twin from exact */
    float *logits;                 /* [3][vocab] */
    uint32_t *order, decoded; /* by a token's number in the shadow: its number in the engine; and how many those are */
    kvb_shadow *shadow, *before; /* before: a call that may be refused */
} kvb_engine_bench;

int kvb_engine_bench_open(kvb_engine_bench *bench, const kvb_engine *engine, const kvb_engine_config *config,
                          const kvb_engine_fault *fault, char *why, size_t why_bytes);
void kvb_engine_bench_close(kvb_engine_bench *bench);
/* Plays a history that was checked, up to the first wrong call. The outcome's event is kept up to date for a parent
 * that may outlive this process. */
void kvb_engine_play(kvb_engine_bench *bench, const kvb_engine_history *history, kvb_engine_outcome *outcome);

/* ---- what is known ----------------------------------------------------------------------------------------------- */

typedef struct kvb_engine_known {
    const char *name;
    const char *families; /* words, one of which begins the name of the seeded model's family; "": any */
    const char *caches;   /* "unified", "split", or "" for either */
    bool rolls;           /* only where states can be rolled back */
    const char *kv;       /* "": any */
    kvb_engine_kind kind;
    const char *signature; /* beginnings of calls, in this order in the smallest history */
    uint32_t most;         /* calls of such a history */
    const char *script;    /* that shows it */
    uint32_t first, last;  /* builds that have it */
    const char *class;     /* by contract, documented limit, open upstream, fixed upstream, not reported */
    const char *reference; /* contract, or the number */
    const char *advice;    /* what a user of the library should do */
} kvb_engine_known;
extern const kvb_engine_known kvb_engine_known_rows[]; /* ends with name NULL */

/* The row that says this of the smallest history; NULL: it is new. */
const kvb_engine_known *kvb_engine_known_find(const kvb_engine_facts *facts, const kvb_engine_config *config,
                                              const kvb_engine_history *history, kvb_engine_kind kind);
/* Are the signature's calls among the history's, in this order? */
bool kvb_engine_known_signed(const kvb_engine_known *row, const kvb_engine_history *history);
/* Is the row about sessions of this kind? */
bool kvb_engine_known_fits(const kvb_engine_known *row, const kvb_engine_facts *facts, const kvb_engine_config *config);

/* ---- looking for more -------------------------------------------------------------------------------------------- */

#define KVB_ENGINE_FINDINGS 24u

typedef struct kvb_engine_finding {
    kvb_engine_history history; /* the smallest that shows it */
    kvb_engine_outcome outcome;
    const kvb_engine_known *known; /* NULL: new */
    uint64_t seed;                 /* of the first history; 0: a script's */
    uint32_t times;
    bool expected; /* a known row's own history */
} kvb_engine_finding;

/* What a row of the table is asked, and what came of it. Lies in shared memory. */
typedef struct kvb_engine_row {
    const kvb_engine *engine;
    kvb_engine_config config;
    const kvb_engine_fault *fault;
    const kvb_engine_history *scripts; /* [n_scripts] */
    uint32_t n_scripts;
    uint64_t seed, n_random;
    bool known;     /* the histories of known rows too */
    double seconds; /* of a history */

    kvb_engine_facts facts;
    int error;     /* of open */
    char why[256]; /* of open, or of a script */
    bool opened;
    uint64_t histories, judged, unjudged, wrong;
    uint64_t made[KVB_ENGINE_VERBS], wrong_at[KVB_ENGINE_VERBS]; /* calls, and those that were the first wrong one */
    bool threads;
    char without[160]; /* why our own decoder does not judge */
    double worst;      /* error over limit, of right histories */
    kvb_engine_finding found[KVB_ENGINE_FINDINGS];
    uint32_t n_found, n_lost; /* lost: there was no room for them */
    /* Known differences that were right where they must not be, wrong where they must not be, and right. */
    const kvb_engine_known *vanished[KVB_ENGINE_FINDINGS], *back[KVB_ENGINE_FINDINGS], *right[KVB_ENGINE_FINDINGS];
    uint32_t n_vanished, n_back, n_right;
    char printed[128]; /* the first line that the engine wrote to stdout or stderr */
} kvb_engine_row;

/* Fills the row, which lies in memory that children share. 0, or a negative errno: no child could be made. */
int kvb_engine_row_run(kvb_engine_row *row);

/* ---- llama.cpp's evaluation callback ----------------------------------------------------------------------------- */

/* As ggml has it, of which data and name are confirmed by its getters. */
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
bool kvb_llama_is_plain(const kvb_llama_tensor *tensor); /* one of these; NULL is not */
double kvb_llama_element(const kvb_llama_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
float kvb_llama_parameter(const kvb_llama_tensor *tensor, int i); /* of its operation */

typedef struct kvb_llama_watch kvb_llama_watch;
/* As ggml's: with `ask` whether the node is wanted; else the node is computed, and false ends the decode. */
typedef bool kvb_llama_take(kvb_llama_watch *watch, const kvb_llama_tensor *node, bool ask);

#define KVB_WATCH_TOKENS 8192u /* of a session between two clears; with more, cells are counted and not named */

/* The first part belongs to a session: which token each cell holds. The second belongs to its last decode. */
struct kvb_llama_watch {
    const char *(*op_desc)(const void *tensor), *(*get_name)(const void *tensor);
    void *(*get_data)(const void *tensor);
    bool split; /* each sequence has a stream of cells */
    bool named; /* cells are known */
    struct {
        uint32_t seq;
        int32_t pos;
    } tokens[KVB_WATCH_TOKENS]; /* as they were decoded */
    uint32_t n_tokens;
    /* [stream][stream_cells]: a token's index plus 1; 0: nothing was stored */
    uint32_t cells[KVB_ENGINE_SEQS * KVB_SHADOW_TOKENS], stream_cells;

    char first[64], cache[64];                     /* the node that gives the mask, and the cache of K */
    uint32_t n, rows[KVB_SHADOW_TOKENS], n_stored; /* tokens; row of a mask -> token of the decode */
    bool is_stored[KVB_SHADOW_TOKENS];
    uint32_t shown[KVB_SHADOW_TOKENS], n_shown; /* visible cells of each row */
    uint32_t *seen, n_seen, room;               /* what these cells hold, row after row, as in `cells` */
    void *query, *mask;                         /* copies, until the output is there */
    uint32_t nodes;                             /* that were compared by their output, */
    double error;                               /* and the largest error */
    char said[200];

    kvb_llama_take *take; /* gets the nodes instead; NULL: none */
    void *taker;
};

bool kvb_llama_watch_node(void *tensor, bool ask, void *watch);
/* From here on `take` gets the nodes of decodes, in sessions that are opened with `watched`. */
void kvb_llama_show(kvb_llama_take *take, void *taker);
void kvb_llama_watch_clear(kvb_llama_watch *watch, bool split, bool named);
/* Sequence `to` has got the cells of `from`. */
void kvb_llama_watch_copy(kvb_llama_watch *watch, uint32_t from, uint32_t to);
void kvb_llama_watch_begin(kvb_llama_watch *watch, const kvb_engine_token *tokens, uint32_t n);
/* sees: as kvb_engine's blame() has it. */
void kvb_llama_watch_say(kvb_llama_watch *watch, const uint32_t *sees, uint32_t n);

/* ---- recording --------------------------------------------------------------------------------------------------- */

typedef struct kvb_engine_recording {
    kvb_engine_config config; /* one cache for all sequences; K and V in f32 or f16 */
    const kvb_engine_history *history;
    const char *model;          /* in words */
    const char *layers, *heads; /* numbers such as "0,3", of layers and KV heads; NULL: the first, a middle and the last
                                    layer that attend, the first and the last head */
    const char *directory, *name;

    int error;     /* of the engine or of the recording: as kvb_engine.open says */
    char why[512]; /* of error */
    char layers_taken[64];
} kvb_engine_recording;

/*
 * Plays the history over llama.cpp, in a child process, and writes directory/NAME.jsonl and NAME.safetensors: of each layer that is
 * sampled q, new rows of K and V as they are written, and outputs of attention. The recording lies in shared memory. 0 with error and
 * why, or what fork() says.
 */
int kvb_engine_record(kvb_engine_recording *recording);

/* ---- seeded models ----------------------------------------------------------------------------------------------- */

typedef struct kvb_gguf_family {
    const char *name, *arch, *summary;
    uint32_t layers, hidden, heads, kv_heads, dim, rope, window;
} kvb_gguf_family;
extern const kvb_gguf_family kvb_gguf_families[]; /* ends with name NULL */

/* Writes a family's model, without a vocabulary, into memory. Returns a descriptor, which /proc/self/fd/N opens again,
 * or a negative errno. */
int kvb_gguf_write(const kvb_gguf_family *family, uint64_t seed);

#endif
