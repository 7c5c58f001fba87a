/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Result files, schema "kvbench.result/5": JSON Lines. Line 1 is the manifest, every other line is one combination.
 * Plain data in, plain data out: nothing here runs, measures or judges.
 *
 * A number that was not measured is null in the file and NaN here. A hardware counter that is missing is null, and its
 * reason stands beside it. JSON has no infinity: 1e308 stands for it (rho, when an output was NaN). Counts and bytes are
 * whole numbers; those above 2^63-1 (a seed may be) are strings of digits. Other numbers carry twelve digits. Every line
 * has all keys below, in this order. A reader refuses unknown keys.
 *
 * Keys of the manifest:
 *   schema, version, commit, compiler, flags, cpu_model, cpu_features [words], isa, cores, threads_max,
 *   memory_bytes, os, openblas_version, openblas_core, openblas_threads, openblas_note or null, tuning (only if settings
 *   of `kvbench tune` were in use: their file), suite, seed, shard,
 *   joined [{date, cpu_model, isa, cores}, …], date, command,
 *   host {cpus, name, hypervisor, governor, load_1m, load_5m, load_15m, mhz, caches [{type, level, bytes, sharing}, …], unknown},
 *   machine [{threads, read_gb_per_s {L1, L2, LLC, DRAM}, triad_gb_per_s {the same}, peak_gop_per_s {f32, f16, bf16,
 *   int8}}]: medians, measured at the start of the run; null where the machine lacks it; [] if not measured
 * shard: "2/3": this file holds every third combination of the run, starting with the second; "" for a whole run.
 * joined: in a file that `kvbench merge` made of n shards, when and where each was run, in their order; else []. Record i
 * (from 0) is of shard i mod n. Facts of the manifest in which shards differ are "several" or 0.
 * host: the machine when the run began; what is not known is null, and `unknown` says why. Left out where shards were run on
 * several, and in files of before it was kept.
 * Keys of a combination's line:
 *   workload, cache, pool_k, pool_v, kernel, beside (only of a model some of whose layers attend and some scan: which kernel ran
 *   the others), threads, growth, out,
 *   setting (only where `kvbench run` chose options beside those typed: "--set softcap=30 --set page-cells=48"), status, reason (null when it passed),
 *   replay (only of what did not pass and was no skip: the command that runs this combination alone, for a shell in the same
 *   folder), rho, out_digest,
 *   error {rho_worst, rho_lse, max_abs, rel_l2, not_finite, checked_rows, total_rows,
 *          at {event, layer, query, head, channel, got, want, bound} or null,
 *          format {bits_k, bits_v, max_abs, rel_l2, kl_mean, kl_max},
 *          filter {rows, z} (only where rows went through the matched filter: oracle/filter.h), witness {queries, cells},
 *          looked {scanned, opinion, moved, seed} (only where rows were looked at beside the checked ones)},
 *   time {unit:"ns", median, p99, mad, min, max, samples, total, low, high, outliers,
 *         kinds {prefill|decode|fork|verify|fill|control: {the same}},
 *         series [median of a pass, …], contexts [{cells, ns, samples}, …],
 *         passes, warmup, null_difference, harness_share, cache_state},
 *   traffic {kind, bytes_read, bytes_walk, cells_read, flops, working_set, gb_per_s, gflop_per_s,
 *            read_gb_per_s, peak_gflop_per_s, of_read, of_limit},
 *   memory {allocator_peak, allocator_live, reserved_bytes, utilisation, cells, cells_peak, high_water,
 *           cells_written, cells_moved, cells_reused, fragmentation, growths, copied_bytes, copy_ns, resident_peak, scratch_bytes,
 *           prompts {offered, found} (only where prompts were offered to a cache that finds their beginnings; tokens),
 *           staged, staged_bytes, timeline [{event, live_bytes, held_bytes}, …],
 *           groups [{layers, cells, cells_peak, high_water}, …]},
 *   same {calls, batch, threads, pages, alignment, again} (only of single calls that were made again, the query alone, with another
 *   team, …: the largest difference in units of the bound, 0: the same bits),
 *   placement,
 *   foreign {calls, allocations, engine, rule, limit, relative, share, outputs, source} (only of kernels that call another engine),
 *   counters {name: value or null, …, unavailable: {name: reason}, multiplexed: {name: share}},
 *   counts {passes, source, instructions, data_reads, data_writes, l1_misses, ll_misses} (only of a run with --count)
 * isa: the highest level of instruction sets that kernels and codecs used: portable, avx2, avxvnni, avx512, avx512vnni, avx512bf16,
 * avx512fp16 or amx.
 * out_digest: FNV-1a (64 bits, hexadecimal) over the bytes of out and lse of every call of the first pass, in order. Of each
 * call only the rows of the event's own queries count. Equal digests mean equal bits. null: nothing was compared.
 * error.at: of a layer that scans query is the number of the token among the event's; the reason says of which row of a state.
 * error.checked_rows: in each pass compared by the bound of each row's own sums, of total_rows. A row of a layer
 * that scans is a token of 16 columns of a head. error.looked, in each pass too:
 * scanned: rows that were read whole, and were finite. opinion: those of them that were compared by a bound from above
 * (oracle/opinion.h, oracle/recurrence.h). moved: rows compared by their own bound that differ from pass to pass, in all passes together. seed: of the
 * sample of checked rows.
 * foreign: calls of the first pass, in which the kernel allocated or freed memory so often, as such a kernel may; engine: what it
 * found, in its own words. rule, limit, relative: by which its own project passes an output (kernels/attend.h), source: where that
 * stands. share: what was found over what that allows, largest of all calls; outputs: so many were compared for it. The verdict is
 * this rule's, and rho is relative to the bound that the formats imply; of a run with --strict both decide.
 * error.format.bits_k, bits_v: bits of one stored value, with its share of scales and zeros.
 * Units: ns, bytes, GB/s = 1e9 bytes per second, GFLOP/s = 1e9 operations per second (a multiply-add is two).
 *
 * time: a replay makes several passes over its workload. Each step of each pass after `warmup` is a sample. With 4 passes or
 * more, median is the median of the passes' medians. low and high are its interval (bootstrap, 95 %).
 * time.null_difference: the combination against itself: even passes against odd ones or, if it was run again in another
 * process, that run against this one; the larger of the two. time.harness_share: the share of the timed time that was spent
 * neither in the cache nor in the kernel.
 * time.series: for each pass after `warmup`, the median of its attending steps, in the order of the passes. `compare` compares
 * these. If there are more than KVB_SERIES passes, equal blocks of neighbours are joined into their median; passes at the
 * start that fill no block are left out. [] if there are fewer than 4 passes after `warmup`.
 * time.contexts: time of the steps of traffic.kind against the unique cells that they read (in one layer), ascending. One
 * point for each number of cells; if these are more than KVB_CONTEXTS, neighbours are joined so that points stand for about
 * as many steps each. A point is the median over all passes after `warmup`.
 * traffic: of one pass; bytes_read has the states that scans read and those that they write. The rates are those of the step
 * kind with the most operations, in the median pass. read_gb_per_s is the read-only bandwidth, measured between the passes with the same working set and thread count. of_limit is the least
 * time that the machine needs, max(bytes / read bandwidth, flops / peak), over the time taken.
 * memory.growths, copied_bytes, copy_ns: how often the pools grew in one pass, what that copied, and how long it took.
 * memory.resident_peak is of the whole child process, with the workload's values and the memory of the bandwidth probe.
 * memory.staged: "k", "v" or "kv" if these rows were decoded to f32 for a kernel that does not read their format, else "".
 * counts: exact, of the steps of one pass and not of the checks, by the source's model of a CPU with two levels of data caches.
 * Counts of two sources are not compared.
 * memory.timeline: bytes of the rows of live cells, and bytes that the cache's allocator holds, after events of the first pass.
 * At most KVB_MEMORY_POINTS; the first, the last and the highest points are kept.
 */
