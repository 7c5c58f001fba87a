/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that keeps a list of tokens for each sequence; its answer is a hash of what each token sees. The name of
 * its model chooses what it does wrong (nothing, abort, hang, print, thread, exit, open), or its version (old). */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/engine/adapter.h"

enum { SEQS = KVB_ENGINE_RUNS, ROOM = 4096, VOCAB = 8 };

typedef struct list {
    struct {
        int32_t id, pos;
    } at[ROOM];
    uint32_t n;
} list;

typedef struct session {
    list seq[SEQS], saved;
    float logits[ROOM][VOCAB];
    char wrong[16];
} session;

static void *idle(void *ctx)
{
    for (;;)
        pause();
    return ctx;
}

static int toy_open(const kvb_engine_config *config, void **out, kvb_engine_facts *facts, char *why, size_t why_bytes)
{
    session *s = calloc(1, sizeof *s);
    snprintf(s->wrong, sizeof s->wrong, "%s", config->model);
    if (!strcmp(s->wrong, "open"))
        abort();
    if (!strcmp(s->wrong, "none")) {
        snprintf(why, why_bytes, "this machine has no such engine");
        return -ENOENT;
    }
    if (config->whole) /* fresh decodes are honest */
        s->wrong[0] = 0;
    *facts = (kvb_engine_facts){.build = "toy",
                                .number = 1,
                                .vocab = VOCAB,
                                .layers = 1,
                                .cells = config->cells,
                                .copies_part = true,
                                .refuses = 1u << KVB_ENGINE_DECODE};
    *out = s;
    return 0;
}

static int toy_clear(void *ctx)
{
    session *s = ctx;
    for (int i = 0; i < SEQS; i++)
        s->seq[i].n = 0;
    return 0;
}

static int toy_decode(void *ctx, const kvb_engine_token *tokens, uint32_t n)
{
    session *s = ctx;
    pthread_t thread;
    if (n == 3 && !strcmp(s->wrong, "abort"))
        abort();
    if (n == 3 && !strcmp(s->wrong, "exit"))
        _exit(0);
    while (n == 3 && !strcmp(s->wrong, "hang"))
        sleep(1);
    if (n == 3 && !strcmp(s->wrong, "thread"))
        pthread_create(&thread, NULL, idle, NULL);
    if (n == 3 && !strcmp(s->wrong, "print"))
        puts("hello from the engine"), fflush(stdout);
    for (uint32_t i = 0; i < n; i++) {
        list *l = &s->seq[tokens[i].seq];
        uint32_t hash = 0;
        l->at[l->n].id = tokens[i].id;
        l->at[l->n++].pos = tokens[i].pos;
        for (uint32_t k = 0; k < l->n; k++)
            hash += (uint32_t)(l->at[k].id + 1) * 2654435761u >> (tokens[i].pos - l->at[k].pos) % 7;
        for (int v = 0; v < VOCAB; v++)
            s->logits[i][v] = (float)(hash >> v & 1023) + 1;
    }
    return 0;
}

static const float *toy_logits(void *ctx, uint32_t i)
{
    return ((session *)ctx)->logits[i];
}

static int toy_remove(void *ctx, uint32_t seq, int32_t p0, int32_t p1)
{
    list *l = &((session *)ctx)->seq[seq];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->at[i].pos < p0 || l->at[i].pos >= p1)
            l->at[kept++] = l->at[i];
    l->n = kept;
    return 0;
}

static int toy_copy(void *ctx, uint32_t from, uint32_t to, int32_t p0, int32_t p1)
{
    session *s = ctx;
    for (uint32_t i = 0; i < s->seq[from].n; i++)
        if (s->seq[from].at[i].pos >= p0 && s->seq[from].at[i].pos < p1)
            s->seq[to].at[s->seq[to].n++] = s->seq[from].at[i];
    return 0;
}

static int toy_keep(void *ctx, uint32_t seq)
{
    session *s = ctx;
    for (uint32_t i = 0; i < SEQS; i++)
        s->seq[i].n = i == seq ? s->seq[i].n : 0;
    return 0;
}

static int toy_shift(void *ctx, uint32_t seq, int32_t p0, int32_t p1, int32_t delta)
{
    list *l = &((session *)ctx)->seq[seq];
    for (uint32_t i = 0; i < l->n; i++)
        l->at[i].pos += l->at[i].pos >= p0 && l->at[i].pos < p1 ? delta : 0;
    return 0;
}

static int toy_save(void *ctx, uint32_t seq)
{
    ((session *)ctx)->saved = ((session *)ctx)->seq[seq];
    return 0;
}

static int toy_load(void *ctx, uint32_t seq)
{
    ((session *)ctx)->seq[seq] = ((session *)ctx)->saved;
    return 0;
}

static void toy_span(void *ctx, uint32_t seq, int32_t *first, int32_t *last)
{
    const list *l = &((session *)ctx)->seq[seq];
    *first = *last = -1;
    for (uint32_t i = 0; i < l->n; i++) {
        *first = *first < 0 || l->at[i].pos < *first ? l->at[i].pos : *first;
        *last = l->at[i].pos > *last ? l->at[i].pos : *last;
    }
}

#ifndef ABI
#define ABI KVB_ENGINE_ABI
#endif
const kvb_engine kvb_engine_plugin = {
    .abi = ABI,
    .name = "toy",
    .summary = "a list",
    .limits = "none",
    .open = toy_open,
    .close = free,
    .clear = toy_clear,
    .decode = toy_decode,
    .logits = toy_logits,
    .copy = toy_copy,
    .remove = toy_remove,
    .keep = toy_keep,
    .shift = toy_shift,
    .save = toy_save,
    .load = toy_load,
    .span = toy_span,
};
