/* SPDX-License-Identifier: Apache-2.0 */
/* Multiply-add peaks of a team. */

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#include "harness/rounds.h"
#include "harness/machine/bandwidth.h"
#include "kernels/attend.h"
#include "kernels/cpu.h"

/*
 * Multiply-add loops in registers. Values stay put so that no run ends in infinities or denormal numbers, which some
 * CPUs slow down for: fused chains converge (x * 0.5 + 1 -> 2), dot products add 1 and -1 in turn. An empty asm that
 * claims to change a chain's register keeps the compiler from folding turns together.
 */

/* The pragmas have the loops over the chains unrolled whole: only then does gcc keep the arrays in registers. */
#define CHAINS KVB_PEAK_CHAINS

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

__attribute__((target("avx512f"))) static double f32_avx512(uint64_t turns)
{
    const __m512 half = _mm512_set1_ps(0.5f), one = _mm512_set1_ps(1);
    __m512 x[CHAINS], sum = _mm512_setzero_ps();
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        x[k] = one;
    for (; turns; turns--)
#pragma GCC unroll 12
        for (unsigned k = 0; k < CHAINS; k++) {
            x[k] = _mm512_fmadd_ps(x[k], half, one);
            __asm__ volatile("" : "+v"(x[k]));
        }
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        sum = _mm512_add_ps(sum, x[k]);
    return (double)_mm512_reduce_add_ps(sum);
}

__attribute__((target("avx2,fma"))) static double f32_avx2(uint64_t turns)
{
    const __m256 half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1);
    __m256 x[CHAINS], sum = _mm256_setzero_ps();
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        x[k] = one;
    for (; turns; turns--)
#pragma GCC unroll 12
        for (unsigned k = 0; k < CHAINS; k++) {
            x[k] = _mm256_fmadd_ps(x[k], half, one);
            __asm__ volatile("" : "+x"(x[k]));
        }
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        sum = _mm256_add_ps(sum, x[k]);
    return (double)_mm256_cvtss_f32(sum);
}

/* As asm: clang 14 knows the instruction, but the type of its operands only if the whole file is built for FP16. */
__attribute__((target("avx512f,avx512fp16,f16c"))) static double f16_avx512(uint64_t turns)
{
    const __m512i half = _mm512_set1_epi32(0x38003800), one = _mm512_set1_epi32(0x3c003c00); /* pairs of f16 */
    __m512i x[CHAINS];
    double sum = 0;
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        x[k] = one;
    for (; turns; turns--)
#pragma GCC unroll 12
        for (unsigned k = 0; k < CHAINS; k++)
            __asm__ volatile("vfmadd132ph %1, %2, %0" : "+v"(x[k]) : "v"(half), "v"(one));
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        sum += (double)_cvtsh_ss((uint16_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(x[k])));
    return sum;
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static double bf16_avx512(uint64_t turns)
{
    const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);       /* (1, 1) */
    const __m512bh signs = (__m512bh)_mm512_set1_epi32((int)0xbf803f80); /* (1, -1) */
    __m512 x[CHAINS], sum = _mm512_setzero_ps();
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        x[k] = _mm512_set1_ps(1);
    for (; turns; turns--)
#pragma GCC unroll 12
        for (unsigned k = 0; k < CHAINS; k++) {
            x[k] = _mm512_dpbf16_ps(x[k], ones, signs);
            __asm__ volatile("" : "+v"(x[k]));
        }
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        sum = _mm512_add_ps(sum, x[k]);
    return (double)_mm512_reduce_add_ps(sum);
}

__attribute__((target("avx512f,avx512vnni"))) static double int8_avx512(uint64_t turns)
{
    const __m512i ones = _mm512_set1_epi32(0x01010101), signs = _mm512_set1_epi32((int)0xff01ff01); /* 1, -1 */
    __m512i x[CHAINS], sum = _mm512_setzero_si512();
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        x[k] = _mm512_set1_epi32(1);
    for (; turns; turns--)
#pragma GCC unroll 12
        for (unsigned k = 0; k < CHAINS; k++) {
            x[k] = _mm512_dpbusd_epi32(x[k], ones, signs);
            __asm__ volatile("" : "+v"(x[k]));
        }
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        sum = _mm512_add_epi32(sum, x[k]);
    return (double)_mm512_reduce_add_epi32(sum);
}

__attribute__((target("avx2,avxvnni"))) static double int8_avx2(uint64_t turns)
{
    const __m256i ones = _mm256_set1_epi32(0x01010101), signs = _mm256_set1_epi32((int)0xff01ff01);
    __m256i x[CHAINS], sum = _mm256_setzero_si256();
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        x[k] = _mm256_set1_epi32(1);
    for (; turns; turns--)
#pragma GCC unroll 12
        for (unsigned k = 0; k < CHAINS; k++) {
            x[k] = _mm256_dpbusd_avx_epi32(x[k], ones, signs);
            __asm__ volatile("" : "+x"(x[k]));
        }
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        sum = _mm256_add_epi32(sum, x[k]);
    return (double)_mm256_extract_epi32(sum, 0);
}

