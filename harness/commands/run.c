/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/commands/run.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/bench/bench.h"
#include "harness/calls/attend_axes.h"
#include "harness/command_line.h"
#include "harness/counters/counters.h"
#include "harness/program.h"
#include "harness/machine/host.h"
#include "harness/machine/profile.h"
#include "harness/machine/team.h"
#include "harness/matrix/matrix.h"
#include "harness/replay/pass.h"
#include "harness/replay/meter.h"
#include "harness/replay/replay.h"
#include "harness/selection/kernel_support.h"
#include "harness/selection/pairs.h"
#include "harness/selection/partial_run.h"
#include "harness/selection/registry.h"
#include "harness/selection/selection.h"
#include "harness/size/cache_model.h"
#include "harness/size/model.h"
#include "harness/tuning/tuning.h"
#include "kernels/blas.h"
#include "kernels/kernels.h"
#include "results/result.h"
#include "results/summary.h"
#include "results/table.h"
#include "workloads/files.h"

/* A kernel with single calls to judge: the face that attends, or the one that scans. */
typedef struct called {
    const kvb_registered *kernel;
    bool scans;
} called;

typedef struct run {
    const char *suite_name, *output, *cpu_mask, *best_path, *junit_path, *shard_text, *call, *model_name, *only_text,
        *dump;
    kvb_selection_words words;
    kvb_words plugins;
    kvb_knobs knobs;
    uint64_t jobs;
    bool overview; /* a run by pairs: judge first, then measure kernels beside the machine's limit */
    bool product, check, counts, resume, all, require_judged;
    kvb_sized_model *model; /* of --model; freed by the owner */
    kvb_only only;
    kvb_setting setting;
    const kvb_suite *suite;
    kvb_best best;
    kvb_table_format format;
    FILE *timeline;
    /* while running */
    int argc;
    char **argv;
    kvb_registry registry;
    kvb_selections selections;
    called calls[2 * KVB_REGISTRY_MAX];
    size_t n_calls, total; /* total: combinations of this run, with calls */
    bool by_pairs;         /* not the product */
    size_t left_out;       /* combinations that could also run */
    kvb_shard shard;
    kvb_result_file *kept; /* finished results of an earlier run; NULL: none */
    kvb_result_writer *writer;
    kvb_output_file junit;
    kvb_results results;
    kvb_judged_pools judged;
    size_t count[KVB_STATUSES];
    char why[1024]; /* of the writer */
} run;

/* The options of `kvbench run`. */
static const kvb_option run_options[] = {
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
     KVB_TEXT(run, only_text)},
    {"--dump", "DIR", "with --check: the first failing call as safetensors, with a script that shows it",
     KVB_TEXT(run, dump)},
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
     KVB_FORMAT(run, format, "")},
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

/* ---- single calls in a run --------------------------------------------------------------------------------------- */

/* Which kinds of kernels have the axes of --call: [0] those that attend, [1] those that scan. If no kind has them, both
 * are true, and judging gives the reason. */
static void kinds_of_call(const run *r, bool has[2])
{
    kvb_attend_space attend;
    kvb_point point;
    char why[1024];
    kvb_attend_space_make(&r->registry, &attend);
    has[0] = !r->call || !kvb_point_parse(&attend.space, r->call, &point, why, sizeof why);
    has[1] = !r->call || !kvb_point_parse(&kvb_scan_space, r->call, &point, why, sizeof why);
    if (!has[0] && !has[1])
        has[0] = has[1] = true;
}

/* Chooses the kernels for single calls. None if histories, caches, pools or values are named, or if the suite has no
 * calls. An exit code. */
static int run_calls_choose(run *r)
{
    const kvb_registry *registry = &r->registry;
    const kvb_selection_words *w = &r->words;
    const bool alone = r->suite->n_parts == 0, named = w->workloads.n || w->caches.n || w->pools.n || w->values.n;
    if (!r->suite->calls || r->counts || (named && !alone))
        return r->call ? kvb_refuse("--call needs a suite of single calls: --suite calls") : 0;
    if (named)
        return kvb_refuse("--suite calls has no workloads, caches, pools or values to name: --call sets the axes");
    bool has[2];
    kinds_of_call(r, has);
    for (int scans = 0; scans < 2; scans++) {
        for (size_t i = 0; i < registry->n[KVB_KERNELS] && (has[scans] || w->kernels.n); i++) {
            const kvb_registered *k = &registry->at[KVB_KERNELS][i];
            const uint8_t layers = kvb_kernel_layers(k->definition);
            r->calls[r->n_calls] = (called){k, scans};
            r->n_calls += layers & (scans ? KVB_LAYERS_SCAN : KVB_LAYERS_ATTEND) &&
                          kvb_words_match(&w->kernels, k->name) && !kvb_is_witness(k->definition);
        }
    }
    if (alone && !r->n_calls) {
        char known[1024];
        kvb_registry_names(registry, KVB_KERNELS, false, known, sizeof known);
        return kvb_unknown("run", "--kernel: unknown kernel", w->kernels.at[0], known);
    }
    return KVB_EXIT_OK;
}

