/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench run: replay the matrix, check it, measure it, record it. */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/bench/caches.h"
#include "harness/commands/bench.h"
#include "harness/commands/run_calls.h"
#include "harness/commands/run_options.h"
#include "harness/interrupt.h"
#include "harness/counters/count.h"
#include "harness/machine/host.h"
#include "harness/machine/profile.h"
#include "harness/counters/counters.h"
#include "harness/machine/team.h"
#include "harness/matrix/matrix.h"
#include "harness/progress.h"
#include "harness/replay/dump.h"
#include "harness/size/cache_model.h"
#include "harness/selection/pairs.h"
#include "harness/selection/partial_run.h"
#include "harness/selection/selection.h"
#include "harness/replay/meter.h"
#include "harness/tuning/tuning.h"
#include "kernels/kernels.h"
#include "results/export.h"
#include "results/summary.h"
#include "results/table.h"

#define MACHINE_COMBINATIONS 60 /* runs of fewer do not spend seconds on the machine's rates unless asked */

/* Under --deterministic: the same combination with another number of threads gives the same bits. */
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

/* Into the table and the summary. */
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
    return error == -EIO ? 0 : error; /* main says what standard output could not take */
}

/* A combination is done. */
static int result_take(void *ctx, const kvb_result *result)
{
    run *r = ctx;
    if (result_keep(r, result))
        return -ENOMEM;
    kvb_result *kept = &r->results.at[r->results.n - 1];
    if (kept->status == KVB_STATUS_PASS || kept->status == KVB_STATUS_SKIP)
        kept->replay[0] = '\0';
    kvb_progress_step(kept->status == KVB_STATUS_PASS || kept->status == KVB_STATUS_SKIP);
    return r->writer ? kvb_result_write(r->writer, kept, r->why, r->why_bytes) : 0;
}

/* Is a combination left to this run? */
static int combination_wanted(void *ctx, size_t number, const kvb_result *names)
{
    run *r = ctx;
    if (!kvb_shard_has(r->shard, number))
        return 0;
    int kept = kvb_resume_has(r->kept, number / r->shard.of, names, r->why, r->why_bytes);
    return kept < 0 ? kept : !kept;
}

/* Did a combination run that was asked for? A witness beside kernels that were named was not. */
static bool asked_ran(const run *r)
{
    bool named = r->words.kernels.n == 0;
    for (size_t i = 0; i < r->words.kernels.n; i++)
        named |= !fnmatch(r->words.kernels.at[i], kvb_kernel_witness.name, 0);
    for (size_t i = 0; i < r->results.n; i++)
        if (r->results.at[i].status != KVB_STATUS_SKIP &&
            (named || strcmp(r->results.at[i].kernel, kvb_kernel_witness.name)))
            return true;
    return false;
}

/* Of a shard nothing has to be possible: others may hold all that is. */
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

/* The summary, on stderr if a program reads the rows on stdout. */
static int results_print(const run *r, const kvb_manifest *manifest, size_t total)
{
    bool people = kvb_table_is_for_people(r->format);
    char coverage[160] = "", pools[256] = "";
    for (size_t i = 0, used = 0; i < r->judged.n && used < sizeof pools; i++)
        used += (size_t)snprintf(pools + used, sizeof pools - used, "%s%s", i ? ", " : "", r->judged.at[i]->name);
    if (kvb_stopped)
        snprintf(coverage, sizeof coverage, "stopped after %zu of %zu combinations", r->results.n, total);
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

/* The last lines of a run by pairs. */
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

/* Every part of the suite; selections [n] are theirs. What matrix_run returns, with why. */
static int parts_run(run *r, const kvb_selection *selections, size_t n, const kvb_run_calls *calls,
                     const kvb_registry *registry, size_t total, int argc, char **argv, char *why, size_t why_bytes)
{
    char command[KVB_REPLAY];
    size_t first = 0;
    kvb_progress_start("run", total - r->results.n);
    int error = 0;
    for (size_t i = 0; i < n && !error; i++) {
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
            .judged = r->debug.only_text || r->counts ? NULL : &r->judged,
            .only = r->debug.only_text ? &r->debug.only : NULL,
            .dump = r->debug.dump,
            .wants = combination_wanted,
            .take = result_take,
            .ctx = r,
        };
        kvb_replay_begin(&kvb_run_usage, argc, argv, part, r->check, command, sizeof command);
        first += selections[i].n_has;
        if (selections[i].n_has)
            error = kvb_matrix_run(&matrix, why, why_bytes);
    }
    if (!error)
        error =
            kvb_run_calls_make(r, calls, registry, first, argc, argv, combination_wanted, result_take, why, why_bytes);
    kvb_progress_end();
    if (error == -EINTR)
        snprintf(why, why_bytes, "stopped by a signal after %zu of %zu combinations", r->results.n, total);
    return error;
}