#ifndef KVB_RESULT_H
#define KVB_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "results/table.h"

/* The checks that a combination can fail. */

typedef enum kvb_check {
    KVB_CHECK_NONE,
    KVB_CHECK_BOUND,       /* an output or log-sum-exp is off by more than the declared arithmetic allows */
    KVB_CHECK_EXACT,       /* an output has another bit than the declared order of additions gives */
    KVB_CHECK_TOLERANCE,   /* a call's outputs are off by more than the kernel's own project tolerates */
    KVB_CHECK_FILTER,      /* errors of many rows point the same way */
    KVB_CHECK_OPINION,     /* an output that no sample holds is off by more than its bound from above */
    KVB_CHECK_STATE,       /* a state that a token left in a slot is off by more than its bound */
    KVB_CHECK_FINITE,      /* an output is not finite where it must be */
    KVB_CHECK_STORED,      /* a cell that is seen holds no row, by the account of what the cache wrote */
    KVB_CHECK_DECLARATION, /* q is rounded otherwise than the kernel declares, or it declares too much */
    KVB_CHECK_POISON,      /* what a query does not see reaches it */
    KVB_CHECK_WITNESS,     /* a query saw other tokens than it may */
    KVB_CHECK_WRITTEN,     /* an output was left as it was */
    KVB_CHECK_MARGINS,     /* something was written beside the outputs or the scratch */
    KVB_CHECK_INPUTS,      /* q was written to */
    KVB_CHECK_ALLOCATIONS, /* attend() took or gave back memory, or started a thread */
    KVB_CHECK_RETURN,      /* attend() returned something else than 0 */
    KVB_CHECK_PROTOCOL,    /* a cache refused what fits, or asked for what is not there; a pool misstates its memory */
    KVB_CHECK_POOL,        /* a pool by itself stores, moves, counts or shows rows wrongly */
    KVB_CHECK_DETERMINISTIC, /* other bits with another number of threads, though the same were asked for */
    KVB_CHECK_CRASH,         /* a signal or an exit; that is also how a guard page catches what reads or writes there */
    KVB_CHECK_TIMEOUT,
    KVB_CHECKS
} kvb_check;

