/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: bytes of safetensors files are summed from their headers only, however large the data; of an index, over its
 * shards. Missing, cut or contradictory files are refused with one line that names the file. */
#include "ci/tests/tests.h"
#include "harness/size/weights.h"

static char why[600];

/* Writes a file with this header, and `data` bytes as a hole. */
static void shard_write(const char *name, const char *header, uint64_t data)
{
    const uint64_t length = strlen(header);
    char bytes[1024];
    assert_in_range(length, 0, sizeof bytes - 8);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    assert_int_equal(truncate(tests_write(name, bytes, 8 + length), (off_t)(8 + length + data)), 0);
}

static int setup(void **state)
{
    shard_write("a.safetensors", "{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16);
    shard_write("b.safetensors",
                "{\"y\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                "\"z\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[6,11]}}",
                11);
    shard_write("large.safetensors", /* 20480 x 1048576 in bf16 */
                "{\"w\":{\"dtype\":\"BF16\",\"shape\":[20480,1048576],\"data_offsets\":[0,42949672960]}}",
                UINT64_C(40) << 30);
    shard_write("cut.safetensors", "{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 7);
    tests_text("short.safetensors", "12");
    return 0;
}

static CMFixtureFunction tests_setup = setup;

TEST(files_are_summed_without_reading_data)
{
    uint64_t bytes;
    assert_int_equal(kvb_weights_file(tests_path("a.safetensors"), &bytes, why, sizeof why), 0);
    assert_int_equal(bytes, 16);
    assert_int_equal(kvb_weights_file(tests_path("large.safetensors"), &bytes, why, sizeof why), 0);
    assert_int_equal(bytes, UINT64_C(42949672960));
    char both[900];
    snprintf(both, sizeof both, "%s,%s", tests_path("a.safetensors"), tests_path("b.safetensors"));
    assert_int_equal(kvb_weights_file(both, &bytes, why, sizeof why), 0);
    assert_int_equal(bytes, 16 + 11);
}

/* Any part stands for all parts, named once or several times; a missing one is named. */
TEST(a_part_stands_for_all)
{
    uint64_t bytes;
    shard_write("m-00001-of-00002.safetensors", "{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
                16);
    assert_int_equal(kvb_weights_file(tests_path("m-00001-of-00002.safetensors"), &bytes, why, sizeof why), -ENOENT);
    assert_contains(why, "m-00002-of-00002.safetensors: ");
    shard_write("m-00002-of-00002.safetensors", "{\"y\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}}", 5);
    assert_int_equal(kvb_weights_file(tests_path("m-00002-of-00002.safetensors"), &bytes, why, sizeof why), 0);
    assert_int_equal(bytes, 16 + 5);
    char both[1200];
    snprintf(both, sizeof both, "%s,%s,%s", tests_path("m-00001-of-00002.safetensors"), tests_path("a.safetensors"),
             tests_path("m-00002-of-00002.safetensors"));
    assert_int_equal(kvb_weights_file(both, &bytes, why, sizeof why), 0);
    assert_int_equal(bytes, 16 + 5 + 16);
    shard_write("none.safetensors", "{}", 0);
    assert_int_equal(kvb_weights_file(tests_path("none.safetensors"), &bytes, why, sizeof why), -EINVAL);
    assert_contains(why, "none.safetensors: holds no tensor");
}

TEST(an_index_names_its_shards)
{
    uint64_t bytes;
    tests_text("model.safetensors.index.json",
               "{\"metadata\":{\"total_size\":1},\"weight_map\":"
               "{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\",\"z\":\"b.safetensors\"}}");
    assert_int_equal(kvb_weights_file(tests_path("model.safetensors.index.json"), &bytes, why, sizeof why), 0);
    assert_int_equal(bytes, 16 + 11); /* from the headers, not total_size */
}

TEST(wrong_files_are_refused)
{
    static const struct {
        const char *file, *index; /* index: text to write to the file; NULL: it exists */
        int err;
        const char *why;
    } cases[] = {
        {"absent.safetensors", NULL, -ENOENT, "absent.safetensors: "},
        {"cut.safetensors", NULL, -EINVAL, "cut.safetensors: tensor 'x'"},
        {"short.safetensors", NULL, -EINVAL, "short.safetensors: "},
        {"a.safetensors,", NULL, -ENOENT, ""},
        {"model.safetensors.index.json", "{\"weight_map\":{\"x\":\"absent.safetensors\"}}", -ENOENT,
         "absent.safetensors"},
        {"model.safetensors.index.json", "{\"weight_map\":{\"q\":\"a.safetensors\"}}", -EINVAL, "no tensor 'q'"},
        {"model.safetensors.index.json", "{\"weight_map\":{\"x\":\"../a.safetensors\"}}", -EINVAL,
         "expected the name of a file"},
        {"model.safetensors.index.json", "{\"weight_map\":{\"x\":7}}", -EINVAL, "expected the name of a file"},
        {"model.safetensors.index.json", "{\"weight_map\":{}}", -EINVAL, "weight_map"},
        {"model.safetensors.index.json", "{\"weight_map\":[]}", -EINVAL, "weight_map"},
        {"model.safetensors.index.json", "[]", -EINVAL, "weight_map"},
        {"model.safetensors.index.json", "{\"weight_map\":", -EINVAL, "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes;
        if (cases[i].index)
            tests_text(cases[i].file, cases[i].index);
        const int err = kvb_weights_file(tests_path("%s", cases[i].file), &bytes, why, sizeof why);
        if (err != cases[i].err || !strstr(why, cases[i].why) || strchr(why, '\n'))
            fail_msg("case %zu: %d, \"%s\"", i, err, why);
    }
}

TEST(names_tell_files_from_words)
{
    assert_true(kvb_weights_is_file("model.safetensors"));
    assert_true(kvb_weights_is_file("dir/model.safetensors.index.json"));
    assert_true(kvb_weights_is_file("a.safetensors,b.safetensors"));
    assert_false(kvb_weights_is_file("bf16"));
    assert_false(kvb_weights_is_file("140GiB"));
    assert_false(kvb_weights_is_file(".safetensors"));
    assert_false(kvb_weights_is_file("config.json"));
}