/* Fills in the names of a record of single calls. */
static void result_begin(const kvb_registered *kernel, bool scans, kvb_result *r)
{
    const bool other =
        scans && ((const kvb_kernel *)kernel->definition)->attend; /* a kernel with two faces has two records */
    kvb_result_begin(r, other ? "calls-scan" : "calls", "none", "any", "any", kernel->name);
}

int kvb_kernel_calls_judge(const kvb_registered *kernel, bool scans, const kvb_registry *registry,
                           const kvb_calls_options *options, kvb_result *result, char *why, size_t why_bytes)
{
    const kvb_kernel *definition = kernel->definition;
    kvb_calls_options judged = *options;
    char command[KVB_REPLAY];
    kvb_attend_space space;
    result_begin(kernel, scans, result);
    if (definition->available && !definition->available(result->reason, sizeof result->reason))
        return 0; /* skipped */
    result->reason[0] = '\0';
    snprintf(command, sizeof command, "%s --suite calls --kernel %s", options->command, kernel->name);
    judged.command = *options->command ? command : "";
    kvb_attend_space_make(registry, &space);
    const kvb_call_subject subject = scans ? kvb_scan_subject(definition) : kvb_attend_subject(&space, definition);
    return kvb_calls_judge(&judged, &subject, result, why, why_bytes);
}

/* Most single calls of each kernel. */
static uint64_t calls_most(const run *r)
{
    return r->knobs.calls ? r->knobs.calls : r->suite->calls;
}

/* Is "axis" or "axis=value" in a list such as "softcap=30,5 out=f16"? */
static bool is_listed(const char *list, const char *what)
{
    const char *value = strchr(what, '=');
    const size_t axis = value ? (size_t)(value - what) : strlen(what);
    for (const char *word = list; *word; word += strcspn(word, " "), word += *word == ' ') {
        if (strncmp(word, what, axis) || word[axis] != '=')
            continue;
        if (!value)
            return true;
        const size_t n = strlen(value + 1), end = strcspn(word, " ");
        for (size_t at = axis + 1; at < end; at += strcspn(word + at, ", ") + 1)
            if (!strncmp(word + at, value + 1, n) && strchr(", ", word[at + n]) != NULL)
                return true;
    }
    return false;
}

/* The way of this name; KVB_SAME_KINDS: none. */
static uint32_t way_find(const char *name)
{
    uint32_t way = 0;
    while (way < KVB_SAME_KINDS && strcmp(name, kvb_same_names[way]))
        way++;
    return way;
}

/* Knob require-invariant: does each kernel give the same bits in these ways? An exit code. */
static int invariant_require(const run *r)
{
    for (size_t k = 0; k < r->knobs.require_invariant.n; k++) {
        const char *way = r->knobs.require_invariant.at[k];
        const uint32_t kind = way_find(way);
        for (size_t i = 0; i < r->results.n; i++) {
            const kvb_result *result = &r->results.at[i];
            if (!result->axes.calls || result->same.by[kind] == 0)
                continue;
            if (result->same.by[kind] > 0)
                return kvb_complain("run", KVB_EXIT_FAILED,
                                    "--set require-invariant: %s gives other bits: %s, by %.2g of the bound",
                                    result->kernel, way, result->same.by[kind]);
            return kvb_complain("run", KVB_EXIT_FAILED, "--set require-invariant: no call of %s was made so: %s",
                                result->kernel, way);
        }
    }
    return KVB_EXIT_OK;
}

/* Knob require-axes: do each kernel's calls cover these axes and values? An exit code; the reason is printed. */
static int run_calls_require(const run *r)
{
    for (size_t i = 0; i < r->results.n; i++) {
        const kvb_result *result = &r->results.at[i];
        for (size_t k = 0; k < r->knobs.require_axes.n && result->axes.calls; k++) {
            const char *what = r->knobs.require_axes.at[k];
            const bool declined = is_listed(result->axes.declined, what);
            if (declined || is_listed(result->axes.uncovered, what))
                return kvb_complain("run", KVB_EXIT_FAILED, "--set require-axes: no call of %s had %s: %s",
                                    result->kernel, what,
                                    declined ? "it declines that" : "more calls would (--set calls=N)");
        }
    }
    return invariant_require(r);
}

/* ---- kvbench run: replay the matrix, check it, measure it, record it --------------------------------------------- */

