/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over workloads, values and pairs of pools. */
#include "harness/matrix/matrix.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/selection/registry.h"
#include "harness/matrix/slice.h"
#include "harness/machine/bandwidth.h"
#include "harness/machine/team.h"
#include "harness/program.h"
#include "harness/selection/selection.h"
#include "workloads/files.h"

#define PEAK_SECONDS 0.1 /* to measure the multiply-add peak of a thread count */

/* Runs all pairs of pools of one workload and values; `first` is their first combination. If the model does not allow a
 * profile or tags, combinations are skipped; the workload's own values must be right. */
static int lane_run(kvb_lane *l, size_t first, char *why, size_t why_bytes)
{
    const kvb_selection *s = l->options->selection;
    size_t n = s->n_pools * kvb_block_size(s);
    bool any = false, witness = false;
    for (size_t i = 0; i < n; i++)
        if (l->wanted[first + i]) {
            any = true;
            witness = witness || kvb_is_witness(s->kernels[kvb_spot_of(s, first + i).kernel]);
        }
    if (!any)
        return 0;
    const kvb_lane_values *own;
    const double scale = l->options->setting.logits.scale;
    int error = kvb_lane_values_find(l, l->profile, l->trace, scale, &own, why, why_bytes);
    if (!error && witness)
        error = kvb_lane_values_find(l, "tags", l->trace, scale, &own, why, why_bytes);
    for (size_t i = first; i < first + n && !error; i += kvb_block_size(s))
        error = kvb_block_run(l, i, why, why_bytes);
    for (size_t i = 0; i < l->n_values; i++) {
        kvb_turned_free(l->values[i].turned);
        kvb_values_free(l->values[i].values);
    }
    return error;
}

/* Measures the f32 multiply-add peak of n threads; NaN: impossible. */
static int peak_measure(uint32_t n, bool bind, double *peak)
{
    kvb_threads *threads;
    kvb_rate rate;
    char why[128];
    int error = kvb_threads_start(n, bind, &threads);
    if (error)
        return error;
    bool known = !kvb_multiply_add_peak(kvb_threads_team(threads), KVB_PEAK_F32, PEAK_SECONDS, &rate, why, sizeof why);
    *peak = known ? rate.median : NAN;
    kvb_threads_end(threads);
    return 0;
}

static int pools_check(const kvb_selection *s, kvb_trace *const *traces, char *why, size_t why_bytes)
{
    bool fits = s->n_workloads == 0 || s->n_pools == 0;
    for (size_t p = 0; p < s->n_pools && !fits; p++)
        for (size_t w = 0; w < s->n_workloads && !fits; w++)
            fits = kvb_pair_fits(&s->pools[p], traces[w], why, why_bytes);
    if (fits)
        why[0] = '\0';
    return fits ? 0 : -EINVAL;
}

/* Asks the caller which combinations to run. *n: their number. */
static int wanted_ask(const kvb_matrix_options *o, bool *wanted, size_t *n)
{
    const kvb_selection *s = o->selection;
    size_t number = o->first;
    int answer = 0;
    *n = 0;
    for (size_t i = 0; i < kvb_matrix_size(s) && answer >= 0; i++) {
        kvb_result names;
        char why[KVB_REASON];
        if (!s->has[i])
            continue;
        kvb_combination_name(o, i, &names, why);
        answer = o->wants(o->ctx, number++, &names);
        wanted[i] = answer > 0;
        *n += wanted[i];
    }
    return answer < 0 ? answer : 0;
}

static int peaks_measure(const kvb_matrix_options *o, double *peaks)
{
    const kvb_selection *s = o->selection;
    int error = 0;
    kvb_progress_now("multiply-add peaks");
    for (size_t t = 0; t < s->n_threads && !error; t++) {
        peaks[t] = NAN;
        if (!o->untimed)
            error = peak_measure(s->threads[t], !o->knobs->oversubscribe && !o->untimed, &peaks[t]);
    }
    return error;
}

static int lanes_run(const kvb_matrix_options *o, kvb_trace *const *traces, const bool *wanted, char *why,
                     size_t why_bytes)
{
    const kvb_selection *s = o->selection;
    const kvb_crew_options options = {.jobs = o->jobs, .take = o->take, .ctx = o->ctx};
    kvb_crew *crew = NULL;
    kvb_changed_trace *changed = NULL;
    double peaks[KVB_MAX_THREAD_COUNTS];
    size_t each = s->n_pools * kvb_block_size(s);
    int error = peaks_measure(o, peaks);
    if (!error && !o->duel)
        error = kvb_crew_open(&options, &crew);
    for (size_t first = 0; first < kvb_matrix_size(s) && !error; first += each) {
        kvb_spot at = kvb_spot_of(s, first);
        kvb_lane l = {.options = o,
                      .name = s->workloads[at.workload].name,
                      .profile = s->values[at.values],
                      .trace = traces[at.workload],
                      .peaks = peaks,
                      .wanted = wanted,
                      .changed = &changed,
                      .crew = crew};
        error = lane_run(&l, first, why, why_bytes);
    }
    if (!error && crew)
        error = kvb_crew_finish(crew);
    kvb_crew_close(crew);
    for (kvb_changed_trace *next; changed; changed = next) {
        next = changed->next;
        kvb_trace_free(changed->trace);
        free(changed);
    }
    return error;
}

/* Loads a workload, with the setting's logits. A workload without queries is bad input: it has nothing to measure. */
static int workload_load(const kvb_matrix_options *o, const char *path, kvb_trace **trace, char *why, size_t why_bytes)
{
    int error = kvb_bad_file(kvb_trace_load(path, (uint32_t)o->knobs->capacity, trace, why, why_bytes));
    if (!error && (*trace)->needs.queries == 0)
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "%s: expected a step, prefill or propose: there is nothing to attend", path);
    if (!error && o->only && !kvb_only_fits(o->only, *trace, why, why_bytes))
        return -EINVAL;
    return error ? error : kvb_trace_change_logits(*trace, &o->setting.logits);
}

int kvb_matrix_run(const kvb_matrix_options *options, char *why, size_t why_bytes)
{
    const kvb_selection *s = options->selection;
    kvb_trace **traces = calloc(s->n_workloads + 1, sizeof *traces);
    bool *wanted = calloc(kvb_matrix_size(s) + 1, sizeof *wanted);
    size_t n = 0;
    int error = traces && wanted ? 0 : -ENOMEM;
    why[0] = '\0';
    for (size_t w = 0; w < s->n_workloads && !error; w++) { /* all of them first: bad input costs no work */
        kvb_progress_now("reading %s", s->workloads[w].name);
        error = workload_load(options, s->workloads[w].path, &traces[w], why, why_bytes);
    }
    if (!error && options->pools_must_fit)
        error = pools_check(s, traces, why, why_bytes);
    if (!error)
        error = wanted_ask(options, wanted, &n);
    if (!error && n)
        error = lanes_run(options, traces, wanted, why, why_bytes);
    for (size_t w = 0; traces && w < s->n_workloads; w++)
        kvb_trace_free(traces[w]);
    free(traces);
    free(wanted);
    if (error && !why[0])
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}
