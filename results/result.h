/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Result files, schema "kvbench.result/5": JSON Lines. Line 1 is the manifest, every other line is one combination.
 * Nothing in this folder runs, measures or judges.
 *
 * A number that was not measured is null in the file and NaN here. A missing hardware counter is null, with its reason
 * beside it. JSON has no infinity: 1e308 stands for it (rho, when an output was NaN). Counts and bytes are whole
 * numbers; those above 2^63-1 (a seed may be) are strings of digits. Other numbers carry twelve digits. The tables in
 * schema.c have all keys, in their order; the structs below say what they mean. A reader refuses unknown keys.
 *
 * machine: medians, measured at the start of the run; null: the machine lacks it; []: not measured.
 * shard: "2/3": this file holds every third combination of the run, from the second on; "": a whole run.
 * joined: when and where each of n shards was run, in a file of `kvbench merge`; else []. Record i (from 0) belongs to
 * shard i mod n. Facts of the manifest in which shards differ are "several" or 0.
 * host: the machine when the run began. What is unknown is null, and `unknown` has the reason. Left out if shards were
 * run on several machines, and in older files.
 * Some parts begin with a count, and are left out if it is 0: a step kind of time, error.filter, error.unsaid,
 * error.looked, memory.prompts, axes, same, foreign, counts. error.at: null, or the place of the largest error.
 * counters: {name: value or null, …, unavailable: {name: reason}, multiplexed: {name: share}}.
 * replay: a shell command, for the same folder, that runs this combination alone; only if it failed.
 * same: largest difference for each way to repeat a call, in units of the bound; 0: the same bits.
 * isa: the highest level of instruction sets that kernels and codecs used: portable, avx2, avxvnni, avx512, avx512vnni,
 * avx512bf16, avx512fp16 or amx.
 * out_digest: FNV-1a (64 bits, hexadecimal) over out and lse of all calls of the first pass, in order; only rows of an
 * event's own queries count. Equal digests mean equal bits. null: no output was compared.
 * error.at: in a layer that scans, query is the index of the token in its event; the reason names the row of a state.
 * error.checked_rows: rows of total_rows that each pass compared by the bound of their own sums. In a layer that scans,
 * a row is a token of 16 columns of a head.
 * error.looked: in each pass: scanned: rows that were read whole and were finite; opinion: of these, rows that were
 * compared by a bound from above (oracle/opinion.h, oracle/recurrence.h). moved: rows compared by their own bound that
 * differ from pass to pass, in all passes together. seed: of the sample of checked rows.
 * foreign: calls of the first pass; allocations: how often the kernel allocated or freed memory in them, as it may;
 * engine: its own description; rule, limit, relative: the rule by which its project passes outputs (kernels/attend.h);
 * source: of the rule; share: largest error of a call / what the rule allows; outputs: how many were compared by it.
 * The rule decides, and rho is relative to the bound that the formats imply; with --strict both decide.
 * error.format.bits_k, bits_v: bits of one stored value, with its share of scales and zeros.
 * Units: ns, bytes, GB/s = 1e9 bytes per second, GFLOP/s = 1e9 operations per second (a multiply-add is two).
 *
 * time: a replay makes several passes over its workload. Each step of each pass after `warmup` is a sample. From 4
 * passes on, median is the median of the passes' medians. low and high are its interval (bootstrap, 95 %).
 * time.null_difference: the combination against itself: even passes against odd ones or, if it ran again in another
 * process, that run against this one; the larger of the two.
 * time.harness_share: share of the measured time that was spent neither in the cache nor in the kernel.
 * time.series: for each pass after `warmup`, the median of its attending steps, in the order of the passes. `compare`
 * compares these. More than KVB_SERIES passes are joined in equal blocks of neighbours, with the block's median; passes
 * at the start that fill no block are left out. []: fewer than 4 passes after `warmup`.
 * time.contexts: time of the steps of traffic.kind by the unique cells that they read (in one layer), ascending. Each
 * point is the median over all passes after `warmup`. If there are more than KVB_CONTEXTS, neighbours are joined, so
 * that all points have about as many steps.
 * traffic: of one pass. bytes_read includes the states that scans read and write. Rates are those of the step kind with
 * the most operations, in the median pass. read_gb_per_s is the read-only bandwidth, measured between the passes with
 * equal working set and threads. of_limit is the least time that the machine needs, max(bytes / read bandwidth, flops /
 * peak), over the time taken.
 * memory.growths, copied_bytes, copy_ns: how often the pools grew in one pass, bytes that this copied, and its time.
 * memory.resident_peak: of the whole child process, with the workload's values and the bandwidth probe's memory.
 * memory.staged: "k", "v" or "kv": these rows were decoded to f32, as the kernel does not read their format; else "".
 * memory.timeline: bytes of live rows, and bytes that the cache's allocator holds, after events of the first pass. At
 * most KVB_MEMORY_POINTS; the first, the last and the highest points are kept.
 * counts: exact, of the steps of one pass without the checks, by the source's model of a CPU with two levels of data
 * caches. Counts of different sources are not compared.
 */
