/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that option tables parse every kind of value, and that numbers outside their range are refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness/command_line.h"

typedef struct holder {
    bool flag;
    const char *text;
    uint64_t number;
    kvb_words many, rest;
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
    KVB_OPTIONS_END,
};
static const kvb_usage usage = {.command = "test",
                                .synopsis = "",
                                .about = "",
                                .options = options,
                                .knobs = knobs,
                                .knobs_at = offsetof(holder, knobs),
                                .words = offsetof(holder, rest),
                                .takes_words = true};
static const kvb_usage no_words = {.command = "test", .synopsis = "", .about = "", .options = options};

#define PARSE(into, how, ...)                                                                                          \
    kvb_options_parse(how, into, (int)(sizeof((char *[]){"test", __VA_ARGS__}) / sizeof(char *)),                      \
                      (char *[]){"test", __VA_ARGS__, NULL})

static void every_kind_is_taken(void **state)
{
    (void)state;
    holder h = {0};
    assert_int_equal(PARSE(&h, &usage, "--flag", "--text=a=b", "-n", "4k", "--many", "x", "word", "--many=y"), -1);
    assert_true(h.flag);
    assert_string_equal(h.text, "a=b");
    assert_int_equal(h.number, 4096);
    assert_int_equal(h.many.n, 2);
    assert_string_equal(h.many.at[1], "y");
    assert_int_equal(h.rest.n, 1);
    kvb_words_free(&h.many);
    kvb_words_free(&h.rest);
}

static void bad_usage_is_refused(void **state)
{
    (void)state;
    holder h = {0};
    assert_int_equal(PARSE(&h, &usage, "--unknown"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--tex", "a"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--text"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--text="), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--flag=yes"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &no_words, "word"), KVB_EXIT_USAGE);
    assert_int_equal(PARSE(&h, &usage, "--help"), KVB_EXIT_OK);
}

static void numbers_keep_their_range(void **state)
{
    (void)state;
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

/* Knobs: usual values, both spellings of --set and the one before it, and what a command line keeps of them. */
static void knobs_are_set(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_taken),
        cmocka_unit_test(bad_usage_is_refused),
        cmocka_unit_test(numbers_keep_their_range),
        cmocka_unit_test(knobs_are_set),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
