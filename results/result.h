/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Result files, schema "kvbench.result/4": JSON Lines. Line 1 is the manifest, every further line one
 * combination. Plain data in, plain data out: nothing here runs, measures or judges.
 *
 * A number that was not measured is null in the file: NaN here. A hardware counter that is missing is null
 * with its reason beside it. JSON has no infinity: 1e308 stands for it (rho, when an output was NaN). Counts and
 * bytes are whole numbers; those above 2^63-1 (a seed may be) are strings of digits. Other numbers carry twelve
 * digits. Every key below is there in every line and in this order; a reader refuses unknown ones.
 *
 * Keys of the manifest:
 *   schema, version, commit, compiler, flags, cpu_model, cpu_features [words], isa, cores, threads_max,
 *   memory_bytes, os, openblas_version, openblas_core, openblas_threads, openblas_note or null, suite, seed, shard,
 *   joined [{date, cpu_model, isa, cores}, …], date, command,
 *   machine [{threads, read_gb_per_s {L1, L2, LLC, DRAM}, triad_gb_per_s {the same}, peak_gop_per_s {f32, f16, bf16,
 *   int8}}]: as measured at the start of the run, medians, null where the machine lacks it; [] when not measured
 * shard: "2/3": this file holds every third combination of the run, from the second on; "" for a whole run.
 * joined: of a file that `kvbench merge` made of n shards: when and where each was run, in their order. Record i (from 0) is
 * of shard i mod n. Facts of the manifest that differ between them are "several" there, or 0; [] for a file of one run.
 * Keys of a combination's line:
 *   workload, cache, pool_k, pool_v, kernel, threads, growth, status, reason (null when it passed), rho,
 *   out_digest,
 *   error {rho_worst, rho_lse, max_abs, rel_l2, not_finite, checked_rows, total_rows,
 *          at {event, layer, query, head, channel, got, want, bound} or null,
 *          format {bits_k, bits_v, max_abs, rel_l2, kl_mean, kl_max}, witness {queries, cells}},
 *   time {unit:"ns", median, p99, mad, min, max, samples, total, low, high, outliers,
 *         kinds {prefill|decode|fork|verify|fill|control: {the same}},
 *         series [median of a pass, …], contexts [{cells, ns, samples}, …],
 *         passes, warmup, null_difference, harness_share, cache_state},
 *   traffic {kind, bytes_read, bytes_walk, cells_read, flops, working_set, gb_per_s, gflop_per_s,
 *            read_gb_per_s, peak_gflop_per_s, of_read, of_limit},
 *   memory {allocator_peak, allocator_live, reserved_bytes, utilisation, cells, cells_peak, high_water,
 *           cells_written, cells_moved, cells_reused, fragmentation, growths, copied_bytes, copy_ns, resident_peak, scratch_bytes,
 *           staged, staged_bytes, timeline [{event, live_bytes, held_bytes}, …]},
 *   placement,
 *   counters {name: value or null, …, unavailable: {name: reason}, multiplexed: {name: share}}
 * isa: the highest level of instruction sets that kernels and codecs used: portable, avx2, avx512, avx512vnni or avx512fp16.
 * out_digest: FNV-1a (64 bits, hexadecimal) over the bytes of out and lse of every call of the first pass, in order; of a
 * call only the rows of the event's own queries. Equal digests: the same bits. null where nothing was compared.
 * memory.resident_peak is of the whole child: the workload's values that it reads and the probe's memory are in it.
 * memory.growths, copied_bytes, copy_ns: how often the pools grew in one pass, what that copied and how long it took.
 * memory.staged: "k", "v" or "kv" where rows were decoded to f32 for a kernel that does not read their format; "" else.
 * error.format.bits_k, bits_v: of one stored value, with its share of scales and zeros.
 * Units: ns, bytes, GB/s = 1e9 bytes per second, GFLOP/s = 1e9 operations per second (a multiply-add is two).
 *
 * time: a replay makes several passes over its workload; each step of each pass after `warmup` is a sample. With 4
 * passes or more median is the median of the passes' medians. low and high bound it (bootstrap, 95 %).
 * null_difference: the same combination against itself, the larger of even passes against odd ones and, where it was
 * run again in another process, that run against this one. harness_share: of the timed time, what was spent neither in
 * the cache nor in the kernel.
 * time.series: the median of the attending steps of each pass after `warmup`, in the order they were made: what two runs are
 * compared by. Of more than KVB_SERIES passes, neighbours are joined into equal blocks by their median (what does not fill a
 * block is left out at the start). [] below 4 passes after `warmup`.
 * time.contexts: the steps of traffic.kind by the unique cells that they read (one layer), ascending: a point for each number
 * of cells, or, of more than KVB_CONTEXTS, points of as equal numbers of steps as can be; each the median over all passes
 * after `warmup`.
 * memory.timeline: bytes of the rows of live cells, and bytes that the cache's allocator holds, after events of the first pass;
 * at most KVB_MEMORY_POINTS, first, last and highest points kept.
 * traffic: of one pass. The rates are those of the step kind with the most operations, in the median pass; read_gb_per_s is the read-only
 * bandwidth measured between the passes at the same working set and thread count; of_limit is the time that
 * max(bytes / read bandwidth, flops / peak) would take over the time it took.
 */
