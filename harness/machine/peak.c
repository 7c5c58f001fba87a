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

#define CHAINS KVB_PEAK_CHAINS

/*
 * A loop: its name and attributes, the vector type of a chain, its first value, and the statements of a turn for chain x.
 * The pragmas unroll the loops over the chains fully: only then does gcc keep the arrays in registers.
 */
#define EACH_CHAIN _Pragma("GCC unroll 12") for (unsigned k = 0; k < CHAINS; k++)
#define LOOP(NAME, ATTRIBUTES, LANES, FIRST, TURN)                                                                     \
    ATTRIBUTES static double NAME(uint64_t turns)                                                                      \
    {                                                                                                                  \
        LANES chains[CHAINS], sum = FIRST;                                                                             \
        EACH_CHAIN chains[k] = FIRST;                                                                                  \
        for (; turns; turns--)                                                                                         \
            EACH_CHAIN                                                                                                 \
            {                                                                                                          \
                LANES x = chains[k];                                                                                   \
                TURN;                                                                                                  \
                chains[k] = x;                                                                                         \
            }                                                                                                          \
        EACH_CHAIN sum += chains[k];                                                                                   \
        return (double)sum[0];                                                                                         \
    }

#if defined(__x86_64__)
#include <cpuid.h>
#include "kernels/vector/tiles.h"
#include <immintrin.h>

#define AVX512(MORE) __attribute__((target("avx512f" MORE)))
#define AVX2(MORE)   __attribute__((target("avx2" MORE)))
#define HELD(R, WHAT)                                                                                                  \
    x = WHAT;                                                                                                          \
    __asm__ volatile("" : "+" R(x))
#define ONES  0x01010101        /* bytes: 1, 1, 1, 1 */
#define SIGNS ((int)0xff01ff01) /* 1, -1, 1, -1 */

LOOP(f32_avx512, AVX512(), __m512, _mm512_set1_ps(1),
     HELD("v", _mm512_fmadd_ps(x, _mm512_set1_ps(0.5f), _mm512_set1_ps(1))))
LOOP(f32_avx2, AVX2(",fma"), __m256, _mm256_set1_ps(1),
     HELD("x", _mm256_fmadd_ps(x, _mm256_set1_ps(0.5f), _mm256_set1_ps(1))))
/* Pairs of f16, as asm: clang 14 knows the instruction, but the type of its operands only if the whole file is built for
 * FP16. */
LOOP(f16_avx512, AVX512(",avx512fp16"), __m512i, _mm512_set1_epi32(0x3c003c00),
     __asm__ volatile("vfmadd132ph %1, %2, %0"
                      : "+v"(x)
                      : "v"(_mm512_set1_epi32(0x38003800)), "v"(_mm512_set1_epi32(0x3c003c00))))
LOOP(bf16_avx512, AVX512(",avx512bw,avx512vl,avx512bf16"), __m512, _mm512_set1_ps(1),
     HELD("v",
          _mm512_dpbf16_ps(x, (__m512bh)_mm512_set1_epi32(0x3f803f80), (__m512bh)_mm512_set1_epi32((int)0xbf803f80))))
LOOP(int8_avx512, AVX512(",avx512vnni"), __m512i, _mm512_set1_epi32(1),
     HELD("v", _mm512_dpbusd_epi32(x, _mm512_set1_epi32(ONES), _mm512_set1_epi32(SIGNS))))
LOOP(int8_avx2, AVX2(",avxvnni"), __m256i, _mm256_set1_epi32(1),
     HELD("x", _mm256_dpbusd_avx_epi32(x, _mm256_set1_epi32(ONES), _mm256_set1_epi32(SIGNS))))

/* Six chains of tiles, as in kernels/vector/tiles.h, over zeros: without loads the time does not depend on the numbers. The
 * chain's number counts no turn. */
