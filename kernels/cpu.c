/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's level, from CPUID or what Linux says of an AArch64, and the limit on it. */
#include "kernels/cpu.h"

#include <stdint.h>
#include <stdio.h>

const char *const kvb_cpu_level_names[KVB_CPU_LEVELS] = {
    [KVB_CPU_PORTABLE] = "portable",
    [KVB_CPU_AVX2] = "avx2",
    [KVB_CPU_AVX512] = "avx512",
    [KVB_CPU_AVX512VNNI] = "avx512vnni",
    [KVB_CPU_AVX512BF16] = "avx512bf16",
    [KVB_CPU_AVX512FP16] = "avx512fp16",
    [KVB_CPU_AMX] = "amx",
    [KVB_CPU_NEON] = "neon",
    [KVB_CPU_NEONDOT] = "neondot",
    [KVB_CPU_NEONBF16] = "neonbf16",
    [KVB_CPU_SVE128] = "sve128",
    [KVB_CPU_SVE128BF16] = "sve128bf16",
    [KVB_CPU_SVE256] = "sve256",
    [KVB_CPU_SVE256BF16] = "sve256bf16",
    [KVB_CPU_SVE512] = "sve512",
    [KVB_CPU_SVE512BF16] = "sve512bf16",
};

static kvb_cpu_level limit = KVB_CPU_LEVELS - 1;

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool f16c_here(void) /* clang 14 has no name for it */
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool bf16_here(void) /* clang 14 has no name for this either */
{
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}

static bool fp16_here(void) /* gcc 11 has no name for it */
{
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 23);
}

static bool amx_here(unsigned bit) /* of EDX; clang 14 has no names for these */
{
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << bit);
}

/* Linux lets a process use tiles after it has asked once; threads and children inherit the permission
 * (Documentation/arch/x86/xstate.rst). */
