/* SPDX-License-Identifier: Apache-2.0 */
/* The works, and what kernels are to reach. */
#include "harness/bench/bench.h"

/* Long enough that one copy passes any cache with f16 rows. */
#define LONG (128u << 10)

/* One entry: a kernel with a target, or shown only. */
#define FLASH(TARGET)      "flash", KVB_BENCH_WHOLE, TARGET
#define FLASH_INT8(TARGET) "flash-int8", KVB_BENCH_WHOLE, TARGET
#define FLASH_BF16(TARGET) "flash-bf16", KVB_BENCH_WHOLE, TARGET
#define FLASH_F16(TARGET)  "flash-f16", KVB_BENCH_WHOLE, TARGET
#define FLASH_BITS         "flash", KVB_BENCH_BITS, 0
#define FLASH_APART        "flash", KVB_BENCH_APART, 0
#define FLASH_ALONE        "flash", KVB_BENCH_ALONE, 0
#define FLASH_F16_APART    "flash-f16", KVB_BENCH_APART, 0
#define FLASH_PLAIN        "flash", KVB_BENCH_PLAIN, 0
/* Shown only, with and without. */
#define BESIDE_PLAIN                                                                                                   \
    {                                                                                                                  \
        {FLASH(0)},                                                                                                    \
        {                                                                                                              \
            FLASH_PLAIN                                                                                                \
        }                                                                                                              \
    }

#define DECODE(FORMAT, GROUP, CELLS, LIMIT)                                                                            \
    .name = "decode-" FORMAT "-g" #GROUP, .format = FORMAT, .group = GROUP, .cells = CELLS, .limit = LIMIT
#define CACHED(FORMAT)                                                                                                 \
    .name = "cached-" FORMAT "-g4", .format = FORMAT, .group = 4, .resident = true, .limit = KVB_BENCH_READ
#define THREADS(FORMAT) .name = "threads-decode", .format = FORMAT, .group = 4, .cells = LONG, .limit = KVB_BENCH_READ
#define VERIFY(NAME, FORMAT)                                                                                           \
    .name = NAME, .format = FORMAT, .shape = KVB_BENCH_VERIFY, .group = 4, .cells = (32 << 10) + 26,                   \
    .limit = KVB_BENCH_PEAK
#define BATCH(NAME, SHAPE)                                                                                             \
    .name = "batch-" NAME, .format = "f16", .shape = SHAPE, .group = 4, .cells = 16 * 2048, .limit = KVB_BENCH_READ
#define FORK(GROUP)                                                                                                    \
    .name = "fork-g" #GROUP, .format = "f16", .shape = KVB_BENCH_FORK, .group = GROUP, .cells = (32 << 10) + 8 * 64,   \
    .limit = KVB_BENCH_LONGER
#define PREFILL(NAME, FORMAT, SHAPE, CELLS)                                                                            \
    .name = NAME "-" FORMAT "-g4", .format = FORMAT, .shape = SHAPE, .group = 4, .cells = CELLS, .resident = true,     \
    .limit = KVB_BENCH_PEAK
/* Some of the cells of one long cache: what a token costs as the context grows. */
#define CONTEXT(KILO)                                                                                                  \
    .name = "context-" #KILO "k", .format = "f16", .group = 4, .cells = KILO << 10, .store = LONG, .resident = true,   \
    .limit = KVB_BENCH_READ

#define PAGED(PAGE)                                                                                                    \
    .name = "paged-" #PAGE, .format = "f16", .shape = KVB_BENCH_PAGED, .page = PAGE, .group = 4, .cells = 16 * 2048,   \
    .limit = KVB_BENCH_READ, .plain = ", in runs", .entry = BESIDE_PLAIN
/* MLA, absorbed: 128 query heads over one latent row. */
#define LATENT(FORMAT, PEAK)                                                                                           \
    .name = "latent-" FORMAT, .format = FORMAT, .latent = true, .group = 128, .cells = 16 << 10,                       \
    .limit = KVB_BENCH_PEAK, .peak = PEAK
