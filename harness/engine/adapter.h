/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapter.h: the contract of a whole engine that `kvbench engine` judges, version KVB_ENGINE_ABI. An engine is a shared
 * object that exports `const kvb_engine kvb_engine_plugin`: `kvbench engine --engine ./mine.so`. C11, self-contained:
 * copy this file into your repository. An account of the history in integers judges every call by its return value and
 * by each sequence's positions. In a model of one layer, logits must be those of a fresh decode of the sequence's
 * tokens. In a model of several layers they must be those of kvbench's decoder, if it knows the model (decoder.c).
 */
#ifndef KVB_ENGINE_ADAPTER_H
#define KVB_ENGINE_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVB_ENGINE_ABI     1u
#define KVB_ENGINE_SEQS    32u        /* most sequences of a history; a session has the `seqs` of its config */
#define KVB_ENGINE_RUNS    16u        /* most sequences of a fresh decode, which holds a run of positions in each */
#define KVB_ENGINE_ALL     UINT32_MAX /* seq of save and load: all sequences */
#define KVB_ENGINE_END     INT32_MAX  /* p1: to the end */
#define KVB_ENGINE_UNKNOWN (-2)       /* *first of span: the engine does not know */

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
    const char *family; /* of a seeded model; "": the user's model */
    const char *kv;     /* f32, f16, q8_0 or q4_0 */
    const char *layout; /* NAME=OFFSET,…: offsets of the engine's parameters; NULL: the adapter finds them */
    bool flash, split;  /* flash attention; a cache for each sequence instead of one for all */
    bool whole;         /* for fresh decodes: keep tokens that windows hide; no state will be rolled back */
    bool watched;       /* blame() will be called */
    uint32_t cells;     /* most tokens alive at once; split: in one sequence */
    uint32_t seqs;      /* sequences 0 .. seqs - 1 */
} kvb_engine_config;

/* Properties and limits of an engine's session. */
typedef struct kvb_engine_facts {
    char build[64];   /* "llama.cpp v0.5.0" */
    uint32_t number;  /* orders builds of one engine; UINT32_MAX: newer than all known builds */
    uint32_t vocab;   /* logits of a token */
    uint32_t layers;  /* 1: a row does not depend on the tokens that its token saw */
    uint32_t window;  /* most positions that a query sees; 0: all */
    uint32_t cells;   /* as opened */
    bool recurrent;   /* some layers keep a state of the whole sequence */
    uint32_t depth;   /* earlier states that these layers keep: a sequence can be cut back by so many tokens */
    bool split;       /* a cache for each sequence; cells: of one sequence */
    bool shares;      /* copies share tokens: a shift moves them in every sequence that holds them */
    bool copies_part; /* copy takes a range */
    bool saves_all;   /* save and load take KVB_ENGINE_ALL */
    uint32_t refuses; /* 1 << verb: calls that may be refused, which change nothing then. decode: the engine may have
                         less room than the account knows of */
    uint32_t absent;  /* 1 << verb: calls that the engine lacks */
} kvb_engine_facts;

typedef struct kvb_engine_token {
    uint32_t seq;
    int32_t id, pos; /* pos: the next position of the sequence; any position if it is empty */
} kvb_engine_token;

/*
 * Calls return 0, or a negative errno: -ENOSPC no room, -ENOTSUP refused; both leave everything unchanged. Other errors
 * are failures of the engine. One thread makes all calls. A range is p0 .. p1 - 1.
 */
typedef struct kvb_engine {
    uint32_t abi; /* KVB_ENGINE_ABI */
    const char *name, *summary;
    const char *limits; /* in words: what the engine does not promise */
    /* -ENOENT: this machine does not have the engine; -EINVAL: config is wrong. why: one line. */
    int (*open)(const kvb_engine_config *config, void **session, kvb_engine_facts *facts, char *why, size_t why_bytes);
    void (*close)(void *session);
    int (*clear)(void *session); /* removes every token; saved sequences stay */
    int (*decode)(void *session, const kvb_engine_token *tokens, uint32_t n);
    const float *(*logits)(void *session, uint32_t i); /* [vocab] of token i of the last decode */
    int (*copy)(void *session, uint32_t from, uint32_t to, int32_t p0, int32_t p1); /* `to` keeps its own tokens, too */
    int (*remove)(void *session, uint32_t seq, int32_t p0, int32_t p1);
    int (*keep)(void *session, uint32_t seq); /* empties every other sequence */
    int (*shift)(void *session, uint32_t seq, int32_t p0, int32_t p1, int32_t delta);
    int (*save)(void *session, uint32_t seq); /* into one place for a sequence, or one for all; replaces its content */
    int (*load)(void *session, uint32_t seq); /* replaces the sequence by the saved one */
    void (*span)(void *session, uint32_t seq, int32_t *first,
                 int32_t *last); /* least and largest position; -1: empty */
    /* For sessions with config.watched: the kind of the last decode's fault, "rows: …", "visibility: …" or
     * "arithmetic: …"; "": unknown. sees: [n] how many tokens each token of the decode must see; then these tokens,
     * query after query, numbered in the order of decoding since clear(). NULL: not provided. */
    const char *(*blame)(void *session, const uint32_t *sees, uint32_t n);
} kvb_engine;

#endif
