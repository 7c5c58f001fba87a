/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidth: the read and triad kernels on a team, sampled within a time budget. */
#include "harness/machine/bandwidth.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/rounds.h"
#include "kernels/attend.h"
#include "kernels/prefetch.h"
#include "workloads/array.h"

/*
 * Loads are nearly the only cost: one three-way OR takes two cache lines, the second of them as its memory operand.
 * Each thread reads two streams, the halves of its part: on 4 KiB pages the hardware prefetcher stops at each page
 * border, and then the other stream runs on (3 to 5 % from DRAM). Four streams gain no more and lose 3 % in L2.
 * Prefetching each line gains nothing at any distance, and costs issue slots in L1; the first lines of each next page
 * wake that prefetcher early, which gains 10 % on Zen 5 (kernels/NOTES.md).
 */

#define LINE 64u /* bytes of a cache line */

/* Independent sums, so that a compiler can use any vectors of its target. */
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

/*
 * STREAM's triad, one source for every ISA: the loop is inlined into functions of different targets and vectorised
 * there. Plain stores: no non-temporal ones, so that hardware moves 32 bytes where STREAM counts 24 (the store first
 * reads its line), as ordinary code does.
 */

static inline __attribute__((always_inline)) void triad(double *restrict a, const double *restrict b,
                                                        const double *restrict c, double s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + s * c[i];
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void triad_avx512(double *a, const double *b, const double *c, double s,
                                                            size_t n)
{
    triad(a, b, c, s, n);
}

__attribute__((target("avx2"))) static void triad_avx2(double *a, const double *b, const double *c, double s, size_t n)
{
    triad(a, b, c, s, n);
}
#endif

const kvb_memory_kernel kvb_memory_kernels[] = {
#if defined(__x86_64__)
    {"avx512", KVB_CPU_AVX512, read_avx512, triad_avx512},
    {"avx2", KVB_CPU_AVX2, read_avx2, triad_avx2},
#endif
    {"portable", KVB_CPU_PORTABLE, read_portable, triad},
    {NULL, KVB_CPU_PORTABLE, NULL, NULL},
};

static const kvb_memory_kernel *kernel_choose(void)
{
    const kvb_memory_kernel *kernel = kvb_memory_kernels;
    char why[64];
    while (!kvb_cpu_has(kernel->level, why, sizeof why))
        kernel++;
    return kernel;
}

/* Samples of a rate. */

#define SAMPLES_MIN 5u
#define SAMPLES_MAX 4096u
#define SAMPLE_NS   1e6 /* much longer than starting a team, shorter than a time slice */

void kvb_rate_of(double *samples, uint32_t n, kvb_rate *rate)
{
    kvb_doubles_sort(samples, n);
    rate->samples = n;
    rate->median = n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
    rate->low = samples[(n + 9) / 10 - 1];
    rate->high = samples[n - (n + 9) / 10];
}

typedef struct sampling {
    kvb_rate_work *work;
    void *ctx;
    uint32_t passes;
} sampling;

static double pass_take(void *ctx)
{
    const sampling *s = ctx;
    return s->work(s->ctx, s->passes) / s->passes;
}

int kvb_rate_sample(kvb_rate_work *work, void *ctx, double amount, double seconds, kvb_rate *rate)
{
    double *samples = malloc(SAMPLES_MAX * sizeof *samples);
    if (!samples)
        return -ENOMEM;
    const kvb_rounds rounds = {.least = SAMPLES_MIN, .most = SAMPLES_MAX, .seconds = seconds};
    sampling s = {work, ctx, 1};
    work(ctx, 1);
    while (work(ctx, s.passes) < SAMPLE_NS && s.passes < 1u << 24) /* also warms caches and clocks */
        s.passes *= 2;
    kvb_contestant probe = {.take = pass_take, .ctx = &s, .samples = samples, .limit = true};
    const uint32_t n = kvb_rounds_run(&rounds, &probe, 1);
    for (uint32_t i = 0; i < n; i++)
        samples[i] = amount / samples[i];
    if (n)
        kvb_rate_of(samples, n, rate);
    free(samples);
    return n ? 0 : -EINTR;
}

typedef struct job {
    const kvb_memory_kernel *kernel;
    bool triad;
    char *base;
    size_t part, share; /* bytes from one thread's part to the next; bytes used of each part */
    uint32_t passes;
    atomic_uint_fast64_t seen; /* sums of the data, so that reading is not optimised away */
} job;

/* Elements of each of a triad's three arrays. They lie one after the other, each a whole number of lines. */
static size_t triad_elements(size_t share)
{
    size_t elements = share / 3 / LINE * (LINE / sizeof(double));
    return elements ? elements : LINE / sizeof(double);
}

static void part_work(void *ctx, uint32_t i, uint32_t n)
{
    job *j = ctx;
    const size_t elements = triad_elements(j->share);
    uint64_t seen = 0;
    (void)n;
    for (uint32_t pass = 0; pass < j->passes; pass++) {
        char *base = j->base + i * j->part;
        double *a = (void *)base;
        __asm__ volatile("" : "+r"(base), "+r"(a) : : "memory"); /* each pass reads anew */
        if (j->triad)
            j->kernel->triad(a, a + elements, a + 2 * elements, 0.5, elements);
        else
            seen ^= j->kernel->read(base, j->share);
    }
    atomic_fetch_add_explicit(&j->seen, seen, memory_order_relaxed);
}

/* The part of `bytes` that each of n threads reads: whole lines, at least one, at most its part of the memory. */
static size_t share_of(const kvb_probe_memory *memory, size_t bytes, uint32_t n)
{
    size_t share = bytes / n / LINE * LINE, part = memory->bytes / n;
    if (share < LINE)
        share = LINE;
    return share < part ? share : part;
}

typedef struct probe {
    const kvb_team *team;
    const kvb_probe_memory *memory;
    size_t bytes;
    bool triad;
} probe;

static double probe_sample(void *ctx, uint32_t passes)
{
    const probe *p = ctx;
    job j = {.kernel = kernel_choose(),
             .triad = p->triad,
             .base = p->memory->base,
             .part = p->memory->bytes / p->team->n,
             .share = share_of(p->memory, p->bytes, p->team->n),
             .passes = passes};
    double start = kvb_now_ns();
    p->team->run(p->team, part_work, &j);
    return kvb_now_ns() - start;
}

double kvb_read_pass(const kvb_team *team, const kvb_probe_memory *memory, size_t bytes, uint32_t passes)
{
    return probe_sample(&(probe){team, memory, bytes, false}, passes);
}

const char *kvb_read_isa(void)
{
    return kernel_choose()->isa;
}

int kvb_memory_bandwidth(const kvb_team *team, const kvb_probe_memory *memory, size_t bytes, bool triad, double seconds,
                         kvb_rate *rate)
{
    const size_t share = share_of(memory, bytes, team->n);
    const double moved = triad ? 24.0 * (double)triad_elements(share) : (double)share;
    return kvb_rate_sample(probe_sample, &(probe){team, memory, bytes, triad}, moved * team->n, seconds, rate);
}

/* Memory for the probes: huge pages where the system grants them on advice, touched first by the thread that reads it.
 */

#define PAGE      4096u
#define HUGE_PAGE (2u << 20)
#define FILLING   0x2d /* written, because pages that are only read are all the same zero page, which is in L1 */

/* mmap aligns to small pages only. To align to huge pages, maps more and unmaps the rest before and after: close() knows
 * only the base. */
static char *aligned_map(size_t bytes)
{
    size_t room = bytes + HUGE_PAGE;
    char *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)at % HUGE_PAGE) % HUGE_PAGE, after = room - before - bytes;
    if (before)
        munmap(at, before);
    if (after)
        munmap(at + before + bytes, after);
    return at + before;
}

static void part_touch(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_probe_memory *memory = ctx;
    size_t part = memory->bytes / n;
    memset(memory->base + i * part, FILLING, part);
}

int kvb_probe_memory_open(const kvb_team *team, size_t bytes, kvb_probe_memory *memory)
{
    size_t unit = (size_t)team->n * PAGE, units = bytes / unit + (bytes % unit != 0);
    *memory = (kvb_probe_memory){0};
    if (!units)
        units = 1;
    if (units > (SIZE_MAX - HUGE_PAGE) / unit)
        return -ENOMEM;
    memory->bytes = units * unit;
    memory->base = aligned_map(memory->bytes);
    if (!memory->base)
        return -ENOMEM;
    madvise(memory->base, memory->bytes, MADV_HUGEPAGE); /* may fail: small pages will do */
    team->run(team, part_touch, memory);
    return 0;
}

void kvb_probe_memory_close(kvb_probe_memory *memory)
{
    if (memory->base)
        munmap(memory->base, memory->bytes);
    *memory = (kvb_probe_memory){0};
}
