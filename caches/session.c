/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session registry. One mutex guards the list of sessions. Caches are opened and freed without the lock, so that a
 * slow cache delays no other; the key is reserved meanwhile.
 *
 * The registry has one reference to a session, which kvb_session_close() drops; each hold has another. A closed session
 * stays listed, without its key, until the last reference is dropped, so that release() finds it.
 */
#include "caches/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct session {
    struct session *next;
    char *key;        /* behind the session; NULL once closed */
    kvb_cache *cache; /* NULL while it is being opened */
    size_t references;
} session;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static session *sessions;

/* ---- with the lock held ----------------------------------------------------------------------------- */

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

/* Drops one reference. Returns the session if it was the last one: the caller frees it without the lock. */
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
    session *s = calloc(1, sizeof *s + strlen(key) + 1);
    if (!s) {
        snprintf(why, why_bytes, "no memory for session %s", key);
        return -ENOMEM;
    }
    s->key = strcpy((char *)(s + 1), key);
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
    kvb_cache_close(s->cache);
    free(s);
}

int kvb_session_open(const char *key, const kvb_cache_type *type, const kvb_model *model,
                     const kvb_cache_options *options, kvb_cache **cache, char *why, size_t why_bytes)
{
    session *s = NULL;
    pthread_mutex_lock(&lock);
    int error = key_reserve(key, &s, why, why_bytes);
    pthread_mutex_unlock(&lock);
    if (error)
        return error;
    kvb_cache *opened = NULL;
    error = kvb_cache_open(type, model, options, &opened, why, why_bytes);
    pthread_mutex_lock(&lock);
    if (error) {
        session_unlink(s);
    } else {
        s->cache = opened;
        s->references++;
    }
    pthread_mutex_unlock(&lock);
    if (error)
        session_free(s);
    else
        *cache = opened;
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
