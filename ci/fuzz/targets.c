/* SPDX-License-Identifier: Apache-2.0 */
/* The table of targets. In a line % is the input's file, @ the folder of the files beside it, # a folder for output. */
#include "ci/fuzz/fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES(...)                                                                                                     \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

const kvb_fuzz_target kvb_fuzz_targets[] = {
    {"trace", kvb_fuzz_files, "in.jsonl", LINES("show %", "show % --format json", "judge %"), 1},
    {"safetensors", kvb_fuzz_files, "in.safetensors",
     LINES("tensors %", "arrays %", "weights % @/live.json",
           "size Llama-3.1-8B --context 1k --engine ideal --weights %"),
     0},
    {"npy", kvb_fuzz_files, "in.npy", LINES("arrays %"), 0},
    {"npz", kvb_fuzz_files, "in.npz", LINES("arrays %"), 0},
    {"judge", kvb_fuzz_files, "in.safetensors",
     LINES("judge % --say arithmetic=f32", "judge % --say layout=pages -o #/judged.jsonl",
           "judge % --say recurrence=mamba1 --say layout=bds --say scale=1 --say arithmetic=chunk64-f16"),
     0},
    {"safetensors-index", kvb_fuzz_files, "in.safetensors.index.json",
     LINES("size Llama-3.1-8B --context 1k --engine ideal --weights %"), 1},
    {"gguf", kvb_fuzz_files, "in.gguf",
     LINES("size Llama-3.1-8B --context 1k --engine ideal --weights %", "size % --context 1k --explain"), 0},
    {"engine-log", kvb_fuzz_files, "in.log", LINES("size Llama-3.1-8B --log %", "size Qwen3.5-9B --log % --format csv"),
     0},
    {"config", kvb_fuzz_files, "config.json",
     LINES("size % --context 4k --explain",
           "size % --format html --context 1k --budget 80GiB --margin 5% --engine ideal,llama.cpp,vllm",
           "size % --format json --kv q8_0:a4g64,fp8_ds_mla --sequences 3 --tp 2 --pp 3 --spec-depth 2 --mtp"),
     1},
    {"live-config", kvb_fuzz_files, "in.json", LINES("live %"), 1},
    {"result", kvb_fuzz_files, "in.jsonl",
     LINES("show % --all --counters", "show % --format md", "show % --format csv --counters", "show % --format json",
           "show % --format junit", "show % --format benchmark", "compare % @/result.jsonl --across-machines --all",
           "compare @/result.jsonl % --format json", "compare --history @/result.jsonl % @/later.jsonl"),
     1},
    {"shard", kvb_fuzz_files, "in.jsonl", LINES("merge % @/shard.jsonl -o #/merged.jsonl", "show %"), 1},
    {"thresholds", kvb_fuzz_files, "in.json",
     LINES("compare @/result.jsonl @/later.jsonl --subset --thresholds %",
           "compare --history @/result.jsonl @/later.jsonl --thresholds %"),
     1},
    {"tuning", kvb_fuzz_files, "in.json", LINES("list kernels --tuning %"), 1},
    {"mooncake", kvb_fuzz_files, "in.jsonl", LINES("record --import mooncake:% -o # --name a"), 1},
    {"azure", kvb_fuzz_files, "in.csv", LINES("record --import azure:% -o # --name a --shrink 3 --sequences 3"), 0},
    {"size", kvb_fuzz_words, NULL, LINES("size"), 0},
    {"verbs", kvb_fuzz_verbs, NULL, NULL, 0},
    {"saved", kvb_fuzz_saved, NULL, NULL, 0},
    {0},
};

const kvb_fuzz_target *kvb_fuzz_find(const char *name)
{
    for (const kvb_fuzz_target *target = kvb_fuzz_targets; target->name; target++)
        if (!strcmp(target->name, name))
            return target;
    return NULL;
}

void kvb_fuzz_wrong(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    dprintf(2, "wrong: %s\n", text);
    abort();
}
