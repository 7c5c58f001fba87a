/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench judge: judges recorded outputs of attention and scans of another program's kernel. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/program.h"
#include "harness/judge/judge.h"
#include "harness/machine/host.h"
#include "harness/selection/registry.h"
#include "results/result.h"
#include "workloads/files.h"

typedef struct judge {
    bool all, keys;
    kvb_words files, said, plugins;
    const char *kernel, *make, *by, *inputs, *output, *junit_path;
    uint64_t seed;
    kvb_table_format format;
    kvb_manifest manifest;
    kvb_result_writer *writer;
    kvb_output_file junit;
    kvb_results results;
} judge;

static const kvb_option options[] = {
    {"--say", "KEY=VALUE", "how the arrays are to be read; `--keys` lists what can be said (repeatable)",
     KVB_WORDS(judge, said)},
    {"--keys", NULL, "list the keys of --say, layouts and presets of arithmetic", KVB_FLAG(judge, keys)},
    {"--make", "F.safetensors", "write hard inputs, and F.json beside them, for a kernel that runs elsewhere",
     KVB_TEXT(judge, make)},
    {"--by", "KERNEL", "with --make: outputs of a kernel of this program or of a plug-in, too", KVB_TEXT(judge, by)},
    {"--plugin", "F.so", "with --by: load more kernels, repeatable", KVB_WORDS(judge, plugins)},
    {"--inputs", "FILE", "what FILEs lack of a call, such as q, k and v of --make", KVB_TEXT(judge, inputs)},
    {"--kernel", "NAME", "the name that records give the kernel (usual: recorded-ARITHMETIC)", KVB_TEXT(judge, kernel)},
    {"--all", NULL, "judge every row (usual: where a call is large a sample, and a second opinion of more)",
     KVB_FLAG(judge, all)},
    {"--seed", "N", "of the sample", KVB_NUMBER(judge, seed, 0, UINT64_MAX)},
    {"--format", "FORMAT", "table (in words), md, csv, json", KVB_FORMAT(judge, format, "")},
    {"-o", "F.jsonl", "write records, which compare, show and report take", KVB_TEXT(judge, output)},
    {"--junit", "F.xml", "write a JUnit report", KVB_TEXT(judge, junit_path)},
    KVB_OPTIONS_END,
};

static void keys_print(void)
{
    puts("keys of --say, of FILE.json and of a safetensors file's metadata\n");
    for (const kvb_reading_key *k = kvb_reading_keys; k->name; k++)
        printf("  %-14s %s\n", k->name, k->help);
    puts("\nlayouts\n");
    for (const kvb_layout *l = kvb_layouts; l->name; l++)
        printf("  %-14s %s\n", l->name, l->summary);
    puts("\narithmetic\n");
    for (const kvb_preset *p = kvb_presets; p->name; p++)
        printf("  %-14s %s\n", strcmp(p->name, "own") ? p->name : "{…}", p->summary);
}

static const char *passes(uint64_t beyond)
{
    return beyond ? "fails" : "passes";
}

/* Prints for people: a line for a right call, all findings for a wrong one. */
static void words_print(const kvb_recorded_verdict *j)
{
    const kvb_result *r = &j->result;
    const kvb_usual *u = &j->usual;
    char more[64] = "";
    if (j->glanced)
        snprintf(more, sizeof more, ", a second opinion of %" PRIu64, j->glanced);
    if (r->status == KVB_STATUS_PASS) {
        printf("RIGHT   %s: worst error %.2g of its bound; %" PRIu64 " of %" PRIu64 " rows%s; k=%s v=%s, %s\n",
               r->workload, r->rho, j->judged, j->rows, more, r->pool_k, r->pool_v, j->shape);
    } else {
        printf("WRONG   %s: k=%s v=%s, %s\n", r->workload, r->pool_k, r->pool_v, j->shape);
        if (*j->first)
            printf("  worst   %.3g times its bound; %" PRIu64 " of %" PRIu64
                   " rows judged%s\n  first   %s\n  where   %s\n",
                   r->rho, j->judged, j->rows, more, j->first, j->pattern);
        if (*j->many)
            printf("  many    %s\n", j->many);
        if (r->check != KVB_CHECK_BOUND && r->check != KVB_CHECK_OPINION && r->check != KVB_CHECK_STATE &&
            r->check != KVB_CHECK_FILTER)
            printf("  why     %s\n", r->reason);
        for (uint32_t i = 0; i < KVB_JUDGED_READINGS && *j->reads[i]; i++)
            printf("  %s %s\n", i ? "        or with" : "passes  with", j->reads[i]);
        printf("  others  torch's assert_close %s, allclose at 1e-2 %s, cosine %.6f, NMSE %.2g\n",
               passes(u->beyond_default), passes(u->beyond_loose), kvb_usual_cosine(u), kvb_usual_nmse(u));
    }
    if (j->unsaid)
        printf("  beside  of %" PRIu64
               " rows the declared arithmetic says nothing: other outputs, such as 0, would pass, too\n",
               j->unsaid);
    if (j->blind)
        printf("  beside  %" PRIu64 " rows see no cell and were not judged\n", j->blind);
}

