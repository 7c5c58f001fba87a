/* SPDX-License-Identifier: Apache-2.0 */
/* The works, and what kernels are to reach. */
#include "ci/bench/bench.h"

/* flash with a target; flash-int8 shown beside it. */
#define FLASH(TARGET)                                                                                                  \
    {                                                                                                                  \
        "flash", BENCH_WHOLE, TARGET                                                                                   \
    }
#define INT8                                                                                                           \
    {                                                                                                                  \
        "flash-int8", BENCH_WHOLE, 0                                                                                   \
    }

/* Long enough that one copy passes any cache with f16 rows. */
#define LONG (128u << 10)

#define DECODE(FORMAT, GROUP, CELLS, LIMIT, ...)                                                                       \
    {                                                                                                                  \
        .name = "decode-" FORMAT "-g" #GROUP, .format = FORMAT, .group = GROUP, .cells = CELLS, .limit = LIMIT,        \
        .entry = {                                                                                                     \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
/* Some of the cells of one long cache: what a token costs as the context grows. */
#define CONTEXT(NAME, CELLS, TARGET)                                                                                   \
    {                                                                                                                  \
        .name = "context-" NAME, .format = "f16", .group = 4, .cells = CELLS, .store = LONG, .resident = true,         \
        .limit = BENCH_READ, .entry = {                                                                                \
            FLASH(TARGET)                                                                                              \
        }                                                                                                              \
    }
#define BATCH(NAME, SHAPE)                                                                                             \
    {                                                                                                                  \
        .name = "batch-" NAME, .format = "f16", .shape = SHAPE, .group = 4, .cells = 32 << 10, .limit = BENCH_READ,    \
        .entry = {                                                                                                     \
            FLASH(0.85),                                                                                               \
            {"flash", BENCH_BITS, 0}                                                                                   \
        }                                                                                                              \
    }
#define FORK(GROUP, GAIN)                                                                                              \
    {                                                                                                                  \
        .name = "fork-g" #GROUP, .format = "f16", .shape = BENCH_FORK, .group = GROUP, .cells = (32 << 10) + 8 * 64,   \
        .limit = BENCH_LONGER, .entry = {FLASH(0.75), {"flash", BENCH_APART, 0}}, .gain = GAIN                         \
    }
#define VERIFY(NAME, FORMAT, ...)                                                                                      \
    .name = NAME, .format = FORMAT, .shape = BENCH_VERIFY, .group = 4, .cells = (32 << 10) + 26, .limit = BENCH_PEAK,  \
    .entry = {__VA_ARGS__}
#define PREFILL(NAME, FORMAT, SHAPE, CELLS, TARGET)                                                                    \
    {                                                                                                                  \
        .name = NAME, .format = FORMAT, .shape = SHAPE, .group = 4, .cells = CELLS, .resident = true,                  \
        .limit = BENCH_PEAK, .entry = {                                                                                \
            FLASH(TARGET)                                                                                              \
        }                                                                                                              \
    }

/* Neighbours of one format and store share the rows. */
const bench_work bench_works[] = {
    DECODE("f32", 1, LONG / 2, BENCH_READ, FLASH(0.95)),
    DECODE("f16", 1, LONG, BENCH_READ, FLASH(0.95)),
    DECODE("f16", 4, LONG, BENCH_READ, FLASH(0.90)),
    DECODE("f16", 8, LONG, BENCH_LONGER, FLASH(0.80)),
    DECODE("bf16", 1, LONG, BENCH_READ, FLASH(0.95)),
    DECODE("bf16", 4, LONG, BENCH_READ, FLASH(0.90)),
    DECODE("bf16", 8, LONG, BENCH_LONGER, FLASH(0.80)),
    DECODE("q8_0", 4, LONG, BENCH_READ, FLASH(0.75), INT8),
    DECODE("a8g64", 4, LONG, BENCH_READ, FLASH(0.75), INT8),
    DECODE("e4m3", 4, LONG, BENCH_READ, FLASH(0.75)),
    DECODE("q4_0", 4, LONG, BENCH_READ, FLASH(0.55), INT8),
    DECODE("a4g64", 4, LONG, BENCH_READ, FLASH(0.55), INT8),
    {VERIFY("verify-f16-g4", "f16", FLASH(0.70))},
    {VERIFY("verify-int8-g4", "int8", {"flash-int8", BENCH_WHOLE, 1.3}, FLASH(0))},
    BATCH("in-runs", BENCH_BATCH),
    BATCH("in-steps", BENCH_STEPS),
    FORK(1, 5.0),
    FORK(4, 2.0),
    PREFILL("prefill-f32-g4", "f32", BENCH_PREFILL, 4096, 0.75),
    PREFILL("prefill-f16-g4", "f16", BENCH_PREFILL, 4096, 0.75),
    PREFILL("chunk-f16-g4", "f16", BENCH_CHUNK, 8192 + 512, 0),
    {.name = "cached-f16-g4",
     .format = "f16",
     .group = 4,
     .resident = true,
     .limit = BENCH_READ,
     .entry = {FLASH(0.75)}},
    CONTEXT("1k", 1 << 10, 0),
    CONTEXT("2k", 2 << 10, 0),
    CONTEXT("4k", 4 << 10, 0),
    CONTEXT("8k", 8 << 10, 0),
    CONTEXT("16k", 16 << 10, 0),
    CONTEXT("32k", 32 << 10, 0),
    CONTEXT("64k", 64 << 10, 0),
    CONTEXT("128k", LONG, 0.90),
    {.name = "threads-decode",
     .format = "f16",
     .group = 4,
     .cells = LONG,
     .limit = BENCH_READ,
     .entry = {FLASH(0), {"flash", BENCH_ALONE, 0}},
     .gain = 1.9},
    {VERIFY("threads-verify", "f16", FLASH(0), {"flash", BENCH_ALONE, 0}), .gain = 1.9},
    {.name = NULL},
};