/* Opens the file of records: one that an earlier run left, or a new one. An exit code. */
static int output_open(run *r, const kvb_selection *selections, size_t total, kvb_manifest *manifest)
{
    const kvb_words inputs[] = {r->plugins, r->words.workloads};
    if (r->resume && kvb_resume_open(r->output, manifest, inputs, 2, &r->kept, &r->writer, r->why, r->why_bytes))
        return kvb_complain("run", KVB_EXIT_USAGE, "--resume: %s", r->why);
    if (r->kept && (r->writer ? r->kept->n > total : r->kept->n != total))
        return kvb_complain("run", KVB_EXIT_USAGE, "--resume: %s holds %zu combinations, this run has %zu", r->output,
                            r->kept->n, total);
    for (size_t i = 0; r->kept && i < r->kept->n; i++)
        if (result_keep(r, &r->kept->results[i]))
            return kvb_complain("run", KVB_EXIT_MACHINE, "no memory");
    if (r->kept)
        return kvb_complain("run", KVB_EXIT_OK, "note: %zu of %zu combinations were finished before", r->results.n,
                            total);
    if (!r->knobs.no_machine && (r->knobs.machine || !r->check) &&
        (r->knobs.machine || total >= MACHINE_COMBINATIONS)) {
        kvb_progress_now("measuring the machine");
        kvb_profile_record(selections[0].threads, (uint32_t)selections[0].n_threads, manifest);
    }
    return kvb_result_create(r->output, manifest, &r->writer, r->why, r->why_bytes)
               ? kvb_complain("run", KVB_EXIT_USAGE, "%s", r->why)
               : KVB_EXIT_OK;
}

static int measured_take(void *ctx, const kvb_result *result)
{
    const run *r = ctx;
    return r->writer ? kvb_result_write(r->writer, result, r->why, r->why_bytes) : 0;
}

/* After a run by pairs: what is right, then how fast kernels are here. Pairs are not timed: any two differ in more than
 * one thing. */
static int overview_run(run *r, const kvb_registry *registry, const kvb_manifest *manifest)
{
    const kvb_summary summary = {.path = r->output};
    const size_t ran = r->results.n - r->count[KVB_STATUS_SKIP];
    printf("kvbench: %s, %u cores, %s\n\n", manifest->cpu_model, manifest->cores, manifest->isa);
    int error = kvb_summary_right(&summary, r->results.at, r->results.n, stdout);
    if (error || ran != r->count[KVB_STATUS_PASS])
        return error;
    printf("\nfast?   ");
    if (kvb_bench_overview(registry, &r->words.kernels, r->model_name, manifest, measured_take, r) == KVB_EXIT_MACHINE)
        return -EIO;
    kvb_caches caches = {.n = 0};
    const char *only = KVB_CACHES_SESSION;
    const kvb_caches_options o = {.registry = registry, .histories = {&only, 1}, .threads = 1, .untimed = true};
    kvb_trace_model_set(NULL); /* the session has its own */
    kvb_progress_start("run", 0);
    kvb_progress_now("caches over an agent's session");
    error = kvb_stopped ? -EINTR : kvb_caches_measure(&o, &caches, r->why, r->why_bytes);
    kvb_progress_end();
    if (!error)
        kvb_caches_small_print(&caches, stdout);
    for (size_t i = 0; i < caches.n && !error; i++) /* those that attended, and did not only count */
        error = caches.at[i].result.status == KVB_STATUS_PASS ? measured_take(r, &caches.at[i].result) : 0;
    free(caches.at);
    return error;
}

/* Closes it. What is kept of a run that ends early is said on the line of its reason. */
static int output_close(run *r, int error, const char **kept)
{
    *kept = r->writer && r->results.n ? "; what is finished is kept: the same command with --resume runs the rest" : "";
    if (!r->writer)
        return error;
    int closed = kvb_result_close(r->writer, !error, r->why, r->why_bytes);
    r->writer = NULL;
    return error ? error : closed;
}