extern const char *const kvb_check_names[KVB_CHECKS]; /* "-", "bound", … */

/* Bit i: check i finds nothing. For showing what the others would miss (kvbench faults --without); else 0. */
extern uint32_t kvb_checks_off;

static inline int kvb_check_is_off(kvb_check check)
{
    return kvb_checks_off >> check & 1;
}

#define KVB_RESULT_SCHEMA "kvbench.result/5"
#define KVB_NAME          64u
#define KVB_REASON        1024u
#define KVB_REPLAY        2048u
#define KVB_SERIES        64u
#define KVB_CONTEXTS      32u
#define KVB_FOREIGN_TEXT  128u
#define KVB_MEMORY_POINTS 64u

typedef enum kvb_status {
    KVB_STATUS_PASS,
    KVB_STATUS_FAIL,
    KVB_STATUS_SKIP,
    KVB_STATUS_CRASH,
    KVB_STATUS_TIMEOUT,
    KVB_STATUS_COUNTED, /* work was counted; nothing was judged or timed */
    KVB_STATUSES
} kvb_status;
const char *kvb_status_name(kvb_status status);
/* Was it judged, or did it end before it could be? */
static inline bool kvb_status_is_verdict(kvb_status status)
{
    return status != KVB_STATUS_SKIP && status != KVB_STATUS_COUNTED;
}
/* Did it run and not pass? */
static inline bool kvb_status_is_bad(kvb_status status)
{
    return kvb_status_is_verdict(status) && status != KVB_STATUS_PASS;
}

/* Step kinds that are timed apart. */
typedef enum kvb_step_kind {
    KVB_KIND_PREFILL,
    KVB_KIND_DECODE,
    KVB_KIND_FORK, /* decode of several branches of one trunk together */
    KVB_KIND_VERIFY,
    KVB_KIND_FILL,    /* rows stored without queries */
    KVB_KIND_CONTROL, /* seq_cp, seq_rm, seq_keep, commit, rewind, clear */
    KVB_STEP_KINDS
} kvb_step_kind;
const char *kvb_step_kind_name(kvb_step_kind kind);

/* Nanoseconds per step. Without a step all are NaN and samples is 0. */
typedef struct kvb_time_stats {
    double median, p99, mad, min, max, total;
    double low, high; /* interval of the median */
    uint64_t samples, outliers;
} kvb_time_stats;

/* Fills in the order statistics of n samples, and sorts these in place. p99 is the nearest-rank percentile. The
 * interval stays NaN. */
void kvb_time_stats_of(double *samples, size_t n, kvb_time_stats *stats);

/* Steps with about the same context: unique cells read in one layer, and the median time. */
typedef struct kvb_context_point {
    double cells, ns;
    uint64_t samples;
} kvb_context_point;

/* Memory after an event. Events count from 0. */
typedef struct kvb_memory_point {
    double event, live_bytes, held_bytes;
} kvb_memory_point;

