/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of results/: a manifest, a result with a value in every field, and a folder to write to. */
#ifndef KVB_SAMPLE_H
#define KVB_SAMPLE_H

#include <math.h>
#include <stdio.h>

#include "results/result.h"

static const kvb_manifest sample_manifest = {
    .version = "0.1.0",
    .commit = "abc",
    .compiler = "gcc 12",
    .flags = "-O2",
    .cpu_model = "A \"CPU\"",
    .cpu_features = "avx2 fma f16c",
    .isa = "avx2",
    .cores = 2,
    .threads_max = 4,
    .memory_bytes = 8ull << 30,
    .os = "Linux",
    .openblas_version = "0.3.21",
    .openblas_core = "Haswell",
    .suite = "quick",
    .seed = UINT64_MAX, /* more than the JSON library's integers can hold */
    .shard = "2/3",
    .joined = {{"2025-01-01T00:00:00Z", "A", "avx2", 2}, {"2025-01-02T00:00:00Z", "B", "portable", 4}},
    .n_joined = 2,
    .date = "2025-01-01T00:00:00Z",
    .command = "kvbench run",
    .host = {.cpus = 4,
             .name = "box",
             .hypervisor = "none",
             .load_1m = 0.25,
             .load_5m = 0.5,
             .load_15m = NAN,
             .mhz = 2400,
             .caches = {{"Data", 1, 2, 32768}, {"Unified", 2, 4, 1 << 20}},
             .n_caches = 2,
             .unknown = "governor: none"},
};

static inline void sample_fill(kvb_result *r)
{
    double samples[] = {1500, 1000, 1250.5};

    kvb_result_init(r);
    snprintf(r->workload, KVB_NAME, "agent-fork");
    snprintf(r->cache, KVB_NAME, "seq");
    snprintf(r->pool_k, KVB_NAME, "f16");
    snprintf(r->pool_v, KVB_NAME, "f32");
    snprintf(r->kernel, KVB_NAME, "reference");
    r->threads = 2;
    r->status = KVB_STATUS_FAIL;
    snprintf(r->reason, KVB_REASON, "rho > 1 at \"x\"\n");
    snprintf(r->replay, KVB_REPLAY, "kvbench run 'a b'");
    r->rho = INFINITY;
    snprintf(r->out_digest, sizeof r->out_digest, "cbf29ce484222325");
    r->error.rho_worst = 0.25;
    r->error.max_abs = 1e-30;
    r->error.checked_rows = 10;
    r->error.total_rows = 1ull << 40;
    r->error.has_place = true;
    r->error.event = 7;
    r->error.channel = 128;
    r->error.want = 0.1;
    r->error.bound = 1e-6;
    r->error.filter_rows = 128;
    r->error.filter_z = 3.5;
    r->error.unsaid_rows = 3;
    r->error.unsaid_of = 10;
    r->memory.prompts_offered = 90;
    r->memory.prompts_found = 48;
    r->error.witness_queries = 3;
    kvb_time_stats_of(samples, 3, &r->time.all);
    r->time.kinds[KVB_KIND_DECODE] = r->time.all;
    r->traffic.bytes_read = 123456789012;
    r->traffic.gb_per_s = 3.25;
    r->traffic.of_read = 0.125;
    r->memory.allocator_peak = 1048576;
    r->time.series[0] = 1250.5;
    r->time.series[1] = 1200;
    r->time.n_series = 2;
    r->time.contexts[0] = (kvb_context_point){64, 1000.25, 6};
    r->time.contexts[1] = (kvb_context_point){128, 1500, 3};
    r->time.n_contexts = 2;
    r->memory.timeline[0] = (kvb_memory_point){0, 1 << 20, 3 << 20};
    r->memory.n_timeline = 1;
    r->memory.groups[0] = (kvb_group_memory){5, 40, 48, 50};
    r->memory.n_groups = 1;
    r->n_counters = 2;
    snprintf(r->counters[0].name, sizeof r->counters[0].name, "cycles");
    snprintf(r->counters[0].unavailable, sizeof r->counters[0].unavailable, "not permitted");
    snprintf(r->counters[1].name, sizeof r->counters[1].name, "page_faults");
    r->counters[1].value = 42;
    r->counters[1].share = 0.5;
}

#endif