/* Everything between selections and an exit code. */
static int selections_run(run *r, const kvb_selection *selections, size_t n, const kvb_run_calls *calls,
                          const kvb_registry *registry, int argc, char **argv)
{
    char why[1024] = "", late[512] = "";
    const char *kept;
    size_t total = 0;
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
    kvb_command_text(argc, argv, manifest.command, sizeof manifest.command);
    for (size_t i = 0; i < n; i++) {
        total += selections[i].n_has;
        r->left_out += selections[i].n_left_out;
    }
    total = kvb_shard_count(r->shard, total + calls->n);
    r->why = why;
    r->why_bytes = sizeof why;
    code = r->output ? output_open(r, selections, total, &manifest) : KVB_EXIT_OK;
    if (!code && r->junit_path && kvb_export_open(&kvb_exporter_junit, r->junit_path, &r->junit, why, sizeof why))
        code = kvb_complain("run", KVB_EXIT_USAGE, "%s", why);
    if (!code && !r->check)
        kvb_busy_note(&manifest.host);
    kvb_stop_catch();
    int error = code ? -ECANCELED : parts_run(r, selections, n, calls, registry, total, argc, argv, late, sizeof late);
    const bool overview = r->overview && r->format == KVB_TABLE_TEXT && r->shard.of == 1 && !error && asked_ran(r);
    if (overview)
        error = overview_run(r, registry, &manifest);
    error = output_close(r, error, &kept);
    int exported = kvb_export_close(r->junit, error ? NULL : &manifest, r->results.at, r->results.n, why, sizeof why);
    if (code)
        return code;
    error = error ? error : exported;
    if (error == -EINTR) {
        if (results_print(r, &manifest, total) || fflush(stdout))
            kept = "; nothing could be printed";
        kvb_complain("run", 0, "%s%s", late, *kept ? kept : "; nothing was written");
        kvb_stop_die();
    }
    if (error)
        return kvb_complain("run", error == -EINVAL ? KVB_EXIT_USAGE : KVB_EXIT_MACHINE, "%s%s", *why ? why : late,
                            error == -EINVAL ? "" : kept);
    int printed = kvb_printed("run", overview && !r->all ? overview_end(r, program_invocation_name)
                                                         : results_print(r, &manifest, total));
    return printed ? printed : verdict(r);
}

/* Pairs or the product, times or not, and how many at once. An exit code. */
static int coverage_choose(run *r)
{
    if (r->knobs.pairs && r->product)
        return kvb_complain("run", KVB_EXIT_USAGE, "--set pairs or --product, not both");
    if (r->jobs && !r->check)
        return kvb_complain("run", KVB_EXIT_USAGE, "--jobs is of --check: what is timed runs alone");
    if (r->check && (r->knobs.timeline || r->debug.dump) && r->jobs > 1)
        return kvb_complain("run", KVB_EXIT_USAGE,
                            "--set timeline, --dump: written by one combination at a time: --jobs 1");
    r->by_pairs = r->knobs.pairs || (!r->product && kvb_pairs_usual(r->suite, r->suite_name != NULL, &r->words));
    r->overview = r->by_pairs && !r->check;
    r->check |= r->overview; /* times of pairs differ in more than one thing */
    r->jobs = r->jobs ? r->jobs : r->knobs.timeline || r->debug.dump ? 1 : kvb_cores();
    return KVB_EXIT_OK;
}

/* A number of f32 above 0; NULL: *number stays as it is. False: it is none, which was said. */
static bool positive_parse(const char *option, const char *text, double *number)
{
    char *end = "";
    double x = text ? strtod(text, &end) : 1;
    bool good = !*end && (float)x > 0 && x <= FLT_MAX;
    if (!good)
        kvb_complain("run", KVB_EXIT_USAGE, "%s: expected a number above 0, found '%s'", option, text);
    else if (text)
        *number = x;
    return good;
}

/* --model: all workloads over one layer of each of its kinds. An exit code. */
static int model_choose(run *r)
{
    static kvb_model shape;
    char why[512];
    if (!r->model_name)
        return KVB_EXIT_OK;
    if (kvb_size_shape(r->model_name, &r->model, &shape, why, sizeof why))
        return kvb_complain("run", KVB_EXIT_USAGE, "--model: %s", why);
    kvb_trace_model_set(&shape);
    return KVB_EXIT_OK;
}