#define TILE_CHAINS 6u
#define TILES(NAME, INSTRUCTION)                                                                                       \
    static double NAME(uint64_t turns)                                                                                 \
    {                                                                                                                  \
        tiles_open(TILE_LANES);                                                                                        \
        for (; turns; turns--)                                                                                         \
            __asm__ volatile(INSTRUCTION " %tmm7, %tmm6, %tmm0\n\t" INSTRUCTION " %tmm7, %tmm6, %tmm1\n\t" INSTRUCTION \
                                         " %tmm7, %tmm6, %tmm2\n\t" INSTRUCTION " %tmm7, %tmm6, %tmm3\n\t" INSTRUCTION \
                                         " %tmm7, %tmm6, %tmm4\n\t" INSTRUCTION " %tmm7, %tmm6, %tmm5");               \
        tiles_close();                                                                                                 \
        return 1;                                                                                                      \
    }
TILES(bf16_amx, "tdpbf16ps")
TILES(int8_amx, "tdpbsud")

static bool has_bf16(void) /* needs no VBMI, unlike the level avx512bf16 */
{
    return __builtin_cpu_supports("avx512bf16");
}

static bool has_vnni(void)
{
    return __builtin_cpu_supports("avx512vnni");
}

static bool has_avxvnni(void) /* the CPU itself: a test's program has a level without the instruction */
{
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1; /* clang 14 has no name for it */
}

static bool has_tiles(void) /* so it is here */
{
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 24 & 1;
}
#endif

#if defined(__aarch64__)
#include <arm_neon.h>

/* By NEON: SVE of the same core multiplies at least as fast, but its length is not known at compile time. */
LOOP(f32_neon, , float32x4_t, vdupq_n_f32(1), x = vfmaq_f32(vdupq_n_f32(1), x, vdupq_n_f32(0.5f));
     __asm__ volatile(""
                      : "+w"(x)))

/* Four (eight, two) products in each of four lanes. As asm: intrinsics need the whole file to be built for them. */
#define DOT(ARCH, INSTRUCTION, ONES, SIGNS)                                                                            \
    __asm__ volatile(".arch " ARCH "\n\t" INSTRUCTION : "+w"(x) : "w"(vdupq_n_u32(ONES)), "w"(vdupq_n_u32(SIGNS)))
#define FIRST vdupq_n_u32(0x3f800000) /* 1 */
LOOP(int8_mmla, , uint32x4_t, FIRST, DOT("armv8.2-a+i8mm", "smmla %0.4s, %1.16b, %2.16b", 0x01010101, 0xff01ff01))
LOOP(int8_neon, , uint32x4_t, FIRST, DOT("armv8.2-a+dotprod", "sdot %0.4s, %1.16b, %2.16b", 0x01010101, 0xff01ff01))
LOOP(bf16_neon, , uint32x4_t, FIRST, DOT("armv8.2-a+bf16", "bfdot %0.4s, %1.8h, %2.8h", 0x3f803f80, 0xbf803f80))
#endif

#if defined(__x86_64__)
#define REGISTER "+x"
#elif defined(__aarch64__)
#define REGISTER "+w"
#else
#define REGISTER "+m"
#endif
/* Without a fused multiply-add: a product and a sum, each rounded. Chains of four lanes, which compilers keep in vector
 * registers. */
typedef float four __attribute__((vector_size(16)));
LOOP(f32_portable, , four, ((four){1, 1, 1, 1}), x = x * 0.5f + 1.0f; __asm__ volatile("" : REGISTER(x)))

/* Widest first. operations: chains x 2 x lanes x products a lane. The level is also needed, because the system must save
 * its registers. */
