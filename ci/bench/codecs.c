/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What storing and reading a row costs: for every format and instruction set, nanoseconds for a row of 128 channels
 * and the rate in bytes of f32. `codecs [WORD]`: only formats whose name has that word.
 *
 * A sample codes all rows of a block that fits the second-level cache. The instruction sets take turns, sample by sample,
 * so that drift of the machine falls on all alike; the medians are printed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "caches/pools/rows.h"
#include "harness/bench/cycles.h"
#include "results/statistics.h"

enum { DIM = 128, ROWS = 256, SAMPLES = 61, ISAS = 4, ENCODE = 0, DECODE, WAYS };

static _Alignas(64) float rows[ROWS * DIM], turned[ROWS * DIM], decoded[ROWS * DIM];
static _Alignas(64) char codes[ROWS * DIM * 4], scales[ROWS * DIM * 2], zeros[ROWS * DIM * 2];

/* As a pool does: transform and encode row by row, or window by window; where each has its scales matters to no one. */
static void all_encode(const kvb_codec_isa *isa, const kvb_format *f, kvb_rule rule)
{
    uint32_t n = rule == KVB_RULE_CHANNELS ? f->residual_cells : 1;
    size_t row_bytes = kvb_codes_bytes(f, DIM);
    for (uint32_t r = 0; r + n <= ROWS; r += n) {
        const float *from = rows + r * DIM;
        if (f->transform)
            for (uint32_t i = 0; i < n; i++) {
                memcpy(turned + (r + i) * DIM, from + i * DIM, DIM * sizeof *from);
                isa->rotate(f->transform, DIM, false, turned + (r + i) * DIM);
            }
        isa->encode[rule](f, f->transform ? turned + r * DIM : from, n < 64 ? (1ull << n) - 1 : ~0ull, DIM, 1.0f,
                          codes + r * row_bytes, scales, zeros);
    }
}

static void all_decode(const kvb_codec_isa *isa, const kvb_format *f)
{
    kvb_decode *decode = isa->decode[kvb_decode_rule(f)];
    size_t row_bytes = kvb_codes_bytes(f, DIM);
    for (uint32_t r = 0; r < ROWS; r++) {
        decode(f, codes + r * row_bytes, scales, zeros, DIM, 1.0f, decoded + r * DIM);
        if (f->transform)
            isa->rotate(f->transform, DIM, true, decoded + r * DIM);
    }
}

static void format_print(const kvb_pool_type *type, const kvb_codec_isa *const isas[], uint32_t n)
{
    static double ns[WAYS][ISAS][SAMPLES];
    const kvb_format *f = type->format;
    kvb_rule rule = kvb_pool_kind_of(type)->rule;

    for (int s = -1; s < SAMPLES; s++) /* the first is warm-up, and makes what is decoded */
        for (uint32_t i = 0; i < n; i++) {
            double start = now_ns();
            all_encode(isas[i], f, rule);
            double between = now_ns();
            all_decode(isas[i], f);
            if (s >= 0) {
                ns[ENCODE][i][s] = (between - start) / ROWS;
                ns[DECODE][i][s] = (now_ns() - between) / ROWS;
            }
        }
    for (int way = 0; way < WAYS; way++) {
        double first = 0;
        printf("%-16s %s", f->name, way == ENCODE ? "encode" : "decode");
        for (uint32_t i = 0; i < n; i++) {
            double median = kvb_quantile(ns[way][i], SAMPLES, 0.5);
            first = i ? first : median;
            printf("  %7.1f ns %6.2f GB/s %5.1fx", median, DIM * sizeof(float) / median, first / median);
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    const kvb_codec_isa *isas[ISAS];
    const char *word = argc > 1 ? argv[1] : "";
    uint32_t n = 0;

    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa && n < ISAS; isa++)
        if ((*isa)->available())
            isas[n++] = *isa;
    for (uint32_t i = 0, x = 1; i < ROWS * DIM; i++) { /* roughly normal: four uniform numbers */
        float sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (float)((x = x * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f;
        rows[i] = sum * 1.7f;
    }
    printf("a row of %d channels       ", DIM);
    for (uint32_t i = 0; i < n; i++)
        printf("%-28s", isas[i]->name);
    printf("\n");
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++)
        for (const kvb_pool_type *form = *type; form; form = form->rotated)
            if (strstr(form->name, word))
                format_print(form, isas, n);
    return 0;
}