#define CALLS_OF_REPLAY      5.0    /* single calls that take as long as a replay, about */
#define PAIRS_CALLS          2000.0 /* of a kernel: about as many meet all pairs */
#define MACHINE_COMBINATIONS 60     /* shorter runs measure the machine's rates only with the knob machine */

/* --deterministic: fails a result with other bits than the same combination has with another number of threads. */
static void digest_judge(const run *r, kvb_result *result)
{
    const uint32_t threads = result->threads;
    for (size_t i = 0; i + 1 < r->results.n && result->status == KVB_STATUS_PASS && *result->out_digest; i++) {
        const kvb_result *other = &r->results.at[i];
        result->threads = other->threads;
        const bool same = !kvb_key_order(result, other);
        result->threads = threads;
        if (!same || !*other->out_digest || !strcmp(result->out_digest, other->out_digest))
            continue;
        result->status = KVB_STATUS_FAIL;
        result->check = KVB_CHECK_DETERMINISTIC;
        snprintf(result->reason, sizeof result->reason,
                 "--deterministic: other bits with %u threads than with %u: out_digest %s and %s", threads,
                 other->threads, result->out_digest, other->out_digest);
    }
}

/* Adds a result to the table and the summary. */
static int result_keep(run *r, const kvb_result *result)
{
    int error = kvb_results_add(&r->results, result);
    if (!error && r->knobs.deterministic)
        digest_judge(r, &r->results.at[r->results.n - 1]);
    if (!error)
        result = &r->results.at[r->results.n - 1];
    r->count[result->status] += !error;
    if (!error && r->format == KVB_TABLE_CSV && !r->knobs.counters)
        error = kvb_result_stream(result, r->results.n == 1, stdout);
    return error == -EIO ? 0 : error; /* main() reports errors of standard output */
}

/* Takes the result of a combination. */
static int result_take(void *ctx, const kvb_result *result)
{
    run *r = ctx;
    if (result_keep(r, result))
        return -ENOMEM;
    kvb_result *kept = &r->results.at[r->results.n - 1];
    if (kept->status == KVB_STATUS_PASS || kept->status == KVB_STATUS_SKIP)
        kept->replay[0] = '\0';
    kvb_progress_step(kept->status == KVB_STATUS_PASS || kept->status == KVB_STATUS_SKIP);
    return r->writer ? kvb_result_write(r->writer, kept, r->why, sizeof r->why) : 0;
}

/* Does this run have to run the combination: its shard has it, and no earlier run has finished it? */
static int combination_wanted(void *ctx, size_t number, const kvb_result *names)
{
    run *r = ctx;
    if (!kvb_shard_has(r->shard, number))
        return 0;
    int kept = kvb_resume_has(r->kept, number / r->shard.of, names, r->why, sizeof r->why);
    return kept < 0 ? kept : !kept;
}

/* Did any requested combination run? The witness that runs beside named kernels was not requested. */
static bool asked_ran(const run *r)
{
    const bool named = kvb_words_match(&r->words.kernels, kvb_kernel_witness.name);
    for (size_t i = 0; i < r->results.n; i++)
        if (r->results.at[i].status != KVB_STATUS_SKIP &&
            (named || strcmp(r->results.at[i].kernel, kvb_kernel_witness.name)))
            return true;
    return false;
}

/* The exit code. In a shard all combinations may be skipped: the others may hold those that can run. */
static int verdict(const run *r)
{
    size_t ran = r->results.n - r->count[KVB_STATUS_SKIP];
    char pools[KVB_REASON];
    if (ran && r->require_judged && kvb_results_unjudged(r->results.at, r->results.n, true, pools))
        return kvb_complain("run", KVB_EXIT_FAILED, "--require-judged: nothing was judged over %s", pools);
    return ran != r->count[KVB_STATUS_PASS]   ? KVB_EXIT_FAILED
           : asked_ran(r) || r->shard.of != 1 ? KVB_EXIT_OK
                                              : KVB_EXIT_MACHINE;
}