/* Cells of one group of layers, at the end of a pass and at most. */
#define KVB_RESULT_GROUPS 32u
typedef struct kvb_group_memory {
    uint32_t layers;
    double cells, cells_peak, high_water;
} kvb_group_memory;

#define KVB_COUNTERS 32u
typedef struct kvb_counter {
    char name[KVB_NAME];
    double value;         /* NaN: null */
    double share;         /* share of the time in which it was counted; NaN: all of it */
    char unavailable[96]; /* why the value is null */
} kvb_counter;

/* Rows that were looked at beside the checked ones. */
typedef struct kvb_looked {
    uint64_t scanned, opinion, moved, seed;
} kvb_looked;

/* Where a combination fails first, in words: not in records. Empty: the reason has all that is known. */
typedef struct kvb_where {
    uint64_t line; /* of the trace; 0: no line is known */
    uint32_t layer;
    char event[192];   /* "line 2: prefill of 48 tokens in sequence 0" */
    char pattern[128]; /* "every 8th query, every head"; empty: not all rows of the call were compared */
    char rows[400];    /* "heads 0 to 3, queries 7, 15, 23" */
    char element[256]; /* "query 7, head 0, channel 0: got -0.08, exact 0.11, bound 1e-07" */
    char witness[256]; /* "each query saw the right tokens", or what a query saw; empty: no witness looked */
} kvb_where;

/* Ways to make a row again by which a kernel may give other bits, though either is right. */
typedef enum kvb_same_kind {
    KVB_SAME_BATCH,     /* the query, or the sequence of a scan, alone, with no others beside it */
    KVB_SAME_STEPS,     /* scans: a token in each call, where a call had many */
    KVB_SAME_THREADS,   /* a team of another size */
    KVB_SAME_PAGES,     /* the same tokens in other pages, the same states in other slots */
    KVB_SAME_ALIGNMENT, /* inputs and outputs that begin elsewhere */
    KVB_SAME_AGAIN,     /* after another call */
    KVB_SAME_KINDS
} kvb_same_kind;
extern const char *const kvb_same_names[KVB_SAME_KINDS]; /* "batch", … */

