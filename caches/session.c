/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session registry. One mutex guards two lists: builders and sessions. Caches are built and freed
 * outside of it, so that a slow or re-entrant builder holds nobody up; a key is reserved meanwhile.
 *
 * A session's references: one of the registry, given up by kvb_session_close(), one for each hold. It
 * stays listed, without its key, until the last one is gone: that is how release() finds it.
 */
#include "caches/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct builder {
    struct builder *next;
    char *backend;
    kvb_session_kind kind;
    const kvb_cache_type *type;
} builder;

typedef struct session {
    struct session *next;
    char *key;        /* NULL once closed */
    kvb_cache *cache; /* NULL while it is being built */
    size_t references;
} session;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static builder *builders;
static session *sessions;

static const char *const kind_names[KVB_SESSION_KINDS] = {"decode", "seq", "tree"};

static const struct {
    const char *backend;
    kvb_session_kind kind;
    const kvb_cache_type *type;
} builtin_builders[] = {
    {"cpu", KVB_SESSION_DECODE, &kvb_cache_contig},
    {"cpu", KVB_SESSION_SEQ, &kvb_cache_seq_cells},
    {"cpu", KVB_SESSION_TREE, &kvb_cache_tree_nodes},
};

/* ---- builders, the lock being held ------------------------------------------------------------------ */

static const kvb_cache_type *builder_find(const char *backend, kvb_session_kind kind)
{
    for (size_t i = 0; i < sizeof builtin_builders / sizeof *builtin_builders; i++)
        if (builtin_builders[i].kind == kind && strcmp(builtin_builders[i].backend, backend) == 0)
            return builtin_builders[i].type;
    for (const builder *b = builders; b; b = b->next)
        if (b->kind == kind && strcmp(b->backend, backend) == 0)
            return b->type;
    return NULL;
}

static int builder_add(const char *backend, kvb_session_kind kind, const kvb_cache_type *type)
{
    const kvb_cache_type *holder = builder_find(backend, kind);
    if (holder)
        return holder == type ? 0 : -EEXIST;
    builder *b = malloc(sizeof *b);
    char *name = strdup(backend);
    if (!b || !name) {
        free(b);
        free(name);
        return -ENOMEM;
    }
    *b = (builder){builders, name, kind, type};
    builders = b;
    return 0;
}

/* The face that a kind of session is used through. */
static bool type_serves(const kvb_cache_type *type, kvb_session_kind kind)
{
    const bool faces[KVB_SESSION_KINDS] = {type->base, type->seq, type->tree};
    return faces[kind] && type->base && type->bytes && type->open && type->close;
}

