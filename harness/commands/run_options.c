/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `kvbench run`. */
#include "harness/commands/run_options.h"

#include "harness/cpu_mask.h"

static const kvb_option options[] = {
    {"--suite", "NAME", "quick, default, full or calls (see `kvbench list suites`); default: default",
     KVB_TEXT(run, suite_name)},
    {"--pairs", NULL,
     "judge few combinations, in which any two of workload, cache, pool and kernel meet; time none: usual of quick, "
     "default",
     KVB_FLAG(run, pairs)},
    {"--product", NULL, "every combination: usual of full, and where parts are named but no --suite",
     KVB_FLAG(run, product)},
    {"--check", NULL, "judge, do not time: one pass of each combination, several at once", KVB_FLAG(run, check)},
    {"--require-judged", NULL, "exit 1 where over some pool nothing but a witness passed: no output was judged there",
     KVB_FLAG(run, require_judged)},
    {"--count", NULL, "as --check, and count the steps' instructions, reads, writes and misses, exactly (valgrind)",
     KVB_FLAG(run, counts)},
    {"--jobs", "N", "with --check: so many combinations at once; default: one for each core",
     KVB_NUMBER(run, jobs, 1, 1024)},
    {"--workload", "GLOB|FILE", "only these workloads, or a trace file; repeatable", KVB_WORDS(run, words.workloads)},
    {"--cache", "GLOB", "only these caches; repeatable", KVB_WORDS(run, words.caches)},
    {"--pool", "GLOB|k=K,v=V",
     "only these pools for K and V, or K and V apart; NAME+had: behind a Hadamard transform; repeatable",
     KVB_WORDS(run, words.pools)},
    {"--kernel", "GLOB|best",
     "only these kernels; 'best': for each combination the fastest one of an earlier run; repeatable",
     KVB_WORDS(run, words.kernels)},
    {"--best-from", "F.jsonl", "the result file that --kernel best goes by", KVB_TEXT(run, best_path)},
    {"--threads", "N[-M][,N...]", "thread counts, one thread bound to each core; all: every core; default 1",
     KVB_WORDS(run, words.threads)},
    {"--values", "PROFILE", "replay these value profiles instead ('own': what the trace says); repeatable",
     KVB_WORDS(run, words.values)},
    {"--growth", "GLOB", "how pools grow: double, double+thp, reserve, reserve+thp, exact; default double; repeatable",
     KVB_WORDS(run, words.growths)},
    {"--calls", "N", "single calls that are chosen for each kernel; default: the suite's",
     KVB_NUMBER(run, n_calls, 1, 1000000)},
    {"--random", "N", "so many random calls of each kernel beyond these, by --seed",
     KVB_NUMBER(run, random, 1, 1000000000)},
    {"--call", "AXIS=VALUE,...", "with --suite calls: this call alone; axes that are not named have their first value",
     KVB_TEXT(run, call)},
    {"--require-axes", "AXIS[=VALUE]", "exit 1 where no call of a kernel had it (kvbench list axes); repeatable",
     KVB_WORDS(run, require_axes)},
    {"--no-staging", NULL, "no rows decoded to f32 for kernels that do not read their format: such are skipped",
     KVB_FLAG(run, no_staging)},
    {"--tuning", "F.json",
     "how memory is read: what `kvbench tune -o` wrote; default: this machine's file (kvbench tune --help)",
     KVB_TEXT(run, tuning.path)},
    {"--no-tuning", NULL, "the settings that are built in, whatever was tuned", KVB_FLAG(run, tuning.none)},
    {"--deterministic", NULL,
     "kernels must give the same bits whatever the number of threads: calls are made again by other teams",
     KVB_FLAG(run, deterministic)},
    {"--out", "ELEM", "outputs in f32, f16 or bf16; default f32", KVB_TEXT(run, out_name)},
    {"--softcap", "X", "cap logits at X in every workload: X tanh(logit / X)", KVB_TEXT(run, softcap_text)},
    {"--scale", "X", "scale q.k by X in every workload; default: what the workload says, mostly 1/sqrt(head dim)",
     KVB_TEXT(run, scale_text)},
    {"--sinks", NULL, "one sink logit for each query head in every workload, N(0,1) by --seed", KVB_FLAG(run, sinks)},
    {"--cpu-mask", "LEVEL", KVB_CPU_MASK_HELP, KVB_TEXT(run, cpu_mask)},
    {"--plugin", "F.so", "load more kernels, caches and pools; repeatable", KVB_WORDS(run, plugins)},
    {"--workloads", "FOLDER", "where the workloads are", KVB_TEXT(run, folder)},
    {"-o", "F.jsonl", "write result records (" KVB_RESULT_SCHEMA ")", KVB_TEXT(run, output)},
    {"--junit", "F.xml", "write JUnit XML too, for CI; other formats: `kvbench show F.jsonl --format NAME`",
     KVB_TEXT(run, junit_path)},
    {"--resume", NULL, "keep what an earlier run of this command wrote to -o before it was killed; run the rest",
     KVB_FLAG(run, resume)},
    {"--shard", "I/N", "only every N-th combination, from the I-th on: `kvbench merge` joins the files of all N",
     KVB_TEXT(run, shard_text)},
    {"--format", "FORMAT", "table or md: a summary; csv: every combination, as soon as it is final; json: every one",
     KVB_TEXT(run, format_name)},
    {"--all", NULL, "with table or md: every combination too, and why each skipped one was", KVB_FLAG(run, all)},
    {"--capacity", "CELLS", "hard bound of each cache; default: what the workload needs",
     KVB_NUMBER(run, capacity, 1, KVB_TRACE_MAX_CELLS)},
    {"--page-cells", "CELLS", "cells of a page in caches of pages (paged), 1 .. 256; default 16",
     KVB_NUMBER(run, page_cells, 1, KVB_MAX_PAGE)},
    {"--prefix-bytes", "BYTES", "most that cache paged-prefix keeps of prompts that nobody holds; default what is free",
     KVB_NUMBER(run, prefix_bytes, 0, INT64_MAX)},
    {"--hash-bits", "N",
     "bits of hashes of prompts that count in caches that find prompts, so that some collide; default all",
     KVB_NUMBER(run, hash_bits, 1, 64)},
    {"--min-chunk", "CELLS", "first growth of a pool; default 256", KVB_NUMBER(run, min_chunk, 1, KVB_TRACE_MAX_CELLS)},
    {"--max-pairs", "N", "skip where one step attends more (query, cell) pairs; default 64M",
     KVB_NUMBER(run, max_pairs, 1, UINT64_MAX)},
    {"--oracle-pairs", "N", "(query, head, cell) visits of the oracle; a larger workload is sampled",
     KVB_NUMBER(run, oracle_pairs, 1, UINT64_MAX)},
    {"--opinion-pairs", "N",
     "such visits of second opinions on the rows that the sample leaves out; what is beyond is only scanned for NaN "
     "and "
     "infinity; default 16M",
     KVB_NUMBER(run, opinion_pairs, 1, UINT64_MAX)},
    {"--exhaustive", NULL, "every row is checked in full, whatever it costs", KVB_FLAG(run, exhaustive)},
    {"--strict", NULL,
     "what a foreign kernel's own project tolerates fails too where it is beyond the bound of its formats",
     KVB_FLAG(run, strict)},
    {"--no-witness", NULL, "no witness beside the kernels: which tokens each query saw is not looked at",
     KVB_FLAG(run, no_witness)},
    {"--seed", "N", "of the oracle's sample and of generated values; default: what the trace says",
     KVB_NUMBER(run, seed, 0, UINT64_MAX)},
    {"--timeout", "SECONDS", "for one combination; default 120. A kernel that hangs in three is skipped in the others",
     KVB_NUMBER(run, seconds, 1, 86400)},
    {"--sample-ms", "MS", "for the passes of one combination, at least one; default: the suite's",
     KVB_NUMBER(run, sample_ms, 1, 3600000)},
    {"--width", "PERCENT", "of the median's interval, at which passes end early; default 2",
     KVB_NUMBER(run, width, 1, 100)},
    {"--cache-state", "STATE", "natural (all layers in turn), hot or cold; default natural", KVB_TEXT(run, state_name)},
    {"--machine", NULL, "measure the machine for the manifest even where the run is small", KVB_FLAG(run, machine)},
    {"--no-machine", NULL, "do not measure it even where the run is large: seconds less, where rates do not matter",
     KVB_FLAG(run, no_machine)},
    {"--events", "NAME", "PAPI event to count in place of the default ones; repeatable", KVB_WORDS(run, events)},
    {"--counters", NULL, "show what was counted: after the rows; in csv and json as columns", KVB_FLAG(run, counters)},
    {"--only", "line=N,layer=N", "with --check: make and judge only these calls (event=N: counted from 0)",
     KVB_TEXT(run, debug.only_text)},
    {"--dump", "DIR", "with --check: the first failing call as safetensors, with a script that shows it",
     KVB_TEXT(run, debug.dump)},
    {"--gdb", NULL, "with --only: only say how gdb stops at these calls", KVB_FLAG(run, debug.gdb)},
    {"--timeline", "F.csv", "memory after each event of each combination", KVB_TEXT(run, timeline_path)},
    {"--oversubscribe", NULL, "allow more threads than cores, unbound", KVB_FLAG(run, oversubscribe)},
    {"--first-touch", NULL, "team threads touch memory in equal parts; default where there are several NUMA nodes",
     KVB_FLAG(run, first_touch)},
    {"--no-null", NULL, "no second process for the null comparison: faster, where times do not matter",
     KVB_FLAG(run, no_null)},
    {"--no-guard", NULL, "no guard pages around what a kernel is handed", KVB_FLAG(run, unguarded)},
    {"--openblas-core", "NAME", "OPENBLAS_CORETYPE to use; 'keep': what OpenBLAS chooses",
     KVB_TEXT(run, openblas_core)},
    KVB_OPTIONS_END,
};

