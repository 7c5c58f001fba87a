/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts of models, inside the program: models.jsonl, one line each {"name", "source", "config"}. A config there is read
 * as one from a file would be.
 */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/sizing/model.h"

#define NAMES_MOST 256u
#define NEAR_MOST  4u
#define PART_BYTES 64u /* of a name that are compared for nearness */

/* The file as it is, and a 0 behind it: the compiler's assembler takes it in. */
__asm__(".pushsection .rodata\n"
        ".global kvb_models_text\n"
        ".hidden kvb_models_text\n"
        "kvb_models_text: .incbin \"results/sizing/models.jsonl\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char kvb_models_text[] __attribute__((visibility("hidden")));

static char *names[NAMES_MOST + 1]; /* NULL behind the last */
static pthread_once_t names_once = PTHREAD_ONCE_INIT;

/* Line i; NULL: there is none, or no memory. */
static json_t *line_read(size_t i)
{
    const char *line = kvb_models_text;

    for (; i > 0 && *line; i--)
        line += strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n');
    return *line ? json_loadb(line, strcspn(line, "\n"), 0, NULL) : NULL;
}

static void names_read(void)
{
    for (size_t i = 0; i < NAMES_MOST; i++) {
        json_t *line = line_read(i);
        const char *name = json_string_value(json_object_get(line, "name"));
        names[i] = name ? strdup(name) : NULL;
        json_decref(line);
        if (!names[i])
            return;
    }
}

const char *kvb_model_name(size_t i)
{
    pthread_once(&names_once, names_read);
    return i < NAMES_MOST ? names[i] : NULL;
}

/* "Llama-3.1-8B" of "meta-llama/Llama-3.1-8B". */
static const char *part_of(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash ? slash + 1 : name;
}

/* Letters to change, add or take away to come from one part to the other; 0 where one holds the other. */
static uint32_t distance(const char *a, const char *b)
{
    uint32_t row[PART_BYTES + 1];
    size_t n = strnlen(a, PART_BYTES), m = strnlen(b, PART_BYTES);

    if (strcasestr(b, a))
        return 0;
    for (uint32_t j = 0; j <= m; j++)
        row[j] = j;
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            uint32_t change = corner + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            uint32_t step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            corner = row[j];
            row[j] = change < step ? change : step;
        }
    }
    return row[m];
}

static void near_tell(const char *name, char *why, size_t why_bytes)
{
    const char *near[NEAR_MOST] = {NULL};
    uint32_t far[NEAR_MOST], n = 0;
    char safe[PART_BYTES];

    for (size_t i = 0; kvb_model_name(i); i++) { /* the nearest, kept sorted */
        uint32_t d = distance(part_of(name), part_of(kvb_model_name(i)));
        uint32_t at = n;
        while (at > 0 && d < far[at - 1])
            at--;
        if (at == NEAR_MOST || d > 1 + strlen(part_of(name)) / 3)
            continue;
        n += n < NEAR_MOST;
        for (uint32_t j = n - 1; j > at; j--) {
            far[j] = far[j - 1];
            near[j] = near[j - 1];
        }
        far[at] = d;
        near[at] = kvb_model_name(i);
    }
    snprintf(safe, sizeof safe, "%s", name);
    size_t used = (size_t)snprintf(why, why_bytes, "\"%s\": no built-in model of this name", safe);
    for (uint32_t i = 0; i < n && used < why_bytes; i++)
        used += (size_t)snprintf(why + used, why_bytes - used, "%s %s", i == 0 ? "; near it:" : ",", near[i]);
}

/* The line of a model; -1: none. */
static int line_find(const char *name)
{
    for (size_t i = 0; kvb_model_name(i); i++)
        if (strcasecmp(name, kvb_model_name(i)) == 0 || strcasecmp(name, part_of(kvb_model_name(i))) == 0)
            return (int)i;
    return -1;
}

int kvb_model_built_in(const char *name, kvb_model **model, char *why, size_t why_bytes)
{
    int i = line_find(name), error = -ENOMEM;

    *model = NULL;
    if (i < 0) {
        near_tell(name, why, why_bytes);
        return -ENOENT;
    }
    json_t *line = line_read((size_t)i);
    char *text = json_dumps(json_object_get(line, "config"), JSON_COMPACT);
    const char *source = json_string_value(json_object_get(line, "source"));
    snprintf(why, why_bytes, "%s: no memory", name);
    if (text && source)
        error = kvb_model_read(text, strlen(text), kvb_model_name((size_t)i), model, why, why_bytes);
    if (!error && !((*model)->source = strdup(source))) {
        kvb_model_free(*model);
        *model = NULL;
        error = -ENOMEM;
    }
    free(text);
    json_decref(line);
    return error;
}
