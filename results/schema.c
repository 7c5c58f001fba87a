/* SPDX-License-Identifier: Apache-2.0 */
/* The schema "kvbench.result/5": the keys of a line, in order, with their offsets in a record. */
#include "results/schema.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define FIELD(record, kind, key, member) \
    {key, KVB_FIELD_##kind, offsetof(record, member), sizeof(((record *)0)->member), NULL, NULL, 0, 0}
#define FIXED(key, text)     {key, KVB_FIELD_FIXED, 0, 0, NULL, text, 0, 0}
#define OBJECT(key, fields)  {key, KVB_FIELD_OBJECT, 0, 0, fields, NULL, 0, 0}
#define ARRAY(record, key, member, n, fields) \
    {key, KVB_FIELD_ARRAY, offsetof(record, member), sizeof(((record *)0)->member), fields, NULL, offsetof(record, n), \
     sizeof(((record *)0)->member[0])}
/* A field of struct `part` in a result, with its offset in the part. The part's key is left out if its first field, a
 * count, is 0. */
#define PART(part, kind, member) \
    {#member, KVB_FIELD_##kind, offsetof(kvb_result, part.member) - offsetof(kvb_result, part), \
     sizeof(((kvb_result *)0)->part.member), NULL, NULL, 0, 0}
#define OPTIONAL(key, member, fields) {key, KVB_FIELD_OPTIONAL, offsetof(kvb_result, member), 0, fields, NULL, 0, 0}
/* The second field of a pair of members: a count, which comes first, and this. */
#define SECOND(key, kind, first, second) \
    {key, KVB_FIELD_##kind, offsetof(kvb_result, second) - offsetof(kvb_result, first), 0, NULL, NULL, 0, 0}
#define FIRST(key)           {key, KVB_FIELD_U64, 0, 0, NULL, NULL, 0, 0}
#define END                  {NULL, KVB_FIELD_KINDS, 0, 0, NULL, NULL, 0, 0}

#define RATES(member, a, b, c, d) \
    FIELD(kvb_machine_rates, REAL, a, member[0]), FIELD(kvb_machine_rates, REAL, b, member[1]), \
    FIELD(kvb_machine_rates, REAL, c, member[2]), FIELD(kvb_machine_rates, REAL, d, member[3]), END
static const kvb_field read_fields[] = {RATES(read, "L1", "L2", "LLC", "DRAM")};
static const kvb_field triad_fields[] = {RATES(triad, "L1", "L2", "LLC", "DRAM")};
static const kvb_field peak_fields[] = {RATES(peak, "f32", "f16", "bf16", "int8")};

static const kvb_field rates_fields[] = {
    FIELD(kvb_machine_rates, U32, "threads", threads),
    OBJECT("read_gb_per_s", read_fields),
    OBJECT("triad_gb_per_s", triad_fields),
    OBJECT("peak_gop_per_s", peak_fields),
    END,
};

static const kvb_field host_cache_fields[] = {
    FIELD(kvb_host_cache, TEXT, "type", type),
    FIELD(kvb_host_cache, U32,  "level", level),
    FIELD(kvb_host_cache, U64,  "bytes", bytes),
    FIELD(kvb_host_cache, U32,  "sharing", sharing),
    END,
};

static const kvb_field host_fields[] = {
    FIELD(kvb_host, U64,  "cpus", cpus),
    FIELD(kvb_host, NOTE, "name", name),
    FIELD(kvb_host, NOTE, "hypervisor", hypervisor),
    FIELD(kvb_host, NOTE, "governor", governor),
    FIELD(kvb_host, REAL, "load_1m", load_1m),
    FIELD(kvb_host, REAL, "load_5m", load_5m),
    FIELD(kvb_host, REAL, "load_15m", load_15m),
    FIELD(kvb_host, REAL, "mhz", mhz),
    ARRAY(kvb_host, "caches", caches, n_caches, host_cache_fields),
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
    ARRAY(kvb_manifest, "joined", joined, n_joined, joined_fields),
    FIELD(kvb_manifest, TEXT,  "date", date),
    FIELD(kvb_manifest, TEXT,  "command", command),
    {"host", KVB_FIELD_OPTIONAL, offsetof(kvb_manifest, host), 0, host_fields, NULL, offsetof(kvb_host, cpus), 0},
    ARRAY(kvb_manifest, "machine", machine, n_machine, rates_fields),
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

static const kvb_field filter_fields[] = {FIRST("rows"), SECOND("z", REAL, error.filter_rows, error.filter_z), END};
static const kvb_field unsaid_fields[] = {FIRST("rows"), SECOND("of", U64, error.unsaid_rows, error.unsaid_of), END};

static const kvb_field error_fields[] = {
    FIELD(kvb_result, REAL, "rho_worst", error.rho_worst),
    FIELD(kvb_result, REAL, "rho_lse", error.rho_lse),
    FIELD(kvb_result, REAL, "max_abs", error.max_abs),
    FIELD(kvb_result, REAL, "rel_l2", error.rel_l2),
    FIELD(kvb_result, U64,  "not_finite", error.not_finite),
    FIELD(kvb_result, U64,  "checked_rows", error.checked_rows),
    FIELD(kvb_result, U64,  "total_rows", error.total_rows),
    {"at", KVB_FIELD_PLACE, offsetof(kvb_result, error.has_place), sizeof(bool), place_fields, NULL, 0, 0},
    OBJECT("format", format_fields),
    OPTIONAL("filter", error.filter_rows, filter_fields),
    OPTIONAL("unsaid", error.unsaid_rows, unsaid_fields),
    OBJECT("witness", witness_fields),
    OPTIONAL("looked", error.looked, looked_fields),
    END,
};

static const kvb_field foreign_fields[] = {
    PART(foreign, U64, calls),
    PART(foreign, U64, allocations),
    PART(foreign, TEXT, engine),
    PART(foreign, TEXT, rule),
    PART(foreign, REAL, limit),
    PART(foreign, REAL, relative),
    PART(foreign, REAL, share),
    PART(foreign, U64, outputs),
    PART(foreign, TEXT, source),
    END,
};

static const kvb_field context_fields[] = {
    FIELD(kvb_context_point, COUNT, "cells", cells),
    FIELD(kvb_context_point, REAL,  "ns", ns),
    FIELD(kvb_context_point, U64,   "samples", samples),
    END,
};

#define STATISTICS(record, of) \
    FIELD(record, REAL, "median", of median), FIELD(record, REAL, "p99", of p99), FIELD(record, REAL, "mad", of mad), \
    FIELD(record, REAL, "min", of min), FIELD(record, REAL, "max", of max), FIELD(record, U64, "samples", of samples), \
    FIELD(record, REAL, "total", of total), FIELD(record, REAL, "low", of low), FIELD(record, REAL, "high", of high), \
    FIELD(record, U64, "outliers", of outliers)
static const kvb_field kind_fields[] = {STATISTICS(kvb_time_stats, ), END};

#define KIND(key, kind) \
    {key, KVB_FIELD_OPTIONAL, (kind) * sizeof(kvb_time_stats), 0, kind_fields, NULL, offsetof(kvb_time_stats, samples), 0}
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
    STATISTICS(kvb_result, time.all.),
    {"kinds", KVB_FIELD_OBJECT, offsetof(kvb_result, time.kinds), 0, kinds_fields, NULL, 0, 0},
    ARRAY(kvb_result, "series", time.series, time.n_series, NULL),
    ARRAY(kvb_result, "contexts", time.contexts, time.n_contexts, context_fields),
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

static const kvb_field group_memory_fields[] = {
    FIELD(kvb_group_memory, U32,   "layers", layers),
    FIELD(kvb_group_memory, COUNT, "cells", cells),
    FIELD(kvb_group_memory, COUNT, "cells_peak", cells_peak),
    FIELD(kvb_group_memory, COUNT, "high_water", high_water),
    END,
};

static const kvb_field prompts_fields[] = {
    FIRST("offered"), SECOND("found", U64, memory.prompts_offered, memory.prompts_found), END,
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
    OPTIONAL("prompts", memory.prompts_offered, prompts_fields),
    FIELD(kvb_result, REAL,  "fragmentation", memory.fragmentation),
    FIELD(kvb_result, COUNT, "growths", memory.growths),
    FIELD(kvb_result, COUNT, "copied_bytes", memory.copied_bytes),
    FIELD(kvb_result, REAL,  "copy_ns", memory.copy_ns),
    FIELD(kvb_result, COUNT, "resident_peak", memory.resident_peak),
    FIELD(kvb_result, COUNT, "scratch_bytes", memory.scratch_bytes),
    FIELD(kvb_result, TEXT,  "staged", memory.staged),
    FIELD(kvb_result, COUNT, "staged_bytes", memory.staged_bytes),
    ARRAY(kvb_result, "timeline", memory.timeline, memory.n_timeline, memory_point_fields),
    ARRAY(kvb_result, "groups", memory.groups, memory.n_groups, group_memory_fields),
    END,
};

static const kvb_field counts_fields[] = {
    PART(counts, U64, passes),
    PART(counts, TEXT, source),
    PART(counts, COUNT, instructions),
    PART(counts, COUNT, data_reads),
    PART(counts, COUNT, data_writes),
    PART(counts, COUNT, l1_misses),
    PART(counts, COUNT, ll_misses),
    END,
};

static const kvb_field axes_fields[] = {
    PART(axes, U64, calls),
    PART(axes, U64, wrong),
    PART(axes, U64, chosen),
    PART(axes, U64, silent),
    PART(axes, U64, exact),
    PART(axes, U64, values),
    PART(axes, U64, values_of),
    PART(axes, U64, pairs),
    PART(axes, U64, pairs_of),
    PART(axes, TEXT, declined),
    PART(axes, TEXT, uncovered),
    END,
};

#define SAME(key, kind) {key, KVB_FIELD_REAL, offsetof(kvb_result, same.by[kind]) - offsetof(kvb_result, same), 0, NULL, NULL, 0, 0}
static const kvb_field same_fields[] = {
    FIRST("calls"),
    SAME("batch", KVB_SAME_BATCH),
    SAME("steps", KVB_SAME_STEPS),
    SAME("threads", KVB_SAME_THREADS),
    SAME("pages", KVB_SAME_PAGES),
    SAME("alignment", KVB_SAME_ALIGNMENT),
    SAME("again", KVB_SAME_AGAIN),
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
    OPTIONAL("axes", axes, axes_fields),
    OPTIONAL("same", same, same_fields),
    FIELD(kvb_result, TEXT,   "placement", placement),
    OPTIONAL("foreign", foreign, foreign_fields),
    {"counters", KVB_FIELD_COUNTERS, 0, 0, NULL, NULL, 0, 0},
    OPTIONAL("counts", counts, counts_fields),
    END,
};

/* ---- fields to JSON and back ------------------------------------------------------------------------------- */

/* A fault in a file, and the keys that lead to it. */
typedef struct fault {
    char path[128];
    char what[256];
} fault;

static bool object_read(const kvb_field *fields, const json_t *object, char *record, fault *f);

/* Sets f->what. Returns false, as do the next two, so that a decoder can return it. */
static bool fault_set(fault *f, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(f->what, sizeof f->what, format, list);
    va_end(list);
    return false;
}

static bool fault_expected(fault *f, const char *what, const json_t *found)
{
    static const char *const types[] = {"an object", "an array", "a string", "a whole number",
                                        "a number",  "true",     "false",    "null"};

    return fault_set(f, "expected %s, found %s", what, types[json_typeof(found)]);
}

/* Returns `good`. If it is false, puts the key in front of the path. */
static bool fault_below(const char *key, bool good, fault *f)
{
    if (!good) {
        char rest[sizeof f->path];

        memcpy(rest, f->path, sizeof rest);
        snprintf(f->path, sizeof f->path, rest[0] ? "%.60s.%.60s" : "%.60s%.60s", key, rest);
    }
    return good;
}

/* ---- texts --------------------------------------------------------------------------------------------- */

json_t *kvb_text_encode(const char *text)
{
    char *copy = strdup(text);

    if (copy)
        kvb_utf8_clean(copy);
    json_t *value = copy ? json_string(copy) : NULL;
    free(copy);
    return value;
}

static bool text_read(const json_t *value, char *text, size_t bytes, fault *f)
{
    if (!json_is_string(value))
        return fault_expected(f, "a string", value);
    if (json_string_length(value) >= bytes)
        return fault_set(f, "expected a string of at most %zu bytes, found one of %zu", bytes - 1,
                         json_string_length(value));
    memcpy(text, json_string_value(value), json_string_length(value) + 1);
    return true;
}

static bool fixed_read(const json_t *value, const char *text, fault *f)
{
    if (!json_is_string(value))
        return fault_expected(f, "a string", value);
    if (strcmp(json_string_value(value), text) != 0)
        return fault_set(f, "\"%.60s\" is not known, this program reads \"%s\"", json_string_value(value), text);
    return true;
}

static json_t *words_encode(const char *words)
{
    char *copy = strdup(words), *rest = NULL;
    json_t *array = json_array();

    if (copy) {
        kvb_utf8_clean(copy);
        for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
            json_array_append_new(array, json_string(word));
    }
    free(copy);
    return array;
}

static bool words_read(const json_t *value, char *text, size_t bytes, fault *f)
{
    size_t used = 0;

    if (!json_is_array(value))
        return fault_expected(f, "an array of strings", value);
    text[0] = 0;
    for (size_t i = 0; i < json_array_size(value); i++) {
        size_t space = i > 0;

        if (used + space >= bytes)
            return fault_set(f, "expected at most %zu bytes of words", bytes - 1);
        if (!text_read(json_array_get(value, i), text + used + space, bytes - used - space, f))
            return false;
        if (space)
            text[used] = ' ';
        used += strlen(text + used);
    }
    return true;
}

static bool status_read(const json_t *value, kvb_status *status, fault *f)
{
    char word[16];

    if (!text_read(value, word, sizeof word, f))
        return false;
    for (*status = 0; *status < KVB_STATUSES; ++*status)
        if (strcmp(word, kvb_status_name(*status)) == 0)
            return true;
    return fault_set(f, "expected pass, fail, skip, crash or timeout, found \"%s\"", word);
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

static bool u32_read(const json_t *value, uint32_t *into, fault *f)
{
    json_int_t number = json_integer_value(value);

    if (!json_is_integer(value))
        return fault_expected(f, "a whole number", value);
    if (number < 0 || number > UINT32_MAX)
        return fault_set(f, "expected a number from 0 to 4294967295, found %lld", (long long)number);
    *into = (uint32_t)number;
    return true;
}

static json_t *u64_encode(uint64_t number)
{
    char digits[24];

    snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    return number <= INT64_MAX ? json_integer((json_int_t)number) : json_string(digits);
}

static bool u64_read(const json_t *value, uint64_t *number, fault *f)
{
    const char *digits = json_string_value(value);

    if (!digits && !json_is_integer(value))
        return fault_expected(f, "a whole number", value);
    if (!digits && json_integer_value(value) < 0)
        return fault_set(f, "expected a number not below 0, found %lld", (long long)json_integer_value(value));
    errno = 0;
    *number = digits ? strtoull(digits, NULL, 10) : (uint64_t)json_integer_value(value);
    if (digits && (errno || !digits[0] || digits[strspn(digits, "0123456789")]))
        return fault_set(f, "expected digits of a number below 2^64, found \"%.30s\"", digits);
    return true;
}

static json_t *real_encode(double number, bool whole)
{
    if (isnan(number))
        return json_null();
    if (isinf(number))
        return json_real(number > 0 ? KVB_FIELD_INFINITY : -KVB_FIELD_INFINITY);
    if (whole && fabs(number) < 0x1p53 && number == floor(number))
        return json_integer((json_int_t)number);
    return json_real(number);
}

static bool real_read(const json_t *value, double *number, fault *f)
{
    if (!json_is_number(value) && !json_is_null(value))
        return fault_expected(f, "a number or null", value);
    *number = json_is_null(value) ? NAN : json_number_value(value);
    if (fabs(*number) >= KVB_FIELD_INFINITY)
        *number = *number > 0 ? INFINITY : -INFINITY;
    return true;
}

/* ---- counters ------------------------------------------------------------------------------------------ */

static json_t *counters_encode(const kvb_result *result)
{
    json_t *object = json_object(), *reasons = json_object(), *shares = json_object();

    for (uint32_t i = 0; i < result->n_counters; i++) {
        const kvb_counter *counter = &result->counters[i];

        json_object_set_new(object, counter->name, real_encode(counter->value, true));
        if (isnan(counter->value))
            json_object_set_new(reasons, counter->name, kvb_text_encode(counter->unavailable));
        if (!isnan(counter->share))
            json_object_set_new(shares, counter->name, real_encode(counter->share, false));
    }
    json_object_set_new(object, "unavailable", reasons);
    json_object_set_new(object, "multiplexed", shares);
    return object;
}

static bool counter_read(const char *name, const json_t *value, const json_t *reason, const json_t *share,
                         kvb_counter *counter, fault *f)
{
    if (strlen(name) >= sizeof counter->name)
        return fault_set(f, "expected a name of at most %zu bytes", sizeof counter->name - 1);
    memcpy(counter->name, name, strlen(name) + 1);
    if (!real_read(value, &counter->value, f))
        return false;
    if (isnan(counter->value) != (reason != NULL))
        return fault_set(f, "expected a reason in \"unavailable\" when it is null, and only then");
    counter->unavailable[0] = 0;
    counter->share = NAN;
    if (reason && !text_read(reason, counter->unavailable, sizeof counter->unavailable, f))
        return false;
    return !share || real_read(share, &counter->share, f);
}

static bool counters_read(const json_t *value, kvb_result *result, fault *f)
{
    const json_t *reasons = json_object_get(value, "unavailable"), *shares = json_object_get(value, "multiplexed");
    const json_t *counter;
    const char *name;
    size_t notes = 0; /* reasons and shares of existing counters */

    result->n_counters = 0;
    if (!json_is_object(value))
        return fault_expected(f, "an object", value);
    if (!json_is_object(reasons) || !json_is_object(shares))
        return fault_set(f, "expected objects \"unavailable\" of reasons and \"multiplexed\" of shares");
    if (json_object_size(value) > KVB_COUNTERS + 2)
        return fault_set(f, "expected at most %u counters", KVB_COUNTERS);
    json_object_foreach((json_t *)(uintptr_t)value, name, counter)
    {
        const json_t *reason = json_object_get(reasons, name), *share = json_object_get(shares, name);

        if (counter == reasons || counter == shares)
            continue;
        kvb_counter *into = &result->counters[result->n_counters++];
        if (!fault_below(name, counter_read(name, counter, reason, share, into, f), f))
            return false;
        notes += (reason != NULL) + (share != NULL);
    }
    if (notes != json_object_size(reasons) + json_object_size(shares))
        return fault_set(f, "expected \"unavailable\" and \"multiplexed\" to name only counters that are there");
    return true;
}

/* ---- arrays -------------------------------------------------------------------------------------------- */

/* The member with the number of elements in use. */
static uint32_t *count_of(const kvb_field *field, const void *at)
{
    return (uint32_t *)((uintptr_t)at - field->offset + field->count);
}

static json_t *array_encode(const kvb_field *field, const char *at)
{
    const uint32_t n = *count_of(field, at);
    json_t *array = json_array();

    for (uint32_t i = 0; i < n && array; i++, at += field->each)
        if (json_array_append_new(array, field->fields ? kvb_fields_encode(field->fields, at)
                                                       : real_encode(*(const double *)(const void *)at, false)) != 0) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

static bool array_read(const kvb_field *field, const json_t *value, char *at, fault *f)
{
    size_t n = json_array_size(value), most = field->bytes / field->each;
    char index[24];

    if (!json_is_array(value))
        return fault_expected(f, "an array", value);
    if (n > most)
        return fault_set(f, "expected at most %zu elements, found %zu", most, n);
    *count_of(field, at) = (uint32_t)n;
    for (size_t i = 0; i < n; i++, at += field->each) {
        const json_t *element = json_array_get(value, i);

        snprintf(index, sizeof index, "%zu", i);
        if (!fault_below(index, field->fields ? object_read(field->fields, element, at, f)
                                              : real_read(element, (double *)(void *)at, f), f))
            return false;
    }
    return true;
}

/* ---- tables of fields ---------------------------------------------------------------------------------- */

/* Makes the JSON of the value at `at`. NULL: no memory. The fields of a place belong to the record, not to its flag. */
static json_t *value_encode(const kvb_field *field, const void *at)
{
    switch (field->kind) {
    case KVB_FIELD_FIXED:
        return json_string(field->text);
    case KVB_FIELD_NOTE:
        return *(const char *)at ? kvb_text_encode(at) : json_null();
    case KVB_FIELD_WORDS:
        return words_encode(at);
    case KVB_FIELD_U32:
        return json_integer(*(const uint32_t *)at);
    case KVB_FIELD_U64:
        return u64_encode(*(const uint64_t *)at);
    case KVB_FIELD_REAL:
    case KVB_FIELD_COUNT:
        return real_encode(*(const double *)at, field->kind == KVB_FIELD_COUNT);
    case KVB_FIELD_STATUS:
        return json_string(kvb_status_name(*(const kvb_status *)at));
    case KVB_FIELD_PLACE:
        return *(const bool *)at ? kvb_fields_encode(field->fields, (const char *)at - field->offset) : json_null();
    case KVB_FIELD_OBJECT:
    case KVB_FIELD_OPTIONAL:
        return kvb_fields_encode(field->fields, at);
    case KVB_FIELD_COUNTERS:
        return counters_encode(at);
    case KVB_FIELD_ARRAY:
        return array_encode(field, at);
    default:
        return kvb_text_encode(at);
    }
}

/* Checks JSON and stores its value at `at`. */
static bool value_decode(const kvb_field *field, const json_t *value, void *at, fault *f)
{
    switch (field->kind) {
    case KVB_FIELD_FIXED:
        return fixed_read(value, field->text, f);
    case KVB_FIELD_WORDS:
        return words_read(value, at, field->bytes, f);
    case KVB_FIELD_U32:
        return u32_read(value, at, f);
    case KVB_FIELD_U64:
        return u64_read(value, at, f);
    case KVB_FIELD_REAL:
    case KVB_FIELD_COUNT:
        return real_read(value, at, f);
    case KVB_FIELD_STATUS:
        return status_read(value, at, f);
    case KVB_FIELD_PLACE:
        *(bool *)at = !json_is_null(value);
        return json_is_null(value) || object_read(field->fields, value, (char *)at - field->offset, f);
    case KVB_FIELD_OBJECT:
    case KVB_FIELD_OPTIONAL:
        return object_read(field->fields, value, at, f);
    case KVB_FIELD_COUNTERS:
        return counters_read(value, at, f);
    case KVB_FIELD_ARRAY:
        return array_read(field, value, at, f);
    default:
        *(char *)at = 0;
        return (field->kind == KVB_FIELD_NOTE && json_is_null(value)) || text_read(value, at, field->bytes, f);
    }
}

void kvb_fields_clear(const kvb_field *fields, void *record)
{
    for (; fields->key; fields++) {
        char *at = (char *)record + fields->offset;

        if (fields->kind == KVB_FIELD_REAL || fields->kind == KVB_FIELD_COUNT)
            *(double *)(void *)at = NAN;
        else if (fields->kind == KVB_FIELD_OBJECT || fields->kind == KVB_FIELD_OPTIONAL)
            kvb_fields_clear(fields->fields, at);
        else if (fields->kind == KVB_FIELD_PLACE)
            kvb_fields_clear(fields->fields, record);
        for (size_t i = 0; i < KVB_COUNTERS && fields->kind == KVB_FIELD_COUNTERS; i++)
            ((kvb_result *)record)->counters[i].value = ((kvb_result *)record)->counters[i].share = NAN;
    }
}

json_t *kvb_fields_encode(const kvb_field *fields, const void *record)
{
    json_t *object = json_object();
    for (; object && fields->key; fields++) {
        const char *at = (const char *)record + fields->offset;
        bool there = fields->kind == KVB_FIELD_OPTIONAL ? *(const uint64_t *)(const void *)(at + fields->count)
                                                        : fields->kind != KVB_FIELD_EXTRA || *at;
        /* a NULL value, of which set_new returns an error, means no memory */
        if (there && json_object_set_new(object, fields->key, value_encode(fields, at)) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static bool is_known(const kvb_field *fields, const char *key)
{
    while (fields->key && strcmp(fields->key, key) != 0)
        fields++;
    return fields->key != NULL;
}

static bool object_read(const kvb_field *fields, const json_t *object, char *record, fault *f)
{
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return fault_expected(f, "an object", object);
    for (const kvb_field *field = fields; field->key; field++) {
        value = json_object_get(object, field->key);
        if (!value && (field->kind == KVB_FIELD_OPTIONAL || field->kind == KVB_FIELD_EXTRA))
            continue;
        if (!value)
            return fault_set(f, "expected the key \"%s\"", field->key);
        if (!fault_below(field->key, value_decode(field, value, record + field->offset, f), f))
            return false;
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (!is_known(fields, key))
            return fault_set(f, "the key \"%.60s\" is not known", key);
    }
    return true;
}

int kvb_fields_decode(const kvb_field *fields, const json_t *object, void *record, char *why, size_t why_bytes)
{
    fault f = {"", ""};

    if (object_read(fields, object, record, &f))
        return 0;
    snprintf(why, why_bytes, "%s%s%s", f.path, f.path[0] ? ": " : "", f.what);
    return -EINVAL;
}
