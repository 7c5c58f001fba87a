/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the session registry: keys, reference counts, closing while held, and many threads at once. */
#include "rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "caches/session.h"

static const kvb_model model = {
    .n_layers = 1, .n_groups = 1, .groups = {{.heads = 2, .kv_heads = 2, .k_dim = 4, .v_dim = 4, .scale = 1}}};

static int session_open(const char *key, kvb_allocator *a, uint32_t capacity, kvb_cache **cache, char *why,
                        size_t why_bytes)
{
    const kvb_cache_options options = {.capacity = capacity,
                                       .seq_capacity = 16,
                                       .max_seqs = 2,
                                       .min_chunk = 4,
                                       .k_pool = kvb_builtin_pools[0],
                                       .v_pool = kvb_builtin_pools[0],
                                       .allocator = a};
    return kvb_session_open(key, &kvb_cache_contiguous, &model, &options, cache, why, why_bytes);
}

/* Linked with --wrap: makes calloc fail for a session. */
static bool no_memory;
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    return no_memory ? NULL : __real_calloc(n, bytes);
}

/* What the registry holds of a key, and what opening it returns. A failed open leaves nothing behind. */
static void test_keys(void **state)
{
    kvb_allocator a = {0};
    kvb_cache *c, *again;
    char why[160];
    assert_int_equal(session_open("k", &a, 0, &c, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "capacity"));
    assert_int_equal(kvb_session_count(), 0);
    a.fail_request = a.requests + 1;
    assert_int_equal(session_open("k", &a, 16, &c, why, sizeof why), -ENOMEM);
    assert_int_equal(kvb_session_count() + a.current_bytes, 0);
    no_memory = true;
    assert_int_equal(session_open("k", &a, 16, &c, why, sizeof why), -ENOMEM);
    no_memory = false;
    assert_string_equal(why, "no memory for session k");
    assert_int_equal(session_open("k", &a, 16, &c, why, sizeof why), 0);
    assert_ptr_equal(kvb_cache_type_of(c), &kvb_cache_contiguous);
    assert_int_equal(session_open("k", &a, 16, &again, why, sizeof why), -EEXIST);
    assert_non_null(strstr(why, "session k is open"));
    assert_int_equal(session_open("l", &a, 16, &again, why, sizeof why), 0);
    assert_int_equal(kvb_session_count(), 2);
    kvb_session_release(c);
    kvb_session_release(again);
    assert_int_equal(kvb_session_close("k") + kvb_session_close("l"), 0);
    assert_int_equal(kvb_session_close("k"), -ENOENT);
    assert_null(kvb_session_hold("k"));
    assert_null(kvb_session_hold(NULL));
    kvb_session_release(NULL);
    assert_int_equal(kvb_session_count() + a.current_bytes, 0);
}

/* A step that holds the cache goes on after the close; the key is free at once. */
static void test_close_while_held(void **state)
{
    kvb_allocator a = {0}, b = {0};
    kvb_cache *c, *other;
    char why[160];
    assert_int_equal(session_open("k", &a, 16, &c, why, sizeof why), 0);
    assert_ptr_equal(kvb_session_hold("k"), c);
    assert_int_equal(kvb_session_close("k"), 0);
    assert_int_equal(kvb_session_count(), 0);
    assert_null(kvb_session_hold("k"));
    assert_int_equal(session_open("k", &b, 16, &other, why, sizeof why), 0);
    assert_ptr_not_equal(other, c);
    kvb_session_release(c);
    assert_int_equal(kvb_cache_begin_step(c, NULL, 3), 0); /* still held once */
    kvb_session_release(c);
    assert_int_equal(a.current_bytes, 0);
    kvb_session_release(other);
    assert_int_equal(kvb_cache_begin_step(other, NULL, 3), 0); /* held by the registry */
    assert_int_equal(kvb_session_close("k"), 0);
    assert_int_equal(b.current_bytes, 0);
}

/* ---- threads ------------------------------------------------------------------------------------------ */

enum { THREADS = 6, ROUNDS = 400, KEYS = 3 };

static atomic_uint opened, held, failed;

/* All threads open, hold and close the same few keys. Each cache has its own allocator, which is freed with the last
 * reference. Only the thread that opened a cache makes steps in it. */
static void *worker(void *arg)
{
    unsigned seed = *(unsigned *)arg;
    static kvb_allocator allocators[THREADS][ROUNDS];
    for (unsigned i = 0; i < ROUNDS; i++) {
        char key[16], text[160];
        kvb_cache *c;
        snprintf(key, sizeof key, "key-%u", (i * 7 + seed) % KEYS);
        int error = session_open(key, &allocators[seed][i], 16, &c, text, sizeof text);
        if (error == 0) {
            atomic_fetch_add(&opened, 1);
            atomic_fetch_add(&failed, kvb_cache_begin_step(c, NULL, 2) != 0 || kvb_cache_length(c, 0) != 2);
            kvb_session_release(c);
        } else if (error != -EEXIST) {
            atomic_fetch_add(&failed, 1);
        }
        c = kvb_session_hold(key);
        if (c) {
            atomic_fetch_add(&held, 1);
            atomic_fetch_add(&failed, kvb_cache_type_of(c) != &kvb_cache_contiguous);
        }
        if (i % 3 == 0)
            kvb_session_close(key);
        kvb_session_release(c);
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &seeds[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%u", i);
        kvb_session_close(key);
    }
    assert_int_equal(atomic_load(&failed), 0);
    assert_true(atomic_load(&opened) > THREADS && atomic_load(&held) > THREADS);
    assert_int_equal(kvb_session_count(), 0);
}

int main(void)
{
    return TESTS_RUN("sessions", T(test_keys), T(test_close_while_held), T(test_threads));
}
