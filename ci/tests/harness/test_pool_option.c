/* SPDX-License-Identifier: Apache-2.0 */
/* Shows what words of --pool name: one pool, globs, transformed forms, pairs with a name, sides apart; and what is said
 * of words that name nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "caches/pools/pool.h"
#include "harness/selection/registry.h"

static kvb_registry registry;
static kvb_pool_pair pairs[64];
static size_t n;
static char why[1536];

static int setup(void **state)
{
    (void)state;
    kvb_registry_init(&registry);
    return 0;
}

static int take(const char *word)
{
    n = 0;
    why[0] = '\0';
    return kvb_pool_word_take(word, &registry, pairs, 64, &n, why, sizeof why);
}

static void assert_one(const char *word, const char *k, const char *v)
{
    if (take(word) || n != 1 || strcmp(pairs[0].k->name, k) || strcmp(pairs[0].v->name, v))
        fail_msg("%s: %zu pairs, first k=%s v=%s; %s", word, n, n ? pairs[0].k->name : "", n ? pairs[0].v->name : "",
                 why);
    assert_string_equal(pairs[0].k->format->name, k);
}

static void words_name_pools(void **state)
{
    (void)state;
    assert_one("f16", "f16", "f16");
    assert_one("q4_0+had", "q4_0+had", "q4_0+had");
    assert_one("kivi4", "kivi4-k", "kivi4-v");
    assert_one("kivi2+had", "kivi2-k+had", "kivi2-v+had");
    assert_one("k=a8g64,v=a4g64+had", "a8g64", "a4g64+had");
    assert_one("k=kivi4,v=kivi4", "kivi4-k", "kivi4-v");
    assert_one("k=f32,v=kivi2", "f32", "kivi2-v");
    assert_int_equal(pairs[0].v->format->transform, KVB_TRANSFORM_NONE);
    assert_int_equal(take("q4_0+had"), 0);
    assert_int_equal(pairs[0].k->format->transform, KVB_TRANSFORM_HADAMARD);
}

static void globs_take_what_there_is(void **state)
{
    (void)state;
    assert_int_equal(take("a4g*"), 0);
    assert_int_equal(n, 3);
    assert_int_equal(take("a4g*+had"), 0);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pairs[i].k->format->transform, KVB_TRANSFORM_HADAMARD);
    assert_int_equal(take("*"), 0);
    assert_int_equal(n, registry.n[KVB_POOLS]);
    assert_true(n >= 25);
    size_t all = n, transformed = 0;
    for (size_t i = 0; i < n; i++)
        transformed += pairs[i].k->rotated != NULL;
    assert_int_equal(take("*+had"), 0); /* tq* transform rows already */
    assert_int_equal(n, transformed);
    assert_true(n < all);
    assert_int_equal(kvb_pool_word_take("f16+had", &registry, pairs, 64, &n, why, sizeof why),
                     0); /* it is there already */
    assert_int_equal(n, transformed);
}

static void refused(const char *word, const char *says)
{
    if (take(word) != -EINVAL || !strstr(why, says))
        fail_msg("%s: '%s' does not say '%s'", word, why, says);
}

static void bad_words_are_told(void **state)
{
    (void)state;
    refused("q4_2", "unknown pool 'q4_2'; did you mean 'q4_1'? known: f32, f16, bf16");
    refused("q4_2", "each also with +had");
    refused("+had", "unknown pool '+had'");
    refused("z*", "unknown pool 'z*'");
    refused("tq4+had", "pool 'tq4' has no form with +had: it transforms rows already; without it it works");
    refused("k=f16", "k=NAME,v=NAME");
    refused("v=f16,k=f16", "k=NAME,v=NAME");
    refused("k=f16,v=f99", "unknown pool 'f99'");
    refused("k=f16,v=f16,x", "k=NAME,v=NAME");
    refused("k=*,v=f16", "unknown pool '*'");
}

static void room_is_bounded(void **state)
{
    (void)state;
    n = 0;
    assert_int_equal(kvb_pool_word_take("*", &registry, pairs, 3, &n, why, sizeof why), -E2BIG);
    assert_int_equal(n, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_name_pools),
        cmocka_unit_test(globs_take_what_there_is),
        cmocka_unit_test(bad_words_are_told),
        cmocka_unit_test(room_is_bounded),
    };
    return cmocka_run_group_tests_name("pool words", tests, setup, NULL);
}