typedef struct kvb_result {
    char workload[KVB_NAME], cache[KVB_NAME], pool_k[KVB_NAME], pool_v[KVB_NAME], kernel[KVB_NAME];
    char beside[KVB_NAME]; /* the kernel of the other layers, where some attend and some scan; empty: no such key */
    uint32_t threads;
    char growth[KVB_NAME]; /* "double", "double+thp", "reserve", "reserve+thp", "exact" */
    char out[8];           /* element of the outputs: "f32", "f16", "bf16" */
    char setting[128];     /* options of the run that pairs chose for it; empty: no such key */
    kvb_status status;
    kvb_check check;         /* that failed it; not in records */
    char reason[KVB_REASON]; /* empty: null */
    kvb_where where;
    char replay[KVB_REPLAY]; /* empty: no such key */
    double rho;              /* NaN: null */
    char out_digest[24];     /* empty: null */
    struct {
        double rho_worst, rho_lse, max_abs, rel_l2;
        uint64_t not_finite, checked_rows, total_rows;
        kvb_looked looked;
        bool has_place;
        uint32_t event, layer, query, head, channel;
        double got, want, bound;
        double bits_k, bits_v;
        double format_max_abs, format_rel_l2, format_kl_mean, format_kl_max; /* NaN: not judged */
        uint64_t filter_rows; /* that the matched filter judged (oracle/filter.h) */
        double filter_z;      /* its largest z */
        uint64_t unsaid_rows,
            unsaid_of; /* compared rows that the declaration says nothing about (oracle/claim.h), and all */
        uint64_t witness_queries, witness_cells; /* checked by a witness: 0 for other kernels */
    } error;
    struct {
        kvb_time_stats all; /* the steps that attend: prefill, decode, fork, verify */
        kvb_time_stats kinds[KVB_STEP_KINDS];
        double series[KVB_SERIES];
        kvb_context_point contexts[KVB_CONTEXTS];
        uint32_t n_series, n_contexts;
        uint64_t passes, warmup;
        double null_difference, harness_share;
        char cache_state[KVB_NAME]; /* "natural", "hot", "cold" */
    } time;
    struct {
        char kind[KVB_NAME]; /* the step kind that the rates are about */
        double bytes_read;   /* unique K and V bytes that the steps of one pass read */
        double bytes_walk;   /* what they would read if each query and query head read for itself */
        double cells_read;   /* unique visible cells, summed over steps (one layer) */
        double flops;        /* multiplies and adds of q.k and p.v */
        double working_set;  /* bytes of the median step of that kind */
        double gb_per_s, gflop_per_s;
        double read_gb_per_s, peak_gflop_per_s; /* what the machine reaches */
        double of_read, of_limit;
    } traffic;
    struct {
        double allocator_peak, allocator_live, reserved_bytes;
        double utilisation; /* most bytes ever live, over most bytes ever reserved */
        double cells, cells_peak, high_water, cells_written, cells_moved;
        uint64_t prompts_offered,
            prompts_found;    /* tokens of prompts offered to the cache; of those, what it had; 0: none were */
        double cells_reused;  /* rows written or moved into cells that had held another row */
        double fragmentation; /* 1 - cells_peak / high_water: the least share of holes below the high-water mark */
        double growths, copied_bytes, copy_ns;
        double resident_peak, scratch_bytes, staged_bytes;
        char staged[8];
        kvb_memory_point timeline[KVB_MEMORY_POINTS];
        uint32_t n_timeline;
        kvb_group_memory groups[KVB_RESULT_GROUPS]; /* of layers; the cells above are their sums */
        uint32_t n_groups;
    } memory;
    struct { /* of a kernel's single calls: harness/calls. calls 0: no such key */
        uint64_t calls, wrong, chosen;
        uint64_t silent; /* calls for which outputs of 0 pass, in all rows that were judged */
        uint64_t exact;  /* calls that were judged to the bit, too */
        uint64_t values, values_of, pairs,
            pairs_of; /* of the axes' values, and pairs of them, that calls of this kernel can have */
        char declined[KVB_REASON], uncovered[KVB_REASON]; /* "softcap=30,5 out=f16" */
    } axes;
    struct {
        uint64_t calls;            /* that were made again in these ways; 0: no such key */
        double by[KVB_SAME_KINDS]; /* largest difference, in units of the bound; 0: the same bits; NaN: not made */
    } same;
    char placement[128]; /* how threads and memory were placed */
    struct {
        uint64_t calls, allocations; /* calls 0: the kernel is none of these */
        char engine[KVB_FOREIGN_TEXT], rule[16], source[KVB_FOREIGN_TEXT];
        double limit, relative, share;
        uint64_t outputs;
    } foreign;
    kvb_counter counters[KVB_COUNTERS];
    uint32_t n_counters;
    struct {
        uint64_t passes; /* 0: nothing was counted */
        char source[128];
        double instructions, data_reads, data_writes, l1_misses, ll_misses;
    } counts;
} kvb_result;

/* Makes an empty result: numbers that may be missing are NaN, counts 0, names empty, out is f32; the status is skip. */
void kvb_result_init(kvb_result *result);
/* The same, with names; growth is "double", threads 1. */
void kvb_result_begin(kvb_result *result, const char *workload, const char *cache, const char *pool_k,
                      const char *pool_v, const char *kernel);

/* ---- combinations -------------------------------------------------------------------------------------- */

/* Results in an array that grows. All zero at first. The owner of the struct frees `at`. */
typedef struct kvb_results {
    kvb_result *at;
    size_t n, room;
} kvb_results;
int kvb_results_add(kvb_results *results, const kvb_result *result); /* 0 or -ENOMEM */

/* The name of a combination, or a part of it. As a result it is an argument of printf: kvb_key_name(r).text. */
typedef struct kvb_key {
    char text[512];
} kvb_key;

/* Orders by workload, cache, pool_k, pool_v, kernel, growth, out, threads: below 0, above 0, or 0 for the same
 * combination. */
int kvb_key_order(const kvb_result *a, const kvb_result *b);

/* What may differ between results that are ranked. */
typedef enum kvb_ranked_axis {
    KVB_RANKED_CACHE,
    KVB_RANKED_POOLS,
    KVB_RANKED_KERNEL,
    KVB_RANKED_THREADS,
    KVB_RANKED_GROWTH,
    KVB_RANKED_OTHER, /* workload, element of the outputs, settings that pairs chose, state of the CPU's caches */
    KVB_RANKED_AXES
} kvb_ranked_axis;
/* The axes on which two results differ: bit i is axis i. */
uint32_t kvb_results_differ(const kvb_result *a, const kvb_result *b);
/*
 * May one of these be called the fastest, or the smallest? They must be all choices that there are: each value of each
 * axis with each value of the others, once, skipped and failed ones among them; and nothing else may differ. So two
 * results are comparable if they differ on exactly one axis. Results drawn by pairs are not: what won may only have had
 * the better pool. False without memory.
 */
