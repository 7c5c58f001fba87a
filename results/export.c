/* SPDX-License-Identifier: Apache-2.0 */
#include "results/result.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "results/schema.h"
#include "workloads/files.h"

/*
 * Google Benchmark's JSON (json_reporter.cc of its version 1.7), for its tools/compare.py and for trackers that read
 * it. The medians of a combination's passes are its repetitions; their mean, median, stddev and cv are its aggregates.
 * Skipped combinations are left out; failed ones have error_occurred and error_message. Unknown facts of the host have
 * no key in the context, except caches and load_avg, which readers need: these are empty then. CPU time is not measured
 * for each pass: cpu_time, which readers need, repeats real_time, and the context has a note about it.
 */

static void text_set(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, kvb_text_encode(text));
}

static void count_set(json_t *object, const char *key, uint64_t count)
{
    json_object_set_new(object, key, json_integer((json_int_t)count));
}

/* Leaves the key out if the number is not finite: JSON has neither NaN nor infinity. */
static void real_set(json_t *object, const char *key, double number)
{
    if (isfinite(number))
        json_object_set_new(object, key, json_real(number));
}

static void host_set(json_t *context, const kvb_host *h)
{
    json_t *caches = json_array(), *load = json_array();

    if (*h->name)
        text_set(context, "host_name", h->name);
    if (h->mhz > 0)
        json_object_set_new(context, "mhz_per_cpu", json_integer((json_int_t)(h->mhz + 0.5)));
    if (*h->governor)
        json_object_set_new(context, "cpu_scaling_enabled", json_boolean(strcmp(h->governor, "performance") != 0));
    for (uint32_t i = 0; i < h->n_caches; i++)
        json_array_append_new(caches,
                              json_pack("{s:o, s:I, s:I, s:I}", "type", kvb_text_encode(h->caches[i].type), "level",
                                        (json_int_t)h->caches[i].level, "size", (json_int_t)h->caches[i].bytes,
                                        "num_sharing", (json_int_t)h->caches[i].sharing));
    if (h->cpus && !isnan(h->load_1m))
        for (size_t i = 0; i < 3; i++)
            json_array_append_new(load, json_real((const double[]){h->load_1m, h->load_5m, h->load_15m}[i]));
    json_object_set_new(context, "caches", caches);
    json_object_set_new(context, "load_avg", load);
}

static json_t *context_encode(const kvb_manifest *m)
{
    static const char *const keys[] = {"commit", "compiler",      "flags", "cpu_model", "isa",
                                       "os",     "openblas_core", "suite", "seed",      "command"};
    json_t *context = json_object();
    char text[KVB_MANIFEST_TEXT];

    text_set(context, "date", m->date);
    text_set(context, "executable", "kvbench");
    count_set(context, "num_cpus", m->host.cpus ? m->host.cpus : m->cores);
    host_set(context, &m->host);
    /* compare.py warns of debug builds: unoptimised ones, and those with a sanitizer */
    const bool debug = strstr(m->flags, "-fsanitize") || strstr(m->flags, "-O0") || !strstr(m->flags, "-O");
    text_set(context, "library_build_type", debug ? "debug" : "release");
    text_set(context, "library_version", m->version);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        kvb_manifest_text(m, keys[i], text);
        text_set(context, keys[i], text);
    }
    text_set(context, "cpu_time", "not measured: real_time again");
    count_set(context, "json_schema_version", 1);
    return context;
}

/* Makes an entry with the keys that all entries of a combination have. suffix: name of an aggregate; "": none. */
static json_t *entry_new(const kvb_result *r, size_t family, const char *suffix, size_t repetitions)
{
    const kvb_key name = kvb_key_name(r);
    char whole[sizeof name + 16];

    snprintf(whole, sizeof whole, "%s%s%s", name.text, *suffix ? "_" : "", suffix);
    return json_pack("{s:o, s:I, s:i, s:o, s:s, s:I, s:I}", "name", kvb_text_encode(whole), "family_index",
                     (json_int_t)family, "per_family_instance_index", 0, "run_name", kvb_text_encode(name.text),
                     "run_type", *suffix ? "aggregate" : "iteration", "repetitions", (json_int_t)repetitions, "threads",
                     (json_int_t)r->threads);
}

static void time_set(json_t *entry, uint64_t iterations, double ns)
{
    count_set(entry, "iterations", iterations);
    real_set(entry, "real_time", ns);
    real_set(entry, "cpu_time", ns);
    text_set(entry, "time_unit", "ns");
}