static bool tiles_permitted(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* What each level needs that the one below does not have. */
#define NEED(LEVEL, NAME, HERE)                                                                                        \
    if (level >= LEVEL && !HERE) {                                                                                     \
        snprintf(why, why_bytes, "the CPU has no %s", NAME);                                                           \
        return false;                                                                                                  \
    }
#define NEED_NAMED(LEVEL, NAME) NEED(LEVEL, NAME, __builtin_cpu_supports(NAME)) /* which takes literals only */

bool kvb_cpu_has(kvb_cpu_level level, char *why, size_t why_bytes)
{
    if (level >= KVB_CPU_NEON && level < KVB_CPU_LEVELS) {
        snprintf(why, why_bytes, "the CPU has no %s: it is no AArch64", kvb_cpu_level_names[level]);
        return false;
    }
    NEED(KVB_CPU_AMX, "amx_bf16", amx_here(22)) /* first: it is what the level is for */
    NEED(KVB_CPU_AMX, "amx_int8", amx_here(25))
    NEED(KVB_CPU_AMX, "amx_tile", amx_here(24))
    NEED(KVB_CPU_AMX, "amx_tile that the system permits", tiles_permitted())
    NEED_NAMED(KVB_CPU_AVX2, "avx2")
    NEED_NAMED(KVB_CPU_AVX2, "fma")
    NEED(KVB_CPU_AVX2, "f16c", f16c_here())
    NEED_NAMED(KVB_CPU_AVX512, "avx512f")
    NEED_NAMED(KVB_CPU_AVX512, "avx512bw")
    NEED_NAMED(KVB_CPU_AVX512, "avx512dq")
    NEED_NAMED(KVB_CPU_AVX512, "avx512vl")
    NEED_NAMED(KVB_CPU_AVX512VNNI, "avx512vnni")
    NEED_NAMED(KVB_CPU_AVX512VNNI, "avx512vbmi")
    NEED(KVB_CPU_AVX512BF16, "avx512bf16", bf16_here())
    NEED(KVB_CPU_AVX512FP16, "avx512fp16", fp16_here())
    return true;
}
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#include <sys/prctl.h>

/* What each level needs: bits of the two words of AT_HWCAP, by the names that /proc/cpuinfo has, and the vectors'
 * length. */
static const struct need {
    const char *name;
    unsigned long type, bit;
    uint32_t levels; /* a bit for each */
} needs[] = {
#define BIT(LEVEL) (1u << KVB_CPU_##LEVEL)
#define BF16       (BIT(SVE128BF16) | BIT(SVE256BF16) | BIT(SVE512BF16))
#define SVE        (BIT(SVE128) | BIT(SVE256) | BIT(SVE512) | BF16)
#define NEON       (BIT(NEON) | BIT(NEONDOT) | BIT(NEONBF16))
    {"asimd", AT_HWCAP, HWCAP_ASIMD, NEON | SVE},
    {"asimdhp", AT_HWCAP, HWCAP_ASIMDHP, 0}, /* told, and not needed; so is sve2 */
    {"asimddp", AT_HWCAP, HWCAP_ASIMDDP, BIT(NEONDOT) | BIT(NEONBF16)},
    {"i8mm", AT_HWCAP2, HWCAP2_I8MM, BIT(NEONBF16)},
    {"bf16", AT_HWCAP2, HWCAP2_BF16, BIT(NEONBF16)},
    {"sve", AT_HWCAP, HWCAP_SVE, SVE},
    {"sve2", AT_HWCAP2, HWCAP2_SVE2, 0},
    {"svei8mm", AT_HWCAP2, HWCAP2_SVEI8MM, BF16},
    {"svebf16", AT_HWCAP2, HWCAP2_SVEBF16, BF16},
};
static const struct {
    int bits;
    uint32_t levels;
} lengths[] = {
    {128, BIT(SVE128) | BIT(SVE128BF16)}, {256, BIT(SVE256) | BIT(SVE256BF16)}, {512, BIT(SVE512) | BIT(SVE512BF16)}};

void kvb_cpu_features(char *words, size_t bytes)
{
    size_t used = 0;
    words[0] = '\0';
    for (size_t i = 0; i < sizeof needs / sizeof *needs && used < bytes; i++)
        if (getauxval(needs[i].type) & needs[i].bit)
            used += (size_t)snprintf(words + used, bytes - used, "%s%s", used ? " " : "", needs[i].name);
}

bool kvb_cpu_has(kvb_cpu_level level, char *why, size_t why_bytes)
{
    const uint32_t bit = 1u << level;
    if (level > KVB_CPU_PORTABLE && level < KVB_CPU_NEON) {
        snprintf(why, why_bytes, "the CPU has no %s: it is no x86-64", kvb_cpu_level_names[level]);
        return false;
    }
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (needs[i].levels & bit && !(getauxval(needs[i].type) & needs[i].bit)) {
            snprintf(why, why_bytes, "the CPU has no %s", needs[i].name);
            return false;
        }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int has = lengths[i].levels & bit ? (prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK) * 8 : lengths[i].bits;
        if (has != lengths[i].bits) {
            snprintf(why, why_bytes, "the CPU has no SVE of %d bits: its vectors have %d", lengths[i].bits, has);
            return false;
        }
    }
    return true;
}
#else
bool kvb_cpu_has(kvb_cpu_level level, char *why, size_t why_bytes)
{
    if (level == KVB_CPU_PORTABLE)
        return true;
    snprintf(why, why_bytes, "built for another architecture than x86-64 and AArch64");
    return false;
}
#endif

#if !defined(__aarch64__)
void kvb_cpu_features(char *words, size_t bytes)
{
    (void)bytes;
    words[0] = '\0';
}
#endif

/* The levels that the CPU has, a bit for each. CPUID traps in a virtual machine: asked once; threads that race find the
 * same. */
static uint32_t levels_here(void)
{
    static _Atomic uint32_t known;
    char why[64];
    if (!known) {
        uint32_t here = 0;
        for (int level = 0; level < KVB_CPU_LEVELS; level++)
            here |= (uint32_t)kvb_cpu_has((kvb_cpu_level)level, why, sizeof why) << level;
        known = here;
    }
    return known;
}

kvb_cpu_level kvb_cpu(void)
{
    const uint32_t within = levels_here() & (UINT32_MAX >> (31 - limit));
    return (kvb_cpu_level)(31 - __builtin_clz(within)); /* the lowest, portable, every CPU has */
}

void kvb_cpu_limit(kvb_cpu_level most)
{
    limit = most;
}
