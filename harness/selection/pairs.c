/* SPDX-License-Identifier: Apache-2.0 */
/* What can run is asked first, then covered. */
#include "harness/selection/pairs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "caches/call.h"
#include "harness/matrix/slice.h"
#include "harness/replay/apart.h"
#include "harness/replay/replay.h"

/* ---- the rule ------------------------------------------------------------------------------------------------ */

/* Which pairs have met: for each two dimensions a table of their values. */
typedef struct meetings {
    const size_t *sizes;
    size_t first[KVB_PAIRS_DIMS][KVB_PAIRS_DIMS]; /* of the two's table in `met` */
    bool *met;
} meetings;

/* Counts the pairs of a combination that have not met yet; marks them if asked to. */
static unsigned meet(meetings *m, size_t i, bool mark)
{
    size_t at[KVB_PAIRS_DIMS];
    unsigned n = 0;
    for (size_t d = KVB_PAIRS_DIMS; d-- > 0; i /= m->sizes[d])
        at[d] = i % m->sizes[d];
    for (size_t a = 0; a < KVB_PAIRS_DIMS; a++)
        for (size_t b = a + 1; b < KVB_PAIRS_DIMS; b++) {
            bool *met = &m->met[m->first[a][b] + at[a] * m->sizes[b] + at[b]];
            n += !*met;
            *met |= mark;
        }
    return n;
}

int64_t kvb_pairs_cover(const size_t sizes[KVB_PAIRS_DIMS], const bool *can, bool *chosen)
{
    meetings m = {.sizes = sizes};
    size_t n = 1, pairs = 0;
    int64_t n_chosen = 0;
    for (size_t a = 0; a < KVB_PAIRS_DIMS; a++) {
        n *= sizes[a];
        for (size_t b = a + 1; b < KVB_PAIRS_DIMS; b++) {
            m.first[a][b] = pairs;
            pairs += sizes[a] * sizes[b];
        }
    }
    m.met = calloc(pairs + 1, sizeof *m.met);
    if (!m.met)
        return -ENOMEM;
    memset(chosen, 0, n * sizeof *chosen);
    /* What is new of a combination only becomes less: those passed over with fewer need not be looked at again. */
    for (unsigned most = KVB_PAIRS_DIMS * (KVB_PAIRS_DIMS - 1) / 2; most > 0; most--)
        for (size_t i = 0; i < n; i++)
            if (can[i] && !chosen[i] && meet(&m, i, false) == most) {
                meet(&m, i, true);
                chosen[i] = true;
                n_chosen++;
            }
    free(m.met);
    return n_chosen;
}

/* ---- what can run -------------------------------------------------------------------------------------------- */

/* The answers lie in memory that is shared with the process in which kernels are asked. */
typedef struct question {
    const kvb_pairs_options *options;
    const kvb_selection *selection;
    kvb_trace *const *traces;
    size_t kernel; /* the one being asked */
    bool *refused; /* [workloads][pools][kernels] by the kernel; false until it is asked */
} question;

static bool *refused_at(const question *q, size_t workload, size_t pools, size_t kernel)
{
    return &q->refused[(workload * q->selection->n_pools + pools) * q->selection->n_kernels + kernel];
}

/* Does the kernel take rows of these pools in every group of layers? Asked as a replay does, of a cache without cells. */
static bool kernel_takes(const question *q, const kvb_trace *trace, const kvb_pool_pair *pools)
{
    static const kvb_team alone = {.n = 1};
    const kvb_kernel *kernel = q->selection->kernels[q->kernel];
    kvb_call call = {.kernel = kernel,
                     .team = &alone,
                     .out_elem = q->options->out_elem,
                     .no_staging = q->options->no_staging,
                     .deterministic = q->options->deterministic};
    kvb_mask_kind mask = KVB_MASK_NONE;
    char why[256];
    int error = 0;
    while (mask + 1 < KVB_MASK_KINDS && !(kernel->masks & KVB_MASK_BIT(mask)))
        mask++;
    for (uint32_t g = 0; g < trace->header.model.n_groups && error != -ENOTSUP; g++) {
        const kvb_group *group = &trace->header.model.groups[g];
        const kvb_pool_type *v = group->latent ? pools->k : pools->v;
        const kvb_attend_spec spec = {.group = group,
                                      .k = {.format = pools->k->format, .dim = group->k_dim},
                                      .v = {.format = v->format, .dim = group->v_dim},
                                      .mask = {.kind = mask}};
        error = kvb_call_prepare(&call, &spec, NULL, 1, why, sizeof why);
    }
    kvb_call_free(&call);
    return error != -ENOTSUP;
}

