/* SPDX-License-Identifier: Apache-2.0 */
/* Shows rule 10: the metadata block is read back as written, and whatever is wrong in one is refused by name. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "caches/metadata.h"

static const kvb_model_facts model = {.layers = 2, .heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32};

static void test_round_trip(void **state)
{
    (void)state;
    kvb_metadata_entry block[KVB_METADATA_ENTRIES + 1];
    kvb_model_facts facts;
    char why[160];
    kvb_metadata_write(&model, block);
    assert_string_equal(block[0].key, "kv_cache.schema_version");
    block[KVB_METADATA_ENTRIES] = (kvb_metadata_entry){"general.layers", -5}; /* somebody else's */
    assert_int_equal(kvb_metadata_read(block, KVB_METADATA_ENTRIES + 1, &facts, why, sizeof why), 0);
    assert_memory_equal(&facts, &model, sizeof facts);
}

/* Entry `at` replaced (or added, at the end) by key and value: refused, naming `what`. */
static void test_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        const char *key;
        int64_t value;
        const char *what;
    } cases[] = {
        {0, "kv_cache.schema_version", 2, "kv_cache.schema_version is 2"},
        {0, "kv_cache.schema_version", 0, "kv_cache.schema_version is 0"},
        {0, "general.version", 1, "kv_cache.schema_version is missing"},
        {6, "kv_cache.schema_version", 1, "kv_cache.schema_version is given twice"},
        {6, "kv_cache.layers", 2, "kv_cache.layers is given twice"},
        {6, "kv_cache.rope", 1, "kv_cache.rope is not a key"},
        {6, "kv_cache.", 1, "kv_cache. is not a key"},
        {6, NULL, 1, "missing its name"},
        {1, "general.x", 1, "kv_cache.layers is missing"},
        {2, "general.x", 1, "kv_cache.heads is missing"},
        {3, "general.x", 1, "kv_cache.kv_heads is missing"},
        {4, "general.x", 1, "kv_cache.k_dim is missing"},
        {5, "general.x", 1, "kv_cache.v_dim is missing"},
        {1, "kv_cache.layers", 0, "kv_cache.layers is 0"},
        {1, "kv_cache.layers", 1025, "kv_cache.layers is 1025"},
        {1, "kv_cache.layers", INT64_MIN, "kv_cache.layers is -9223372036854775808"},
        {2, "kv_cache.heads", 4097, "kv_cache.heads is 4097"},
        {2, "kv_cache.heads", 6, "not a multiple of kv_cache.kv_heads"},
        {3, "kv_cache.kv_heads", -1, "kv_cache.kv_heads is -1"},
        {3, "kv_cache.kv_heads", 16, "not a multiple of kv_cache.kv_heads"},
        {4, "kv_cache.k_dim", INT64_C(4294967360), "kv_cache.k_dim is 4294967360"}, /* 64 when cut to 32 bits */
        {5, "kv_cache.v_dim", 4097, "kv_cache.v_dim is 4097"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_metadata_entry block[KVB_METADATA_ENTRIES + 1];
        kvb_model_facts facts = {.layers = 77};
        char why[160] = "";
        kvb_metadata_write(&model, block);
        block[cases[i].at] = (kvb_metadata_entry){cases[i].key, cases[i].value};
        size_t n = KVB_METADATA_ENTRIES + (cases[i].at == KVB_METADATA_ENTRIES);
        assert_int_equal(kvb_metadata_read(block, n, &facts, why, sizeof why), -EINVAL);
        if (!strstr(why, cases[i].what))
            print_message("# case %zu: \"%s\" does not say \"%s\"\n", i, why, cases[i].what);
        assert_non_null(strstr(why, cases[i].what));
        assert_int_equal(facts.layers, 77); /* left alone */
    }
}

/* An unknown version is refused before anything else is looked at, wherever it stands. */
static void test_version_first(void **state)
{
    (void)state;
    const kvb_metadata_entry block[] = {
        {"kv_cache.new_key", 1}, {"kv_cache.layers", -3}, {"kv_cache.schema_version", 9}};
    kvb_model_facts facts;
    char why[160];
    assert_int_equal(kvb_metadata_read(block, 3, &facts, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "kv_cache.schema_version is 9"));
    assert_int_equal(kvb_metadata_read(NULL, 0, &facts, why, sizeof why), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_version_first),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("metadata", tests, NULL, NULL);
}