#ifndef KVB_RESULT_H
#define KVB_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define KVB_RESULT_SCHEMA "kvbench.result/4"
#define KVB_NAME          64u
#define KVB_REASON        320u
#define KVB_SERIES        64u
#define KVB_CONTEXTS      32u
#define KVB_MEMORY_POINTS 64u

typedef enum kvb_status {
    KVB_STATUS_PASS,
    KVB_STATUS_FAIL,
    KVB_STATUS_SKIP,
    KVB_STATUS_CRASH,
    KVB_STATUS_TIMEOUT,
    KVB_STATUSES
} kvb_status;
const char *kvb_status_name(kvb_status status);

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

/* Nanoseconds a step; NaN and samples 0 when there was none. */
typedef struct kvb_time_stats {
    double median, p99, mad, min, max, total;
    double low, high; /* interval of the median */
    uint64_t samples, outliers;
} kvb_time_stats;

/* Order statistics of n samples; sorts them in place. p99 is the nearest-rank percentile. The interval stays NaN. */
void kvb_time_stats_of(double *samples, size_t n, kvb_time_stats *stats);

/* Steps of about the same context: unique cells read in one layer, and the median time. */
typedef struct kvb_context_point {
    double cells, ns;
    uint64_t samples;
} kvb_context_point;

/* Memory after an event (counted from 0). */
typedef struct kvb_memory_point {
    double event, live_bytes, held_bytes;
} kvb_memory_point;

#define KVB_COUNTERS 32u
typedef struct kvb_counter {
    char name[KVB_NAME];
    double value;         /* NaN: null */
    double share;         /* of the time that it was really counted; NaN: all of it */
    char unavailable[96]; /* the reason when null */
} kvb_counter;

typedef struct kvb_result {
    char workload[KVB_NAME], cache[KVB_NAME], pool_k[KVB_NAME], pool_v[KVB_NAME], kernel[KVB_NAME];
    uint32_t threads;
    char growth[KVB_NAME]; /* "double", "double+thp", "reserve", "reserve+thp" */
    kvb_status status;
    char reason[KVB_REASON]; /* empty: null */
    double rho;              /* NaN: null */
    char out_digest[24];     /* empty: null */
    struct {
        double rho_worst, rho_lse, max_abs, rel_l2;
        uint64_t not_finite, checked_rows, total_rows;
        bool has_place;
        uint32_t event, layer, query, head, channel;
        double got, want, bound;
        double bits_k, bits_v;
        double format_max_abs, format_rel_l2, format_kl_mean, format_kl_max; /* NaN: not judged */
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
        char kind[KVB_NAME]; /* of the steps that the rates are about */
        double bytes_read;   /* unique K and V bytes read by steps, over one pass */
        double bytes_walk;   /* what a walk per query and query head would read */
        double cells_read;   /* unique visible cells, summed over steps (one layer) */
        double flops;        /* multiplies and adds of q.k and p.v */
        double working_set;  /* bytes of the median step of that kind */
        double gb_per_s, gflop_per_s;
        double read_gb_per_s, peak_gflop_per_s; /* what the machine can */
        double of_read, of_limit;
    } traffic;
    struct {
        double allocator_peak, allocator_live, reserved_bytes;
        double utilisation; /* bytes of the most cells ever live over the most bytes ever reserved */
        double cells, cells_peak, high_water, cells_written, cells_moved;
        double cells_reused;  /* rows written or moved into cells that had held another */
        double fragmentation; /* 1 - cells_peak / high_water: holes below the high-water mark at best */
        double growths, copied_bytes, copy_ns;
        double resident_peak, scratch_bytes, staged_bytes;
        char staged[8];
        kvb_memory_point timeline[KVB_MEMORY_POINTS];
        uint32_t n_timeline;
    } memory;
    char placement[128]; /* how threads and memory were placed */
    kvb_counter counters[KVB_COUNTERS];
    uint32_t n_counters;
} kvb_result;

/* All numbers NaN, all names empty, status skip. */
void kvb_result_init(kvb_result *result);

#define KVB_SHARDS 64u
/* Where a shard was run, in a file that several were joined into. */
typedef struct kvb_joined {
    char date[40], cpu_model[128], isa[KVB_NAME];
    uint32_t cores;
} kvb_joined;

#define KVB_MACHINE_ROWS 16u
typedef struct kvb_machine_rates {
    uint32_t threads;
    double read[4], triad[4]; /* GB/s of L1, L2, LLC, DRAM; NaN: none */
    double peak[4];           /* multiply-add, 1e9 operations per second, of f32, f16, bf16, int8; NaN: none */
} kvb_machine_rates;