#ifndef KVB_RESULT_H
#define KVB_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "results/table.h"
#include "workloads/files.h"

/* The checks that a combination can fail. */
typedef enum kvb_check {
    KVB_CHECK_NONE,
    KVB_CHECK_BOUND,         /* an output or log-sum-exp is off by more than the declared arithmetic allows */
    KVB_CHECK_EXACT,         /* an output has another bit than the declared order of additions gives */
    KVB_CHECK_TOLERANCE,     /* a call's outputs are off by more than the kernel's own project tolerates */
    KVB_CHECK_FILTER,        /* errors of many rows point the same way */
    KVB_CHECK_OPINION,       /* an output outside the sample is off by more than its bound from above */
    KVB_CHECK_STATE,         /* a state that a token left in a slot is off by more than its bound */
    KVB_CHECK_FINITE,        /* an output that must be finite is not */
    KVB_CHECK_STORED,        /* a visible cell holds no row, by the account of the cache's writes */
    KVB_CHECK_DECLARATION,   /* q is rounded in another way than declared, or the declaration is too wide */
    KVB_CHECK_POISON,        /* a cell that a query does not see changes its output */
    KVB_CHECK_WITNESS,       /* a query saw other tokens than it may */
    KVB_CHECK_WRITTEN,       /* an output was left unwritten */
    KVB_CHECK_MARGINS,       /* memory beside the outputs or the scratch was written */
    KVB_CHECK_INPUTS,        /* an input was written to */
    KVB_CHECK_ALLOCATIONS,   /* attend() allocated or freed memory, or started a thread */
    KVB_CHECK_RETURN,        /* attend() returned another value than 0 */
    KVB_CHECK_PROTOCOL,      /* a cache refuses what fits, names missing cells, or leaks; a pool misstates memory */
    KVB_CHECK_POOL,          /* a pool alone stores, moves, counts or shows rows wrongly */
    KVB_CHECK_DETERMINISTIC, /* another number of threads gives other bits, though equal bits were requested */
    KVB_CHECK_CRASH,         /* a signal or an exit; also an access to a guard page */
    KVB_CHECK_TIMEOUT,
    KVB_CHECKS
} kvb_check;

extern const char *const kvb_check_names[KVB_CHECKS]; /* "-", "bound", … */

/* Bit i: check i is off, to show what the others miss (kvbench faults --without); 0: all are on. */
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
/* Is it a verdict: did the combination run to be judged, even if it crashed or hung? */
static inline bool kvb_status_is_verdict(kvb_status status)
{
    return status != KVB_STATUS_SKIP && status != KVB_STATUS_COUNTED;
}
/* Did the combination run and not pass? */
static inline bool kvb_status_is_bad(kvb_status status)
{
    return kvb_status_is_verdict(status) && status != KVB_STATUS_PASS;
}

/* Step kinds that are timed separately. */
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

/* Nanoseconds per step. No step: all are NaN and samples is 0. */
typedef struct kvb_time_stats {
    double median, p99, mad, min, max, total;
    double low, high; /* interval of the median */
    uint64_t samples, outliers;
} kvb_time_stats;

/* Fills in the order statistics of n samples, which are overwritten. p99 is the nearest-rank percentile. Outliers are further
 * than 3.5 scaled MADs from the median (Iglewicz, Hoaglin, 1993); no sample is dropped. The interval stays NaN. */
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

/* Cells of a group of layers: at the end of a pass, and their maximum. */
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

/* Rows that were examined besides the checked ones. */
typedef struct kvb_looked {
    uint64_t scanned, opinion, moved, seed;
} kvb_looked;

