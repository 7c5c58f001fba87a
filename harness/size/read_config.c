/* SPDX-License-Identifier: Apache-2.0 */
/* Reads configs from files, folders and standard input. */
#include "harness/size/arguments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST = 16 << 20 }; /* bytes of a config: the longest are a few hundred thousand */

/* All of file, at most MOST bytes; *text is to be freed. 0 or a negative errno. */
static int all_read(FILE *file, char **text, size_t *n)
{
    char *grown;

    *text = NULL;
    *n = 0;
    for (size_t room = 4096;; room *= 2) {
        if (!(grown = realloc(*text, room)))
            return -ENOMEM;
        *text = grown;
        *n += fread(*text + *n, 1, room - *n, file);
        if (*n < room)
            return ferror(file) ? -EIO : 0;
        if (room > MOST)
            return -EFBIG;
    }
}

static int file_open(FILE *file, const char *name, kvb_sized_model **model, char *why, size_t why_bytes)
{
    char *text;
    size_t n;
    int error = all_read(file, &text, &n);

    if (error)
        snprintf(why, why_bytes, "%s: %s", name, strerror(-error));
    else if (n == 0) {
        snprintf(why, why_bytes, "%s: is empty, expected a config.json", name);
        error = -EINVAL;
    } else
        error = kvb_sized_model_read(text, n, name, model, why, why_bytes);
    free(text);
    return error;
}

/* Does the word look like a path rather than a model's name? */
static bool is_path(const char *word)
{
    size_t n = strlen(word);

    return word[0] == '/' || word[0] == '.' || (n > 5 && strcmp(word + n - 5, ".json") == 0);
}

int kvb_size_open(const char *word, kvb_sized_model **model, char *why, size_t why_bytes)
{
    struct stat info;
    char path[4096];

    if (strcmp(word, "-") == 0)
        return file_open(stdin, "stdin", model, why, why_bytes);
    if (stat(word, &info) && !is_path(word))
        return kvb_sized_model_built_in(word, model, why, why_bytes);
    snprintf(path, sizeof path, stat(word, &info) == 0 && S_ISDIR(info.st_mode) ? "%s/config.json" : "%s", word);
    FILE *file = fopen(path, "r");

    if (!file) {
        int error = errno;

        snprintf(why, why_bytes, "%s: %s", path, strerror(error));
        return -error;
    }
    int error = file_open(file, path, model, why, why_bytes);

    fclose(file);
    return error;
}