/* Prints rows and summary; the summary goes to stderr if stdout has rows for programs. */
static int results_print(const run *r, const kvb_manifest *manifest)
{
    bool people = kvb_table_is_for_people(r->format);
    char coverage[160] = "", pools[256] = "";
    for (size_t i = 0; i < r->judged.n; i++)
        kvb_list_add(pools, sizeof pools, ", ", "%s", r->judged.at[i]->name);
    if (kvb_stopped)
        snprintf(coverage, sizeof coverage, "stopped after %zu of %zu combinations", r->results.n, r->total);
    else if (r->by_pairs)
        snprintf(coverage, sizeof coverage,
                 "every pair of history, shape, cache, pool and kernel; %zu more combinations could run (--product)",
                 r->left_out);
    const kvb_summary summary = {.path = r->output,
                                 .unfinished = kvb_stopped,
                                 .counters = r->knobs.counters && people,
                                 .note = manifest->openblas_note,
                                 .coverage = coverage,
                                 .pools_alone = pools,
                                 .untimed = r->check,
                                 .seconds = kvb_progress_seconds(),
                                 .rows = !people  ? KVB_ROWS_NONE
                                         : r->all ? KVB_ROWS_ALL
                                                  : KVB_ROWS_FEW,
                                 .is_markdown = r->format == KVB_TABLE_MD};
    bool streamed = r->format == KVB_TABLE_CSV && !r->knobs.counters;
    int error = people || streamed
                    ? 0
                    : kvb_result_table(r->results.at, r->results.n, true, r->knobs.counters, r->format, stdout);
    return error ? error : kvb_summary_print(&summary, r->results.at, r->results.n, people ? stdout : stderr);
}

/* Prints the last lines of a run by pairs. */
static int overview_end(const run *r, const char *program)
{
    printf("\nnext    is my kernel right?     %s check mine.so\n"
           "        how fast, my shape?     %s bench --model Llama-3.1-8B\n"
           "        what fits my memory?    %s size Llama-3.1-8B --gpu H100-80GB\n",
           program, program, program);
    if (r->output)
        printf("        each judged row         %s show %s --all\n", program, r->output);
    return fflush(stdout) ? -EIO : 0;
}

/* Judges the chosen kernels' single calls. first: number of the first record. Returns as kvb_matrix_run() does. */
static int run_calls_make(run *r, size_t first, char *why, size_t why_bytes)
{
    char begin[KVB_REPLAY - 2 * KVB_NAME];
    int error = 0;
    kvb_replay_begin(&kvb_command_run, r->argc, r->argv, &kvb_suite_find("default")->parts[0], true, begin,
                     sizeof begin);
    const kvb_calls_options options = {.call = r->call,
                                       .most = calls_most(r),
                                       .only_cheap = !r->knobs.calls && r->suite->by_pairs,
                                       .random = r->knobs.random,
                                       .seed = r->knobs.seed,
                                       .seconds = (double)r->knobs.timeout,
                                       .jobs = (uint32_t)r->jobs,
                                       .command = begin + (*begin == ' ')};
    for (size_t i = 0; i < r->n_calls && !error; i++) {
        const called *c = &r->calls[i];
        kvb_result result;
        result_begin(c->kernel, c->scans, &result);
        const int wanted = combination_wanted(r, first + i, &result);
        if (wanted <= 0) {
            error = wanted;
            continue;
        }
        kvb_progress_now("calls of %s", result.kernel);
        error = kvb_kernel_calls_judge(c->kernel, c->scans, &r->registry, &options, &result, why, why_bytes);
        if (!error && kvb_stopped)
            error = -EINTR;
        if (!error)
            error = result_take(r, &result);
    }
    return error;
}

/* Runs every part of the suite, then single calls. Returns as kvb_matrix_run() does. */
static int parts_run(run *r, char *why, size_t why_bytes)
{
    const kvb_selection *selections = r->selections.at;
    char command[KVB_REPLAY];
    size_t first = 0;
    kvb_progress_start("run", r->total - r->results.n);
    kvb_progress_weigh(r->n_calls, fmin((double)calls_most(r), PAIRS_CALLS) / CALLS_OF_REPLAY);
    int error = 0;
    for (size_t i = 0; i < r->selections.n && !error; i++) {
        const kvb_suite_part *part = &r->suite->parts[i];
        kvb_knobs knobs = r->knobs;
        knobs.oracle_pairs = knobs.oracle_pairs ? knobs.oracle_pairs : part->oracle_pairs;
        knobs.sample_ms = knobs.sample_ms ? knobs.sample_ms : part->sample_ms;
        knobs.first_touch |= kvb_numa_nodes() > 1;
        kvb_matrix_options matrix = {
            .selection = &selections[i],
            .first = first,
            .best = &r->best,
            .setting = r->setting,
            .model = kvb_size_label(r->model),
            .knobs = &knobs,
            .seconds = (double)knobs.timeout,
            .untimed = r->check,
            .jobs = (uint32_t)r->jobs,
            .pools_must_fit = r->words.pools.n && r->words.workloads.n,
            .timeline = r->timeline,
            .command = command,
            .judged = r->only_text || r->counts ? NULL : &r->judged,
            .only = r->only_text ? &r->only : NULL,
            .dump = r->dump,
            .wants = combination_wanted,
            .take = result_take,
            .ctx = r,
        };
        kvb_replay_begin(&kvb_command_run, r->argc, r->argv, part, r->check, command, sizeof command);
        first += selections[i].n_has;
        if (selections[i].n_has)
            error = kvb_matrix_run(&matrix, why, why_bytes);
    }
    if (!error)
        error = run_calls_make(r, first, why, why_bytes);
    kvb_progress_end();
    if (error == -EINTR)
        snprintf(why, why_bytes, "stopped by a signal after %zu of %zu combinations", r->results.n, r->total);
    return error;
}