/* Where a combination fails first, in words; not in records. All "": the reason has all that is known. */
typedef struct kvb_where {
    uint64_t line; /* of the trace; 0: unknown */
    uint32_t layer;
    char event[192];   /* "line 2: prefill of 48 tokens in sequence 0" */
    char pattern[128]; /* "every 8th query, every head"; "": not all rows of the call were compared */
    char rows[400];    /* "heads 0 to 3, queries 7, 15, 23" */
    char element[256]; /* "query 7, head 0, channel 0: got -0.08, exact 0.11, bound 1e-07" */
    char witness[256]; /* "each query saw the right tokens", or what a query saw; "": no witness ran */
} kvb_where;

/* Ways to repeat a call. A kernel may give other bits then, and both may be right. */
typedef enum kvb_same_kind {
    KVB_SAME_BATCH,     /* a query, or a sequence of a scan, alone */
    KVB_SAME_STEPS,     /* scans: a call for each token instead of one call */
    KVB_SAME_THREADS,   /* a team of another size */
    KVB_SAME_PAGES,     /* the same tokens in other pages, the same states in other slots */
    KVB_SAME_ALIGNMENT, /* inputs and outputs with another alignment */
    KVB_SAME_AGAIN,     /* after another call */
    KVB_SAME_KINDS
} kvb_same_kind;
extern const char *const kvb_same_names[KVB_SAME_KINDS]; /* "batch", … */