const kvb_usage kvb_run_usage = {
    .command = "run",
    .synopsis = "[options]",
    .about =
        "Replay workloads through every combination of cache, pool and kernel, each in a child process;\n"
        "check every query against the double-precision oracle; measure; record.\n"
        "rho is the largest error divided by the bound derived from the kernel's declared arithmetic:\n"
        "above 1 fails. Suites quick and default run enough combinations for any two of history, shape, cache, pool\n"
        "and kernel to meet (eagle-tree-8x128 is the history of eagle-tree at another shape); where you name some of\n"
        "these without --suite, and in suite full, all are run, and those that cannot be are skipped, with the "
        "reason.\n"
        "Records go to F.jsonl.tmp, each as soon as it is final, and become F.jsonl at the end. What a killed\n"
        "or stopped run left there the same command keeps with --resume (failures too), and begins anew without.\n\n"
        "  kvbench run --suite quick -o quick.jsonl\n"
        "  kvbench run --suite quick --check\n"
        "  kvbench run --workload eagle-tree --cache tree --kernel openblas --threads 1,2\n"
        "  kvbench run --suite quick --kernel best --best-from all.jsonl\n"
        "  kvbench run --workload plain-decode-8x128 --pool k=a8g64,v=a4g64+had --pool 'q*_0' --growth '*'\n"
        "  kvbench run --workload my.jsonl --pool k=f16,v=f32 --plugin ./my-kernel.so --kernel 'my-*'",
    .options = options,
};