/* What the options say by themselves. An exit code. */
static int options_check(run *r)
{
    char why[512];
    r->check = r->check || r->counts;
    r->suite = kvb_suite_find(r->suite_name ? r->suite_name : "default");
    if (!r->suite)
        return kvb_unknown("run", "--suite: unknown suite", r->suite_name, KVB_SUITE_WORDS);
    if (!kvb_table_format_parse(r->format_name, &r->format))
        return kvb_unknown("run", "--format: unknown format", r->format_name, KVB_TABLE_FORMAT_WORDS);
    r->setting = (kvb_setting){.page_cells = (uint32_t)r->knobs.page_cells,
                               .min_chunk = (uint32_t)r->knobs.min_chunk,
                               .hash_bits = (uint32_t)r->knobs.hash_bits,
                               .deterministic = r->knobs.deterministic,
                               .logits = {.sinks = r->knobs.sinks, .seed = r->knobs.seed}};
    if (!kvb_out_parse(r->knobs.out, &r->setting.out_elem))
        return kvb_unknown("run", "--set out: unknown element", r->knobs.out, "f32, f16, bf16");
    double softcap = 0;
    if (!positive_parse("--set softcap", r->knobs.softcap, &softcap) ||
        !positive_parse("--set scale", r->knobs.scale, &r->setting.logits.scale))
        return KVB_EXIT_USAGE;
    r->setting.logits.softcap = (float)softcap;
    if (!kvb_cache_state_parse(r->knobs.cache_state_name, &r->knobs.cache_state))
        return kvb_unknown("run", "--set cache-state: unknown state", r->knobs.cache_state_name, "natural, hot, cold");
    if (r->resume && !r->output)
        return kvb_complain("run", KVB_EXIT_USAGE, "--resume needs -o F.jsonl: the file to complete");
    if (r->resume && r->knobs.timeline)
        return kvb_complain("run", KVB_EXIT_USAGE,
                            "--resume: what --set timeline=F.csv wrote before would be lost; go on without it");
    if (kvb_shard_parse(r->shard_text, &r->shard, why, sizeof why))
        return kvb_complain("run", KVB_EXIT_USAGE, "--shard: %s", why);
    if (r->require_judged && r->shard.of > 1)
        return kvb_complain("run", KVB_EXIT_USAGE,
                            "--require-judged is of whole runs: a shard may hold a witness alone");
    if (r->knobs.cache_state == KVB_STATE_COLD && !kvb_flush_available(why, sizeof why))
        return kvb_complain("run", KVB_EXIT_MACHINE, "--set cache-state=cold: %s", why);
    int masked = kvb_cpu_mask_set(r->counts && !r->cpu_mask ? kvb_count_level() : r->cpu_mask, why, sizeof why);
    if (masked)
        return kvb_complain("run", masked == -ENOTSUP ? KVB_EXIT_MACHINE : KVB_EXIT_USAGE, "--cpu-mask: %s", why);
    int code = model_choose(r);
    code = code ? code : coverage_choose(r);
    return code ? code : kvb_counters_admit("run", &r->knobs.events);
}

/* Appends the command line that stops at kvb_only_stop() in gdb: argv [argc] of `kvbench run`. False: no room. */
static bool gdb_words(int argc, char **argv, char *text, size_t bytes)
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
            kvb_command_without(&kvb_run_usage, without, argc, argv, text, bytes);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        fits &= kvb_shell_add(text, bytes, last[i]);
    return fits;
}

/* Checks --only and --dump, makes the folder of --dump, and prints what the knob gdb asks for: then nothing is to be
 * run. An exit code. */
static int debug_check(run *r, int argc, char **argv)
{
    const bool gdb = r->knobs.gdb;
    run_debug *d = &r->debug;
    char why[512], text[4096] = "";
    if ((d->only_text || d->dump) && !r->check)
        return kvb_complain("run", KVB_EXIT_USAGE, "--only and --dump are of --check: what is timed is whole");
    if (gdb && !d->only_text)
        return kvb_complain("run", KVB_EXIT_USAGE, "--set gdb needs --only: the call to stop at");
    if (kvb_only_parse(d->only_text, &d->only, why, sizeof why))
        return kvb_complain("run", KVB_EXIT_USAGE, "--only: %s", why);
    if (d->dump && !gdb && kvb_dump_folder(d->dump, why, sizeof why))
        return kvb_complain("run", KVB_EXIT_USAGE, "--dump: %s", why);
    if (!gdb)
        return KVB_EXIT_OK;
    if (!gdb_words(argc, argv, text, sizeof text))
        return kvb_complain("run", KVB_EXIT_USAGE, "--set gdb: the command is longer than %zu bytes", sizeof text);
    puts(text + 1);
    return KVB_EXIT_OK;
}

