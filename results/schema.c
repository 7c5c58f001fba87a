/* SPDX-License-Identifier: Apache-2.0 */
/* The schema "kvbench.result/5": which keys a line has, in which order, and where each lies in memory. */
#include "results/schema.h"

/* clang-format off */
#define FIELD(record, kind, key, member) \
    {key, KVB_FIELD_##kind, offsetof(record, member), sizeof(((record *)0)->member), NULL, NULL, 0}
#define FIXED(key, text)     {key, KVB_FIELD_FIXED, 0, 0, NULL, text, 0}
#define OBJECT(key, fields)  {key, KVB_FIELD_OBJECT, 0, 0, fields, NULL, 0}
#define ELEMENT(type, kind, fields) {NULL, KVB_FIELD_##kind, 0, sizeof(type), fields, NULL, 0} /* of an array */
#define ARRAY(record, key, member, n, element) \
    {key, KVB_FIELD_ARRAY, offsetof(record, member), sizeof(((record *)0)->member), &(element), NULL, offsetof(record, n)}
#define END                  {NULL, KVB_FIELD_KINDS, 0, 0, NULL, NULL, 0}

static const kvb_field read_fields[] = {
    FIELD(kvb_machine_rates, REAL, "L1", read[0]),
    FIELD(kvb_machine_rates, REAL, "L2", read[1]),
    FIELD(kvb_machine_rates, REAL, "LLC", read[2]),
    FIELD(kvb_machine_rates, REAL, "DRAM", read[3]),
    END,
};

static const kvb_field triad_fields[] = {
    FIELD(kvb_machine_rates, REAL, "L1", triad[0]),
    FIELD(kvb_machine_rates, REAL, "L2", triad[1]),
    FIELD(kvb_machine_rates, REAL, "LLC", triad[2]),
    FIELD(kvb_machine_rates, REAL, "DRAM", triad[3]),
    END,
};

static const kvb_field peak_fields[] = {
    FIELD(kvb_machine_rates, REAL, "f32", peak[0]),
    FIELD(kvb_machine_rates, REAL, "f16", peak[1]),
    FIELD(kvb_machine_rates, REAL, "bf16", peak[2]),
    FIELD(kvb_machine_rates, REAL, "int8", peak[3]),
    END,
};

static const kvb_field rates_fields[] = {
    FIELD(kvb_machine_rates, U32, "threads", threads),
    OBJECT("read_gb_per_s", read_fields),
    OBJECT("triad_gb_per_s", triad_fields),
    OBJECT("peak_gop_per_s", peak_fields),
    END,
};
static const kvb_field rates = ELEMENT(kvb_machine_rates, OBJECT, rates_fields);

static const kvb_field host_cache_fields[] = {
    FIELD(kvb_host_cache, TEXT, "type", type),
    FIELD(kvb_host_cache, U32,  "level", level),
    FIELD(kvb_host_cache, U64,  "bytes", bytes),
    FIELD(kvb_host_cache, U32,  "sharing", sharing),
    END,
};
static const kvb_field host_cache = ELEMENT(kvb_host_cache, OBJECT, host_cache_fields);

static const kvb_field host_fields[] = {
    FIELD(kvb_host, U64,  "cpus", cpus),
    FIELD(kvb_host, NOTE, "name", name),
    FIELD(kvb_host, NOTE, "hypervisor", hypervisor),
    FIELD(kvb_host, NOTE, "governor", governor),
    FIELD(kvb_host, REAL, "load_1m", load_1m),
    FIELD(kvb_host, REAL, "load_5m", load_5m),
    FIELD(kvb_host, REAL, "load_15m", load_15m),
    FIELD(kvb_host, REAL, "mhz", mhz),
    ARRAY(kvb_host, "caches", caches, n_caches, host_cache),
    FIELD(kvb_host, NOTE, "unknown", unknown),
    END,
};

static const kvb_field joined_fields[] = {
    FIELD(kvb_joined, TEXT, "date", date),
    FIELD(kvb_joined, TEXT, "cpu_model", cpu_model),
    FIELD(kvb_joined, TEXT, "isa", isa),
    FIELD(kvb_joined, U32,  "cores", cores),
    END,
};
static const kvb_field joined_shard = ELEMENT(kvb_joined, OBJECT, joined_fields);

const kvb_field kvb_manifest_fields[] = {
    FIXED("schema", KVB_RESULT_SCHEMA),
    FIELD(kvb_manifest, TEXT,  "version", version),
    FIELD(kvb_manifest, TEXT,  "commit", commit),
    FIELD(kvb_manifest, TEXT,  "compiler", compiler),
    FIELD(kvb_manifest, TEXT,  "flags", flags),
    FIELD(kvb_manifest, TEXT,  "cpu_model", cpu_model),
    FIELD(kvb_manifest, WORDS, "cpu_features", cpu_features),
    FIELD(kvb_manifest, TEXT,  "isa", isa),
    FIELD(kvb_manifest, U32,   "cores", cores),
    FIELD(kvb_manifest, U32,   "threads_max", threads_max),
    FIELD(kvb_manifest, U64,   "memory_bytes", memory_bytes),
    FIELD(kvb_manifest, TEXT,  "os", os),
    FIELD(kvb_manifest, TEXT,  "openblas_version", openblas_version),
    FIELD(kvb_manifest, TEXT,  "openblas_core", openblas_core),
    FIELD(kvb_manifest, U32,   "openblas_threads", openblas_threads),
    FIELD(kvb_manifest, NOTE,  "openblas_note", openblas_note),
    FIELD(kvb_manifest, EXTRA, "tuning", tuning),
    FIELD(kvb_manifest, TEXT,  "suite", suite),
    FIELD(kvb_manifest, U64,   "seed", seed),
    FIELD(kvb_manifest, TEXT,  "shard", shard),
    ARRAY(kvb_manifest, "joined", joined, n_joined, joined_shard),
    FIELD(kvb_manifest, TEXT,  "date", date),
    FIELD(kvb_manifest, TEXT,  "command", command),
    {"host", KVB_FIELD_OPTIONAL, offsetof(kvb_manifest, host), 0, host_fields, NULL, offsetof(kvb_host, cpus)},
    ARRAY(kvb_manifest, "machine", machine, n_machine, rates),
    END,
};

static const kvb_field place_fields[] = {
    FIELD(kvb_result, U32,  "event", error.event),
    FIELD(kvb_result, U32,  "layer", error.layer),
    FIELD(kvb_result, U32,  "query", error.query),
    FIELD(kvb_result, U32,  "head", error.head),
    FIELD(kvb_result, U32,  "channel", error.channel),
    FIELD(kvb_result, REAL, "got", error.got),
    FIELD(kvb_result, REAL, "want", error.want),
    FIELD(kvb_result, REAL, "bound", error.bound),
    END,
};

static const kvb_field format_fields[] = {
    FIELD(kvb_result, REAL, "bits_k", error.bits_k),
    FIELD(kvb_result, REAL, "bits_v", error.bits_v),
    FIELD(kvb_result, REAL, "max_abs", error.format_max_abs),
    FIELD(kvb_result, REAL, "rel_l2", error.format_rel_l2),
    FIELD(kvb_result, REAL, "kl_mean", error.format_kl_mean),
    FIELD(kvb_result, REAL, "kl_max", error.format_kl_max),
    END,
};

static const kvb_field witness_fields[] = {
    FIELD(kvb_result, U64, "queries", error.witness_queries),
    FIELD(kvb_result, U64, "cells", error.witness_cells),
    END,
};

static const kvb_field looked_fields[] = {
    FIELD(kvb_looked, U64, "scanned", scanned),
    FIELD(kvb_looked, U64, "opinion", opinion),
    FIELD(kvb_looked, U64, "moved", moved),
    FIELD(kvb_looked, U64, "seed", seed),
    END,
};

static const kvb_field filter_fields[] = { /* relative to filter_rows */
    {"rows", KVB_FIELD_U64, 0, 0, NULL, NULL, 0},
    {"z", KVB_FIELD_REAL, offsetof(kvb_result, error.filter_z) - offsetof(kvb_result, error.filter_rows), 0, NULL, NULL, 0},
    END,
};

static const kvb_field unsaid_fields[] = { /* relative to unsaid_rows */
    {"rows", KVB_FIELD_U64, 0, 0, NULL, NULL, 0},
    {"of", KVB_FIELD_U64, offsetof(kvb_result, error.unsaid_of) - offsetof(kvb_result, error.unsaid_rows), 0, NULL, NULL, 0},
    END,
};

static const kvb_field error_fields[] = {
    FIELD(kvb_result, REAL, "rho_worst", error.rho_worst),
    FIELD(kvb_result, REAL, "rho_lse", error.rho_lse),
    FIELD(kvb_result, REAL, "max_abs", error.max_abs),
    FIELD(kvb_result, REAL, "rel_l2", error.rel_l2),
    FIELD(kvb_result, U64,  "not_finite", error.not_finite),
    FIELD(kvb_result, U64,  "checked_rows", error.checked_rows),
    FIELD(kvb_result, U64,  "total_rows", error.total_rows),
    {"at", KVB_FIELD_PLACE, offsetof(kvb_result, error.has_place), sizeof(bool), place_fields, NULL, 0},
    OBJECT("format", format_fields),
    {"filter", KVB_FIELD_OPTIONAL, offsetof(kvb_result, error.filter_rows), 0, filter_fields, NULL, 0}, /* rows come first */
    {"unsaid", KVB_FIELD_OPTIONAL, offsetof(kvb_result, error.unsaid_rows), 0, unsaid_fields, NULL, 0}, /* likewise */
    OBJECT("witness", witness_fields),
    {"looked", KVB_FIELD_OPTIONAL, offsetof(kvb_result, error.looked), 0, looked_fields, NULL, 0}, /* scanned is first */
    END,
};

#define FOREIGN(key, kind, member) \
    {key, KVB_FIELD_##kind, offsetof(kvb_result, foreign.member) - offsetof(kvb_result, foreign), sizeof(((kvb_result *)0)->foreign.member), NULL, NULL, 0}
static const kvb_field foreign_fields[] = {
    FOREIGN("calls", U64, calls),
    FOREIGN("allocations", U64, allocations),
    FOREIGN("engine", TEXT, engine),
    FOREIGN("rule", TEXT, rule),
    FOREIGN("limit", REAL, limit),
    FOREIGN("relative", REAL, relative),
    FOREIGN("share", REAL, share),
    FOREIGN("outputs", U64, outputs),
    FOREIGN("source", TEXT, source),
    END,
};

static const kvb_field pass_median = ELEMENT(double, REAL, NULL);

static const kvb_field context_fields[] = {
    FIELD(kvb_context_point, COUNT, "cells", cells),
    FIELD(kvb_context_point, REAL,  "ns", ns),
    FIELD(kvb_context_point, U64,   "samples", samples),
    END,
};
static const kvb_field context_point = ELEMENT(kvb_context_point, OBJECT, context_fields);

static const kvb_field kind_fields[] = {
    FIELD(kvb_time_stats, REAL, "median", median),
    FIELD(kvb_time_stats, REAL, "p99", p99),
    FIELD(kvb_time_stats, REAL, "mad", mad),
    FIELD(kvb_time_stats, REAL, "min", min),
    FIELD(kvb_time_stats, REAL, "max", max),
    FIELD(kvb_time_stats, U64,  "samples", samples),
    FIELD(kvb_time_stats, REAL, "total", total),
    FIELD(kvb_time_stats, REAL, "low", low),
    FIELD(kvb_time_stats, REAL, "high", high),
    FIELD(kvb_time_stats, U64,  "outliers", outliers),
    END,
};

#define KIND(key, kind) \
    {key, KVB_FIELD_OPTIONAL, (kind) * sizeof(kvb_time_stats), 0, kind_fields, NULL, offsetof(kvb_time_stats, samples)}
static const kvb_field kinds_fields[] = { /* relative to time.kinds */
    KIND("prefill", KVB_KIND_PREFILL),
    KIND("decode", KVB_KIND_DECODE),
    KIND("fork", KVB_KIND_FORK),
    KIND("verify", KVB_KIND_VERIFY),
    KIND("fill", KVB_KIND_FILL),
    KIND("control", KVB_KIND_CONTROL),
    END,
};

static const kvb_field time_fields[] = {
    FIXED("unit", "ns"),
    FIELD(kvb_result, REAL, "median", time.all.median),
    FIELD(kvb_result, REAL, "p99", time.all.p99),
    FIELD(kvb_result, REAL, "mad", time.all.mad),
    FIELD(kvb_result, REAL, "min", time.all.min),
    FIELD(kvb_result, REAL, "max", time.all.max),
    FIELD(kvb_result, U64,  "samples", time.all.samples),
    FIELD(kvb_result, REAL, "total", time.all.total),
    FIELD(kvb_result, REAL, "low", time.all.low),
    FIELD(kvb_result, REAL, "high", time.all.high),
    FIELD(kvb_result, U64,  "outliers", time.all.outliers),
    {"kinds", KVB_FIELD_OBJECT, offsetof(kvb_result, time.kinds), 0, kinds_fields, NULL, 0},
    ARRAY(kvb_result, "series", time.series, time.n_series, pass_median),
    ARRAY(kvb_result, "contexts", time.contexts, time.n_contexts, context_point),
    FIELD(kvb_result, U64,  "passes", time.passes),
    FIELD(kvb_result, U64,  "warmup", time.warmup),
    FIELD(kvb_result, REAL, "null_difference", time.null_difference),
    FIELD(kvb_result, REAL, "harness_share", time.harness_share),
    FIELD(kvb_result, TEXT, "cache_state", time.cache_state),
    END,
};

static const kvb_field traffic_fields[] = {
    FIELD(kvb_result, TEXT,  "kind", traffic.kind),
    FIELD(kvb_result, COUNT, "bytes_read", traffic.bytes_read),
    FIELD(kvb_result, COUNT, "bytes_walk", traffic.bytes_walk),
    FIELD(kvb_result, COUNT, "cells_read", traffic.cells_read),
    FIELD(kvb_result, COUNT, "flops", traffic.flops),
    FIELD(kvb_result, COUNT, "working_set", traffic.working_set),
    FIELD(kvb_result, REAL,  "gb_per_s", traffic.gb_per_s),
    FIELD(kvb_result, REAL,  "gflop_per_s", traffic.gflop_per_s),
    FIELD(kvb_result, REAL,  "read_gb_per_s", traffic.read_gb_per_s),
    FIELD(kvb_result, REAL,  "peak_gflop_per_s", traffic.peak_gflop_per_s),
    FIELD(kvb_result, REAL,  "of_read", traffic.of_read),
    FIELD(kvb_result, REAL,  "of_limit", traffic.of_limit),
    END,
};

static const kvb_field memory_point_fields[] = {
    FIELD(kvb_memory_point, COUNT, "event", event),
    FIELD(kvb_memory_point, COUNT, "live_bytes", live_bytes),
    FIELD(kvb_memory_point, COUNT, "held_bytes", held_bytes),
    END,
};
static const kvb_field memory_point = ELEMENT(kvb_memory_point, OBJECT, memory_point_fields);

static const kvb_field group_memory_fields[] = {
    FIELD(kvb_group_memory, U32,   "layers", layers),
    FIELD(kvb_group_memory, COUNT, "cells", cells),
    FIELD(kvb_group_memory, COUNT, "cells_peak", cells_peak),
    FIELD(kvb_group_memory, COUNT, "high_water", high_water),
    END,
};
static const kvb_field group_memory = ELEMENT(kvb_group_memory, OBJECT, group_memory_fields);

static const kvb_field prompts_fields[] = { /* relative to prompts_offered */
    {"offered", KVB_FIELD_U64, 0, 0, NULL, NULL, 0},
    {"found", KVB_FIELD_U64, offsetof(kvb_result, memory.prompts_found) - offsetof(kvb_result, memory.prompts_offered), 0, NULL, NULL, 0},
    END,
};

static const kvb_field memory_fields[] = {
    FIELD(kvb_result, COUNT, "allocator_peak", memory.allocator_peak),
    FIELD(kvb_result, COUNT, "allocator_live", memory.allocator_live),
    FIELD(kvb_result, COUNT, "reserved_bytes", memory.reserved_bytes),
    FIELD(kvb_result, REAL,  "utilisation", memory.utilisation),
    FIELD(kvb_result, COUNT, "cells", memory.cells),
    FIELD(kvb_result, COUNT, "cells_peak", memory.cells_peak),
    FIELD(kvb_result, COUNT, "high_water", memory.high_water),
    FIELD(kvb_result, COUNT, "cells_written", memory.cells_written),
    FIELD(kvb_result, COUNT, "cells_moved", memory.cells_moved),
    FIELD(kvb_result, COUNT, "cells_reused", memory.cells_reused),
    {"prompts", KVB_FIELD_OPTIONAL, offsetof(kvb_result, memory.prompts_offered), 0, prompts_fields, NULL, 0}, /* offered is first */
    FIELD(kvb_result, REAL,  "fragmentation", memory.fragmentation),
    FIELD(kvb_result, COUNT, "growths", memory.growths),
    FIELD(kvb_result, COUNT, "copied_bytes", memory.copied_bytes),
    FIELD(kvb_result, REAL,  "copy_ns", memory.copy_ns),
    FIELD(kvb_result, COUNT, "resident_peak", memory.resident_peak),
    FIELD(kvb_result, COUNT, "scratch_bytes", memory.scratch_bytes),
    FIELD(kvb_result, TEXT,  "staged", memory.staged),
    FIELD(kvb_result, COUNT, "staged_bytes", memory.staged_bytes),
    ARRAY(kvb_result, "timeline", memory.timeline, memory.n_timeline, memory_point),
    ARRAY(kvb_result, "groups", memory.groups, memory.n_groups, group_memory),
    END,
};

static const kvb_field counts_fields[] = { /* relative to counts */
#define COUNTED(kind, key) \
    {#key, KVB_FIELD_##kind, offsetof(kvb_result, counts.key) - offsetof(kvb_result, counts), sizeof(((kvb_result *)0)->counts.key), \
     NULL, NULL, 0}
    COUNTED(U64, passes),
    COUNTED(TEXT, source),
    COUNTED(COUNT, instructions),
    COUNTED(COUNT, data_reads),
    COUNTED(COUNT, data_writes),
    COUNTED(COUNT, l1_misses),
    COUNTED(COUNT, ll_misses),
    END,
};

#define AXES(key, kind, member) \
    {key, KVB_FIELD_##kind, offsetof(kvb_result, axes.member) - offsetof(kvb_result, axes), sizeof(((kvb_result *)0)->axes.member), NULL, NULL, 0}
static const kvb_field axes_fields[] = {
    AXES("calls", U64, calls),
    AXES("wrong", U64, wrong),
    AXES("chosen", U64, chosen),
    AXES("silent", U64, silent),
    AXES("values", U64, values),
    AXES("values_of", U64, values_of),
    AXES("pairs", U64, pairs),
    AXES("pairs_of", U64, pairs_of),
    AXES("declined", TEXT, declined),
    AXES("uncovered", TEXT, uncovered),
    END,
};

const kvb_field kvb_result_fields[] = {
    FIELD(kvb_result, TEXT,   "workload", workload),
    FIELD(kvb_result, TEXT,   "cache", cache),
    FIELD(kvb_result, TEXT,   "pool_k", pool_k),
    FIELD(kvb_result, TEXT,   "pool_v", pool_v),
    FIELD(kvb_result, TEXT,   "kernel", kernel),
    FIELD(kvb_result, EXTRA,  "beside", beside),
    FIELD(kvb_result, U32,    "threads", threads),
    FIELD(kvb_result, TEXT,   "growth", growth),
    FIELD(kvb_result, TEXT,   "out", out),
    FIELD(kvb_result, EXTRA,  "setting", setting),
    FIELD(kvb_result, STATUS, "status", status),
    FIELD(kvb_result, NOTE,   "reason", reason),
    FIELD(kvb_result, EXTRA,  "replay", replay),
    FIELD(kvb_result, REAL,   "rho", rho),
    FIELD(kvb_result, NOTE,   "out_digest", out_digest),
    OBJECT("error", error_fields),
    OBJECT("time", time_fields),
    OBJECT("traffic", traffic_fields),
    OBJECT("memory", memory_fields),
    {"axes", KVB_FIELD_OPTIONAL, offsetof(kvb_result, axes), 0, axes_fields, NULL, 0}, /* calls come first */
    FIELD(kvb_result, TEXT,   "placement", placement),
    {"foreign", KVB_FIELD_OPTIONAL, offsetof(kvb_result, foreign), 0, foreign_fields, NULL, 0}, /* calls come first */
    {"counters", KVB_FIELD_COUNTERS, 0, 0, NULL, NULL, 0},
    {"counts", KVB_FIELD_OPTIONAL, offsetof(kvb_result, counts), 0, counts_fields, NULL, 0}, /* passes come first */
    END,
};