/* Judges a call, or the outputs of a recorded trace. trace NULL: the call. */
static int call_judge(judge *j, const kvb_recorded *call, const char *trace, char *why, size_t why_bytes)
{
    kvb_recorded_verdict judged;
    const kvb_judge_options o = {.products = j->all ? HUGE_VAL : 1e9, .seed = j->seed};
    int error = trace ? kvb_outputs_judge(trace, &o, &judged, why, why_bytes)
                      : kvb_recorded_judge(call, &o, &judged, why, why_bytes);
    if (error)
        return error;
    if (j->kernel)
        snprintf(judged.result.kernel, sizeof judged.result.kernel, "%s", j->kernel);
    if (j->format == KVB_TABLE_TEXT)
        words_print(&judged);
    fflush(stdout);
    if (j->writer)
        error = kvb_result_write(j->writer, &judged.result, why, why_bytes);
    if (!error && kvb_results_add(&j->results, &judged.result)) {
        snprintf(why, why_bytes, "%s", strerror(ENOMEM));
        error = -ENOMEM;
    }
    return error;
}

static int file_judge(judge *j, const char *path, char *why, size_t why_bytes)
{
    kvb_recordings r;
    const size_t n = strlen(path);
    const bool is_trace = n > 6 && !strcmp(path + n - 6, ".jsonl");
    if (is_trace && (j->said.n || j->inputs))
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "%s: --say and --inputs are for arrays: the header of a trace says all", path);
    if (is_trace)
        return call_judge(j, NULL, path, why, why_bytes);
    int error = kvb_recordings_open(path, j->inputs, j->said.at, j->said.n, &r, why, why_bytes);
    if (error)
        return error;
    for (uint32_t i = 0; i < r.n && !error; i++)
        error = call_judge(j, &r.calls[i], NULL, why, why_bytes);
    kvb_recordings_close(&r);
    return error;
}

static int end(judge *j, int error, const char *why)
{
    size_t wrong = 0;
    for (size_t i = 0; i < j->results.n; i++)
        wrong += j->results.at[i].status != KVB_STATUS_PASS;
    if (j->format != KVB_TABLE_TEXT)
        error = error ? error : kvb_result_table(j->results.at, j->results.n, true, false, j->format, stdout);
    else if (j->results.n > 1)
        printf("\n%zu calls: %zu right, %zu wrong\n", j->results.n, j->results.n - wrong, wrong);
    if (error == -EINTR)
        kvb_fail(error, why);
    if (error)
        return kvb_complain("judge", error == -ENOMEM ? KVB_EXIT_MACHINE : KVB_EXIT_USAGE, "%s",
                            *why ? why : strerror(-error));
    return wrong ? KVB_EXIT_FAILED : KVB_EXIT_OK;
}

static int make(const judge *j)
{
    kvb_registry registry;
    char why[1024] = "", known[1024];
    double rho;
    kvb_registry_init(&registry);
    if (kvb_registry_load_all(&registry, &j->plugins, why, sizeof why))
        return kvb_complain("judge", KVB_EXIT_USAGE, "--plugin: %s", why);
    const kvb_kernel *kernel = j->by ? kvb_registry_find(&registry, KVB_KERNELS, j->by) : NULL;
    if (j->by && !kernel) {
        kvb_registry_names(&registry, KVB_KERNELS, false, known, sizeof known);
        return kvb_unknown("judge", "--by: unknown kernel", j->by, known);
    }
    if (kernel && kernel->available && !kernel->available(why, sizeof why))
        return kvb_complain("judge", KVB_EXIT_MACHINE, "--by: %s: %s", j->by, why);
    const int error = kvb_judge_make(j->make, kernel, j->seed, &rho, why, sizeof why);
    if (error)
        return kvb_complain("judge", KVB_EXIT_MACHINE, "%s", *why ? why : strerror(-error));
    if (kernel)
        printf("%s: worst error %.6g of its bound, in this process\n", kernel->name, rho);
    return KVB_EXIT_OK;
}