static bool level_here(kvb_cpu_level level)
{
    char why[64];
    return kvb_cpu_has(level, why, sizeof why);
}

static bool avx512_here(void)
{
    return level_here(KVB_CPU_AVX512);
}

static bool avx2_here(void)
{
    return level_here(KVB_CPU_AVX2);
}

/* From leaf 7 of CPUID: clang 14 has no name for these two. The wider set is asked for too, because the system must
 * save the registers. */
static unsigned leaf7(unsigned subleaf, bool edx)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, subleaf, &a, &b, &c, &d))
        return 0;
    return edx ? d : a;
}

static bool fp16_here(void)
{
    return avx512_here() && (leaf7(0, true) >> 23 & 1);
}

static bool bf16_here(void)
{
    return avx512_here() && __builtin_cpu_supports("avx512bf16");
}

static bool vnni512_here(void) /* needs no VBMI, unlike the level avx512vnni */
{
    return avx512_here() && __builtin_cpu_supports("avx512vnni");
}

static bool vnni256_here(void)
{
    return avx2_here() && (leaf7(1, false) >> 4 & 1);
}
#endif

#if defined(__aarch64__)
#include <arm_neon.h>

/* By NEON: SVE of the same core multiplies at least as fast, but its lanes are not known when this is compiled. */
static double f32_neon(uint64_t turns)
{
    const float32x4_t half = vdupq_n_f32(0.5f), one = vdupq_n_f32(1);
    float32x4_t x[CHAINS], sum = vdupq_n_f32(0);
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        x[k] = one;
    for (; turns; turns--)
#pragma GCC unroll 12
        for (unsigned k = 0; k < CHAINS; k++) {
            x[k] = vfmaq_f32(one, x[k], half);
            __asm__ volatile("" : "+w"(x[k]));
        }
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        sum = vaddq_f32(sum, x[k]);
    return (double)vaddvq_f32(sum);
}

/* Four (eight, two) products in each of four lanes. As asm: the intrinsics want the whole file to be built for them. */
#define DOTS(NAME, ARCH, INSTRUCTION, ONES, SIGNS)                                                                     \
    static double NAME(uint64_t turns)                                                                                 \
    {                                                                                                                  \
        const uint32x4_t ones = vdupq_n_u32(ONES), signs = vdupq_n_u32(SIGNS);                                         \
        uint32x4_t x[CHAINS], sum = vdupq_n_u32(0);                                                                    \
        _Pragma("GCC unroll 12") for (unsigned k = 0; k < CHAINS; k++) x[k] = vdupq_n_u32(0x3f800000); /* 1 */         \
        for (; turns; turns--)                                                                                         \
            _Pragma("GCC unroll 12") for (unsigned k = 0; k < CHAINS; k++) __asm__ volatile(                           \
                ".arch " ARCH "\n\t" INSTRUCTION : "+w"(x[k]) : "w"(ones), "w"(signs));                                \
        _Pragma("GCC unroll 12") for (unsigned k = 0; k < CHAINS; k++) sum = vaddq_u32(sum, x[k]);                     \
        return (double)vaddvq_u32(sum);                                                                                \
    }
DOTS(int8_mmla, "armv8.2-a+i8mm", "smmla %0.4s, %1.16b, %2.16b", 0x01010101, 0xff01ff01)
DOTS(int8_neon, "armv8.2-a+dotprod", "sdot %0.4s, %1.16b, %2.16b", 0x01010101, 0xff01ff01)
DOTS(bf16_neon, "armv8.2-a+bf16", "bfdot %0.4s, %1.8h, %2.8h", 0x3f803f80, 0xbf803f80)

static bool level_here(kvb_cpu_level level)
{
    char why[128];
    return kvb_cpu_has(level, why, sizeof why);
}
static bool neon_here(void)
{
    return level_here(KVB_CPU_NEON);
}
static bool dot_here(void)
{
    return level_here(KVB_CPU_NEONDOT);
}
static bool neonbf16_here(void)
{
    return level_here(KVB_CPU_NEONBF16);
}
#endif

/* Without a fused multiply-add: a product and a sum, rounded each. Twelve chains of four lanes, which compilers keep in
 * vector registers. */