typedef struct kvb_result {
    char workload[KVB_NAME], cache[KVB_NAME], pool_k[KVB_NAME], pool_v[KVB_NAME], kernel[KVB_NAME];
    char beside[KVB_NAME]; /* kernel of the other layers, if some attend and some scan; "": no such key */
    uint32_t threads;
    char growth[KVB_NAME]; /* "double", "double+thp", "reserve", "reserve+thp", "exact" */
    char out[8];           /* element of the outputs: "f32", "f16", "bf16" */
    char setting[256];     /* options that a run by pairs chose for the combination; "": no such key */
    kvb_status status;
    kvb_check check;         /* the check that failed; not in records */
    char reason[KVB_REASON]; /* "": null */
    kvb_where where;
    char replay[KVB_REPLAY]; /* "": no such key */
    double rho;              /* NaN: null */
    char out_digest[24];     /* "": null */
    struct {
        double rho_worst, rho_lse, max_abs, rel_l2;
        uint64_t not_finite, checked_rows, total_rows;
        kvb_looked looked;
        bool has_place;
        uint32_t event, layer, query, head, channel;
        double got, want, bound;
        double bits_k, bits_v;
        double format_max_abs, format_rel_l2, format_kl_mean, format_kl_max; /* NaN: not judged */
        uint64_t filter_rows; /* rows that the matched filter judged (oracle/filter.h) */
        double filter_z;      /* its largest z */
        uint64_t unsaid_rows,
            unsaid_of; /* compared rows where other outputs would also pass (oracle/claim.h); all compared rows */
        uint64_t witness_queries, witness_cells; /* checked by a witness; other kernels: 0 */
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
        char kind[KVB_NAME]; /* the step kind of the rates */
        double bytes_read;   /* unique K and V bytes that the steps of one pass read */
        double bytes_walk;   /* bytes if each query and query head read its rows separately */
        double cells_read;   /* unique visible cells, summed over steps (one layer) */
        double flops;        /* multiplies and adds of q.k and p.v */
        double working_set;  /* bytes of the median step of that kind */
        double gb_per_s, gflop_per_s;
        double read_gb_per_s, peak_gflop_per_s; /* the machine's */
        double of_read, of_limit;
    } traffic;
    struct {
        double allocator_peak, allocator_live, reserved_bytes;
        double utilisation; /* most bytes ever live / most bytes ever reserved */
        double cells, cells_peak, high_water, cells_written, cells_moved;
        uint64_t prompts_offered,
            prompts_found;    /* tokens of prompts: offered to the cache; found in it; 0: none were offered */
        double cells_reused;  /* rows written or moved into cells that had held another row */
        double fragmentation; /* 1 - cells_peak / high_water: least share of holes below the high-water mark */
        double growths, copied_bytes, copy_ns;
        double resident_peak, scratch_bytes, staged_bytes;
        char staged[8];
        kvb_memory_point timeline[KVB_MEMORY_POINTS];
        uint32_t n_timeline;
        kvb_group_memory groups[KVB_RESULT_GROUPS]; /* of layers; the cells above are their sums */
        uint32_t n_groups;
    } memory;
    struct { /* a kernel's single calls (harness/calls); calls 0: no such key */
        uint64_t calls, wrong, chosen;
        uint64_t silent; /* calls for which outputs of 0 would pass in all judged rows */
        uint64_t exact;  /* calls that were also judged to the bit */
        uint64_t values, values_of, pairs,
            pairs_of; /* covered values of axes, of those that calls of this kernel can have; pairs of values */
        char declined[KVB_REASON], uncovered[KVB_REASON]; /* "softcap=30,5 out=f16" */
    } axes;
    struct {
        uint64_t calls;            /* repeated calls; 0: no such key */
        double by[KVB_SAME_KINDS]; /* largest difference, in units of the bound; 0: the same bits; NaN: not tried */
    } same;
    char placement[128]; /* how threads and memory were placed */
    struct {
        uint64_t calls, allocations; /* calls 0: no foreign kernel */
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

/* Results in an array that grows. Initialised with zeros. The owner frees `at`. */
typedef struct kvb_results {
    kvb_result *at;
    size_t n, room;
} kvb_results;
int kvb_results_add(kvb_results *results, const kvb_result *result); /* 0 or -ENOMEM */

/* The name of a combination, or a part of it, by value for printf: kvb_key_name(r).text. */
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
 * May one of these be called the fastest, or the smallest? They must be a complete product: each value of each axis
 * with each value of the others, once, skipped and failed ones included; and nothing else may differ. So two results
 * are comparable if they differ on exactly one axis. Results drawn by pairs are not: the winner may only have had the
 * better pool. No memory: false.
 */
bool kvb_comparable(const kvb_result *const *results, size_t n);
/* "workload/cache/k=f16,v=q4_0/kernel/1/double", where 1 is the number of threads. Equal pools are named once; outputs
 * other than f32 are named last. Patterns of thresholds match this name. */
kvb_key kvb_key_name(const kvb_result *result);
/* "f16", or "k=f16,v=q4_0". */
kvb_key kvb_key_pools(const kvb_result *result);
/* "seq", or "seq, reserve" if the growth policy is not the default. For tables without a column for growth. */
kvb_key kvb_key_cache(const kvb_result *result);

/* Is results[i] the first one of its workload? */
bool kvb_result_begins_workload(const kvb_result *results, size_t i);

/* *quantile: the p-quantile (0..1) of a run's null differences; NaN: there are none. *count: how many there are. From
 * it compare_time.h computes the smallest difference that a run can resolve. 0 or -ENOMEM. */
int kvb_results_null_quantile(const kvb_result *results, size_t n, double p, double *quantile, uint32_t *count);

/* Prints each result as a row: workload, cache, pool, kernel, threads, status, rho, rows checked, median, its error,
 * p99, steps, rate, share of the read bandwidth, peak of the allocator, reason. CSV and JSON are for programs, with raw
 * numbers under median_ns, median_error_ns (half its interval), p99_ns, gb_per_s, of_read, peak_bytes. Text and
 * Markdown have units in the cells ("12.3 us") and no columns without information. skips: skipped results and all
 * columns, too; else rows fit KVB_PAGE_COLUMNS. counters: CSV and JSON get a column for each counter that any result
 * has. 0, -ENOMEM or -EIO. */
int kvb_result_table(const kvb_result *results, size_t n, bool skips, bool counters, kvb_table_format format,
                     FILE *out);
/* "2.1 %": half of the median's interval, relative to the median; "": unknown. */
kvb_number kvb_error_text(const kvb_time_stats *time);
/* Prints for people each result's counters, and why others could not be counted. 0, -ENOMEM or -EIO. */
int kvb_counters_print(const kvb_result *results, size_t n, kvb_table_format format, FILE *out);
/* Prints the same table in CSV, one result at a time; the first one also prints the headings. */
int kvb_result_stream(const kvb_result *result, bool first, FILE *out);

/* Did all combinations run with one thread? Then tables for people do not show threads. */
bool kvb_results_one_thread(const kvb_result *results, size_t n);

/* ---- the manifest -------------------------------------------------------------------------------------- */

#define KVB_SHARDS 64u
/* When and where a shard was run, in the manifest of the joined file. */
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
    uint64_t cpus; /* online processors; 0: the whole struct is unknown */
    char name[256], hypervisor[64] /* "none": not a virtual machine */, governor[64];
    double load_1m, load_5m, load_15m; /* of the whole machine; NaN: unknown */
    double mhz;
    kvb_host_cache caches[KVB_HOST_CACHES]; /* of processor 0 */
    uint32_t n_caches;
    char unknown[KVB_REASON]; /* why facts are missing; "": none is */
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
    char openblas_version[128], openblas_core[KVB_NAME], openblas_note[KVB_REASON]; /* note "": null */
    uint32_t openblas_threads;                                                      /* threads that it may start */
    char tuning[256]; /* settings of `kvbench tune` in use; "": built-in ones */
    char suite[KVB_NAME];
    uint64_t seed;
    char shard[24]; /* "2/3"; "": a whole run */
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
 * …". The writer locks path.tmp. A second writer gets -EBUSY. The file of a killed run is overwritten. A child process
 * that outlives its parent keeps the lock. If the caller ignores SIGXFSZ, a file that grows too large is -EFBIG. */
int kvb_result_create(const char *path, const kvb_manifest *manifest, kvb_result_writer **writer, char *why,
                      size_t why_bytes);
int kvb_result_write(kvb_result_writer *writer, const kvb_result *result, char *why, size_t why_bytes);
/* Frees the writer in any case. commit: path.tmp becomes the target. No commit: the old target stays, and path.tmp
 * stays for kvb_result_resume; if it holds no result, it is removed. After a failed write, commit acts like no commit
 * and returns the error of that write. */
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
 * kvb_result_free); a last line that was cut off is dropped; new results are appended. -ENOENT: there is no path.tmp;
 * -EINVAL: path is not a regular file, or path.tmp is damaged elsewhere; other errors as in kvb_result_create. */
int kvb_result_resume(const char *path, kvb_result_writer **writer, kvb_result_file **file, char *why,
                      size_t why_bytes);

/* ---- manifests: what two runs have in common --------------------------------------------------------------- */

/* Keys of a manifest, ending with NULL: facts of the program (without the command), facts of the machine. */
extern const char *const kvb_program_keys[], *const kvb_machine_keys[];

#define KVB_MANIFEST_TEXT 1024u
/* The value of a key, a text or a whole number, as text. */
void kvb_manifest_text(const kvb_manifest *manifest, const char *key, char text[KVB_MANIFEST_TEXT]);

/* The first of these keys in which a and b differ. text, other: both values as JSON, cut to `bytes`. NULL: no
 * difference. */
const char *kvb_manifest_difference(const kvb_manifest *a, const kvb_manifest *b, const char *const *keys, char *text,
                                    char *other, size_t bytes);

/* Blanks each fact about the machine that differs in `from`: texts become "several", numbers 0; measured rates are
 * dropped. */
void kvb_manifest_blend(kvb_manifest *into, const kvb_manifest *from);

/* Copies the command without --resume, --shard, and options on where results go or how they are shown. The rest decides
 * what is measured, and how. essence: as large as the command. */
void kvb_command_essence(const char *command, char *essence);

/* Prints a table of facts for people: command, date, build, machine. 0, -ENOMEM or -EIO. */
int kvb_manifest_print(const kvb_manifest *manifest, kvb_table_format format, FILE *out);

#define KVB_FINGERPRINT_TEXT 112u
/* "intel-r-xeon-r-processor-2c-24g-0123abcd": processor, cores, memory in GiB, and a hash of these and of the
 * processor's features; good as a file name. All runs on one machine have the same, at any level of instructions. */
void kvb_fingerprint(const kvb_manifest *manifest, char text[KVB_FINGERPRINT_TEXT]);

#define KVB_NOTES     16u
#define KVB_NOTE_TEXT 640u
/* Writes a line for each fact in which two runs differ ("compiler: gcc 12.2.0, then gcc 13.1.0"). Returns how many. */
size_t kvb_manifest_notes(const kvb_manifest *base, const kvb_manifest *new, char notes[KVB_NOTES][KVB_NOTE_TEXT]);

/* ---- in the formats of other programs ----------------------------------------------------------------- */

typedef struct kvb_exporter {
    const char *name; /* "junit" */
    /* Writes one document. 0 or a negative errno: -ENOMEM, or -EIO if out cannot be written. */
    int (*write)(const kvb_manifest *manifest, const kvb_result *results, size_t n, FILE *out);
} kvb_exporter;

extern const kvb_exporter kvb_exporter_junit, kvb_exporter_benchmark;

/* Writes the records as JUnit XML, replaces the target, and closes the file; one that is not open stays so. The file is
 * opened before a run, so that an unwritable target is reported at once. 0, or a negative errno with why "path: …": the
 * old target stays. manifest NULL: nothing is written, and the old target stays. */
int kvb_junit_close(kvb_output_file *file, const kvb_manifest *manifest, const kvb_result *results, size_t n, char *why,
                    size_t why_bytes);

#endif