static void repetitions_append(json_t *list, const kvb_result *r, size_t family)
{
    const double *series = r->time.n_series
                               ? r->time.series
                               : &r->time.all.median; /* few passes: the median of all steps is the only repetition */
    size_t n = r->time.n_series ? r->time.n_series : 1;

    if (isnan(r->time.all.median)) /* no step attended, so nothing was timed */
        return;
    for (size_t i = 0; i < n; i++) {
        json_t *entry = entry_new(r, family, "", n);

        count_set(entry, "repetition_index", i);
        time_set(entry, r->time.all.samples / n, series[i]);
        real_set(entry, "bytes_per_second", 1e9 * r->traffic.gb_per_s); /* user counters */
        real_set(entry, "flop_per_second", 1e9 * r->traffic.gflop_per_s);
        real_set(entry, "of_read", r->traffic.of_read);
        real_set(entry, "of_limit", r->traffic.of_limit);
        real_set(entry, "rho", r->rho);
        real_set(entry, "allocator_peak", r->memory.allocator_peak);
        json_array_append_new(list, entry);
    }
}

/* Appends aggregates. The median is the record's, so that all readers find the same number. */
static void aggregates_append(json_t *list, const kvb_result *r, size_t family)
{
    size_t n = r->time.n_series;
    double sum = 0, squares = 0;

    if (n < 2)
        return;
    for (size_t i = 0; i < n; i++)
        sum += r->time.series[i];
    for (size_t i = 0; i < n; i++)
        squares += pow(r->time.series[i] - sum / (double)n, 2);
    const double deviation = sqrt(squares / (double)(n - 1));
    const struct {
        const char *name, *unit;
        double value;
    } aggregates[] = {
        {"mean", "time", sum / (double)n},
        {"median", "time", r->time.all.median},
        {"stddev", "time", deviation},
        {"cv", "percentage", deviation / (sum / (double)n)},
    };
    for (size_t i = 0; i < sizeof aggregates / sizeof *aggregates; i++) {
        json_t *entry = entry_new(r, family, aggregates[i].name, n);

        text_set(entry, "aggregate_name", aggregates[i].name);
        text_set(entry, "aggregate_unit", aggregates[i].unit);
        time_set(entry, n, aggregates[i].value);
        json_array_append_new(list, entry);
    }
}

static int benchmark_write(const kvb_manifest *manifest, const kvb_result *results, size_t n, FILE *out)
{
    json_t *list = json_array(), *whole = json_object();
    size_t family = 0;
    int error = -ENOMEM;

    json_object_set_new(whole, "context", context_encode(manifest));
    json_object_set(whole, "benchmarks", list);
    for (size_t i = 0; i < n; i++) {
        if (!kvb_status_is_verdict(results[i].status))
            continue;
        if (results[i].status == KVB_STATUS_PASS) {
            repetitions_append(list, &results[i], family);
            aggregates_append(list, &results[i], family);
        } else {
            json_t *entry = entry_new(&results[i], family, "", 1);
            count_set(entry, "repetition_index", 0);
            json_object_set_new(entry, "error_occurred", json_true());
            text_set(entry, "error_message", results[i].reason);
            time_set(entry, 0, 0);
            json_array_append_new(list, entry);
        }
        family++;
    }
    if (whole && list)
        error = json_dumpf(whole, out, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12)) == 0 ? 0 : -EIO;
    json_decref(list);
    json_decref(whole);
    if (!error && (putc('\n', out) == EOF || fflush(out) != 0))
        error = -EIO;
    return error;
}

const kvb_exporter kvb_exporter_benchmark = {.name = "benchmark", .write = benchmark_write};

/*
 * JUnit XML, as Ant's junit task writes it (XMLJUnitResultFormatter) and Jenkins, GitLab and GitHub's actions read it:
 * a testsuite for each workload, a testcase for each combination. A wrong output is a failure; a crash or a time limit
 * is an error. Every testsuite has exactly the elements that Ant's format requires, including empty ones.
 */

/* The element of a testcase for each status. */
static const char *const elements[KVB_STATUSES] = {
    [KVB_STATUS_PASS] = NULL,     [KVB_STATUS_FAIL] = "failure",  [KVB_STATUS_SKIP] = "skipped",
    [KVB_STATUS_CRASH] = "error", [KVB_STATUS_TIMEOUT] = "error", [KVB_STATUS_COUNTED] = NULL,
};

static void attribute_put(const char *name, const char *value, FILE *out)
{
    fprintf(out, " %s=\"", name);
    kvb_xml_put(value, out);
    putc('"', out);
}

static void properties_put(const kvb_manifest *m, FILE *out)
{
    static const char *const keys[] = {"version",       "commit", "compiler",     "flags",  "cpu_model",
                                       "isa",           "cores",  "memory_bytes", "os",     "openblas_version",
                                       "openblas_core", "suite",  "seed",         "command"};
    char text[KVB_MANIFEST_TEXT];

    fputs("    <properties>\n", out);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        kvb_manifest_text(m, keys[i], text);
        fputs("      <property", out);
        attribute_put("name", keys[i], out);
        attribute_put("value", text, out);
        fputs("/>\n", out);
    }
    fputs("    </properties>\n", out);
}

