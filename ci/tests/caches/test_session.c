/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the session registry: typed opening, reference counts, closing while held, and many threads at once. */
#include "rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "caches/session.h"

static const kvb_model_facts model = {.layers = 1, .heads = 2, .kv_heads = 2, .k_dim = 4, .v_dim = 4};
static kvb_metadata_entry block[KVB_METADATA_ENTRIES];
static char why[160];

static kvb_cache_options options_for(kvb_allocator *a)
{
    return (kvb_cache_options){.capacity = 16,
                               .seq_capacity = 16,
                               .max_seqs = 2,
                               .min_chunk = 4,
                               .k_pool = kvb_builtin_pools[0],
                               .v_pool = kvb_builtin_pools[0],
                               .allocator = a};
}

/* One open function per kind; each gives the face of its kind. */
static void test_kinds(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    const kvb_cache_options options = options_for(&a);
    kvb_cache *c[3];
    const kvb_base_face *base;
    const kvb_seq_face *seq;
    const kvb_tree_face *tree;
    assert_int_equal(kvb_open_decode_session("d", "cpu", block, 6, &options, &c[0], &base, why, sizeof why), 0);
    assert_int_equal(kvb_open_seq_session("s", "cpu", block, 6, &options, &c[1], &seq, why, sizeof why), 0);
    assert_int_equal(kvb_open_tree_session("t", "cpu", block, 6, &options, &c[2], &tree, why, sizeof why), 0);
    assert_ptr_equal(c[0]->type, &kvb_cache_contiguous);
    assert_ptr_equal(c[1]->type, &kvb_cache_seq);
    assert_ptr_equal(c[2]->type, &kvb_cache_tree);
    assert_ptr_equal(base, kvb_cache_base(c[0]));
    assert_ptr_equal(seq, kvb_cache_seq(c[1]));
    assert_ptr_equal(tree, kvb_cache_tree(c[2]));
    assert_int_equal(kvb_session_count(), 3);
    const char *const keys[] = {"d", "s", "t"};
    for (size_t i = 0; i < 3; i++) {
        kvb_session_release(c[i]);
        assert_int_equal(kvb_session_close(keys[i]), 0);
    }
    assert_int_equal(kvb_session_count(), 0);
    assert_int_equal(a.current_bytes, 0);
}

