/* SPDX-License-Identifier: Apache-2.0 */
/* Single calls in a run. */
#include "harness/commands/run_calls.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "harness/calls/attend_axes.h"
#include "harness/calls/calls.h"
#include "harness/calls/scan_axes.h"
#include "harness/interrupt.h"
#include "harness/progress.h"
#include "harness/selection/registry.h"
#include "harness/selection/selection.h"

static bool is_chosen(const kvb_words *words, const char *name)
{
    bool chosen = words->n == 0;
    for (size_t i = 0; i < words->n && !chosen; i++)
        chosen = !fnmatch(words->at[i], name, 0);
    return chosen;
}

/* Which kinds of kernels have the axes of --call: [0] those that attend, [1] those that scan. Where none has, both find
 * out why. */
static void kinds_of_call(const run *r, const kvb_registry *registry, bool has[2])
{
    kvb_attend_space attend;
    kvb_point point;
    char why[1024];
    kvb_attend_space_make(registry, &attend);
    has[0] = !r->call || !kvb_point_parse(&attend.space, r->call, &point, why, sizeof why);
    has[1] = !r->call || !kvb_point_parse(&kvb_scan_space, r->call, &point, why, sizeof why);
    if (!has[0] && !has[1])
        has[0] = has[1] = true;
}

int kvb_run_calls_choose(const run *r, const kvb_registry *registry, kvb_run_calls *calls)
{
    const kvb_selection_words *w = &r->words;
    const bool alone = r->suite->n_parts == 0, named = w->workloads.n || w->caches.n || w->pools.n || w->values.n;
    calls->n = 0;
    if (!r->suite->calls || r->counts || (named && !alone))
        return r->call ? kvb_complain("run", KVB_EXIT_USAGE, "--call is of suites with single calls: --suite calls")
                       : 0;
    if (named)
        return kvb_complain("run", KVB_EXIT_USAGE,
                            "--suite calls has no workloads, caches, pools or values to name: --call sets the axes");
    bool has[2];
    kinds_of_call(r, registry, has);
    for (int scans = 0; scans < 2; scans++) {
        for (size_t i = 0; i < registry->n[KVB_KERNELS] && (has[scans] || w->kernels.n); i++) {
            const kvb_registered *k = &registry->at[KVB_KERNELS][i];
            const uint8_t layers = kvb_kernel_layers(k->definition);
            calls->kernels[calls->n] = k;
            calls->scans[calls->n] = scans;
            calls->n += layers & (scans ? KVB_LAYERS_SCAN : KVB_LAYERS_ATTEND) && is_chosen(&w->kernels, k->name) &&
                        !kvb_is_witness(k->definition);
        }
    }
    if (alone && !calls->n) {
        char known[1024];
        kvb_registry_names(registry, KVB_KERNELS, known, sizeof known);
        return kvb_unknown("run", "--kernel: unknown kernel", w->kernels.at[0], known);
    }
    return KVB_EXIT_OK;
}

/* The names of its record. */
static void result_begin(const kvb_registered *kernel, bool scans, kvb_result *r)
{
    const bool other = scans && ((const kvb_kernel *)kernel->definition)->attend; /* it has a record for each face */
    kvb_result_init(r);
    snprintf(r->workload, sizeof r->workload, other ? "calls-scan" : "calls");
    snprintf(r->cache, sizeof r->cache, "none");
    snprintf(r->pool_k, sizeof r->pool_k, "any");
    snprintf(r->pool_v, sizeof r->pool_v, "any");
    snprintf(r->kernel, sizeof r->kernel, "%s", kernel->name);
    snprintf(r->growth, sizeof r->growth, "double");
    snprintf(r->out, sizeof r->out, "f32");
    r->threads = 1;
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

int kvb_run_calls_make(run *r, const kvb_run_calls *calls, const kvb_registry *registry, size_t first, int argc,
                       char **argv, int (*wants)(void *ctx, size_t number, const kvb_result *names),
                       int (*take)(void *ctx, const kvb_result *result), char *why, size_t why_bytes)
{
    char begin[KVB_REPLAY - 2 * KVB_NAME];
    int error = 0;
    kvb_replay_begin(&kvb_run_usage, argc, argv, &kvb_suite_find("default")->parts[0], true, begin, sizeof begin);
    const kvb_calls_options options = {.call = r->call,
                                       .most = r->knobs.calls ? r->knobs.calls : r->suite->calls,
                                       .only_cheap = !r->knobs.calls && r->suite->by_pairs,
                                       .random = r->knobs.random,
                                       .seed = r->knobs.seed,
                                       .seconds = (double)r->knobs.timeout,
                                       .jobs = (uint32_t)r->jobs,
                                       .command = begin + (*begin == ' ')};
    for (size_t i = 0; i < calls->n && !error; i++) {
        kvb_result result;
        result_begin(calls->kernels[i], calls->scans[i], &result);
        const int wanted = wants(r, first + i, &result);
        if (wanted <= 0) {
            error = wanted;
            continue;
        }
        kvb_progress_now("calls of %s", result.kernel);
        error = kvb_kernel_calls_judge(calls->kernels[i], calls->scans[i], registry, &options, &result, why, why_bytes);
        if (!error && kvb_stopped)
            error = -EINTR;
        if (!error)
            error = take(r, &result);
    }
    return error;
}

/* Is "axis" or "axis=value" among the words of a list as "softcap=30,5 out=f16"? */
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

int kvb_run_calls_require(const run *r)
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
    return KVB_EXIT_OK;
}
