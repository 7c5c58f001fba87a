/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that every input of the corpora (ci/fuzz/corpus: seeds, and what fuzzing once found) is answered rightly, and
 * that traces and safetensors files are when they are damaged. With arguments: runs one target over these files, without
 * TAP.
 */
#include <dirent.h>
#include <stdbool.h>

#define TESTS_OWN_MAIN
#include "ci/tests/tests.h"
#include "ci/fuzz/fuzz.h"
#include "workloads/rng.h"

/* Changes bytes[n] in one to three places: any byte, one of JSON's, a deletion, a repetition, a cut. Returns n. */
static size_t damage(uint64_t key, uint8_t *bytes, size_t n, size_t room)
{
    static const char syntax[] = "{}[]\",:0123456789-eE.tfn \n\\";
    uint64_t draw = 0;
    for (uint64_t times = 1 + kvb_rng_bits(key, draw++) % 3; times > 0 && n > 1; times--) {
        const uint64_t bits = kvb_rng_bits(key, draw++);
        const size_t at = (size_t)(bits >> 32) % n, most = n - at,
                     length = bits / 64 % 16 < most ? 1 + bits / 64 % 16 : most;
        switch (bits % 6) {
        case 0:
            bytes[at] = (uint8_t)(bits >> 8);
            break;
        case 1:
        case 2:
            bytes[at] = (uint8_t)syntax[bits / 8 % (sizeof syntax - 1)];
            break;
        case 3:
            memmove(bytes + at, bytes + at + length, most - length);
            n -= length;
            break;
        case 4:
            if (n + length > room)
                break;
            memmove(bytes + at + length, bytes + at, most);
            n += length;
            break;
        default:
            n = bits / 8 % 8 ? n : at;
        }
    }
    return n;
}

/* Half of the damage is in the first line, which has more fields than any other; or behind a length of 8 bytes. */
static void damaged_do(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n)
{
    enum { TIMES = 400, MORE = 64 };
    const uint8_t *line = memchr(bytes, '\n', n);
    uint8_t *copy = malloc(n + MORE);
    assert_non_null(copy);
    for (uint64_t i = 0; i < TIMES; i++) {
        const size_t first = target->json && line && i % 2 ? (size_t)(line - bytes) : n,
                     keep = !target->json && i % 2 && n > 8 ? 8 : 0;
        memcpy(copy, bytes, first);
        const size_t changed = keep + damage(kvb_rng_key(1, i), copy + keep, first - keep, first - keep + MORE);
        memcpy(copy + changed, bytes + first, n - first);
        target->run(target, copy, changed + n - first);
    }
    free(copy);
}

static void file_do(const kvb_fuzz_target *target, const char *path, bool damaged)
{
    FILE *file = fopen(path, "r");
    uint8_t *bytes = NULL; /* exact size: a sanitizer sees a read behind the end */
    size_t n = 0;
    if (!file)
        kvb_fuzz_wrong("%s: cannot be read", path);
    fseek(file, 0, SEEK_END);
    n = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(n + !n);
    if (!bytes || fread(bytes, 1, n, file) != n)
        kvb_fuzz_wrong("%s: cannot be read", path);
    fclose(file);
    target->run(target, bytes, n);
    if (damaged)
        damaged_do(target, bytes, n);
    free(bytes);
}

static void test_corpus(void **state)
{
    const kvb_fuzz_target *target = *state;
    char path[512];
    snprintf(path, sizeof path, "ci/fuzz/corpus/%s", target->name);
    DIR *folder = opendir(path);
    uint32_t n = 0;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "ci/fuzz/corpus/%s/%s", target->name, entry->d_name);
        printf("# %s\n", path); /* names the input that crashes */
        fflush(stdout);
        file_do(target, path, !strcmp(target->name, "trace") || !strcmp(target->name, "safetensors"));
        n++;
    }
    closedir(folder);
    assert_true(n > 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        const kvb_fuzz_target *target = kvb_fuzz_find(argv[1]);
        if (!target)
            kvb_fuzz_wrong("no target %s", argv[1]);
        for (int i = 2; i < argc; i++)
            file_do(target, argv[i], false);
        return 0;
    }
    for (const kvb_fuzz_target *target = kvb_fuzz_targets; target->name; target++)
        tests_add(__LINE__, (struct CMUnitTest){target->name, test_corpus, NULL, NULL, (void *)target});
    return tests_run();
}