static double f32_portable(uint64_t turns)
{
    typedef float lanes __attribute__((vector_size(16)));
    lanes x[CHAINS], sum = {0};
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        x[k] = (lanes){1, 1, 1, 1};
    for (; turns; turns--)
#pragma GCC unroll 12
        for (unsigned k = 0; k < CHAINS; k++) {
            x[k] = x[k] * 0.5f + 1.0f;
#if defined(__x86_64__)
            __asm__ volatile("" : "+x"(x[k]));
#elif defined(__aarch64__)
            __asm__ volatile("" : "+w"(x[k]));
#else
            __asm__ volatile("" : "+m"(x[k]));
#endif
        }
#pragma GCC unroll 12
    for (unsigned k = 0; k < CHAINS; k++)
        sum += x[k];
    return (double)sum[0];
}

static bool always_here(void)
{
    return true;
}

/* Widest first. operations: chains x 2 x lanes x products a lane. */
const kvb_peak_kernel kvb_peak_kernels[] = {
#if defined(__x86_64__)
    {KVB_PEAK_F32, "avx512f vfmadd ps", 2.0 * 16 * CHAINS, f32_avx512, avx512_here},
    {KVB_PEAK_F32, "fma vfmadd ps", 2.0 * 8 * CHAINS, f32_avx2, avx2_here},
    {KVB_PEAK_F16, "avx512fp16 vfmadd ph", 2.0 * 32 * CHAINS, f16_avx512, fp16_here},
    {KVB_PEAK_BF16, "avx512bf16 vdpbf16ps", 2.0 * 32 * CHAINS, bf16_avx512, bf16_here},
    {KVB_PEAK_INT8, "avx512vnni vpdpbusd", 2.0 * 64 * CHAINS, int8_avx512, vnni512_here},
    {KVB_PEAK_INT8, "avxvnni vpdpbusd", 2.0 * 32 * CHAINS, int8_avx2, vnni256_here},
#elif defined(__aarch64__)
    {KVB_PEAK_F32, "neon fmla", 2.0 * 4 * CHAINS, f32_neon, neon_here},
    {KVB_PEAK_BF16, "neon bfdot", 2.0 * 8 * CHAINS, bf16_neon, neonbf16_here},
    {KVB_PEAK_INT8, "neon smmla", 2.0 * 32 * CHAINS, int8_mmla, neonbf16_here},
    {KVB_PEAK_INT8, "neon sdot", 2.0 * 16 * CHAINS, int8_neon, dot_here},
#endif
    {KVB_PEAK_F32, "portable mul, add", 2.0 * 4 * CHAINS, f32_portable, always_here},
    {KVB_PEAK_KINDS, NULL, 0, NULL, NULL},
};

static const char *const needs[KVB_PEAK_KINDS] = {
    [KVB_PEAK_F32] = "",
#if defined(__x86_64__)
    [KVB_PEAK_F16] = "the CPU has no avx512_fp16",
    [KVB_PEAK_BF16] = "the CPU has no avx512_bf16",
    [KVB_PEAK_INT8] = "the CPU has neither avx512_vnni nor avx_vnni",
#else
    [KVB_PEAK_F16] = "no loop of f16 is written for this architecture",
    [KVB_PEAK_BF16] = "the CPU has no bf16",
    [KVB_PEAK_INT8] = "the CPU has no asimddp",
#endif
};

const kvb_peak_kernel *kvb_peak_kernel_choose(kvb_peak_kind kind, char *why, size_t why_bytes)
{
    for (const kvb_peak_kernel *kernel = kvb_peak_kernels; kernel->instruction; kernel++)
        if (kernel->kind == kind && kernel->here())
            return kernel;
    snprintf(why, why_bytes, "%s", needs[kind]);
    return NULL;
}

const char *const kvb_peak_names[KVB_PEAK_KINDS] = {"f32", "f16", "bf16", "int8"};

#define TURNS 4096u /* of one pass: tens of microseconds */

typedef struct peak_job {
    const kvb_team *team;
    const kvb_peak_kernel *kernel;
    uint64_t turns;
    _Atomic double sink;
} peak_job;

static void part_multiply(void *ctx, uint32_t i, uint32_t n)
{
    peak_job *job = ctx;
    (void)i, (void)n;
    atomic_store_explicit(&job->sink, job->kernel->run(job->turns), memory_order_relaxed);
}

static double peak_sample(void *ctx, uint32_t passes)
{
    peak_job *job = ctx;
    job->turns = (uint64_t)passes * TURNS;
    double start = kvb_now_ns();
    job->team->run(job->team, part_multiply, job);
    return kvb_now_ns() - start;
}

int kvb_multiply_add_peak(const kvb_team *team, kvb_peak_kind kind, double seconds, kvb_rate *rate, char *why,
                          size_t why_bytes)
{
    peak_job job = {.team = team, .kernel = kvb_peak_kernel_choose(kind, why, why_bytes)};
    if (!job.kernel)
        return -ENOTSUP;
    return kvb_rate_sample(peak_sample, &job, job.kernel->operations * TURNS * team->n, seconds, rate);
}
