/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements of a replay: step times by kind, times against context, the roofline, traffic, memory. */
#ifndef KVB_METER_H
#define KVB_METER_H

#include "caches/cache.h"
#include "harness/machine/bandwidth.h"
#include "kernels/view.h"
#include "results/result.h"
#include "workloads/trace.h"

/*
 * The kind of step that an event is; each kind is timed by itself. prefill: several tokens of one sequence; decode: one
 * token per sequence; fork: a decode with two branches of a trunk; verify: a draft tree; fill; control.
 */

static inline kvb_step_kind kvb_step_kind_of(const kvb_event *event)
{
    static const kvb_step_kind kinds[] = {[KVB_EVENT_STEP] = KVB_KIND_DECODE,
                                          [KVB_EVENT_PREFILL] = KVB_KIND_PREFILL,
                                          [KVB_EVENT_FILL] = KVB_KIND_FILL,
                                          [KVB_EVENT_PROPOSE] = KVB_KIND_VERIFY};
    return event->kind > KVB_EVENT_PROPOSE ? KVB_KIND_CONTROL
           : event->several                ? KVB_KIND_PREFILL
           : event->branches               ? KVB_KIND_FORK
                                           : kinds[event->kind];
}

/*
 * Step times, in the order of the steps, reported as order statistics. A replay makes several passes over the same
 * events, so each pass has n / passes samples of a kind.
 */

/* Times of one kind of step, in ns. Zero at first. */
typedef struct kvb_samples {
    double *ns;
    size_t n, room;
} kvb_samples;

int kvb_sample_add(kvb_samples *samples, double ns); /* 0 or -ENOMEM */
void kvb_samples_free(kvb_samples *samples);
double kvb_samples_median(const kvb_samples *samples); /* NAN: there are none, or there is no memory */

/* Sum of the times of one pass. */
double kvb_samples_pass(const kvb_samples *samples, size_t passes, size_t pass);

/* The kind of attending step (prefill, decode, fork, verify) with the most operations. It depends on the trace alone, so
 * all combinations are compared by the same steps. */
kvb_step_kind kvb_kind_main(const double flops[KVB_STEP_KINDS]);

/* Passes at the start that were still getting faster; 1 at least, if there are two or more. */
size_t kvb_warmup_passes(const kvb_samples times[KVB_STEP_KINDS], size_t passes);

/* Relative width of the 95 % interval of the median of one kind, from its pass medians; INFINITY below 4 passes. */
double kvb_samples_width(const kvb_samples *samples, size_t passes, size_t warmup);

/*
 * Fills the time part of the result, except harness_share and cache_state, without the warm-up passes. With 4 passes or
 * more, the median and its interval are those of the pass medians, and the null comparison sets even passes against odd
 * ones, of the kind `most`. With fewer passes all three come from single steps. 0 or -ENOMEM.
 */
int kvb_samples_report(const kvb_samples times[KVB_STEP_KINDS], kvb_step_kind most, size_t passes, size_t warmup,
                       kvb_result *result);

/* Step times against context: the time of a step by the number of cells that it reads. */

/*
 * Fills time.contexts. times: of one kind of step, passes x steps; cells: [steps] unique cells that each step of a pass
 * reads in one layer. Steps with the same number of cells always share a point. 0 or -ENOMEM.
 */
int kvb_contexts_report(const kvb_samples *times, const kvb_samples *cells, size_t passes, size_t warmup,
                        kvb_result *result);

/*
 * The limits of the machine: its multiply-add peak, and its read bandwidth at the working set and thread count of the
 * compared steps. The bandwidth is measured between passes, so that drift cancels.
 */

typedef struct kvb_roofline {
    const kvb_team *team;
    kvb_probe_memory memory;
    size_t working_set; /* bytes; 0: nothing to probe */
    kvb_samples rates;  /* GB/s */
} kvb_roofline;

/* working_set: bytes that the median step reads. 0 or -ENOMEM. */
int kvb_roofline_open(kvb_roofline *roofline, const kvb_team *team, double working_set);
int kvb_roofline_probe(kvb_roofline *roofline); /* one more sample */
void kvb_roofline_close(kvb_roofline *roofline);

/* Fills the rates of the result's traffic: `bytes` and `flops` of one pass took `ns`. */
void kvb_roofline_report(const kvb_roofline *roofline, double bytes, double flops, double ns, double peak_gflop_per_s,
                         kvb_result *result);

/*
 * The reads and operations of a step's attention in one layer, counted from its mask and the formats:
 *   unique  rows of cells that at least one query sees, once for each KV head;
 *   walk    rows that would be read if each query and query head walked its cells alone;
 *   flops   a multiply and an add for each element of q.k and of p.v.
 */

typedef struct kvb_traffic {
    uint64_t unique_cells; /* seen by at least one query */
    uint64_t pairs;        /* (query, cell) pairs seen */
    uint64_t mask_words;   /* 8-byte words of the mask */
} kvb_traffic;

/* seen: scratch of (n_cells + 63) / 64 words. */
void kvb_traffic_count(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint64_t *seen, kvb_traffic *traffic);

/* Memory after each event of a replay's first pass, for the record and for the file of the knob `timeline`. */

/* Opens a timeline and writes its heading; the caller closes it with fclose. NULL with errno. */
FILE *kvb_timeline_open(const char *path);

/* One line of the timeline; `number` is the event's, counted from 0. */
void kvb_timeline_print(FILE *timeline, const kvb_result *result, uint32_t number, const kvb_event *event,
                        kvb_step_kind kind, const kvb_cache_usage *usage, const kvb_allocator *allocator);

/* Points in the order of events. Zero at first. */
typedef struct kvb_memory_log {
    kvb_memory_point *at;
    size_t n, room;
} kvb_memory_log;

int kvb_memory_log_add(kvb_memory_log *log, kvb_memory_point point); /* 0 or -ENOMEM */
/* Fills memory.timeline with all points if they fit, else with evenly spread ones and the highest of each curve. */
void kvb_memory_log_report(const kvb_memory_log *log, kvb_result *result);
void kvb_memory_log_free(kvb_memory_log *log);

#endif
