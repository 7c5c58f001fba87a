/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: options, and those that name pools. */
#include "ci/tests/tests.h"
#include "caches/pools/pool.h"
#include "harness/command_line.h"
#include "harness/selection/registry.h"

/* Shows that option tables parse every kind of value, and that numbers outside their range are refused. */

typedef struct holder {
    bool flag;
    const char *text;
    uint64_t number;
    kvb_words many, rest;
    int colour;
    struct {
        bool still;
        uint64_t turns;
    } knobs;
} holder;

static const kvb_knob knobs[] = {
    {{"--still", NULL, "a switch", KVB_FLAG(__typeof__(((holder *)0)->knobs), still)}, NULL, "a test"},
    {{"--turns", "N", "how often", KVB_NUMBER(__typeof__(((holder *)0)->knobs), turns, 1, 9)}, "3", "a test"},
    {KVB_OPTIONS_END, NULL, NULL},
};

static const kvb_option options[] = {
    {"--flag", NULL, "a flag", KVB_FLAG(holder, flag)},
    {"--text", "T", "a text", KVB_TEXT(holder, text)},
    {"-n", "N", "a number", KVB_NUMBER(holder, number, 2, 4096)},
    {"--many", "W", "words", KVB_WORDS(holder, many)},
    {"--colour", "C", "a choice", KVB_CHOICE(holder, colour, "colour: red, green, blue")},
    KVB_OPTIONS_END,
};
static const kvb_command usage = {.name = "test",
                                  .synopsis = "",
                                  .about = "",
                                  .options = options,
                                  .knobs = knobs,
                                  .knobs_at = offsetof(holder, knobs),
                                  .words = offsetof(holder, rest),
                                  .takes_words = true};
static const kvb_command no_words = {.name = "test", .synopsis = "", .about = "", .options = options};

#define PARSE(into, how, ...)                                                                                          \
    kvb_options_parse(how, into, (int)(sizeof((char *[]){"test", __VA_ARGS__}) / sizeof(char *)),                      \
                      (char *[]){"test", __VA_ARGS__, NULL})

TEST(every_kind_is_taken)
{
    holder h = {0};
    assert_int_equal(
        PARSE(&h, &usage, "--flag", "--text=a=b", "-n", "4k", "--many", "x", "word", "--many=y", "--colour", "blue"),
        -1);
    assert_int_equal(h.colour, 2);
    assert_true(h.flag);
    assert_string_equal(h.text, "a=b");
    assert_int_equal(h.number, 4096);
    assert_int_equal(h.many.n, 2);
    assert_string_equal(h.many.at[1], "y");
    assert_int_equal(h.rest.n, 1);
    kvb_words_free(&h.many);
    kvb_words_free(&h.rest);
}

TEST(bad_usage_is_refused)
{
    holder h = {0};
    assert_int_equal(PARSE(&h, &usage, "--unknown"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--tex", "a"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--text"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--text="), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--flag=yes"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--colour", "gree"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &no_words, "word"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--help"), KVB_EXIT_OK);
}

TEST(numbers_keep_their_range)
{
    uint64_t n = 7;
    char why[128];
    static const char *const bad[] = {
        "", "k", "-1", "1.5", "0x10", "1kk", "1 ", "18446744073709551616", "17179869184G"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(kvb_number_parse(bad[i], 0, UINT64_MAX, &n, why, sizeof why) < 0);
    assert_true(kvb_number_parse("1", 2, 3, &n, why, sizeof why) < 0);
    assert_true(kvb_number_parse("4", 2, 3, &n, why, sizeof why) < 0);
    assert_int_equal(n, 7);
    assert_int_equal(kvb_number_parse("18446744073709551615", 0, UINT64_MAX, &n, why, sizeof why), 0);
    assert_true(n == UINT64_MAX);
    assert_int_equal(kvb_number_parse("3G", 0, UINT64_MAX, &n, why, sizeof why), 0);
    assert_true(n == (uint64_t)3 << 30);
}

/* Knobs: default values, both spellings of --set and its older form, and what a command line keeps of them. */
TEST(knobs_are_set)
{
    char text[128] = "";
    holder h = {0};
    kvb_knobs_set_usual(knobs, &h.knobs);
    assert_int_equal(h.knobs.turns, 3);
    assert_int_equal(PARSE(&h, &usage, "--set", "turns=4", "--set=still"), -1);
    assert_int_equal(h.knobs.turns, 4);
    assert_true(h.knobs.still);
    assert_int_equal(PARSE(&h, &usage, "--turns", "5"), -1);
    assert_int_equal(h.knobs.turns, 5);
    assert_int_equal(PARSE(&h, &usage, "--set"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--set", "turns"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--set", "turns=10"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--set", "still=1"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--set", "flag"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &no_words, "--set", "still"), KVB_EXIT_USAGE);
    char *argv[] = {"test", "--turns", "6", "--set", "still", "--flag", "--set=turns=7", NULL};
    assert_true(kvb_command_without(&usage, (const char *const[]){"--still", NULL}, 7, argv, text, sizeof text));
    assert_string_equal(text, " --set turns=6 --flag --set=turns=7");
    assert_true(kvb_command_has(&usage, "--still", 7, argv));
    assert_true(kvb_command_has(&usage, "--turns", 3, argv));
    assert_false(kvb_command_has(&usage, "--turns", 1, argv));
}

/* Shows what words of --pool name: one pool, globs, transformed forms, named pairs, each side alone; and the message
 * for words that name nothing. */

static kvb_registry registry;
static kvb_pool_pair pairs[64];
static size_t n;
static char why[1536];

static int setup(void **state)
{
    kvb_registry_init(&registry);
    return 0;
}

static CMFixtureFunction tests_setup = setup;

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

TEST(words_name_pools)
{
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

TEST(globs_take_what_there_is)
{
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
    assert_int_equal(kvb_pool_word_take("f16+had", &registry, pairs, 64, &n, why, sizeof why), 0); /* listed already */
    assert_int_equal(n, transformed);
}

static void refused(const char *word, const char *says)
{
    if (take(word) != -EINVAL || !strstr(why, says))
        fail_msg("%s: '%s' does not say '%s'", word, why, says);
}

TEST(bad_words_are_told)
{
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

TEST(room_is_bounded)
{
    n = 0;
    assert_int_equal(kvb_pool_word_take("*", &registry, pairs, 3, &n, why, sizeof why), -E2BIG);
    assert_int_equal(n, 3);
}