#define WINDOW(NAME, SHAPE, CELLS, LIMIT)                                                                              \
    .name = "window-" NAME, .format = "f16", .shape = SHAPE, .group = 4, .cells = CELLS, .window = 1024,               \
    .window_sinks = 4, .resident = true, .limit = LIMIT, .plain = ", only what is seen", .entry = BESIDE_PLAIN
#define WITH(NAME, SHAPE, CELLS, LIMIT)                                                                                \
    .name = NAME, .format = "f16", .shape = SHAPE, .group = 4, .cells = CELLS, .resident = true, .limit = LIMIT,       \
    .plain = ", without", .entry = BESIDE_PLAIN
/* Small steps: what a call costs. */
#define CALL(FORMAT, KERNEL, NAME, SHAPE, CELLS)                                                                       \
    .name = "call-" FORMAT "-" NAME, .format = FORMAT, .shape = SHAPE, .group = 4, .cells = CELLS, .resident = true,   \
    .limit = KVB_BENCH_LONGER, .call = true, .entry = {{KERNEL, KVB_BENCH_WHOLE, 0}, {KERNEL, KVB_BENCH_ALONE, 0}}

/* Neighbours of one format and size share the rows. */
const kvb_bench_work kvb_bench_works[] = {
    {DECODE("f32", 1, LONG / 2, KVB_BENCH_READ), .entry = {{FLASH(0.90)}}},
    {DECODE("f16", 1, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.90)}, {FLASH_F16(0.90)}}},
    {DECODE("f16", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.90)}, {FLASH_F16(0.90)}}},
    {DECODE("f16", 8, LONG, KVB_BENCH_LONGER), .entry = {{FLASH(0.80)}, {FLASH_F16(0.80)}}},
    {DECODE("bf16", 1, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.90)}, {FLASH_BF16(0.90)}}},
    {DECODE("bf16", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.90)}, {FLASH_BF16(0.90)}}},
    {DECODE("bf16", 8, LONG, KVB_BENCH_LONGER), .entry = {{FLASH(0.80)}, {FLASH_BF16(0.80)}}},
    {DECODE("q8_0", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.75)}, {FLASH_INT8(0.75)}, {FLASH_F16(0.75)}}},
    {DECODE("a8g64", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.75)}, {FLASH_INT8(0.75)}, {FLASH_F16(0.75)}}},
    {DECODE("e4m3", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.75)}, {FLASH_BF16(0.75)}, {FLASH_F16(0.75)}}},
    {DECODE("q4_0", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.60)}, {FLASH_INT8(0.60)}}},
    {DECODE("a4g64", 4, LONG, KVB_BENCH_READ), .entry = {{FLASH(0.60)}, {FLASH_INT8(0.60)}}},
    {VERIFY("verify-f16-g4", "f16"), .entry = {{FLASH(0.75)}, {FLASH_F16(0.75)}}},
    {VERIFY("verify-int8-g4", "int8"), .entry = {{FLASH_INT8(1.3)}, {FLASH(0)}}},
    {VERIFY("verify-bf16-g4", "bf16"), .entry = {{FLASH_BF16(0)}, {FLASH(0)}}},
    {BATCH("in-runs", KVB_BENCH_BATCH), .entry = {{FLASH(0.85)}, {FLASH_BITS}, {FLASH_F16(0.85)}}},
    {BATCH("in-steps", KVB_BENCH_STEPS), .entry = {{FLASH(0.75)}, {FLASH_BITS}, {FLASH_F16(0.75)}}},
    {FORK(1), .entry = {{FLASH(0.75)}, {FLASH_APART}, {FLASH_F16(0.75)}, {FLASH_F16_APART}}, .gain = 5},
    {FORK(4), .entry = {{FLASH(0.75)}, {FLASH_APART}, {FLASH_F16(0.75)}, {FLASH_F16_APART}}, .gain = 2},
    {PREFILL("prefill", "f32", KVB_BENCH_PREFILL, 4096), .entry = {{FLASH(0.80)}}},
    {PREFILL("prefill", "f16", KVB_BENCH_PREFILL, 4096), .entry = {{FLASH(0.80)}, {FLASH_F16(0.80)}}},
    {PREFILL("prefill", "bf16", KVB_BENCH_PREFILL, 4096), .entry = {{FLASH_BF16(0)}, {FLASH(0)}}},
    {PREFILL("chunk", "f16", KVB_BENCH_CHUNK, 8192 + 512), .entry = {{FLASH(0)}}},
    {PAGED(16), .gain = 0.95},
    {PAGED(64), .gain = 0.95},
    {PAGED(256), .gain = 0.95},
    {WINDOW("decode", KVB_BENCH_BATCH, LONG, KVB_BENCH_READ), .gain = 0.90},
    {WINDOW("chunk", KVB_BENCH_CHUNK, 8192 + 512, KVB_BENCH_PEAK), .gain = 0.90},
    {WITH("sinks-decode", KVB_BENCH_DECODE, LONG, KVB_BENCH_READ), .sinks = true, .gain = 0.97},
    {WITH("softcap-decode", KVB_BENCH_DECODE, LONG, KVB_BENCH_READ), .softcap = 3, .gain = 0.97},
    {WITH("softcap-prefill", KVB_BENCH_PREFILL, 4096, KVB_BENCH_PEAK), .softcap = 3, .gain = 0.97},
    {WITH("out-f16-prefill", KVB_BENCH_PREFILL, 4096, KVB_BENCH_PEAK), .out = KVB_F16, .gain = 0.97},
    {LATENT("f16", KVB_PEAK_F32), .entry = {{FLASH(0.80)}, {FLASH_F16(0.80)}}},
    {LATENT("bf16", KVB_PEAK_BF16), .entry = {{FLASH_BF16(0.80)}, {FLASH(0)}}},
    {CALL("f16", "flash", "64", KVB_BENCH_DECODE, 64)},
    {CALL("f16", "flash", "256", KVB_BENCH_DECODE, 256)},
    {CALL("f16", "flash", "16x16", KVB_BENCH_BATCH, 16 * 16)},
    {CALL("f16", "flash", "16x64", KVB_BENCH_BATCH, 16 * 64)},
    {CALL("q8_0", "flash-int8", "64", KVB_BENCH_DECODE, 64)},
    {CALL("q8_0", "flash-int8", "256", KVB_BENCH_DECODE, 256)},
    {CALL("q8_0", "flash-int8", "16x16", KVB_BENCH_BATCH, 16 * 16)},
    {CALL("q8_0", "flash-int8", "16x64", KVB_BENCH_BATCH, 16 * 64)},
    {CALL("bf16", "flash-bf16", "64", KVB_BENCH_DECODE, 64)},
    {CALL("bf16", "flash-bf16", "256", KVB_BENCH_DECODE, 256)},
    {CALL("bf16", "flash-bf16", "16x16", KVB_BENCH_BATCH, 16 * 16)},
    {CALL("bf16", "flash-bf16", "16x64", KVB_BENCH_BATCH, 16 * 64)},
    {CACHED("f16"), .entry = {{FLASH(0.75)}, {FLASH_F16(0.75)}}},
    {CONTEXT(1), .entry = {{FLASH(0)}}},
    {CONTEXT(2), .entry = {{FLASH(0)}}},
    {CONTEXT(4), .entry = {{FLASH(0)}}},
    {CONTEXT(8), .entry = {{FLASH(0)}}},
    {CONTEXT(16), .entry = {{FLASH(0)}}},
    {CONTEXT(32), .entry = {{FLASH(0)}}},
    {CONTEXT(64), .entry = {{FLASH(0)}}},
    {CONTEXT(128), .entry = {{FLASH(0.90)}}},
    {THREADS("f16"), .entry = {{FLASH(0)}, {FLASH_ALONE}}, .gain = 1.9},
    {VERIFY("threads-verify", "f16"), .entry = {{FLASH(0)}, {FLASH_ALONE}}, .gain = 1.9},
    {.name = NULL},
};
