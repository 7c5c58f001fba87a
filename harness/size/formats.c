/* SPDX-License-Identifier: Apache-2.0 */
/* Words of the command line: devices, formats of rows, units of bytes. */
#include "harness/size/sizing.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/*
 * Devices. Memory is the number of nvidia-smi in public logs ("0MiB / 81559MiB" beside the device's name); for MI300X and
 * MI355X that of rocm-smi (206141652992 and 309220868096 bytes); for MI325X that of amd-smi (262128 MB); for GB10, which
 * shares its memory with the CPU, that of CUDA (121.69 GiB in a log of vLLM). A process sees less, as the driver keeps
 * some: vLLM logs total_gpu_memory (79.11GiB) where nvidia-smi shows 79.65. For a Mac it is Metal's
 * recommendedMaxWorkingSetSize as llama.cpp logs it: two thirds of 16 and 32 GB (10922.67 and 21845.34 MiB:
 * abetlen/llama-cpp-python 687, ollama/ollama 434), three quarters of 64 and 96 GB (49152 and 73728 MiB:
 * ggml-org/llama.cpp 1870, 3213). macOS 26 gives more of 128 GB: 107.52 GiB (antirez/ds4 893); --budget serves for a limit
 * by iogpu.wired_limit_mb.
 */

#define MIB(n) ((uint64_t)(n) << 20)
#define MAC(GB)                                                                                                        \
    {                                                                                                                  \
        "Mac-" #GB "GB", GB <= 32 ? MIB(1024 * GB) * 2 / 3 : MIB(1024 * GB) * 3 / 4, false, true                       \
    }

const kvb_device kvb_devices[] = {
    {"T4", MIB(15360), false, false},
    {"A10", MIB(23028), false, false},
    {"A10G", MIB(23028), false, false},
    {"L4", MIB(23034), false, false},
    {"RTX-4090", MIB(24564), false, false},
    {"RTX-3090", MIB(24576), false, false},
    {"A30", MIB(24576), false, false},
    {"RTX-5090", MIB(32607), false, false},
    {"A100-40GB", MIB(40960), false, false},
    {"A40", MIB(46068), false, false},
    {"L40S", MIB(46068), false, false},
    {"RTX-A6000", MIB(49140), false, false},
    {"H100-80GB", MIB(81559), true, false},
    {"A100-80GB", MIB(81920), false, false},
    {"H200-141GB", MIB(143771), true, false},
    {"B200", MIB(183359), true, false},
    {"RTX-PRO-6000", MIB(97887), true, false},
    {"MI300X", MIB(196592), true, false},
    {"GB10", MIB(124610), true, false},
    {"B300", MIB(275040), true, false},
    {"GH200-480GB", MIB(97871), true, false},
    {"MI355X", MIB(294896), true, false},
    {"GH200-120GB", MIB(97871), true, false},
    {"MI325X", MIB(262128), true, false},
    MAC(8),
    MAC(16),
    MAC(18),
    MAC(24),
    MAC(32),
    MAC(36),
    MAC(48),
    MAC(64),
    MAC(96),
    MAC(128),
    MAC(192),
    MAC(256),
    MAC(512),
    {.name = NULL},
};

#define BETWEEN " -_/"

/* Is a word [n] of the user this part [length] of a device's name? A Mac may be named by its chip. */
static bool word_is(const char *word, size_t n, const char *part, size_t length)
{
    return (n == length && strncasecmp(word, part, n) == 0) ||
           (length == 3 && strncmp(part, "Mac", 3) == 0 &&
            (strncasecmp(word, "mac", 3) == 0 ||
             (n == 2 && tolower((unsigned char)*word) == 'm' && isdigit((unsigned char)word[1]))));
}

/* Is every part of the device's name among the words of `said`, the name in a driver's tool? "NVIDIA H100 80GB HBM3" and
 * "NVIDIA GeForce RTX 4090" are H100-80GB and RTX-4090; "NVIDIA L40" is not L4. "Apple M4 Max 64GB" is Mac-64GB. */
static bool words_are_of(const char *said, const char *name)
{
    for (const char *part = name; *part; part += strspn(part, BETWEEN)) {
        const size_t n = strcspn(part, BETWEEN);
        bool found = false;
        for (const char *word = said; *word && !found; word += strspn(word, BETWEEN)) {
            const size_t length = strcspn(word, BETWEEN);
            found = word_is(word, length, part, n);
            word += length;
        }
        if (!found)
            return false;
        part += n;
    }
    return true;
}

/* Are two names equal except for case and separators? "rtx4090", "RTX-4090". */
static bool letters_are_of(const char *said, const char *name)
{
    do {
        said += strspn(said, BETWEEN);
        name += strspn(name, BETWEEN);
        if (tolower((unsigned char)*said) != tolower((unsigned char)*name))
            return false;
    } while (*said++ && *name++);
    return true;
}

const kvb_device *kvb_device_find(const char *name)
{
    for (const kvb_device *d = kvb_devices; d->name; d++)
        if (letters_are_of(name, d->name) || words_are_of(name, d->name))
            return d;
    return NULL;
}

/* ---- formats of rows --------------------------------------------------------------------------------------------- */

/* Sizes of formats; caches/pools stores rows in them. The numbers come from the formats' definitions: ggml-common.h's
 * blocks; MLX's affine groups aBgN, B bits with a 16-bit scale and bias for N elements; OCP FP8 and MX; NVFP4, without its
 * one f32 a tensor; vLLM's types with an f32 scale for each token and head; TurboQuant; flashmla_sparse.py: of a row of
 * MLA, 512 elements in e4m3 with 4 f32 scales, and 64 in bf16. */
const kvb_kv_format kvb_kv_formats[] = {
    {"f32", "float32", 1, 4, 0},
    {"f16", "float16 fp16", 1, 2, 0},
    {"bf16", "bfloat16", 1, 2, 0},
    {"e4m3", "fp8_e4m3 fp8 float8_e4m3fn", 1, 1, 0},
    {"e5m2", "fp8_e5m2 float8_e5m2", 1, 1, 0},
    {"e4m3-token", "fp8-token", 1, 1, 4},
    {"e5m2-token", "", 1, 1, 4},
    {"int8", "int8-token", 1, 1, 4},
    {"int8-asym", "", 1, 1, 8},
    {"q8_0", "", 32, 34, 0},
    {"q5_1", "", 32, 24, 0},
    {"q5_0", "", 32, 22, 0},
    {"q4_1", "", 32, 20, 0},
    {"q4_0", "", 32, 18, 0},
    {"iq4_nl", "", 32, 18, 0},
    {"a8g32", "", 32, 36, 0},
    {"a8g64", "", 64, 68, 0},
    {"a8g128", "", 128, 132, 0},
    {"a4g32", "", 32, 20, 0},
    {"a4g64", "", 64, 36, 0},
    {"a4g128", "", 128, 68, 0},
    {"a2g32", "", 32, 12, 0},
    {"a2g64", "", 64, 20, 0},
    {"a2g128", "", 128, 36, 0},
    {"mxfp4", "", 32, 17, 0},
    {"nvfp4", "", 16, 9, 0},
    {"tq4", "", 2, 1, 2},
    {"tq3", "", 8, 3, 2},
    {"fp8_ds_mla", "", 576, 656, 0},
    {.name = NULL},
};

const kvb_kv_format *kvb_kv_format_find(const char *name)
{
    for (const kvb_kv_format *f = kvb_kv_formats; f->name; f++)
        if (strcmp(f->name, name) == 0 || kvb_names_have(f->also, name))
            return f;
    return NULL;
}

uint64_t kvb_kv_row_bytes(const kvb_kv_format *f, uint64_t elements)
{
    return elements && elements % f->group == 0 ? elements / f->group * f->group_bytes + f->extra_bytes : 0;
}

uint64_t kvb_unit_bytes(const char *word)
{
    static const char prefixes[] = "KMGTP";
    const char *prefix = *word ? strchr(prefixes, toupper((unsigned char)*word)) : NULL;
    const bool binary = prefix && (word[1] == 'i' || word[1] == 'I');
    uint64_t bytes = 1;

    if (strcasecmp(prefix ? word + 1 + binary : word, "B") != 0 && *word)
        return 0;
    for (size_t times = prefix ? (size_t)(prefix - prefixes) + 1 : 0; times > 0; times--)
        bytes *= binary ? 1024 : 1000;
    return bytes;
}
