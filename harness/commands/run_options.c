/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `kvbench run`. */
#include "harness/commands/run_options.h"

#include "harness/machine/host.h"

static const kvb_option options[] = {
    KVB_OPTIONS_OF("what to run"),
    {"--suite", "NAME", "quick, default, full or calls (see `kvbench list suites`); default: default",
     KVB_TEXT(run, suite_name)},
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
    {"--model", "MODEL",
     "every workload over one layer of each kind of this model: a name of `kvbench size --list`, or a config.json",
     KVB_TEXT(run, model_name)},
    {"--call", "AXIS=VALUE,...", "with --suite calls: this call alone; axes that are not named have their first value",
     KVB_TEXT(run, call)},
    {"--plugin", "F.so", "load more kernels, caches and pools; repeatable", KVB_WORDS(run, plugins)},
    {"--workloads", "FOLDER", "where the workloads are", KVB_TEXT(run, knobs.workloads)},
    {"--product", NULL, "every combination: usual of full, and where parts are named but no --suite",
     KVB_FLAG(run, product)},
    KVB_OPTIONS_OF("how to judge"),
    {"--check", NULL, "judge, do not time: one pass of each combination, several at once", KVB_FLAG(run, check)},
    {"--deterministic", NULL,
     "kernels must give the same bits whatever the number of threads: calls are made again by other teams",
     KVB_FLAG(run, knobs.deterministic)},
    {"--strict", NULL,
     "what a foreign kernel's own project tolerates fails too where it is beyond the bound of its formats",
     KVB_FLAG(run, knobs.strict)},
    {"--seed", "N", "of the oracle's sample and of generated values; default: what the trace says",
     KVB_NUMBER(run, knobs.seed, 0, UINT64_MAX)},
    {"--only", "line=N,layer=N", "with --check: make and judge only these calls (event=N: counted from 0)",
     KVB_TEXT(run, debug.only_text)},
    {"--dump", "DIR", "with --check: the first failing call as safetensors, with a script that shows it",
     KVB_TEXT(run, debug.dump)},
    KVB_OPTIONS_OF("how to measure"),
    {"--count", NULL, "as --check, and count the steps' instructions, reads, writes and misses, exactly (valgrind)",
     KVB_FLAG(run, counts)},
    {"--cpu-mask", "LEVEL", KVB_CPU_MASK_HELP, KVB_TEXT(run, cpu_mask)},
    {"--tuning", "F.json", "what `kvbench tune -o` wrote; default: this machine's file (kvbench tune --help)",
     KVB_TEXT(run, knobs.tuning)},
    {"--no-tuning", NULL, "the settings that are built in, whatever was tuned", KVB_FLAG(run, knobs.no_tuning)},
    KVB_OPTIONS_OF("output"),
    {"-o", "F.jsonl", "write result records (" KVB_RESULT_SCHEMA ")", KVB_TEXT(run, output)},
    {"--format", "FORMAT", "table or md: a summary; csv: every combination, as soon as it is final; json: every one",
     KVB_TEXT(run, format_name)},
    {"--all", NULL, "with table or md: every combination too, and why each skipped one was", KVB_FLAG(run, all)},
    KVB_OPTIONS_OF("CI"),
    {"--junit", "F.xml", "write JUnit XML too; other formats: `kvbench show F.jsonl --format NAME`",
     KVB_TEXT(run, junit_path)},
    {"--jobs", "N", "with --check: so many combinations at once; default: one for each core",
     KVB_NUMBER(run, jobs, 1, 1024)},
    {"--timeout", "SECONDS", "for one combination; default 120. A kernel that hangs in three is skipped in the others",
     KVB_NUMBER(run, knobs.timeout, 1, 86400)},
    {"--resume", NULL, "keep what an earlier run of this command wrote to -o before it was killed; run the rest",
     KVB_FLAG(run, resume)},
    {"--shard", "I/N", "only every N-th combination, from the I-th on: `kvbench merge` joins the files of all N",
     KVB_TEXT(run, shard_text)},
    {"--require-judged", NULL, "exit 1 where over some pool nothing but a witness passed: no output was judged there",
     KVB_FLAG(run, require_judged)},
    KVB_OPTIONS_OF("other"),
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
        "  kvbench run --workload plain-decode-8x128 --pool k=a8g64,v=a4g64+had --pool 'q*_0' --set growth='*'\n"
        "  kvbench run --workload my.jsonl --pool k=f16,v=f32 --plugin ./my-kernel.so --kernel 'my-*'",
    .options = options,
    .knobs = kvb_knobs_table,
    .knobs_at = offsetof(run, knobs),
};
