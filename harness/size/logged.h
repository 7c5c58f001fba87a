/* SPDX-License-Identifier: Apache-2.0 */
/* Compares sizes with the log of an engine: the log's settings, and its bytes by part. */
#ifndef KVB_SIZE_LOGGED_H
#define KVB_SIZE_LOGGED_H

#include "harness/size/sizing.h"

/* The facts in a log. Sizes come first; they are bytes of one rank. */
typedef enum kvb_logged_key {
    KVB_LOGGED_WEIGHTS,
    KVB_LOGGED_KV, /* the pool; in vllm with the states */
    KVB_LOGGED_STATES,
    KVB_LOGGED_ACTIVATIONS,
    KVB_LOGGED_LOGITS, /* llama.cpp's outputs, in the host's memory: not in a total */
    KVB_LOGGED_GRAPHS,
    KVB_LOGGED_RUNTIME,
    KVB_LOGGED_PARTS,
    KVB_LOGGED_CONTEXT = KVB_LOGGED_PARTS, /* tokens of one sequence */
    KVB_LOGGED_TOKENS,                     /* tokens that the pool can hold */
    KVB_LOGGED_REQUESTS,                   /* requests of that context that the pool can hold; a fraction */
    KVB_LOGGED_SEQUENCES,
    KVB_LOGGED_TP,
    KVB_LOGGED_PP,
    KVB_LOGGED_BATCH,
    KVB_LOGGED_BLOCK,
    KVB_LOGGED_OUTPUTS, /* llama.cpp: tokens of a pass with logits */
    KVB_LOGGED_COPIES,  /* llama.cpp: of the tensors that a pipeline passes on */
    KVB_LOGGED_UNIFIED, /* words from here on */
    KVB_LOGGED_FLASH,
    KVB_LOGGED_PREFIX,
    KVB_LOGGED_K,
    KVB_LOGGED_V,
    KVB_LOGGED_MODEL,
    KVB_LOGGED_VERSION,
    KVB_LOGGED_KEYS
} kvb_logged_key;

typedef struct kvb_logged {
    const char *engine; /* static */
    struct {
        bool there;
        double value, step; /* step: of the last digit in the log */
        char word[128];
    } at[KVB_LOGGED_KEYS];
} kvb_logged;

/* Reads a log. -EINVAL with "file: what was expected" in why: the file cannot be read, or has no line with a size of a
 * known engine. */
int kvb_logged_read(const char *path, kvb_logged *log, char *why, size_t why_bytes);

/* Settings of the engine in the form of command line options. "": not in the log. */
typedef struct kvb_logged_options {
    char engine[32], context[24], sequences[24], kv[64];
} kvb_logged_options;
/* The other settings go into `ask`, where it has the usual value. */
void kvb_logged_options_make(const kvb_logged *log, kvb_logged_options *options, kvb_size_ask *ask);

/* Prints each part of the log: the predicted and the logged size, and the rule of the prediction if they differ by more
 * than the log's last digit. 0, -EIO or -ENOMEM. */
int kvb_logged_print(const kvb_logged *log, const kvb_size_row *row, kvb_table_format format, FILE *out);

#endif
