/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's level, from CPUID or (AArch64) from Linux, and the limit on it. */
#include "kernels/cpu.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

const char *const kvb_cpu_level_names[KVB_CPU_LEVELS] = {
    [KVB_CPU_PORTABLE] = "portable",
    [KVB_CPU_AVX2] = "avx2",
    [KVB_CPU_AVXVNNI] = "avxvnni",
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

/* An instruction set: its name, whether the CPU has it, and a bit for each level that needs it. */
typedef struct need {
    const char *name;
    bool here;
    uint32_t levels;
} need;
#define NEEDS_MOST 16
#define BIT(LEVEL) (1u << KVB_CPU_##LEVEL)

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FOREIGN(LEVEL) ((LEVEL) >= KVB_CPU_NEON && (LEVEL) < KVB_CPU_LEVELS)
#define FOREIGN_WHY    "it is no AArch64"
#define BF16           (BIT(AVX512BF16) | BIT(AMX) | FP16)
#define VNNI           (BIT(AVX512VNNI) | BF16)
#define AVX512         (BIT(AVX512) | VNNI)
#define AVX2           (BIT(AVX2) | BIT(AVXVNNI) | AVX512)
#if defined(KVB_AVXVNNI) /* a test's build emulates these instructions: every CPU has the levels */
#define AVXVNNI 0
#define TILES   0
#else
#define AVXVNNI BIT(AVXVNNI)
#define TILES   BIT(AMX)
#endif
#define FP16 (BIT(AVX512FP16) | TILES)

/* Features for which gcc 11 or clang 14 has no name: a bit of CPUID. */
static bool cpuid_has(unsigned leaf, unsigned subleaf, int word, unsigned bit)
{
    unsigned of[4] = {0};
    return __get_cpuid_count(leaf, subleaf, &of[0], &of[1], &of[2], &of[3]) && of[word] >> bit & 1;
}
enum { EAX, EBX, ECX, EDX };

/* Linux lets a process use tiles after it has asked once; threads and children inherit the permission
 * (Documentation/arch/x86/xstate.rst). */
static bool tiles_permitted(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static size_t needs_ask(need to[NEEDS_MOST])
{
#define NAMED(NAME, LEVELS)                                                                                            \
    {                                                                                                                  \
        NAME, __builtin_cpu_supports(NAME), LEVELS                                                                     \
    } /* the builtin takes literals only */
    const need all[] = {
        {"amx_bf16", cpuid_has(7, 0, EDX, 22), TILES}, /* first: the level is for these products */
        {"amx_int8", cpuid_has(7, 0, EDX, 25), TILES},
        {"amx_tile", cpuid_has(7, 0, EDX, 24), TILES},
        {"amx_tile that the system permits", cpuid_has(7, 0, EDX, 24) && tiles_permitted(), TILES},
        NAMED("avx2", AVX2),
        NAMED("fma", AVX2),
        {"f16c", cpuid_has(1, 0, ECX, 29), AVX2},
        {"avxvnni", cpuid_has(7, 1, EAX, 4), AVXVNNI},
        NAMED("avx512f", AVX512),
        NAMED("avx512bw", AVX512),
        NAMED("avx512dq", AVX512),
        NAMED("avx512vl", AVX512),
        NAMED("avx512vnni", VNNI),
        NAMED("avx512vbmi", VNNI),
        {"avx512bf16", cpuid_has(7, 1, EAX, 5), BF16},
        {"avx512fp16", cpuid_has(7, 0, EDX, 23), FP16},
    };
    memcpy(to, all, sizeof all);
    return sizeof all / sizeof *all;
}
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#include <sys/prctl.h>

#define FOREIGN(LEVEL) ((LEVEL) > KVB_CPU_PORTABLE && (LEVEL) < KVB_CPU_NEON)
#define FOREIGN_WHY    "it is no x86-64"
#define BF16           (BIT(SVE128BF16) | BIT(SVE256BF16) | BIT(SVE512BF16))
#define SVE            (BIT(SVE128) | BIT(SVE256) | BIT(SVE512) | BF16)
#define NEON           (BIT(NEON) | BIT(NEONDOT) | BIT(NEONBF16))

/* Bits of the two words of AT_HWCAP, by the names that /proc/cpuinfo has. */
static size_t needs_ask(need to[NEEDS_MOST])
{
    const unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    const need all[] = {
        {"asimd", one & HWCAP_ASIMD, NEON | SVE},
        {"asimdhp", one & HWCAP_ASIMDHP, 0}, /* listed only: no level needs it, nor sve2 */
        {"asimddp", one & HWCAP_ASIMDDP, BIT(NEONDOT) | BIT(NEONBF16)},
        {"i8mm", two & HWCAP2_I8MM, BIT(NEONBF16)},
        {"bf16", two & HWCAP2_BF16, BIT(NEONBF16)},
        {"sve", one & HWCAP_SVE, SVE},
        {"sve2", two & HWCAP2_SVE2, 0},
        {"svei8mm", two & HWCAP2_SVEI8MM, BF16},
        {"svebf16", two & HWCAP2_SVEBF16, BF16},
    };
    memcpy(to, all, sizeof all);
    return sizeof all / sizeof *all;
}
#else
#define FOREIGN(LEVEL) ((LEVEL) > KVB_CPU_PORTABLE && (LEVEL) < KVB_CPU_LEVELS)
#define FOREIGN_WHY    "built for another architecture than x86-64 and AArch64"
static size_t needs_ask(need to[NEEDS_MOST])
{
    (void)to;
    return 0;
}
#endif

static need needs[NEEDS_MOST];
static size_t n_needs;
static void needs_learn(void)
{
    n_needs = needs_ask(needs);
}

/* Asks the CPU once: CPUID traps in a virtual machine. */
static size_t needs_known(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, needs_learn);
    return n_needs;
}

/* Code for SVE is compiled for one length of vectors. */
static bool length_fits(kvb_cpu_level level, char *why, size_t why_bytes)
{
#if defined(__aarch64__)
    static const struct {
        int bits;
        uint32_t levels;
    } lengths[] = {{128, BIT(SVE128) | BIT(SVE128BF16)},
                   {256, BIT(SVE256) | BIT(SVE256BF16)},
                   {512, BIT(SVE512) | BIT(SVE512BF16)}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int has =
            lengths[i].levels >> level & 1 ? (prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK) * 8 : lengths[i].bits;
        if (has != lengths[i].bits) {
            snprintf(why, why_bytes, "the CPU has no SVE of %d bits: its vectors have %d", lengths[i].bits, has);
            return false;
        }
    }
#else
    (void)level, (void)why, (void)why_bytes;
#endif
    return true;
}

bool kvb_cpu_has(kvb_cpu_level level, char *why, size_t why_bytes)
{
    if (FOREIGN(level)) {
        snprintf(why, why_bytes, "the CPU has no %s: %s", kvb_cpu_level_names[level], FOREIGN_WHY);
        return false;
    }
    const size_t n = needs_known();
    for (size_t i = 0; i < n; i++)
        if (needs[i].levels >> level & 1 && !needs[i].here) {
            snprintf(why, why_bytes, "the CPU has no %s", needs[i].name);
            return false;
        }
    return length_fits(level, why, why_bytes);
}

void kvb_cpu_features(char *words, size_t bytes)
{
    size_t used = 0;
    words[0] = '\0';
#if defined(__aarch64__)
    const size_t n = needs_known();
    for (size_t i = 0; i < n && used < bytes; i++)
        if (needs[i].here)
            used += (size_t)snprintf(words + used, bytes - used, "%s%s", used ? " " : "", needs[i].name);
#else
    (void)used, (void)bytes;
#endif
}

/* The levels that the CPU has, a bit for each. Calls of kernels ask often, so the result is kept; threads that race find
 * the same. */
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
    return (kvb_cpu_level)(31 - __builtin_clz(within)); /* not 0: every CPU has the lowest level, portable */
}

void kvb_cpu_limit(kvb_cpu_level most)
{
    limit = most;
}