/* Seconds of the timed steps of all passes. */
static double seconds_of(const kvb_result *result)
{
    double ns = 0;

    for (size_t kind = 0; kind < KVB_STEP_KINDS; kind++)
        if (result->time.kinds[kind].samples)
            ns += result->time.kinds[kind].total;
    return 1e-9 * ns;
}

static void case_put(const kvb_result *result, FILE *out)
{
    const char *element = elements[result->status];
    char class[2 * KVB_NAME + 2];

    snprintf(class, sizeof class, "%s.%s", result->workload, result->cache);
    fputs("    <testcase", out);
    attribute_put("name", kvb_key_name(result).text, out);
    attribute_put("classname", class, out);
    fprintf(out, " time=\"%.6f\"", seconds_of(result));
    if (!element) {
        fputs("/>\n", out);
        return;
    }
    fprintf(out, ">\n      <%s", element);
    attribute_put("message", result->reason, out);
    if (result->status == KVB_STATUS_SKIP) {
        fputs("/>\n", out);
    } else {
        attribute_put("type", kvb_status_name(result->status), out);
        fputs(">\n", out);
        kvb_xml_put(result->reason, out); /* also the message */
        if (*result->replay) {
            fputs("\nalone: ", out);
            kvb_xml_put(result->replay, out);
        }
        fputc('\n', out);
        fprintf(out, "      </%s>\n", element);
    }
    fputs("    </testcase>\n", out);
}

typedef struct tally {
    size_t tests, count[KVB_STATUSES];
    double seconds;
} tally;

/* Counts the results of a workload; NULL: of all. */
static tally tally_of(const kvb_result *results, size_t n, const char *workload)
{
    tally t = {0};

    for (size_t i = 0; i < n; i++) {
        if (workload && strcmp(results[i].workload, workload) != 0)
            continue;
        t.tests++;
        t.count[results[i].status]++;
        t.seconds += seconds_of(&results[i]);
    }
    return t;
}

static void tally_put(const tally *t, FILE *out)
{
    fprintf(out, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\"", t->tests, t->count[KVB_STATUS_FAIL],
            t->count[KVB_STATUS_CRASH] + t->count[KVB_STATUS_TIMEOUT]);
}

/* Ant writes times without a zone (19 characters), and "localhost" for an unknown machine. */
static void suite_put(const kvb_manifest *manifest, const kvb_result *results, size_t n, const char *workload,
                      size_t id, FILE *out)
{
    tally t = tally_of(results, n, workload);

    fputs("  <testsuite", out);
    attribute_put("name", workload, out);
    attribute_put("package", "kvbench", out);
    fprintf(out, " id=\"%zu\" timestamp=\"%.19s\"", id, manifest->date);
    attribute_put("hostname", *manifest->host.name ? manifest->host.name : "localhost", out);
    tally_put(&t, out);
    fprintf(out, " skipped=\"%zu\" time=\"%.6f\">\n", t.count[KVB_STATUS_SKIP], t.seconds);
    properties_put(manifest, out);
    for (size_t i = 0; i < n; i++)
        if (strcmp(results[i].workload, workload) == 0)
            case_put(&results[i], out);
    fputs("    <system-out/>\n    <system-err/>\n  </testsuite>\n", out);
}

static int junit_write(const kvb_manifest *manifest, const kvb_result *results, size_t n, FILE *out)
{
    tally all = tally_of(results, n, NULL);
    size_t id = 0;

    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"kvbench\"", out);
    tally_put(&all, out);
    fprintf(out, " time=\"%.6f\">\n", all.seconds);
    for (size_t i = 0; i < n; i++)
        if (kvb_result_begins_workload(results, i))
            suite_put(manifest, results, n, results[i].workload, id++, out);
    fputs("</testsuites>\n", out);
    return fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}

const kvb_exporter kvb_exporter_junit = {.name = "junit", .write = junit_write};

int kvb_junit_close(kvb_output_file *file, const kvb_manifest *manifest, const kvb_result *results, size_t n, char *why,
                    size_t why_bytes)
{
    if (!file->stream)
        return 0;
    errno = 0;
    int error = manifest ? junit_write(manifest, results, n, file->stream) : 0;
    error = error == -EIO && errno ? -errno : error;
    if (error)
        kvb_why_set(error, why, why_bytes, "%s: cannot be written: %s", file->path, strerror(-error));
    const int closed = kvb_output_file_close(file, manifest && !error, why, why_bytes);
    return error ? error : closed;
}