/* The axes of which no option was typed: there the choice is free. */
static uint32_t axes_open(int argc, char **argv)
{
    uint32_t open = 0;
    for (size_t a = 0; a < KVB_SETTING_AXES; a++)
        open |= kvb_command_has(&kvb_run_usage, kvb_setting_axes[a].option, argc, argv) ? 0 : UINT32_C(1) << a;
    return open;
}

static int run_main(int argc, char **argv)
{
    run r = {.format_name = "table", .knobs = kvb_knobs_usual()};
    kvb_registry *registry = malloc(sizeof *registry);
    kvb_selections selections = {.n = 0};
    static kvb_run_calls calls;
    char why[1536] = "";
    int code = registry ? kvb_options_parse(&kvb_run_usage, &r, argc, argv) : KVB_EXIT_MACHINE;
    if (code >= 0)
        goto out;
    code = options_check(&r);
    if (!code)
        code = debug_check(&r, argc, argv);
    if (!code && r.counts)
        code = kvb_count_start(argv, r.words.threads.at);
    if (code || r.knobs.gdb)
        goto out;
    code = KVB_EXIT_USAGE;
    kvb_registry_init(registry);
    if (kvb_registry_load_all(registry, &r.plugins, why, sizeof why) ||
        kvb_best_prepare(&r.best, &r.words.kernels, r.best_path, registry, why, sizeof why)) {
        kvb_complain("run", code, "%s", why);
        goto out;
    }
    r.words.growths = r.knobs.growths;
    const kvb_pairs_options pairs = {.capacity = (uint32_t)r.knobs.capacity,
                                     .max_pairs = r.knobs.max_pairs,
                                     .setting = r.setting,
                                     .axes = r.check && !r.counts ? axes_open(argc, argv) : 0,
                                     .no_staging = r.knobs.no_staging,
                                     .seconds = (double)r.knobs.timeout};
    const kvb_selections_options select = {.words = &r.words,
                                           .suite = r.suite,
                                           .registry = registry,
                                           .folder = r.knobs.workloads,
                                           .oversubscribe = r.knobs.oversubscribe,
                                           .no_staging = r.knobs.no_staging,
                                           .pairs = r.by_pairs ? &pairs : NULL};
    r.words.witness = r.knobs.no_witness              ? KVB_WITNESS_NONE
                      : r.counts || r.debug.only_text ? KVB_WITNESS_NAMED
                                                      : KVB_WITNESS_BESIDE;
    kvb_progress_start("run", 0);
    kvb_progress_now("choosing combinations");
    int selected = kvb_selections_make(&select, &selections, why, sizeof why);
    if (selected) {
        code = kvb_complain("run", selected == -ENOMEM ? KVB_EXIT_MACHINE : code, "%s", why);
        goto out;
    }
    if (r.knobs.timeline && !(r.timeline = kvb_timeline_open(r.knobs.timeline))) {
        kvb_complain("run", code, "%s: %s", r.knobs.timeline, strerror(errno));
        goto out;
    }
    code = kvb_run_calls_choose(&r, registry, &calls);
    if (!code)
        code = selections_run(&r, selections.at, selections.n, &calls, registry, argc, argv);
    if (!code)
        code = kvb_run_calls_require(&r);
    if (r.timeline && fclose(r.timeline))
        code = kvb_complain("run", KVB_EXIT_MACHINE, "%s: %s", r.knobs.timeline, strerror(errno));
out:
    kvb_selections_free(&selections);
    kvb_best_close(&r.best);
    kvb_words *lists[] = {&r.words.workloads, &r.words.caches, &r.words.pools, &r.words.kernels,
                          &r.words.threads,   &r.words.values, &r.plugins};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        kvb_words_free(lists[i]);
    kvb_knobs_free(&r.knobs);
    kvb_sized_model_free(r.model);
    free(r.results.at);
    kvb_result_free(r.kept);
    free(registry);
    return code;
}

const kvb_command kvb_command_run = {
    .name = "run",
    .summary = "replay the matrix: verify, measure, record",
    .run = run_main,
};
