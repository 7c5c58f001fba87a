/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that libFuzzer calls. KVB_FUZZ_TARGET names the target. Lines of JSON are also mutated as values. */
#include "ci/fuzz/fuzz.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/rng.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t room);

static const kvb_fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("KVB_FUZZ_TARGET");
    (void)argc, (void)argv;
    target = name ? kvb_fuzz_find(name) : NULL;
    if (!target)
        kvb_fuzz_wrong("KVB_FUZZ_TARGET=%s names no target", name ? name : "");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    target->run(target, bytes, n);
    return 0;
}

/* ---- mutation of a line ------------------------------------------------------------------------------------------ */

typedef struct dice {
    uint64_t key, draw;
} dice;

static uint32_t roll(dice *d, size_t below)
{
    return (uint32_t)(kvb_rng_bits(d->key, d->draw++) % below);
}

static json_t *value_draw(dice *d)
{
    static const char *const texts[] = {"null",       "true",
                                        "false",      "{}",
                                        "[]",         "-1",
                                        "0",          "1",
                                        "2",          "63",
                                        "64",         "65",
                                        "4096",       "1048576",
                                        "2147483647", "4294967295",
                                        "4294967296", "9223372036854775807",
                                        "1e308",      "-1e308",
                                        "0.5",        "1e-320",
                                        "\"\"",       "\"\\u0001\"",
                                        "\"f16\"",    "\"a\\n\\u001b[0mb\"",
                                        "[[[[]]]]"};
    return json_loads(texts[roll(d, sizeof texts / sizeof *texts)], JSON_DECODE_ANY, NULL);
}

static json_t *change(json_t *value, dice *d);

/* Changes, drops or doubles one member or element. */
static void part_change(json_t *whole, dice *d)
{
    uint32_t what = roll(d, 8);
    if (json_is_array(whole)) {
        size_t at = roll(d, json_array_size(whole));
        json_t *part = json_array_get(whole, at);
        if (what == 0)
            json_array_remove(whole, at);
        else if (what == 1)
            json_array_insert(whole, roll(d, json_array_size(whole) + 1), part);
        else
            json_array_set_new(whole, at, change(part, d));
        return;
    }
    void *at = json_object_iter(whole);
    for (uint32_t i = roll(d, json_object_size(whole)); i > 0; i--)
        at = json_object_iter_next(whole, at);
    char *key = strdup(json_object_iter_key(at));
    json_t *part = json_incref(json_object_iter_value(at));
    if (what == 0)
        json_object_del(whole, key);
    else if (what == 1 && *key)
        json_object_set(whole, key + 1, part);
    else
        json_object_set_new(whole, key, change(part, d));
    json_decref(part);
    free(key);
}

/* Returns a new reference: another value, or a copy with one change. */
static json_t *change(json_t *value, dice *d)
{
    if ((json_is_object(value) && json_object_size(value)) || (json_is_array(value) && json_array_size(value)))
        if (roll(d, 16)) {
            json_t *copy = json_copy(value);
            part_change(copy, d);
            return copy;
        }
    if (json_is_integer(value) && roll(d, 2))
        return json_integer((json_int_t)((uint64_t)json_integer_value(value) + roll(d, 5) - 2));
    return value_draw(d);
}

/* Bytes of the changed line, at most room; 0: the line is no JSON, or there is no room. */
static size_t line_change(const uint8_t *line, size_t n, uint8_t *into, size_t room, dice *d)
{
    json_t *value = json_loadb((const char *)line, n, JSON_DECODE_ANY, NULL);
    json_t *changed = value ? change(value, d) : NULL;
    size_t length = changed ? json_dumpb(changed, (char *)into, room, JSON_ENCODE_ANY | JSON_COMPACT) : 0;
    json_decref(changed);
    json_decref(value);
    return length <= room ? length : 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed)
{
    dice d = {kvb_rng_key(seed, 0), 0};
    if (!target->json || n == 0 || roll(&d, 3) == 0)
        return LLVMFuzzerMutate(bytes, n, room);
    size_t from = roll(&d, n);
    while (from > 0 && bytes[from - 1] != '\n')
        from--;
    uint8_t *end = memchr(bytes + from, '\n', n - from), *text = malloc(room);
    size_t to = end ? (size_t)(end - bytes) : n;
    if (roll(&d, 4) == 0) /* the file is one value */
        from = 0, to = n;
    size_t length = text ? line_change(bytes + from, to - from, text, room - (n - (to - from)), &d) : 0;
    if (length) {
        memmove(bytes + from + length, bytes + to, n - to);
        memcpy(bytes + from, text, length);
        n += length - (to - from);
    }
    free(text);
    return length ? n : LLVMFuzzerMutate(bytes, n, room);
}