typedef struct kvb_manifest {
    char version[KVB_NAME], commit[KVB_NAME], compiler[128], flags[256], cpu_model[128];
    char cpu_features[512]; /* space-separated */
    char isa[KVB_NAME];     /* level in use: kernels/cpu.h */
    uint32_t cores, threads_max;
    uint64_t memory_bytes;
    char os[128];
    char openblas_version[128], openblas_core[KVB_NAME], openblas_note[KVB_REASON]; /* note empty: null */
    uint32_t openblas_threads;                                                      /* that it may use of its own */
    char suite[KVB_NAME];
    uint64_t seed;
    char shard[24]; /* "2/3"; empty: the whole */
    kvb_joined joined[KVB_SHARDS];
    uint32_t n_joined;
    char date[40];      /* ISO 8601, UTC */
    char command[1024]; /* as typed */
    kvb_machine_rates machine[KVB_MACHINE_ROWS];
    uint32_t n_machine;
} kvb_manifest;

/* ---- writing --------------------------------------------------------------------------------------- */

typedef struct kvb_result_writer kvb_result_writer;

/* A regular (or new) target is written as path.tmp and renamed by close(commit); anything else (a pipe,
 * /dev/stdout) is written directly. Every line is flushed. 0 or a negative errno with why "path: …".
 * path.tmp is locked while a writer has it: a second one gets -EBUSY, and what a killed run left is taken over.
 * A child process that outlives its parent keeps the lock. A caller that ignores SIGXFSZ gets -EFBIG in its place. */
int kvb_result_create(const char *path, const kvb_manifest *manifest, kvb_result_writer **writer, char *why,
                      size_t why_bytes);
int kvb_result_write(kvb_result_writer *writer, const kvb_result *result, char *why, size_t why_bytes);
/* commit false: the old target stays as it was. What was finished stays in path.tmp, which kvb_result_resume goes on with;
 * without one result it is removed. After a write that failed, commit does the same and returns that error. The writer
 * is freed in any case. */
int kvb_result_close(kvb_result_writer *writer, bool commit, char *why, size_t why_bytes);
/* End without a trace: path.tmp is removed, whatever is in it. */
void kvb_result_discard(kvb_result_writer *writer);

/* ---- reading --------------------------------------------------------------------------------------- */

typedef struct kvb_result_file {
    kvb_manifest manifest;
    kvb_result *results;
    size_t n;
} kvb_result_file;

/* Validates schema, keys and types: -EINVAL with "file:line: what was expected". */
int kvb_result_load(const char *path, kvb_result_file **file, char *why, size_t why_bytes);
void kvb_result_free(kvb_result_file *file);

/* Go on where a writer of this path ended early: the whole lines of path.tmp are kept, and come back in *file (for
 * kvb_result_free), a last line that was cut short is dropped, what is written follows. -ENOENT: nothing was left;
 * -EINVAL: path is no regular file, or path.tmp is damaged elsewhere; and as kvb_result_create. */
int kvb_result_resume(const char *path, kvb_result_writer **writer, kvb_result_file **file, char *why,
                      size_t why_bytes);

/* ---- tables ---------------------------------------------------------------------------------------- */

typedef enum kvb_table_format {
    KVB_TABLE_TEXT,
    KVB_TABLE_MD,
    KVB_TABLE_CSV,
    KVB_TABLE_JSON,
    KVB_TABLE_HTML, /* a <table> for a page: no word names it */
    KVB_TABLE_FORMATS
} kvb_table_format;
/* "table", "md", "csv", "json"; false for another word. */
bool kvb_table_format_parse(const char *word, kvb_table_format *format);

/* A table of strings: what every command prints through. Columns are padded in text and md; cells are
 * quoted as each format asks; json is an array of objects keyed by the headings, in which the cells of
 * right-aligned columns that are JSON numbers are numbers. Bytes that are no UTF-8 are shown as '?'. */
typedef struct kvb_table kvb_table;
/* headings end with NULL; a heading that begins with '>' is right-aligned (and the '>' dropped). */
kvb_table *kvb_table_new(const char *const *headings); /* NULL: no memory */
/* One row: as many strings as headings; NULL is an empty cell (null in json). 0 or -ENOMEM. */
int kvb_table_row(kvb_table *table, const char *const *cells);
int kvb_table_print(const kvb_table *table, kvb_table_format format, FILE *out); /* 0 or -EIO */
void kvb_table_free(kvb_table *table);

/* Result rows as a table: workload, cache, pool ("f16" or "k=f16,v=f32"), kernel, threads, status, rho, median, p99,
 * steps, GB/s of the step kind with the most operations, fraction of the read bandwidth, peak (of the allocator),
 * reason. Text and md are for people: units in the cells ("12.3 us",
 * "1.2 MiB"), what ran first and then the skips, those of one reason in one row. Csv and json are for programs: every
 * combination in order, raw numbers under median_ns, p99_ns, gb_per_s, of_read, peak_bytes. */
int kvb_result_table(const kvb_result *results, size_t n, kvb_table_format format, FILE *out);

#endif