/* Everything about one kernel. */
static void kernel_ask(void *ctx)
{
    const question *q = ctx;
    const kvb_selection *s = q->selection;
    const kvb_kernel *kernel = s->kernels[q->kernel];
    char why[KVB_REASON];
    bool available = !kernel->available || kernel->available(why, sizeof why);
    for (size_t w = 0; w < s->n_workloads; w++)
        for (size_t p = 0; p < s->n_pools; p++)
            *refused_at(q, w, p, q->kernel) = !available || !kernel_takes(q, q->traces[w], &s->pools[p]);
}

/* Most (query, cell) pairs that a step attends in a group of layers. */
static uint64_t step_pairs(const kvb_trace *trace, const kvb_group *group, bool forgets)
{
    uint64_t limit = group->window ? (uint64_t)group->window + group->sinks : group->chunk ? group->chunk : UINT64_MAX;
    uint64_t most = 0;
    for (size_t e = 0; e < trace->n_events; e++) {
        const kvb_event *event = &trace->events[e];
        uint64_t length[KVB_TRACE_MAX_SEQS] = {0}, pairs = 0;
        bool asks =
            event->kind == KVB_EVENT_STEP || event->kind == KVB_EVENT_PREFILL || event->kind == KVB_EVENT_PROPOSE;
        for (uint32_t i = 0; asks && i < event->n; i++) {
            uint64_t past = (uint64_t)event->pos[i] + 1,
                     *l = &length[event->kind == KVB_EVENT_PROPOSE ? 0 : event->seq[i]];
            pairs += forgets ? 0 : past < limit ? past : limit;
            *l = *l > past ? *l : past;
        }
        for (size_t i = 0; i < KVB_TRACE_MAX_SEQS; i++) { /* a cache that forgets asks for the whole past as well */
            uint64_t short_past = length[i] < limit ? length[i] : limit;
            pairs += forgets ? short_past * (short_past + 1) / 2 + (length[i] - short_past) * short_past : 0;
        }
        most = most > pairs ? most : pairs;
    }
    return most;
}

/* Can the cache do what the trace wants, in steps that are not too large? */
static bool cache_fits(const kvb_pairs_options *o, const kvb_trace *trace, const kvb_cache_type *cache)
{
    char why[KVB_REASON];
    bool fits = kvb_replay_fits(trace, cache, why, sizeof why);
    for (uint32_t g = 0; g < trace->header.model.n_groups && fits; g++)
        fits = step_pairs(trace, &trace->header.model.groups[g], cache->flags & KVB_CACHE_FORGETS) <= o->max_pairs;
    return fits;
}

static int kernels_ask(question *q)
{
    const kvb_selection *s = q->selection;
    int error = 0;
    for (q->kernel = 0; q->kernel < s->n_kernels && !error; q->kernel++) {
        error = kvb_apart(kernel_ask, q, q->options->seconds);
        if (error == -ECHILD) /* it crashes: so will its combinations, one by one */
            error = 0;
    }
    return error;
}

