/* SPDX-License-Identifier: Apache-2.0 */
/* Words of options: one loop over the commas, and exact decimals. */
#include "harness/size/arguments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/size/cache_model.h"
#include "harness/size/weights.h"
#include "workloads/files.h"

static const kvb_size_engine *const engines_all[] = {
    &kvb_size_engine_ideal,  &kvb_size_engine_kvbench, &kvb_size_engine_llama_cpp, &kvb_size_engine_vllm,
    &kvb_size_engine_sglang, &kvb_size_engine_trtllm,  &kvb_size_engine_mlx};
static const char engine_words[] = "ideal kvbench llama.cpp vllm sglang trtllm mlx";
enum { ENGINES = sizeof engines_all / sizeof *engines_all };

/* Parses one word of a list into an element. */
typedef int word_parse(const char *word, void *element, char *why, size_t why_bytes);

/* Parses the words between commas into an array [n] of elements of `bytes` each, which the caller frees. array: the
 * address of its pointer. */
static int list_parse(const char *text, word_parse *parse, size_t bytes, void *array, size_t *n, char *why,
                      size_t why_bytes)
{
    char *at = NULL, *copy = strdup(text), *rest = copy, *word;
    int error = copy ? 0 : -ENOMEM;
    size_t room = 1;

    for (const char *c = text; *c; c++)
        room += *c == ',';
    *n = 0;
    at = calloc(room, bytes);
    if (!at)
        error = -ENOMEM;
    while (!error && (word = strsep(&rest, ",")))
        error = parse(word, at + bytes * (*n)++, why, why_bytes);
    free(copy);
    if (error == -ENOMEM)
        snprintf(why, why_bytes, "no memory");
    if (error) {
        free(at);
        at = NULL;
        *n = 0;
    }
    memcpy(array, &at, sizeof at);
    return error;
}

static int number_parse(const char *word, void *element, char *why, size_t why_bytes)
{
    return kvb_number_parse(word, 1, (uint64_t)1 << 40, element, why, why_bytes);
}

int kvb_numbers_parse(const char *text, kvb_size_numbers *numbers, char *why, size_t why_bytes)
{
    return list_parse(text, number_parse, sizeof *numbers->at, &numbers->at, &numbers->n, why, why_bytes);
}

static int format_find(const char *name, const kvb_kv_format **format, char *why, size_t why_bytes)
{
    if ((*format = kvb_kv_format_find(name)))
        return 0;
    if (kvb_is_bits_alone(name))
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "format '%s': with which scales? q4_0 and iq4_nl (ggml), a4g64 (MLX), nvfp4, mxfp4", name);
    char known[512] = "";

    for (const kvb_kv_format *f = kvb_kv_formats; f->name; f++)
        kvb_list_add(known, sizeof known, " ", "%s", f->name);
    return kvb_name_unknown("unknown format", name, known, why, why_bytes);
}

static int kv_parse(const char *word, void *element, char *why, size_t why_bytes)
{
    kvb_kv_pair *pair = element;
    const char *colon = strchr(word, ':');
    char k[64];

    snprintf(k, sizeof k, "%.*s", colon ? (int)(colon - word) : 63, word);
    int error = format_find(k, &pair->k, why, why_bytes);
    return error ? error : format_find(colon ? colon + 1 : k, &pair->v, why, why_bytes);
}

int kvb_kv_parse(const char *text, kvb_kv_pairs *pairs, char *why, size_t why_bytes)
{
    return list_parse(text, kv_parse, sizeof *pairs->at, &pairs->at, &pairs->n, why, why_bytes);
}

/* "vllm", or with a version "vllm@0.24", "vllm@0.24.1". */
static int engine_parse(const char *word, void *element, char *why, size_t why_bytes)
{
    const size_t n = strcspn(word, "@");
    kvb_size_engine *engine = element;
    unsigned major, minor;
    int end = 0;

    for (size_t i = 0; i < ENGINES && !*engine->name; i++)
        if (strlen(engines_all[i]->name) == n && memcmp(word, engines_all[i]->name, n) == 0)
            *engine = *engines_all[i];
    if (!*engine->name)
        return kvb_name_unknown("unknown engine", word, engine_words, why, why_bytes);
    if (!word[n])
        return 0;
    if (!engine->since)
        return kvb_why_set(-EINVAL, why, why_bytes, "'%.40s': no rule of %s here depends on its version", word,
                           engine->name);
    if (sscanf(word + n, "@%3u.%3u%n", &major, &minor, &end) != 2 ||
        word[n + end + strspn(word + n + end, ".0123456789")])
        return kvb_why_set(-EINVAL, why, why_bytes, "'%.40s': a version like %s@0.24 was expected", word, engine->name);
    engine->version = KVB_VERSION(major, minor);
    snprintf(engine->name + n, sizeof engine->name - n, "@%u.%u", major, minor);
    return 0;
}

int kvb_engines_parse(const char *text, kvb_engine_list *engines, char *why, size_t why_bytes)
{
    return list_parse(text ? text : "ideal,kvbench,llama.cpp,vllm,sglang,trtllm,mlx", engine_parse, sizeof *engines->at,
                      &engines->at, &engines->n, why, why_bytes);
}

/* Parses a decimal number into thousandths; *rest: the text after it. False: no number, more than three decimals, or too
 * large. */
static bool thousandths_parse(const char *text, unsigned __int128 *number, const char **rest)
{
    int decimals = -1;
    const char *c = text;

    for (*number = 0; (*c >= '0' && *c <= '9') || (*c == '.' && decimals < 0 && c > text); c++) {
        if (*c != '.')
            *number = *number * 10 + (unsigned)(*c - '0');
        if (decimals >= 0 || *c == '.')
            decimals++;
        if (*number >> 80 || decimals > 3)
            return false;
    }
    *rest = c;
    if (c == text || decimals == 0) /* no digit, or none after the point */
        return false;
    for (int i = decimals < 0 ? 0 : decimals; i < 3; i++)
        *number *= 10;
    return true;
}

int kvb_bytes_parse(const char *text, uint64_t *bytes, char *why, size_t why_bytes)
{
    unsigned __int128 number;
    const char *rest;

    if (thousandths_parse(text, &number, &rest)) {
        const uint64_t unit = kvb_unit_bytes(rest);

        if (unit && number <= (unsigned __int128)UINT64_MAX * 1000 / unit) {
            *bytes = (uint64_t)(number * unit / 1000);
            return 0;
        }
    }
    return kvb_why_set(-EINVAL, why, why_bytes,
                       "'%.40s' is no size of 64 bits, like 80GiB (binary), 80GB (decimal) or 85899345920", text);
}

int kvb_fraction_parse(const char *text, uint32_t *thousandths)
{
    unsigned __int128 number;
    const char *rest;

    if (!thousandths_parse(text, &number, &rest) || *rest || number < 1 || number > 1000)
        return -EINVAL;
    *thousandths = (uint32_t)number;
    return 0;
}

int kvb_percent_parse(const char *text, uint32_t *thousandths, char *why, size_t why_bytes)
{
    unsigned __int128 number;
    const char *rest;

    if (!thousandths_parse(text, &number, &rest) || (strcmp(rest, "") != 0 && strcmp(rest, "%") != 0) ||
        number > 100000)
        return kvb_why_set(-EINVAL, why, why_bytes, "'%.40s' is no per cent of 0 to 100, like 5%%", text);
    *thousandths = (uint32_t)number;
    return 0;
}