int kvb_builder_register(const char *backend, kvb_session_kind kind, const kvb_cache_type *type)
{
    if (!backend || !type || (unsigned)kind >= KVB_SESSION_KINDS || !type_serves(type, kind))
        return -EINVAL;
    pthread_mutex_lock(&lock);
    int error = builder_add(backend, kind, type);
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- sessions, the lock being held ------------------------------------------------------------------ */

static session *session_find(const char *key)
{
    session *s = key ? sessions : NULL;
    while (s && !(s->key && strcmp(s->key, key) == 0))
        s = s->next;
    return s;
}

static session *session_of(const kvb_cache *cache)
{
    session *s = sessions;
    while (s && s->cache != cache)
        s = s->next;
    return s;
}

static void session_unlink(const session *s)
{
    session **at = &sessions;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
}

/* Give back one reference. Returns the session when it was the last one: the caller frees it unlocked. */
static session *session_drop(session *s)
{
    if (--s->references > 0)
        return NULL;
    session_unlink(s);
    return s;
}

static int key_reserve(const char *key, session **reserved, char *why, size_t why_bytes)
{
    if (session_find(key)) {
        snprintf(why, why_bytes, "session %s is open already", key);
        return -EEXIST;
    }
    session *s = calloc(1, sizeof *s);
    char *name = strdup(key);
    if (!s || !name) {
        free(s);
        free(name);
        snprintf(why, why_bytes, "no memory for session %s", key);
        return -ENOMEM;
    }
    s->key = name;
    s->next = sessions;
    s->references = 1;
    sessions = s;
    *reserved = s;
    return 0;
}

/* ---- with the lock taken inside --------------------------------------------------------------------- */

static void session_free(session *s)
{
    if (!s)
        return;
    if (s->cache)
        s->cache->type->close(s->cache);
    free(s->key);
    free(s);
}

static int session_open(kvb_session_kind kind, const char *key, const char *backend, const kvb_metadata_entry *metadata,
                        size_t n, const kvb_cache_options *options, kvb_cache **cache, char *why, size_t why_bytes)
{
    kvb_model_facts facts;
    session *s = NULL;
    if (!key || !backend || !options || (n > 0 && !metadata)) {
        snprintf(why, why_bytes, "a session needs a key, a backend, metadata and options");
        return -EINVAL;
    }
    int error = kvb_metadata_read(metadata, n, &facts, why, why_bytes);
    if (error)
        return error;
    pthread_mutex_lock(&lock);
    const kvb_cache_type *type = builder_find(backend, kind);
    if (type) {
        error = key_reserve(key, &s, why, why_bytes);
    } else {
        snprintf(why, why_bytes, "no builder for backend %s, kind %s", backend, kind_names[kind]);
        error = -ENOENT;
    }
    pthread_mutex_unlock(&lock);
    if (error)
        return error;
    kvb_cache *built = NULL;
    error = type->open(type, &facts, options, &built, why, why_bytes);
    pthread_mutex_lock(&lock);
    if (error) {
        session_unlink(s);
    } else {
        s->cache = built;
        s->references++;
    }
    pthread_mutex_unlock(&lock);
    if (error)
        session_free(s);
    else
        *cache = built;
    return error;
}

int kvb_open_decode_session(const char *key, const char *backend, const kvb_metadata_entry *metadata, size_t n,
                            const kvb_cache_options *options, kvb_cache **cache, const kvb_base_face **face, char *why,
                            size_t why_bytes)
{
    int error = session_open(KVB_SESSION_DECODE, key, backend, metadata, n, options, cache, why, why_bytes);
    if (!error)
        *face = kvb_cache_base(*cache);
    return error;
}

int kvb_open_seq_session(const char *key, const char *backend, const kvb_metadata_entry *metadata, size_t n,
                         const kvb_cache_options *options, kvb_cache **cache, const kvb_seq_face **face, char *why,
                         size_t why_bytes)
{
    int error = session_open(KVB_SESSION_SEQ, key, backend, metadata, n, options, cache, why, why_bytes);
    if (!error)
        *face = kvb_cache_seq(*cache);
    return error;
}

int kvb_open_tree_session(const char *key, const char *backend, const kvb_metadata_entry *metadata, size_t n,
                          const kvb_cache_options *options, kvb_cache **cache, const kvb_tree_face **face, char *why,
                          size_t why_bytes)
{
    int error = session_open(KVB_SESSION_TREE, key, backend, metadata, n, options, cache, why, why_bytes);
    if (!error)
        *face = kvb_cache_tree(*cache);
    return error;
}

kvb_cache *kvb_session_hold(const char *key)
{
    kvb_cache *cache = NULL;
    pthread_mutex_lock(&lock);
    session *s = session_find(key);
    if (s && s->cache) {
        s->references++;
        cache = s->cache;
    }
    pthread_mutex_unlock(&lock);
    return cache;
}

void kvb_session_release(kvb_cache *cache)
{
    if (!cache)
        return;
    pthread_mutex_lock(&lock);
    session *s = session_of(cache);
    session *last = s ? session_drop(s) : NULL;
    pthread_mutex_unlock(&lock);
    session_free(last);
}

int kvb_session_close(const char *key)
{
    pthread_mutex_lock(&lock);
    session *s = session_find(key);
    session *last = NULL;
    bool open = s && s->cache;
    if (open) {
        free(s->key);
        s->key = NULL;
        last = session_drop(s);
    }
    pthread_mutex_unlock(&lock);
    session_free(last);
    return open ? 0 : -ENOENT;
}

size_t kvb_session_count(void)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (const session *s = sessions; s; s = s->next)
        n += s->key && s->cache;
    pthread_mutex_unlock(&lock);
    return n;
}