/* Opens the file of records, new or left by an earlier run. An exit code. */
static int output_open(run *r, kvb_manifest *manifest)
{
    const kvb_words inputs[] = {r->plugins, r->words.workloads};
    if (r->resume && kvb_resume_open(r->output, manifest, inputs, 2, &r->kept, &r->writer, r->why, sizeof r->why))
        return kvb_refuse("--resume: %s", r->why);
    if (r->kept && (r->writer ? r->kept->n > r->total : r->kept->n != r->total))
        return kvb_refuse("--resume: %s holds %zu combinations, this run has %zu", r->output, r->kept->n, r->total);
    for (size_t i = 0; r->kept && i < r->kept->n; i++)
        if (result_keep(r, &r->kept->results[i]))
            return kvb_complain("run", KVB_EXIT_MACHINE, "no memory");
    if (r->kept)
        return kvb_complain("run", KVB_EXIT_OK, "note: %zu of %zu combinations were finished before", r->results.n,
                            r->total);
    if (!r->knobs.no_machine && (r->knobs.machine || !r->check) &&
        (r->knobs.machine || r->total >= MACHINE_COMBINATIONS)) {
        kvb_progress_now("measuring the machine");
        kvb_profile_record(r->selections.at[0].threads, (uint32_t)r->selections.at[0].n_threads, manifest);
    }
    return kvb_result_create(r->output, manifest, &r->writer, r->why, sizeof r->why) ? kvb_refuse("%s", r->why)
                                                                                     : KVB_EXIT_OK;
}

static int measured_take(void *ctx, const kvb_result *result)
{
    run *r = ctx;
    return r->writer ? kvb_result_write(r->writer, result, r->why, sizeof r->why) : 0;
}

/* After a run by pairs: prints what is right, then measures how fast kernels are. Pairs are not timed, as any two of
 * them differ in more than one thing. */
static int overview_run(run *r, const kvb_manifest *manifest)
{
    const kvb_summary summary = {.path = r->output};
    const size_t ran = r->results.n - r->count[KVB_STATUS_SKIP];
    printf("kvbench: %s, %u cores, %s\n\n", manifest->cpu_model, manifest->cores, manifest->isa);
    int error = kvb_summary_right(&summary, r->results.at, r->results.n, stdout);
    if (error || ran != r->count[KVB_STATUS_PASS])
        return error;
    printf("\nfast?   ");
    if (kvb_bench_overview(&r->registry, &r->words.kernels, r->model_name, manifest, measured_take, r) ==
        KVB_EXIT_MACHINE)
        return -EIO;
    kvb_caches caches = {.n = 0};
    const char *only = KVB_CACHES_SESSION;
    const kvb_caches_options o = {
        .registry = &r->registry, .histories = {&only, 1}, .caches = r->words.caches, .threads = 1, .untimed = true};
    kvb_trace_model_set(NULL); /* the session has its own model */
    kvb_progress_start("run", 0);
    kvb_progress_now("caches over an agent's session");
    error = kvb_stopped ? -EINTR : kvb_caches_measure(&o, &caches, r->why, sizeof r->why);
    kvb_progress_end();
    if (!error)
        kvb_caches_small_print(&caches, stdout);
    for (size_t i = 0; i < caches.n && !error; i++) /* replays, not counted rows */
        error = caches.at[i].result.status == KVB_STATUS_PASS ? measured_take(r, &caches.at[i].result) : 0;
    free(caches.at);
    return error;
}

/* Closes the file of records. *kept: words about kept records, for the line with the reason of an early end. */
static int output_close(run *r, int error, const char **kept)
{
    *kept = r->writer && r->results.n ? "; what is finished is kept: the same command with --resume runs the rest" : "";
    if (!r->writer)
        return error;
    int closed = kvb_result_close(r->writer, !error, r->why, sizeof r->why);
    r->writer = NULL;
    return error ? error : closed;
}

