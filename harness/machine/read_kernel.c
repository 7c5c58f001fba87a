/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads whose reduction is free: one three-way OR takes two cache lines, the second of them as its memory operand.
 * Each thread reads two streams, the halves of its part: on 4 KiB pages the hardware prefetcher stops at each page
 * border, and then the other stream runs on (3 to 5 % from DRAM). Four streams gain no more and lose 3 % in L2.
 * Prefetching each line gains nothing at any distance, and costs issue slots in L1; the first lines of each next page
 * wake that prefetcher early, which gains 10 % on Zen 5 (kernels/NOTES.md).
 */
#include "harness/machine/read_kernel.h"

#include "kernels/prefetch.h"

/* Independent sums, so that a compiler may use whatever vectors its target has. */
static uint64_t read_portable(const char *p, size_t bytes)
{
    const uint64_t *words = (const void *)p;
    uint64_t seen[8] = {0};
    for (size_t i = 0; i < bytes / 8; i += 8)
        for (size_t k = 0; k < 8; k++)
            seen[k] |= words[i + k];
    return seen[0] | seen[1] | seen[2] | seen[3] | seen[4] | seen[5] | seen[6] | seen[7];
}

#if defined(__x86_64__)
#include <immintrin.h>

#define LINE  64u
#define BLOCK 512u /* bytes of one stream in one turn of the loop */

/* The rest of a stream that the loops below leave: whole lines, fewer than two blocks. */
static uint64_t lines_read(const char *p, size_t bytes)
{
    const uint64_t *words = (const void *)p;
    uint64_t seen = 0;
    for (size_t i = 0; i < bytes / 8; i++)
        seen |= words[i];
    return seen;
}

#define OR3 0xfe /* truth table of a | b | c */

__attribute__((target("avx512f"))) static inline __m512i or_lines_512(__m512i seen, const char *p)
{
    return _mm512_ternarylogic_epi64(seen, _mm512_load_si512(p), _mm512_load_si512(p + LINE), OR3);
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const char *p, size_t bytes)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    size_t half = bytes / 2 / BLOCK * BLOCK;
    const char *q = p + half;
    for (size_t at = 0; at < half; at += BLOCK) {
        kvb_page_wake((uintptr_t)p + at, BLOCK);
        kvb_page_wake((uintptr_t)q + at, BLOCK);
        a = or_lines_512(a, p + at);
        b = or_lines_512(b, p + at + 2 * LINE);
        c = or_lines_512(c, p + at + 4 * LINE);
        d = or_lines_512(d, p + at + 6 * LINE);
        a = or_lines_512(a, q + at);
        b = or_lines_512(b, q + at + 2 * LINE);
        c = or_lines_512(c, q + at + 4 * LINE);
        d = or_lines_512(d, q + at + 6 * LINE);
    }
    __m512i all = _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d));
    return (uint64_t)_mm512_reduce_or_epi64(all) | lines_read(p + 2 * half, bytes - 2 * half);
}

__attribute__((target("avx2"))) static inline __m256i or_line_256(__m256i seen, const char *p)
{
    return _mm256_or_si256(seen, _mm256_load_si256((const void *)p));
}

/* Four lines of one stream: eight loads into eight sums. */
__attribute__((target("avx2"))) static inline void or_block_256(__m256i seen[8], const char *p)
{
    seen[0] = or_line_256(seen[0], p);
    seen[1] = or_line_256(seen[1], p + 32);
    seen[2] = or_line_256(seen[2], p + 64);
    seen[3] = or_line_256(seen[3], p + 96);
    seen[4] = or_line_256(seen[4], p + 128);
    seen[5] = or_line_256(seen[5], p + 160);
    seen[6] = or_line_256(seen[6], p + 192);
    seen[7] = or_line_256(seen[7], p + 224);
}

__attribute__((target("avx2"))) static uint64_t read_avx2(const char *p, size_t bytes)
{
    __m256i seen[8];
    size_t half = bytes / 2 / BLOCK * BLOCK;
    const char *q = p + half;
    for (int k = 0; k < 8; k++)
        seen[k] = _mm256_setzero_si256();
    for (size_t at = 0; at < half; at += BLOCK) {
        kvb_page_wake((uintptr_t)p + at, BLOCK);
        kvb_page_wake((uintptr_t)q + at, BLOCK);
        or_block_256(seen, p + at);
        or_block_256(seen, p + at + BLOCK / 2);
        or_block_256(seen, q + at);
        or_block_256(seen, q + at + BLOCK / 2);
    }
    uint64_t words[4], all = lines_read(p + 2 * half, bytes - 2 * half);
    for (int k = 0; k < 8; k++) {
        _mm256_storeu_si256((void *)words, seen[k]);
        all |= words[0] | words[1] | words[2] | words[3];
    }
    return all;
}
#endif

const kvb_read_kernel kvb_read_kernels[] = {
#if defined(__x86_64__)
    {"avx512", KVB_CPU_AVX512, read_avx512},
    {"avx2", KVB_CPU_AVX2, read_avx2},
#endif
    {"portable", KVB_CPU_PORTABLE, read_portable},
    {NULL, KVB_CPU_PORTABLE, NULL},
};

const kvb_read_kernel *kvb_read_kernel_choose(void)
{
    const kvb_read_kernel *kernel = kvb_read_kernels;
    char why[64];
    while (!kvb_cpu_has(kernel->level, why, sizeof why))
        kernel++;
    return kernel;
}
