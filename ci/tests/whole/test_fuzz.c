/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that every input of the corpora (ci/fuzz/corpus: seeds, and what fuzzing once found) is answered rightly. With
 * arguments: runs one target over these files, without TAP.
 */
#include <dirent.h>

#define TESTS_OWN_MAIN
#include "ci/tests/tests.h"
#include "ci/fuzz/fuzz.h"

static void file_do(const kvb_fuzz_target *target, const char *path)
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
        file_do(target, path);
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
            file_do(target, argv[i]);
        return 0;
    }
    for (const kvb_fuzz_target *target = kvb_fuzz_targets; target->name; target++)
        tests_add(__LINE__, (struct CMUnitTest){target->name, test_corpus, NULL, NULL, (void *)target});
    return tests_run();
}