/* Runs the selections: opens files, runs, prints. An exit code. */
static int selections_run(run *r)
{
    char late[512] = "";
    const char *kept;
    kvb_manifest manifest = {.seed = r->knobs.seed};
    kvb_host_describe("", &manifest);
    const kvb_tuning_choice tuning = {
        .path = r->knobs.tuning, .none = r->knobs.no_tuning, .measures = !r->check || r->overview};
    int code = kvb_tuning_use("run", &tuning, &manifest);
    if (code)
        return code;
    snprintf(manifest.suite, sizeof manifest.suite, "%s%s", r->suite->name, r->by_pairs ? ", pairs" : "");
    if (r->shard.of > 1)
        snprintf(manifest.shard, sizeof manifest.shard, "%u/%u", r->shard.index + 1, r->shard.of);
    kvb_command_text(r->argc, r->argv, manifest.command, sizeof manifest.command);
    r->total = r->n_calls;
    for (size_t i = 0; i < r->selections.n; i++) {
        r->total += r->selections.at[i].n_has;
        r->left_out += r->selections.at[i].n_left_out;
    }
    r->total = kvb_shard_count(r->shard, r->total);
    code = r->output ? output_open(r, &manifest) : KVB_EXIT_OK;
    if (!code && r->junit_path && kvb_output_file_open(r->junit_path, false, &r->junit, r->why, sizeof r->why))
        code = kvb_refuse("%s", r->why);
    if (!code && !r->check)
        kvb_busy_note(&manifest.host);
    kvb_stop_catch();
    int error = code ? -ECANCELED : parts_run(r, late, sizeof late);
    const bool overview = r->overview && r->format == KVB_TABLE_TEXT && r->shard.of == 1 && !error && asked_ran(r);
    if (overview)
        error = overview_run(r, &manifest);
    if (overview && error == -EINTR)
        snprintf(late, sizeof late, "stopped by a signal while measuring");
    error = output_close(r, error, &kept);
    int exported =
        kvb_junit_close(&r->junit, error ? NULL : &manifest, r->results.at, r->results.n, r->why, sizeof r->why);
    if (code)
        return code;
    error = error ? error : exported;
    if (error == -EINTR) {
        if (results_print(r, &manifest) || fflush(stdout))
            kept = "; nothing could be printed";
        kvb_complain("run", 0, "%s%s", late, *kept ? kept : "; nothing was written");
        kvb_stop_die();
    }
    if (error)
        return kvb_complain("run", error == -EINVAL ? KVB_EXIT_USAGE : KVB_EXIT_MACHINE, "%s%s",
                            *r->why ? r->why : late, error == -EINVAL ? "" : kept);
    int printed = kvb_printed("run", overview && !r->all ? overview_end(r, program_invocation_name)
                                                         : results_print(r, &manifest));
    return printed ? printed : verdict(r);
}

/* Decides: pairs or product, timed or judged only, how many jobs. An exit code. */
static int coverage_choose(run *r)
{
    if (r->knobs.pairs && r->product)
        return kvb_refuse("--set pairs or --product, not both");
    if (r->jobs && !r->check)
        return kvb_refuse("--jobs needs --check: timed combinations run alone");
    if (r->check && (r->knobs.timeline || r->dump) && r->jobs > 1)
        return kvb_refuse("--set timeline, --dump: written by one combination at a time: --jobs 1");
    r->by_pairs = r->knobs.pairs || (!r->product && kvb_pairs_usual(r->suite, r->suite_name != NULL, &r->words));
    r->overview = r->by_pairs && !r->check;
    r->check |= r->overview; /* pairs are not timed */
    r->jobs = r->jobs ? r->jobs : r->knobs.timeline || r->dump ? 1 : kvb_cores();
    return KVB_EXIT_OK;
}

/* Parses a number above 0 that f32 can hold. False: another text; the error is printed. text NULL: *number stays. */
static bool positive_parse(const char *option, const char *text, double *number)
{
    char *end = "";
    double x = text ? strtod(text, &end) : 1;
    bool good = !*end && (float)x > 0 && x <= FLT_MAX;
    if (!good)
        kvb_refuse("%s: expected a number above 0, found '%s'", option, text);
    else if (text)
        *number = x;
    return good;
}

/* --model: all workloads get one layer of each of its kinds. An exit code. */
static int model_choose(run *r)
{
    static kvb_model shape;
    char why[512];
    if (!r->model_name)
        return KVB_EXIT_OK;
    if (kvb_size_shape(r->model_name, &r->model, &shape, why, sizeof why))
        return kvb_refuse("--model: %s", why);
    kvb_trace_model_set(&shape);
    return KVB_EXIT_OK;
}