static int judge_run(void *typed, int argc, char **argv)
{
    judge *j = typed;
    char why[1024] = "";
    int code = -1;
    if (j->keys) {
        keys_print();
        return KVB_EXIT_OK;
    }
    if (j->plugins.n && !j->by)
        return kvb_complain("judge", KVB_EXIT_USAGE, "--plugin goes with --make and --by");
    if (j->make)
        return make(j);
    if (!j->files.n)
        return kvb_complain("judge", KVB_EXIT_USAGE,
                            "no FILE given: arrays q, k, v and out as .safetensors, .npz or a folder of .npy");
    kvb_host_describe("", &j->manifest);
    snprintf(j->manifest.suite, sizeof j->manifest.suite, "judge");
    j->manifest.seed = j->seed;
    kvb_command_text(argc, argv, j->manifest.command, sizeof j->manifest.command);
    if ((j->output && kvb_result_create(j->output, &j->manifest, &j->writer, why, sizeof why)) ||
        (j->junit_path && kvb_output_file_open(j->junit_path, false, &j->junit, why, sizeof why)))
        return kvb_complain("judge", KVB_EXIT_USAGE, "%s", why);
    kvb_stop_catch();
    int error = 0;
    for (size_t i = 0; i < j->files.n && !error; i++)
        error = file_judge(j, j->files.at[i], why, sizeof why);
    char more[1024];
    if (j->writer && kvb_result_close(j->writer, !error, more, sizeof more) && !error)
        code = kvb_complain("judge", KVB_EXIT_MACHINE, "%s", more);
    if (kvb_junit_close(&j->junit, error ? NULL : &j->manifest, j->results.at, j->results.n, more, sizeof more) &&
        !error)
        code = kvb_complain("judge", KVB_EXIT_MACHINE, "%s", more);
    code = code > 0 ? code : end(j, error, why);
    free(j->results.at);
    return code;
}

const kvb_command kvb_command_judge = {
    .name = "judge",
    .summary = "is this recorded output right? arrays of a kernel that runs elsewhere, by the same bound",
    .run = judge_run,
    .bytes = sizeof(judge),
    .synopsis = "FILE|FOLDER… [options]",
    .about = "Judge attention, or a scan, that another kernel computed, on a GPU or in an engine, from its "
             "recorded arrays: q, k, v, out and, if there are such, lse, sinks, mask, lengths, cu_seqlens_q, "
             "cu_seqlens_k, block_table, k_scale, v_scale, q_rounded (what a kernel that rounds q multiplied); of "
             "a scan q, k, v, gate, beta, a, initial_state, final_state, lengths, cu_seqlens, of a convolution x, "
             "taps, bias. Each element must be as near to the exact one as the arithmetic allows that the kernel "
             "is said to do. Where it is not, other readings of the arrays are tried, and those that are right are "
             "named.\n\n"
             "  kvbench judge call.safetensors --say layout=bhsd --say causal=lower-right --say arithmetic=flash-bf16\n"
             "  kvbench judge scan.npz --say recurrence=delta --say layout=bshd --say arithmetic=chunk64-bf16\n"
             "  kvbench judge recorded/*.npz          with what is to be said in FILE.json beside each\n"
             "  kvbench judge --make hard.safetensors && kvbench judge mine.npz --inputs hard.safetensors\n"
             "  kvbench judge engine.jsonl            outputs of an engine over a history (record --engine llama)\n"
             "  kvbench judge --keys                  what can be said\n\n"
             "FILE is .safetensors, .npz or .npy, or a trace with what is to be said in its header; FOLDER holds "
             ".npy. Keys stand in FILE.json beside it (describe.json in a folder) as {\"layout\": \"bhsd\", …}, in "
             "a safetensors file's metadata, or follow --say. A file with several calls names arrays CALL.q, "
             "CALL.k, …; \"calls\": {\"CALL\": {…}} says what is special to one. What arrays cannot show: reading "
             "of hidden cells, writing beside outputs, allocation, state between calls.",
    .options = options,
    .words = offsetof(judge, files),
    .takes_words = true,
};