/* can [workloads x values][pools][caches][kernels] */
static int possible_ask(question *q, bool *can)
{
    const kvb_selection *s = q->selection;
    size_t each = s->n_threads * s->n_growths, n = kvb_matrix_size(s) / (each ? each : 1);
    bool *fits = calloc(s->n_workloads * (s->n_caches + s->n_pools) + 1, sizeof *fits);
    int error = fits ? kernels_ask(q) : -ENOMEM;
    bool *cache = fits, *pool = fits ? fits + s->n_workloads * s->n_caches : NULL;
    char why[KVB_REASON];
    for (size_t w = 0; w < s->n_workloads && !error; w++) {
        for (size_t c = 0; c < s->n_caches; c++)
            cache[w * s->n_caches + c] = cache_fits(q->options, q->traces[w], s->caches[c]);
        for (size_t p = 0; p < s->n_pools; p++)
            pool[w * s->n_pools + p] = kvb_pair_fits(&s->pools[p], &q->traces[w]->header.model, why, sizeof why);
    }
    for (size_t i = 0; i < n && !error; i++) {
        kvb_spot at = kvb_spot_of(s, i * each);
        can[i] = s->has[i * each] && cache[at.workload * s->n_caches + at.cache] &&
                 pool[at.workload * s->n_pools + at.pools] && !*refused_at(q, at.workload, at.pools, at.kernel);
    }
    free(fits);
    return error;
}

/* ---- the choice ---------------------------------------------------------------------------------------------- */

/* One combination for each value that is in none of the chosen. */
static void lonely_add(const kvb_selection *s, const size_t sizes[KVB_PAIRS_DIMS], size_t n, size_t each, bool *chosen)
{
    for (size_t d = 0, stride = n; d < KVB_PAIRS_DIMS; d++) {
        stride /= sizes[d];
        for (size_t value = 0; value < sizes[d]; value++) {
            bool met = false;
            size_t first = n;
            for (size_t i = 0; i < n && !met; i++)
                if (i / stride % sizes[d] == value && s->has[i * each]) {
                    met = chosen[i];
                    first = first < n ? first : i;
                }
            if (!met && first < n)
                chosen[first] = true;
        }
    }
}

static int selection_thin(kvb_selection *s, const bool *can, bool *chosen)
{
    const size_t sizes[KVB_PAIRS_DIMS] = {s->n_workloads * s->n_values, s->n_pools, s->n_caches, s->n_kernels};
    size_t each = s->n_threads * s->n_growths, n = kvb_matrix_size(s) / each;
    int64_t found = kvb_pairs_cover(sizes, can, chosen);
    if (found < 0)
        return (int)found;
    lonely_add(s, sizes, n, each, chosen);
    s->n_has = s->n_left_out = 0;
    for (size_t i = 0; i < n * each; i++) {
        s->n_left_out += can[i / each] && !chosen[i / each];
        s->has[i] = s->has[i] && chosen[i / each];
        s->n_has += s->has[i];
    }
    return 0;
}

static int traces_load(const kvb_pairs_options *o, const kvb_selection *s, kvb_trace **traces, char *why,
                       size_t why_bytes)
{
    int error = 0;
    for (size_t w = 0; w < s->n_workloads && !error; w++) {
        error = kvb_trace_load(s->workloads[w].path, o->capacity, &traces[w], why, why_bytes);
        if (!error)
            error = kvb_trace_change_logits(traces[w], &o->logits);
        else if (error != -ENOMEM)
            error = -EINVAL; /* whatever is wrong with a file is bad input */
    }
    return error;
}

int kvb_pairs_choose(const kvb_pairs_options *options, kvb_selection *s, char *why, size_t why_bytes)
{
    size_t n = kvb_matrix_size(s), bytes = s->n_workloads * s->n_pools * s->n_kernels + 1;
    kvb_trace **traces = calloc(s->n_workloads + 1, sizeof *traces);
    bool *can = calloc(2 * n + 1, sizeof *can);
    bool *refused = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    question q = {.options = options, .selection = s, .traces = traces, .refused = refused};
    int error = traces && can && refused != MAP_FAILED ? 0 : -ENOMEM;
    why[0] = '\0';
    if (!error && n)
        error = traces_load(options, s, traces, why, why_bytes);
    if (!error && n)
        error = possible_ask(&q, can);
    if (!error && n)
        error = selection_thin(s, can, can + n);
    for (size_t w = 0; traces && w < s->n_workloads; w++)
        kvb_trace_free(traces[w]);
    free(traces);
    free(can);
    if (refused != MAP_FAILED)
        munmap(refused, bytes);
    if (error && !why[0])
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}