/* Parses and checks the options. An exit code. */
static int options_check(run *r)
{
    char why[512];
    r->check = r->check || r->counts;
    r->suite = kvb_suite_find(r->suite_name ? r->suite_name : "default");
    if (!r->suite)
        return kvb_unknown("run", "--suite: unknown suite", r->suite_name, KVB_SUITE_WORDS);
    r->setting =
        (kvb_setting){.page_cells = (uint32_t)r->knobs.page_cells,
                      .min_chunk = (uint32_t)r->knobs.min_chunk,
                      .hash_bits = (uint32_t)r->knobs.hash_bits,
                      .deterministic = r->knobs.deterministic,
                      .logits = {.sinks = r->knobs.sinks, .before_rope = r->knobs.before_rope, .seed = r->knobs.seed}};
    if (!kvb_out_parse(r->knobs.out, &r->setting.out_elem))
        return kvb_unknown("run", "--set out: unknown element", r->knobs.out, "f32, f16, bf16");
    double softcap = 0;
    if (!positive_parse("--set softcap", r->knobs.softcap, &softcap) ||
        !positive_parse("--set scale", r->knobs.scale, &r->setting.logits.scale))
        return KVB_EXIT_USAGE;
    r->setting.logits.softcap = (float)softcap;
    if (!kvb_cache_state_parse(r->knobs.cache_state_name, &r->knobs.cache_state))
        return kvb_unknown("run", "--set cache-state: unknown state", r->knobs.cache_state_name, "natural, hot, cold");
    for (size_t k = 0; k < r->knobs.require_invariant.n; k++)
        if (way_find(r->knobs.require_invariant.at[k]) == KVB_SAME_KINDS)
            return kvb_unknown("run", "--set require-invariant: unknown way", r->knobs.require_invariant.at[k],
                               "batch, steps, threads, pages, alignment, again");
    if (r->resume && !r->output)
        return kvb_refuse("--resume needs -o F.jsonl: the file to complete");
    if (r->resume && r->knobs.timeline)
        return kvb_refuse("--resume: what --set timeline=F.csv wrote before would be lost; go on without it");
    if (kvb_shard_parse(r->shard_text, &r->shard, why, sizeof why))
        return kvb_refuse("--shard: %s", why);
    if (r->require_judged && r->shard.of > 1)
        return kvb_refuse("--require-judged needs a whole run: a shard may hold a witness alone");
    if (r->knobs.cache_state == KVB_STATE_COLD && !kvb_flush_available(why, sizeof why))
        return kvb_complain("run", KVB_EXIT_MACHINE, "--set cache-state=cold: %s", why);
    if (r->knobs.openblas_core)
        kvb_blas_core(r->knobs.openblas_core);
    int code = kvb_cpu_mask_take("run", r->counts && !r->cpu_mask ? kvb_count_level() : r->cpu_mask);
    code = code ? code : model_choose(r);
    code = code ? code : coverage_choose(r);
    return code ? code : kvb_counters_admit("run", &r->knobs.events);
}

/* Appends the command line that stops at kvb_only_stop() in gdb. False: no room. */
static bool gdb_words(const run *r, char *text, size_t bytes)
{
    static const char *const first[] = {"gdb",
                                        "-ex",
                                        "set follow-fork-mode child",
                                        "-ex",
                                        "set breakpoint pending on",
                                        "-ex",
                                        "break kvb_only_stop",
                                        "-ex",
                                        "run",
                                        "--args"};
    static const char *const without[] = {"--gdb", "--timeout", "--jobs", NULL};
    static const char *const last[] = {"--jobs", "1", "--timeout", "86400"};
    bool fits = true;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        fits &= kvb_shell_add(text, bytes, first[i]);
    fits &= kvb_shell_add(text, bytes, program_invocation_name) && kvb_shell_add(text, bytes, "run") &&
            kvb_command_without(&kvb_command_run, without, r->argc, r->argv, text, bytes);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        fits &= kvb_shell_add(text, bytes, last[i]);
    return fits;
}

/* Checks --only and --dump; makes the folder of --dump. Knob gdb: prints the command; nothing runs. An exit code. */
static int debug_check(run *r)
{
    const bool gdb = r->knobs.gdb;
    char why[512], text[4096] = "";
    if ((r->only_text || r->dump) && !r->check)
        return kvb_refuse("--only and --dump need --check: timed passes are whole");
    if (gdb && !r->only_text)
        return kvb_refuse("--set gdb needs --only: the call to stop at");
    if (kvb_only_parse(r->only_text, &r->only, why, sizeof why))
        return kvb_refuse("--only: %s", why);
    if (r->dump && !gdb && kvb_dump_folder(r->dump, why, sizeof why))
        return kvb_refuse("--dump: %s", why);
    if (!gdb)
        return KVB_EXIT_OK;
    if (!gdb_words(r, text, sizeof text))
        return kvb_refuse("--set gdb: the command is longer than %zu bytes", sizeof text);
    puts(text + 1);
    return KVB_EXIT_OK;
}

