/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapter.h: the contract of a whole engine that `kvbench engine` judges, version KVB_ENGINE_ABI. A shared object that exports
 * `const kvb_engine kvb_engine_plugin` is one: `kvbench engine --engine ./mine.so`. C11, self-contained: copy this file into your
 * repository. An account of the history in integers judges every call: what it returns, and which positions each sequence has. In a
 * model of one layer, logits must be those of a fresh decode of the tokens that the sequence holds. In a model of several layers they
 * must be those of kvbench's decoder, if it knows the model (decoder.c).
 */
#ifndef KVB_ENGINE_ADAPTER_H
#define KVB_ENGINE_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVB_ENGINE_ABI     1u
#define KVB_ENGINE_SEQS    32u        /* sequences of a history at most; a session has the `seqs` of its config */
#define KVB_ENGINE_RUNS    16u        /* sequences of the fresh decode: a run of positions in each */
#define KVB_ENGINE_ALL     UINT32_MAX /* as the sequence of save and load: all of them */
#define KVB_ENGINE_END     INT32_MAX  /* as p1: to the end */
#define KVB_ENGINE_UNKNOWN (-2)       /* as the least position: the engine does not say */

/* ---- the contract ------------------------------------------------------------------------------------------------ */

typedef enum kvb_engine_verb {
    KVB_ENGINE_DECODE,
    KVB_ENGINE_COPY,
    KVB_ENGINE_REMOVE,
    KVB_ENGINE_KEEP,
    KVB_ENGINE_SHIFT,
    KVB_ENGINE_SAVE,
    KVB_ENGINE_LOAD,
    KVB_ENGINE_VERBS
} kvb_engine_verb;

/* How a session is opened. */
typedef struct kvb_engine_config {
    const char *lib;    /* the engine's library, or the folder that holds it; NULL: the engine needs none */
    const char *model;  /* a file */
    const char *family; /* of a seeded model; "": the user's own */
    const char *kv;     /* f32, f16, q8_0 or q4_0 */
    const char *layout; /* NAME=OFFSET,…: offsets of the engine's parameters; NULL: found */
    bool flash, split;  /* flash attention; a cache for each sequence in place of one for all */
    bool whole;         /* of the fresh decode: nothing is dropped that windows hide, and nothing is rolled back */
    bool watched;       /* blame() will be asked */
    uint32_t cells;     /* tokens alive at once; split: of one sequence */
    uint32_t seqs;      /* sequences 0 .. seqs - 1 */
} kvb_engine_config;

/* What an engine's session is, and its limits. */
typedef struct kvb_engine_facts {
    char build[64];   /* "llama.cpp v0.5.0" */
    uint32_t number;  /* orders builds of one engine; UINT32_MAX: newer than all that are known */
    uint32_t vocab;   /* logits of a token */
    uint32_t layers;  /* with one, what a row holds does not depend on what its token saw */
    uint32_t window;  /* positions that a query sees at most; 0: all */
    uint32_t cells;   /* as opened */
    bool recurrent;   /* some layers keep a state of the whole sequence, */
    uint32_t depth;   /* and as many states before it, to which a sequence can be cut back */
    bool split;       /* a cache for each sequence: cells are those of one */
    bool shares;      /* copies share tokens: a shift moves them in every sequence that holds them */
    bool copies_part; /* copy takes a range */
    bool saves_all;   /* save and load take KVB_ENGINE_ALL */
    uint32_t refuses; /* 1 << verb: calls that may be refused, which must then change nothing; decode: for want of room
                         that the shadow does not see */
    uint32_t absent;  /* 1 << verb: calls that it lacks */
} kvb_engine_facts;

typedef struct kvb_engine_token {
    uint32_t seq;
    int32_t id, pos; /* the next position of its sequence; any, where the sequence is empty */
} kvb_engine_token;

/*
 * Calls return 0, or a negative errno: -ENOSPC no room, -ENOTSUP refused; either way nothing has changed. Other errors
 * are failures of the engine. One thread calls. p1 KVB_ENGINE_END: to the end.
 */
typedef struct kvb_engine {
    uint32_t abi; /* KVB_ENGINE_ABI */
    const char *name, *summary;
    const char *limits; /* in words: what it does not promise */
    /* -ENOENT: it cannot be had on this machine; -EINVAL: config is at fault. why gets one line. */
    int (*open)(const kvb_engine_config *config, void **session, kvb_engine_facts *facts, char *why, size_t why_bytes);
    void (*close)(void *session);
    int (*clear)(void *session); /* forgets every token; what is saved stays */
    int (*decode)(void *session, const kvb_engine_token *tokens, uint32_t n);
    const float *(*logits)(void *session, uint32_t i); /* [vocab] of token i of the last decode */
    int (*copy)(void *session, uint32_t from, uint32_t to, int32_t p0, int32_t p1); /* `to` gets them besides its own */
    int (*remove)(void *session, uint32_t seq, int32_t p0, int32_t p1);
    int (*keep)(void *session, uint32_t seq); /* empties every other sequence */
    int (*shift)(void *session, uint32_t seq, int32_t p0, int32_t p1, int32_t delta);
    int (*save)(void *session, uint32_t seq); /* one place for a sequence, one for all: the latest stays */
    int (*load)(void *session, uint32_t seq); /* what was saved takes the place of what the sequence holds */
    void (*span)(void *session, uint32_t seq, int32_t *first,
                 int32_t *last); /* least and largest position; -1: empty */
    /* Where the fault of the last decode lies: "rows: …", "visibility: …" or "arithmetic: …"; "": it cannot be said.
     * sees: [n] how many tokens each token of the decode must see; behind them these tokens, all of the first, then all of the second,
     * numbered as they were decoded since clear(). Of sessions opened with `watched`. NULL: the engine cannot tell. */
    const char *(*blame)(void *session, const uint32_t *sees, uint32_t n);
} kvb_engine;

#endif
