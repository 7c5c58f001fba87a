/* SPDX-License-Identifier: Apache-2.0 */
/* Words of --weights: dtypes that store every element alike, and sizes. */
#include "results/sizing/weights.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* `elements` of them share `bytes`, scales with them. */
static const struct dtype {
    const char *word;
    uint64_t elements, bytes;
} dtypes[] = {
    {"f32", 1, 4},     {"f16", 1, 2},    {"bf16", 1, 2},   {"e4m3", 1, 1},
    {"e5m2", 1, 1},    {"fp8", 1, 1},    {"int8", 1, 1},   {"q8_0", 32, 34},
    {"q5_1", 32, 24},  {"q5_0", 32, 22}, {"q4_1", 32, 20}, {"q4_0", 32, 18}, /* ggml's blocks */
    {"mxfp4", 32, 17}, {"nvfp4", 16, 9},
};

static const struct unit {
    const char *word;
    long double bytes;
} units[] = {
    {"", 1},          {"B", 1},     {"KiB", 0x1p10L}, {"MiB", 0x1p20L}, {"GiB", 0x1p30L}, {"TiB", 0x1p40L},
    {"PiB", 0x1p50L}, {"KB", 1e3L}, {"MB", 1e6L},     {"GB", 1e9L},     {"TB", 1e12L},    {"PB", 1e15L},
};

const char *kvb_weights_words(void)
{
    return "f32 f16 bf16 e4m3 e5m2 fp8 int8 q8_0 q5_1 q5_0 q4_1 q4_0 mxfp4 nvfp4 aBgN (B bits, groups of N, 16-bit "
           "scale and bias)";
}

/* "a4g64": as MLX and the pools of kvbench store it. */
static bool affine_parse(const char *word, struct dtype *dtype)
{
    unsigned bits = 0, group = 0;
    int end = 0;
    if (sscanf(word, "a%1ug%4u%n", &bits, &group, &end) != 2 || word[end] || bits < 2 || bits > 8 || bits == 7 ||
        group < 16 || group > 1024 || group % 16)
        return false;
    *dtype = (struct dtype){word, group, (uint64_t)group * bits / 8 + 4};
    return true;
}

static bool dtype_parse(const char *word, struct dtype *dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcasecmp(dtypes[i].word, word) == 0) {
            *dtype = dtypes[i];
            return true;
        }
    return affine_parse(word, dtype);
}

/* -EINVAL: no size; -EOVERFLOW. */
static int size_parse(const char *word, uint64_t *bytes)
{
    char *end;
    if (strspn(word, "0123456789.") == 0 || strchr(word, 'x') || strchr(word, 'X'))
        return -EINVAL;
    const long double number = strtold(word, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcasecmp(units[i].word, end) == 0) {
            const long double size = number * units[i].bytes;
            if (!(size < 0x1p64L))
                return -EOVERFLOW;
            *bytes = (uint64_t)ceill(size);
            return *bytes ? 0 : -EINVAL;
        }
    return -EINVAL;
}

int kvb_weights_bytes(const kvb_parameters *parameters, const char *word, uint64_t *bytes, char *why, size_t why_bytes)
{
    struct dtype dtype;
    if (!dtype_parse(word, &dtype)) {
        const int err = size_parse(word, bytes);
        if (err)
            snprintf(why, why_bytes, "weights \"%.40s\": %s", word,
                     err == -EOVERFLOW ? "more than 64 bits of bytes" : "expected a size like 140GiB, or a dtype: ");
        if (err == -EINVAL && strlen(why) + 1 < why_bytes)
            snprintf(why + strlen(why), why_bytes - strlen(why), "%s", kvb_weights_words());
        return err;
    }
    if (!parameters->known) {
        snprintf(why, why_bytes, "weights \"%.40s\": the number of parameters is not known: %s", word, parameters->why);
        return -ENOTSUP;
    }
    const uint64_t groups = parameters->total / dtype.elements + (parameters->total % dtype.elements != 0);
    if (__builtin_mul_overflow(groups, dtype.bytes, bytes)) {
        snprintf(why, why_bytes, "weights \"%.40s\": more than 64 bits of bytes", word);
        return -EOVERFLOW;
    }
    return 0;
}