/* Refusals name what is wrong and leave nothing behind. */
static void test_refused(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_cache_options options = options_for(&a);
    kvb_cache *c, *again;
    const kvb_base_face *base;
    assert_int_equal(kvb_open_decode_session("k", "gpu", block, 6, &options, &c, &base, why, sizeof why), -ENOENT);
    assert_non_null(strstr(why, "gpu"));
    assert_int_equal(kvb_open_decode_session("k", "cpu", block, 5, &options, &c, &base, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "kv_cache.v_dim"));
    options.capacity = 0;
    assert_int_equal(kvb_open_decode_session("k", "cpu", block, 6, &options, &c, &base, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "capacity"));
    options.capacity = 16;
    assert_int_equal(kvb_open_decode_session(NULL, "cpu", block, 6, &options, &c, &base, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_session_count(), 0);
    assert_int_equal(a.current_bytes, 0);
    assert_int_equal(kvb_open_decode_session("k", "cpu", block, 6, &options, &c, &base, why, sizeof why), 0);
    assert_int_equal(kvb_open_decode_session("k", "cpu", block, 6, &options, &again, &base, why, sizeof why), -EEXIST);
    kvb_session_release(c);
    assert_int_equal(kvb_session_close("k"), 0);
    assert_int_equal(kvb_session_close("k"), -ENOENT);
    assert_null(kvb_session_hold("k"));
    assert_null(kvb_session_hold(NULL));
    assert_int_equal(a.current_bytes, 0);
}

/* A step that holds the cache goes on after the close; the key is free at once. */
static void test_close_while_held(void **state)
{
    (void)state;
    kvb_allocator a = {0}, b = {0};
    const kvb_cache_options first = options_for(&a), second = options_for(&b);
    kvb_cache *c, *other;
    const kvb_base_face *base;
    assert_int_equal(kvb_open_decode_session("k", "cpu", block, 6, &first, &c, &base, why, sizeof why), 0);
    assert_ptr_equal(kvb_session_hold("k"), c);
    assert_int_equal(kvb_session_close("k"), 0);
    assert_int_equal(kvb_session_count(), 0);
    assert_null(kvb_session_hold("k"));
    assert_int_equal(kvb_open_decode_session("k", "cpu", block, 6, &second, &other, &base, why, sizeof why), 0);
    assert_ptr_not_equal(other, c);
    kvb_session_release(c);
    assert_int_equal(base->begin_step(c, 3), 0); /* still held once */
    kvb_session_release(c);
    assert_int_equal(a.current_bytes, 0);
    kvb_session_release(other);
    assert_int_equal(base->begin_step(other, 3), 0); /* held by the registry */
    assert_int_equal(kvb_session_close("k"), 0);
    assert_int_equal(b.current_bytes, 0);
}

/* Builders: by (backend, kind), one each. */
static void test_builders(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    const kvb_cache_options options = options_for(&a);
    kvb_cache *c;
    const kvb_seq_face *seq;
    assert_int_equal(kvb_builder_register("cpu", KVB_SESSION_SEQ, &kvb_cache_slab), -EEXIST);
    assert_int_equal(kvb_builder_register("cpu", KVB_SESSION_SEQ, &kvb_cache_seq), 0); /* the same again */
    assert_int_equal(kvb_builder_register("mine", KVB_SESSION_TREE, &kvb_cache_slab), -EINVAL);
    assert_int_equal(kvb_builder_register("mine", KVB_SESSION_KINDS, &kvb_cache_slab), -EINVAL);
    assert_int_equal(kvb_builder_register("mine", KVB_SESSION_SEQ, &kvb_cache_slab), 0);
    assert_int_equal(kvb_builder_register("mine", KVB_SESSION_SEQ, &kvb_cache_recompute), -EEXIST);
    assert_int_equal(kvb_open_seq_session("m", "mine", block, 6, &options, &c, &seq, why, sizeof why), 0);
    assert_ptr_equal(c->type, &kvb_cache_slab);
    kvb_session_release(c);
    assert_int_equal(kvb_session_close("m"), 0);
    assert_int_equal(a.current_bytes, 0);
}

/* ---- threads ------------------------------------------------------------------------------------------ */

enum { THREADS = 6, ROUNDS = 400, KEYS = 3 };

static atomic_uint opened, held, failed;

/* Everybody opens, holds and closes the same few keys. Each cache has an allocator of its own, handed on
 * with the cache: it dies with the last reference. Only the thread that opened a cache steps it. */
static void *worker(void *arg)
{
    unsigned seed = *(unsigned *)arg;
    static kvb_allocator allocators[THREADS][ROUNDS];
    for (unsigned i = 0; i < ROUNDS; i++) {
        char key[16], text[160];
        kvb_cache *c;
        const kvb_base_face *base;
        snprintf(key, sizeof key, "key-%u", (i * 7 + seed) % KEYS);
        const kvb_cache_options options = options_for(&allocators[seed][i]);
        int error = kvb_open_decode_session(key, "cpu", block, 6, &options, &c, &base, text, sizeof text);
        if (error == 0) {
            atomic_fetch_add(&opened, 1);
            atomic_fetch_add(&failed, base->begin_step(c, 2) != 0 || base->length(c) != 2);
            kvb_session_release(c);
        } else if (error != -EEXIST) {
            atomic_fetch_add(&failed, 1);
        }
        c = kvb_session_hold(key);
        if (c) {
            atomic_fetch_add(&held, 1);
            atomic_fetch_add(&failed, kvb_cache_base(c)->capacity(c) != 16);
        }
        if (i % 3 == 0)
            kvb_session_close(key);
        kvb_session_release(c);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),    cmocka_unit_test(test_refused), cmocka_unit_test(test_close_while_held),
        cmocka_unit_test(test_builders), cmocka_unit_test(test_threads),
    };
    kvb_metadata_write(&model, block);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}