bool kvb_comparable(const kvb_result *const *results, size_t n);
/* "workload/cache/k=f16,v=q4_0/kernel/1/double", where 1 is the threads; equal pools are named once; other outputs
 * than f32 are named last. Patterns match this. */
kvb_key kvb_key_name(const kvb_result *result);
/* "f16", or "k=f16,v=q4_0". */
kvb_key kvb_key_pools(const kvb_result *result);
/* "seq", or "seq, reserve" if the growth policy is not the default. For tables without a column for growth. */
kvb_key kvb_key_cache(const kvb_result *result);

/* Is results[i] the first one of its workload? */
bool kvb_result_begins_workload(const kvb_result *results, size_t i);

/* *quantile: that null difference of a run which a share p (0..1) of all of them does not exceed; NaN if there are
 * none. *count: how many there are. compare_time.h makes of it the smallest difference that a run can resolve. 0 or
 * -ENOMEM. */
int kvb_results_null_quantile(const kvb_result *results, size_t n, double p, double *quantile, uint32_t *count);

/* Prints each result as a row: workload, cache, pool, kernel, threads, status, rho, rows checked, median, its error,
 * p99, steps, rate, share of the read bandwidth, peak of the allocator, reason. CSV and JSON are for programs, with raw
 * numbers under median_ns, median_error_ns (half its interval), p99_ns, gb_per_s, of_read, peak_bytes. Text and
 * Markdown have units in the cells ("12.3 us") and leave out columns that say nothing. skips: the skipped ones too, and
 * every column; without, rows keep to KVB_PAGE_COLUMNS. counters: of CSV and JSON a column for each that any result
 * has. 0, -ENOMEM or -EIO. */
int kvb_result_table(const kvb_result *results, size_t n, bool skips, bool counters, kvb_table_format format,
                     FILE *out);
/* "2.1 %": half the interval of the median, of the median. Empty if it is not known. */
kvb_number kvb_error_text(const kvb_time_stats *time);
/* For people: the counters of each result that has some, and why others could not be counted. 0, -ENOMEM or -EIO. */
int kvb_counters_print(const kvb_result *results, size_t n, kvb_table_format format, FILE *out);
/* The same in CSV, a result at a time, as they come; the first brings the headings. */
int kvb_result_stream(const kvb_result *result, bool first, FILE *out);

/* Did all combinations run with one thread? Then people need not be told. */
bool kvb_results_one_thread(const kvb_result *results, size_t n);

/* ---- the manifest -------------------------------------------------------------------------------------- */

#define KVB_SHARDS 64u
/* When and where a shard was run, in the manifest of the file that it was joined into. */
typedef struct kvb_joined {
    char date[40], cpu_model[128], isa[KVB_NAME];
    uint32_t cores;
} kvb_joined;

#define KVB_HOST_CACHES 16u
typedef struct kvb_host_cache {
    char type[16];           /* "Data", "Instruction", "Unified" */
    uint32_t level, sharing; /* threads that share it */
    uint64_t bytes;
} kvb_host_cache;

typedef struct kvb_host {
    uint64_t cpus; /* online processors; 0: nothing of this is known */
    char name[256], hypervisor[64] /* "none": this is no virtual machine */, governor[64];
    double load_1m, load_5m, load_15m; /* of the whole machine; NaN: not known */
    double mhz;
    kvb_host_cache caches[KVB_HOST_CACHES]; /* of processor 0 */
    uint32_t n_caches;
    char unknown[KVB_REASON]; /* why what is missing is; empty: nothing is */
} kvb_host;

#define KVB_MACHINE_ROWS 16u
typedef struct kvb_machine_rates {
    uint32_t threads;
    double read[4], triad[4]; /* GB/s of L1, L2, LLC, DRAM; NaN: none */
    double peak[4];           /* multiply-adds in f32, f16, bf16, int8: 1e9 operations per second; NaN: none */
} kvb_machine_rates;