const kvb_peak_kernel kvb_peak_kernels[] = {
#if defined(__x86_64__)
    {KVB_PEAK_F32, "avx512f vfmadd ps", 2.0 * 16 * CHAINS, f32_avx512, KVB_CPU_AVX512, NULL},
    {KVB_PEAK_F32, "fma vfmadd ps", 2.0 * 8 * CHAINS, f32_avx2, KVB_CPU_AVX2, NULL},
    {KVB_PEAK_F16, "avx512fp16 vfmadd ph", 2.0 * 32 * CHAINS, f16_avx512, KVB_CPU_AVX512FP16, NULL},
    {KVB_PEAK_BF16, "avx512bf16 vdpbf16ps", 2.0 * 32 * CHAINS, bf16_avx512, KVB_CPU_AVX512, has_bf16},
    {KVB_PEAK_INT8, "avx512vnni vpdpbusd", 2.0 * 64 * CHAINS, int8_avx512, KVB_CPU_AVX512, has_vnni},
    {KVB_PEAK_INT8, "avxvnni vpdpbusd", 2.0 * 32 * CHAINS, int8_avx2, KVB_CPU_AVX2, has_avxvnni},
    {KVB_PEAK_AMX_BF16, "amx_bf16 tdpbf16ps", 2.0 * 16 * 16 * 32 * TILE_CHAINS, bf16_amx, KVB_CPU_AMX, has_tiles},
    {KVB_PEAK_AMX_INT8, "amx_int8 tdpbsud", 2.0 * 16 * 16 * 64 * TILE_CHAINS, int8_amx, KVB_CPU_AMX, has_tiles},
#elif defined(__aarch64__)
    {KVB_PEAK_F32, "neon fmla", 2.0 * 4 * CHAINS, f32_neon, KVB_CPU_NEON, NULL},
    {KVB_PEAK_BF16, "neon bfdot", 2.0 * 8 * CHAINS, bf16_neon, KVB_CPU_NEONBF16, NULL},
    {KVB_PEAK_INT8, "neon smmla", 2.0 * 32 * CHAINS, int8_mmla, KVB_CPU_NEONBF16, NULL},
    {KVB_PEAK_INT8, "neon sdot", 2.0 * 16 * CHAINS, int8_neon, KVB_CPU_NEONDOT, NULL},
#endif
    {KVB_PEAK_F32, "portable mul, add", 2.0 * 4 * CHAINS, f32_portable, KVB_CPU_PORTABLE, NULL},
    {KVB_PEAK_KINDS, NULL, 0, NULL, KVB_CPU_PORTABLE, NULL},
};

bool kvb_peak_here(const kvb_peak_kernel *kernel)
{
    char why[128];
    return kvb_cpu_has(kernel->level, why, sizeof why) && (!kernel->more || kernel->more());
}

static const char *const needs[KVB_PEAK_KINDS] = {
    [KVB_PEAK_F32] = "",
#if defined(__x86_64__)
    [KVB_PEAK_AMX_BF16] = "the CPU has no amx_bf16",
    [KVB_PEAK_AMX_INT8] = "the CPU has no amx_int8",
    [KVB_PEAK_F16] = "the CPU has no avx512_fp16",
    [KVB_PEAK_BF16] = "the CPU has no avx512_bf16",
    [KVB_PEAK_INT8] = "the CPU has neither avx512_vnni nor avx_vnni",
#else
    [KVB_PEAK_AMX_BF16] = "the CPU has no amx_bf16: it is no x86-64",
    [KVB_PEAK_AMX_INT8] = "the CPU has no amx_int8: it is no x86-64",
    [KVB_PEAK_F16] = "no loop of f16 is written for this architecture",
    [KVB_PEAK_BF16] = "the CPU has no bf16",
    [KVB_PEAK_INT8] = "the CPU has no asimddp",
#endif
};

const kvb_peak_kernel *kvb_peak_kernel_choose(kvb_peak_kind kind, char *why, size_t why_bytes)
{
    for (const kvb_peak_kernel *kernel = kvb_peak_kernels; kernel->instruction; kernel++)
        if (kernel->kind == kind && kvb_peak_here(kernel))
            return kernel;
    snprintf(why, why_bytes, "%s", needs[kind]);
    return NULL;
}

const char *const kvb_peak_names[KVB_PEAK_KINDS] = {"f32", "f16", "bf16", "int8", "amx_bf16", "amx_int8"};

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