/* Axes of settings without a typed option: a run by pairs chooses their values. */
static uint32_t axes_open(const run *r)
{
    uint32_t open = 0;
    for (size_t a = 0; a < KVB_SETTING_AXES; a++)
        open |= kvb_command_has(&kvb_command_run, kvb_setting_axes[a].option, r->argc, r->argv) ? 0 : UINT32_C(1) << a;
    return open;
}

static int run_run(void *typed, int argc, char **argv)
{
    run *r = typed;
    char why[1536] = "";
    r->argc = argc;
    r->argv = argv;
    int code = options_check(r);
    if (!code)
        code = debug_check(r);
    if (!code && r->counts)
        code = kvb_count_start(argv, r->words.threads.at);
    if (code || r->knobs.gdb)
        goto out;
    code = KVB_EXIT_USAGE;
    kvb_registry_init(&r->registry);
    if (kvb_registry_load_all(&r->registry, &r->plugins, why, sizeof why) ||
        kvb_best_prepare(&r->best, &r->words.kernels, r->best_path, &r->registry, why, sizeof why)) {
        kvb_complain("run", code, "%s", why);
        goto out;
    }
    r->words.growths = r->knobs.growths;
    const kvb_pairs_options pairs = {.capacity = (uint32_t)r->knobs.capacity,
                                     .max_pairs = r->knobs.max_pairs,
                                     .setting = r->setting,
                                     .axes = r->check && !r->counts ? axes_open(r) : 0,
                                     .no_staging = r->knobs.no_staging,
                                     .seconds = (double)r->knobs.timeout};
    const kvb_selections_options select = {.words = &r->words,
                                           .suite = r->suite,
                                           .registry = &r->registry,
                                           .folder = r->knobs.workloads,
                                           .oversubscribe = r->knobs.oversubscribe,
                                           .no_staging = r->knobs.no_staging,
                                           .pairs = r->by_pairs ? &pairs : NULL};
    r->words.witness = r->knobs.no_witness         ? KVB_WITNESS_NONE
                       : r->counts || r->only_text ? KVB_WITNESS_NAMED
                                                   : KVB_WITNESS_BESIDE;
    kvb_progress_start("run", 0);
    kvb_progress_now("choosing combinations");
    int selected = kvb_selections_make(&select, &r->selections, why, sizeof why);
    if (selected) {
        code = kvb_complain("run", selected == -ENOMEM ? KVB_EXIT_MACHINE : code, "%s", why);
        goto out;
    }
    if (r->knobs.timeline && !(r->timeline = kvb_timeline_open(r->knobs.timeline))) {
        kvb_complain("run", code, "%s: %s", r->knobs.timeline, strerror(errno));
        goto out;
    }
    code = run_calls_choose(r);
    if (!code)
        code = selections_run(r);
    if (!code)
        code = run_calls_require(r);
    if (r->timeline && fclose(r->timeline))
        code = kvb_complain("run", KVB_EXIT_MACHINE, "%s: %s", r->knobs.timeline, strerror(errno));
out:
    kvb_selections_free(&r->selections);
    kvb_best_close(&r->best);
    kvb_sized_model_free(r->model);
    free(r->results.at);
    kvb_result_free(r->kept);
    return code;
}

const kvb_command kvb_command_run = {
    .name = "run",
    .summary = "replay the matrix: verify, measure, record",
    .run = run_run,
    .bytes = sizeof(run),
    .usual = &(const run){.knobs.timeout = 120},
    .synopsis = "[options]",
    .about = "Replay workloads through every combination of cache, pool and kernel, each in a child process; check "
             "every query against the double-precision oracle; measure; record. rho is the largest error divided "
             "by the bound derived from the kernel's declared arithmetic: above 1 fails. Suites quick and default "
             "run enough combinations for any two of history, shape, cache, pool and kernel to meet "
             "(eagle-tree-8x128 is the history of eagle-tree at another shape); where you name some of these "
             "without --suite, and in suite full, all are run, and those that cannot be are skipped, with the "
             "reason. Records go to F.jsonl.tmp, each as soon as it is final, and become F.jsonl at the end. What "
             "a killed or stopped run left there the same command keeps with --resume (failures too), and begins "
             "anew without.\n\n"
             "  kvbench run --suite quick -o quick.jsonl\n"
             "  kvbench run --suite quick --check\n"
             "  kvbench run --workload eagle-tree --cache tree --kernel openblas --threads 1,2\n"
             "  kvbench run --suite quick --kernel best --best-from all.jsonl\n"
             "  kvbench run --workload plain-decode-8x128 --pool k=a8g64,v=a4g64+had --pool 'q*_0' --set growth='*'\n"
             "  kvbench run --workload my.jsonl --pool k=f16,v=f32 --plugin ./my-kernel.so --kernel 'my-*'",
    .options = run_options,
    .knobs = kvb_knobs_table,
    .knobs_at = offsetof(run, knobs),
};