typedef struct kvb_manifest {
    char version[KVB_NAME], commit[KVB_NAME], compiler[128], flags[256], cpu_model[128];
    char cpu_features[512]; /* space-separated */
    char isa[KVB_NAME];     /* level in use, by its name in kernels/cpu.h */
    uint32_t cores, threads_max;
    uint64_t memory_bytes;
    char os[128];
    char openblas_version[128], openblas_core[KVB_NAME], openblas_note[KVB_REASON]; /* note empty: null */
    uint32_t openblas_threads;                                                      /* that it may start itself */
    char tuning[256]; /* which settings of `kvbench tune` were in use; empty: built in */
    char suite[KVB_NAME];
    uint64_t seed;
    char shard[24]; /* "2/3"; empty: the whole */
    kvb_joined joined[KVB_SHARDS];
    uint32_t n_joined;
    char date[40];      /* ISO 8601, UTC */
    char command[1024]; /* as typed */
    kvb_host host;
    kvb_machine_rates machine[KVB_MACHINE_ROWS];
    uint32_t n_machine;
} kvb_manifest;

/* ---- writing --------------------------------------------------------------------------------------- */

typedef struct kvb_result_writer kvb_result_writer;

/* Opens a file and writes the manifest. A regular or new file is written as path.tmp, which close(commit) renames;
 * anything else (a pipe, /dev/stdout) is written directly. Every line is flushed. 0 or a negative errno with why "path:
 * …". The writer locks path.tmp. A second writer gets -EBUSY; what a killed run left is overwritten. A child process
 * that outlives its parent keeps the lock. If the caller ignores SIGXFSZ, a file that grows too large is -EFBIG. */
int kvb_result_create(const char *path, const kvb_manifest *manifest, kvb_result_writer **writer, char *why,
                      size_t why_bytes);
int kvb_result_write(kvb_result_writer *writer, const kvb_result *result, char *why, size_t why_bytes);
/* Frees the writer in any case. commit: path.tmp becomes the target. Otherwise the old target stays as it was, and
 * path.tmp stays for kvb_result_resume, unless it holds no result: then it is removed. After a failed write, commit
 * acts like no commit and returns the error of that write. */
int kvb_result_close(kvb_result_writer *writer, bool commit, char *why, size_t why_bytes);
/* Removes path.tmp and frees the writer. */
void kvb_result_discard(kvb_result_writer *writer);

/* ---- reading --------------------------------------------------------------------------------------- */

typedef struct kvb_result_file {
    kvb_manifest manifest;
    kvb_result *results;
    size_t n;
} kvb_result_file;

/* Reads a file and checks its schema, keys and types: -EINVAL with "file:line: what was expected". */
int kvb_result_load(const char *path, kvb_result_file **file, char *why, size_t why_bytes);
void kvb_result_free(kvb_result_file *file);

/* Continues the file of a writer that ended early. *file holds the complete lines of path.tmp (free it with
 * kvb_result_free); a last line that was cut short is dropped; new results are appended. -ENOENT: there is no path.tmp;
 * -EINVAL: path is not a regular file, or path.tmp is damaged elsewhere; otherwise as kvb_result_create. */
int kvb_result_resume(const char *path, kvb_result_writer **writer, kvb_result_file **file, char *why,
                      size_t why_bytes);

/* ---- in the formats of other programs ----------------------------------------------------------------- */

typedef struct kvb_exporter {
    const char *name; /* "junit" */
    /* Writes one document. 0 or a negative errno: -ENOMEM, or -EIO if out cannot be written. */
    int (*write)(const kvb_manifest *manifest, const kvb_result *results, size_t n, FILE *out);
} kvb_exporter;

extern const kvb_exporter kvb_exporter_junit, kvb_exporter_benchmark;

/* A file that is opened before a run, so that an unwritable target is reported at once, and written after the run. */
typedef struct kvb_export kvb_export;
int kvb_export_open(const kvb_exporter *exporter, const char *path, kvb_export **export, char *why, size_t why_bytes);

/* Writes the records and replaces the target; with manifest NULL the target stays as it was. Frees the export; NULL is
 * allowed. 0, or a negative errno with why "path: …" and the target as it was. */
int kvb_export_close(kvb_export *export, const kvb_manifest *manifest, const kvb_result *results, size_t n, char *why,
                     size_t why_bytes);

#endif
