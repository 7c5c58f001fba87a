/* SPDX-License-Identifier: Apache-2.0 */
/* Records and result files: words of the schema, statistics of step times, names, order; reading, writing, tables. */
#include "results/result.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "results/schema.h"
#include "results/statistics.h"
#include "workloads/array.h"
#include "workloads/files.h"

const char *const kvb_same_names[KVB_SAME_KINDS] = {"batch", "steps", "threads", "pages", "alignment", "again"};

const char *const kvb_check_names[KVB_CHECKS] = {
    [KVB_CHECK_NONE] = "-",          [KVB_CHECK_BOUND] = "bound",
    [KVB_CHECK_EXACT] = "exact",     [KVB_CHECK_TOLERANCE] = "tolerance",
    [KVB_CHECK_FILTER] = "filter",   [KVB_CHECK_OPINION] = "opinion",
    [KVB_CHECK_STATE] = "state",     [KVB_CHECK_FINITE] = "finite",
    [KVB_CHECK_STORED] = "stored",   [KVB_CHECK_DECLARATION] = "declaration",
    [KVB_CHECK_POISON] = "poison",   [KVB_CHECK_WITNESS] = "witness",
    [KVB_CHECK_WRITTEN] = "written", [KVB_CHECK_MARGINS] = "margins",
    [KVB_CHECK_INPUTS] = "inputs",   [KVB_CHECK_ALLOCATIONS] = "allocations",
    [KVB_CHECK_RETURN] = "return",   [KVB_CHECK_PROTOCOL] = "protocol",
    [KVB_CHECK_POOL] = "pool",       [KVB_CHECK_DETERMINISTIC] = "deterministic",
    [KVB_CHECK_CRASH] = "crash",     [KVB_CHECK_TIMEOUT] = "timeout",
};

uint32_t kvb_checks_off;

const char *kvb_status_name(kvb_status status)
{
    static const char *const names[KVB_STATUSES] = {"pass", "fail", "skip", "crash", "timeout", "counted"};

    assert(status < KVB_STATUSES);
    return names[status];
}

const char *kvb_step_kind_name(kvb_step_kind kind)
{
    static const char *const names[KVB_STEP_KINDS] = {"prefill", "decode", "fork", "verify", "fill", "control"};

    assert(kind < KVB_STEP_KINDS);
    return names[kind];
}

void kvb_result_init(kvb_result *result)
{
    memset(result, 0, sizeof *result);
    result->status = KVB_STATUS_SKIP;
    strcpy(result->out, "f32");
    kvb_fields_clear(kvb_result_fields, result);
}

void kvb_result_begin(kvb_result *r, const char *workload, const char *cache, const char *pool_k, const char *pool_v,
                      const char *kernel)
{
    kvb_result_init(r);
    const struct {
        char *name;
        const char *is;
    } names[] = {{r->workload, workload}, {r->cache, cache},   {r->pool_k, pool_k},
                 {r->pool_v, pool_v},     {r->kernel, kernel}, {r->growth, "double"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        snprintf(names[i].name, KVB_NAME, "%s", names[i].is);
    r->threads = 1;
}

void kvb_time_stats_of(double *samples, size_t n, kvb_time_stats *stats)
{
    *stats = (kvb_time_stats){
        .median = NAN, .p99 = NAN, .mad = NAN, .min = NAN, .max = NAN, .total = NAN, .low = NAN, .high = NAN};
    if (n == 0)
        return;
    stats->samples = n;
    stats->median = kvb_quantile(samples, n, 0.5); /* sorts them */
    stats->min = samples[0];
    stats->max = samples[n - 1];
    stats->p99 = samples[(n * 99 + 99) / 100 - 1]; /* nearest rank: ceil(0.99 n), counted from 1 */
    stats->total = 0;
    for (size_t i = 0; i < n; i++) {
        assert(!isnan(samples[i]));
        stats->total += samples[i];
        samples[i] = fabs(samples[i] - stats->median);
    }
    stats->mad = kvb_quantile(samples, n, 0.5);
    for (size_t i = 0; i < n; i++) /* a normal distribution's standard deviation is 1.4826 MADs */
        stats->outliers += samples[i] > 3.5 * 1.4826 * stats->mad;
}

/* ---- combinations -------------------------------------------------------------------------------------- */

int kvb_results_add(kvb_results *results, const kvb_result *result)
{
    if (kvb_array_reserve(&results->at, &results->room, results->n + 1, sizeof *results->at))
        return -ENOMEM;
    results->at[results->n++] = *result;
    return 0;
}

int kvb_key_order(const kvb_result *a, const kvb_result *b)
{
    const char *const pairs[][2] = {
        {a->workload, b->workload}, {a->cache, b->cache},   {a->pool_k, b->pool_k}, {a->pool_v, b->pool_v},
        {a->kernel, b->kernel},     {a->growth, b->growth}, {a->out, b->out}};

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        int order = strcmp(pairs[i][0], pairs[i][1]);

        if (order)
            return order;
    }
    return (a->threads > b->threads) - (a->threads < b->threads);
}

/* ---- what may be ranked ----------------------------------------------------------------------------------------- */

static int order_on(kvb_ranked_axis axis, const kvb_result *a, const kvb_result *b)
{
    int order = 0;
    switch (axis) {
    case KVB_RANKED_CACHE:
        return strcmp(a->cache, b->cache);
    case KVB_RANKED_POOLS:
        order = strcmp(a->pool_k, b->pool_k);
        return order ? order : strcmp(a->pool_v, b->pool_v);
    case KVB_RANKED_KERNEL:
        return strcmp(a->kernel, b->kernel);
    case KVB_RANKED_THREADS:
        return (a->threads > b->threads) - (a->threads < b->threads);
    case KVB_RANKED_GROWTH:
        return strcmp(a->growth, b->growth);
    default:
        order = strcmp(a->workload, b->workload);
        order = order ? order : strcmp(a->out, b->out);
        order = order ? order : strcmp(a->setting, b->setting);
        return order || !*a->time.cache_state || !*b->time.cache_state /* a result that did not run has none */
                   ? order
                   : strcmp(a->time.cache_state, b->time.cache_state);
    }
}

uint32_t kvb_results_differ(const kvb_result *a, const kvb_result *b)
{
    uint32_t axes = 0;
    for (kvb_ranked_axis axis = 0; axis < KVB_RANKED_AXES; axis++)
        axes |= order_on(axis, a, b) ? UINT32_C(1) << axis : 0;
    return axes;
}

static int by_axis(const void *a, const void *b, void *axis)
{
    return order_on(*(const kvb_ranked_axis *)axis, *(const kvb_result *const *)a, *(const kvb_result *const *)b);
}

static int by_all(const void *a, const void *b, void *unused)
{
    int order = 0;
    for (kvb_ranked_axis axis = 0; axis < KVB_RANKED_AXES && !order; axis++)
        order = by_axis(a, b, &axis);
    return (void)unused, order;
}

bool kvb_comparable(const kvb_result *const *results, size_t n)
{
    const kvb_result **sorted = malloc((n + 1) * sizeof *sorted);
    size_t choices = 1;
    bool distinct = true;
    if (!sorted)
        return false;
    memcpy(sorted, results, n * sizeof *sorted);
    for (kvb_ranked_axis axis = 0; axis < KVB_RANKED_AXES; axis++) {
        size_t values = 1;
        qsort_r(sorted, n, sizeof *sorted, by_axis, &axis);
        for (size_t i = 1; i < n; i++)
            values += order_on(axis, sorted[i - 1], sorted[i]) != 0;
        choices *= values;
        distinct &= axis != KVB_RANKED_OTHER || values == 1;
    }
    qsort_r(sorted, n, sizeof *sorted, by_all, NULL);
    for (size_t i = 1; i < n; i++)
        distinct &= kvb_results_differ(sorted[i - 1], sorted[i]) != 0;
    free(sorted);
    return distinct && choices == n;
}

/* ---- texts of keys --------------------------------------------------------------------------------------------- */

kvb_key kvb_key_pools(const kvb_result *r)
{
    kvb_key key;
    snprintf(key.text, sizeof key.text, strcmp(r->pool_k, r->pool_v) ? "k=%s,v=%s" : "%s", r->pool_k, r->pool_v);
    return key;
}

kvb_key kvb_key_cache(const kvb_result *r)
{
    const bool usual = !r->growth[0] || strcmp(r->growth, "double") == 0;
    kvb_key key;
    snprintf(key.text, sizeof key.text, usual ? "%s" : "%s, %s", r->cache, r->growth);
    return key;
}

kvb_key kvb_key_name(const kvb_result *r)
{
    const bool wide = !strcmp(r->out, "f32");
    kvb_key key;
    snprintf(key.text, sizeof key.text, "%s/%s/%s/%s/%u/%s%s%s", r->workload, r->cache, kvb_key_pools(r).text,
             r->kernel, r->threads, r->growth, wide ? "" : "/", wide ? "" : r->out);
    return key;
}

bool kvb_result_begins_workload(const kvb_result *results, size_t i)
{
    for (size_t j = i; j-- > 0;) /* backwards: results of one workload are mostly neighbours */
        if (strcmp(results[j].workload, results[i].workload) == 0)
            return false;
    return true;
}

int kvb_results_null_quantile(const kvb_result *results, size_t n, double p, double *quantile, uint32_t *count)
{
    double *values = malloc((n + 1) * sizeof *values);

    *count = 0;
    if (!values)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (results[i].time.null_difference >= 0) /* false for NaN */
            values[(*count)++] = results[i].time.null_difference;
    *quantile = kvb_quantile(values, *count, p);
    free(values);
    return 0;
}

/* Result files: the reader takes one line at a time and checks everything. The writer passes each line to the system at
 * once, and replaces the target only at a successful end. */

/* ---- reading --------------------------------------------------------------------------------------- */

/* Parses a line as JSON; NULL with why: an error. whole: the line ended with a newline. */
static json_t *line_parse(const char *line, size_t bytes, bool whole, char *why, size_t why_bytes)
{
    json_error_t fault;
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &fault);

    if (object)
        return object;
    if (whole)
        snprintf(why, why_bytes, "not valid JSON at column %d: %s", fault.column, fault.text);
    else
        snprintf(why, why_bytes, "the last line is cut short: the file was not written to its end");
    return NULL;
}

static int result_append(kvb_results *results, const json_t *object, char *why, size_t why_bytes)
{
    kvb_result result;

    kvb_result_init(&result);
    int error = kvb_fields_decode(kvb_result_fields, object, &result, why, why_bytes);

    return error ? error : kvb_results_add(results, &result);
}

/* Checks the schema's name first; else a file of another schema is refused for some missing or unknown key. */
static int manifest_decode(kvb_manifest *manifest, const json_t *object, char *why, size_t why_bytes)
{
    const json_t *schema = json_object_get(object, "schema");

    if (!schema)
        return kvb_why_set(-EINVAL, why, why_bytes, "expected the manifest with \"schema\":\"%s\"", KVB_RESULT_SCHEMA);
    return kvb_fields_decode(kvb_manifest_fields, object, manifest, why, why_bytes);
}

/*
 * Reads a result file from its start; path is for messages. A last line without its newline is left out, and *whole is
 * the length of the others: 0, with *out NULL, if not even the manifest is complete. 0, or a negative errno with why
 * "path:line: …". whole NULL: the file must be valid to its end.
 */
static int file_read(FILE *in, const char *path, size_t *whole, kvb_result_file **out, char *why, size_t why_bytes)
{
    kvb_result_file *file = calloc(1, sizeof *file);
    char *line = NULL, what[512] = "";
    size_t line_room = 0, number = 0, bytes = 0;
    ssize_t n = 0;
    kvb_results results = {.n = 0};
    int error = file ? 0 : -ENOMEM;

    *out = NULL;
    while (!error && (n = getline(&line, &line_room, in)) > 0) {
        bool ended = line[n - 1] == '\n';
        if (!ended && whole)
            break;
        json_t *object = line_parse(line, (size_t)n, ended, what, sizeof what);

        number++;
        bytes += (size_t)n;
        if (!object)
            error = -EINVAL;
        else if (number == 1)
            error = manifest_decode(&file->manifest, object, what, sizeof what);
        else
            error = result_append(&results, object, what, sizeof what);
        json_decref(object);
    }
    if (!error && ferror(in))
        error = -errno;
    if (!error && number == 0 && !whole) {
        error = -EINVAL;
        number = 1;
        snprintf(what, sizeof what, "expected the manifest with \"schema\":\"%s\", found an empty file",
                 KVB_RESULT_SCHEMA);
    }
    if (error == -EINVAL && number)
        snprintf(why, why_bytes, "%s:%zu: %s", path, number, what);
    else if (error)
        snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
    free(line);
    if (whole)
        *whole = bytes;
    if (file) {
        file->results = results.at;
        file->n = results.n;
    }
    if (error || number == 0)
        kvb_result_free(file);
    else
        *out = file;
    return error;
}

int kvb_result_load(const char *path, kvb_result_file **file, char *why, size_t why_bytes)
{
    FILE *in = fopen(path, "re");
    int error = -errno;

    *file = NULL;
    if (!in)
        return kvb_why_set(error, why, why_bytes, "%s: %s", path, strerror(-error));
    error = file_read(in, path, NULL, file, why, why_bytes);
    fclose(in);
    return error;
}

void kvb_result_free(kvb_result_file *file)
{
    if (!file)
        return;
    free(file->results);
    free(file);
}

/* ---- writing --------------------------------------------------------------------------------------- */

struct kvb_result_writer {
    kvb_output_file file;
    off_t bytes;    /* length of the complete lines */
    size_t results; /* complete lines after the manifest */
    int failed;     /* the first error: nothing is written or committed after it */
};

static int say(const kvb_result_writer *writer, int error, char *why, size_t why_bytes)
{
    return kvb_why_set(error, why, why_bytes, "%s: cannot be written: %s", writer->file.path, strerror(-error));
}

/* Writes all bytes without a buffer, so a killed run keeps its lines. 0 or a negative errno. */
static int bytes_write(int file, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t written = write(file, bytes, n);
        if (written < 0 && errno != EINTR)
            return -errno;
        bytes += written > 0 ? written : 0;
        n -= written > 0 ? (size_t)written : 0;
    }
    return 0;
}

/* Writes a line. Numbers have twelve digits: more than any measurement has, and 0.1 stays 0.1. */
static int line_write(kvb_result_writer *writer, const kvb_field *fields, const void *record, char *why,
                      size_t why_bytes)
{
    json_t *object = NULL;
    char *line = NULL;

    if (!writer->failed) {
        object = kvb_fields_encode(fields, record);
        line = object ? json_dumps(object, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12)) : NULL;
        if (line) {
            size_t n = strlen(line);

            line[n] = '\n'; /* replaces the final 0 */
            writer->failed = bytes_write(fileno(writer->file.stream), line, n + 1);
            writer->bytes += writer->failed ? 0 : (off_t)n + 1;
        } else {
            writer->failed = -ENOMEM;
        }
    }
    free(line);
    json_decref(object);
    return writer->failed ? say(writer, writer->failed, why, why_bytes) : 0;
}

/* Opens a writer and its target. NULL: failed, with *error and why. */
static kvb_result_writer *writer_open(const char *path, bool resume, int *error, char *why, size_t why_bytes)
{
    kvb_result_writer *writer = calloc(1, sizeof *writer);

    *error = writer ? kvb_output_file_open(path, resume, &writer->file, why, why_bytes)
                    : kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
    if (!*error)
        return writer;
    free(writer);
    return NULL;
}

int kvb_result_create(const char *path, const kvb_manifest *manifest, kvb_result_writer **writer, char *why,
                      size_t why_bytes)
{
    int error;

    *writer = writer_open(path, false, &error, why, why_bytes);
    if (*writer)
        error = line_write(*writer, kvb_manifest_fields, manifest, why, why_bytes);
    if (*writer && error) {
        kvb_result_discard(*writer);
        *writer = NULL;
    }
    return error;
}

/* Reads the writer's path.tmp, cuts off an incomplete last line, and moves to its end for the next line. */
static int writer_read(kvb_result_writer *writer, kvb_result_file **file, char *why, size_t why_bytes)
{
    size_t bytes = 0;
    FILE *in = fopen(writer->file.temporary, "re");
    int error;

    if (!in)
        return say(writer, -errno, why, why_bytes);
    error = file_read(in, writer->file.temporary, &bytes, file, why, why_bytes);
    fclose(in);
    const int to = fileno(writer->file.stream);
    if (!error && *file && (ftruncate(to, (off_t)bytes) != 0 || lseek(to, 0, SEEK_END) < 0))
        error = say(writer, -errno, why, why_bytes);
    writer->bytes = (off_t)bytes;
    writer->results = *file ? (*file)->n : 0;
    return error;
}

int kvb_result_resume(const char *path, kvb_result_writer **out, kvb_result_file **file, char *why, size_t why_bytes)
{
    int error;
    kvb_result_writer *writer = writer_open(path, true, &error, why, why_bytes);

    *out = NULL;
    *file = NULL;
    if (!writer)
        return error;
    error = writer_read(writer, file, why, why_bytes);
    if (!error && *file) {
        *out = writer;
        return 0;
    }
    if (!error) { /* the run was killed before the manifest was complete */
        kvb_result_discard(writer);
        return -ENOENT;
    }
    kvb_result_free(*file);
    *file = NULL;
    kvb_output_file_leave(&writer->file); /* the file is damaged; only the user may remove it */
    free(writer);
    return error;
}

int kvb_result_write(kvb_result_writer *writer, const kvb_result *result, char *why, size_t why_bytes)
{
    int error = line_write(writer, kvb_result_fields, result, why, why_bytes);

    writer->results += !error;
    return error;
}

int kvb_result_close(kvb_result_writer *writer, bool commit, char *why, size_t why_bytes)
{
    int error = !commit          ? 0
                : writer->failed ? say(writer, writer->failed, why, why_bytes)
                                 : kvb_output_file_commit(&writer->file, why, why_bytes);
    if ((!commit || error) && writer->results > 0) { /* the complete lines stay for a later writer */
        const int file = fileno(writer->file.stream);
        if (writer->file.temporary && ftruncate(file, writer->bytes) == 0)
            (void)!fsync(file);
        kvb_output_file_leave(&writer->file);
    } else {
        const int closed = kvb_output_file_close(&writer->file, commit && !error, why, why_bytes);
        error = error ? error : closed;
    }
    free(writer);
    return error;
}

void kvb_result_discard(kvb_result_writer *writer)
{
    kvb_output_file_close(&writer->file, false, NULL, 0);
    free(writer);
}

/* ---- results as rows of a table: with units for people; raw numbers, with units in headings, for programs ---- */

static const struct {
    const char *people, *programs;
} columns[] = {{"workload", "workload"},
               {"cache", "cache"},
               {"pool", "pool"},
               {"kernel", "kernel"},
               {">threads", ">threads"},
               {"status", "status"},
               {">rho", ">rho"},
               {">checked", ">checked_rows"},
               {">>median", ">median_ns"},
               {">±", ">median_error_ns"},
               {">p99", ">p99_ns"},
               {">steps", ">steps"},
               {">GB/s", ">gb_per_s"},
               {">of read", ">of_read"},
               {">peak", ">peak_bytes"},
               {"reason", "reason"},
               {">instructions", ">instructions"},
               {">reads", ">data_reads"},
               {">writes", ">data_writes"},
               {">L1 misses", ">l1_misses"},
               {">LL misses", ">ll_misses"}};
enum { COLUMNS = sizeof columns / sizeof *columns, COUNTS = 5 }; /* counts come last */

static kvb_number number(const char *format, double value)
{
    kvb_number n = {""};
    if (!isnan(value))
        snprintf(n.text, sizeof n.text, format, value);
    return n;
}

/* Infinity is written as in result files. */
static kvb_number raw(double value)
{
    return number("%.9g", isinf(value) ? copysign(KVB_FIELD_INFINITY, value) : value);
}

kvb_number kvb_error_text(const kvb_time_stats *time)
{
    return number("%.2g %%", 50 * (time->high - time->low) / time->median);
}

/* Names of all results' counters, in order. */
typedef struct counted {
    const char *names[KVB_COUNTERS];
    size_t n, from; /* from: their first column */
} counted;

static void counted_add(counted *list, const kvb_result *r)
{
    for (uint32_t k = 0; k < r->n_counters; k++) {
        size_t at = 0;
        while (at < list->n && strcmp(list->names[at], r->counters[k].name) != 0)
            at++;
        if (at == list->n && at < KVB_COUNTERS)
            list->names[list->n++] = r->counters[k].name;
    }
}

/* The value of a counter; NaN: not counted. */
static double count_of(const kvb_result *r, const char *name)
{
    for (uint32_t k = 0; k < r->n_counters; k++)
        if (strcmp(r->counters[k].name, name) == 0)
            return r->counters[k].value;
    return NAN;
}

int kvb_counters_print(const kvb_result *results, size_t n, kvb_table_format format, FILE *out)
{
    kvb_table *table = kvb_table_new((const char *const[]){"combination", "counted in its timed steps", NULL});
    const kvb_result *first = NULL;
    int error = table ? 0 : -ENOMEM;

    for (size_t i = 0; i < n; i++) {
        const kvb_result *r = &results[i];
        char text[KVB_COUNTERS * (KVB_NAME + 128)] = "";

        for (uint32_t k = 0; k < r->n_counters; k++)
            if (!isnan(r->counters[k].value))
                kvb_list_add(text, sizeof text, ", ", "%s %.0f", r->counters[k].name, r->counters[k].value);
        if (!r->n_counters)
            continue;
        first = first ? first : r;
        kvb_table_row(table, (const char *const[]){kvb_key_name(r).text, text});
    }
    if (first) {
        fputc('\n', out);
        kvb_table_fold(table);
        error = kvb_table_print(table, format, out);
    }
    for (uint32_t k = 0; first && k < first->n_counters; k++)
        if (isnan(first->counters[k].value))
            fprintf(out, "%snot counted: %s: %s\n", format == KVB_TABLE_MD ? "- " : "", first->counters[k].name,
                    first->counters[k].unavailable);
    kvb_table_free(table);
    return error;
}

/* A row under way. */
typedef struct cells {
    kvb_number numbers[COLUMNS + KVB_COUNTERS];
    const char *at[COLUMNS + KVB_COUNTERS];
    size_t n;
} cells;

static void text_add(cells *c, const char *text)
{
    c->at[c->n++] = text;
}

static void number_add(cells *c, kvb_number text)
{
    c->numbers[c->n] = text;
    text_add(c, *text.text ? c->numbers[c->n].text : NULL);
}

/* Adds a result's row. people: no threads if all have one, no number of steps, and unless wide no rate and no reason. */
static void result_row(kvb_table *table, const kvb_result *r, bool people, bool one_thread, bool wide,
                       const counted *extra)
{
    const kvb_time_stats *time = &r->time.all;
    const double of_steps[COUNTS] = {r->counts.instructions, r->counts.data_reads, r->counts.data_writes,
                                     r->counts.l1_misses, r->counts.ll_misses};
    const double checked = r->error.total_rows ? (double)r->error.checked_rows : NAN; /* by their own bound */
    const kvb_key pools = kvb_key_pools(r), cache = kvb_key_cache(r);
    cells c = {.n = 0};

    text_add(&c, r->workload);
    text_add(&c, cache.text);
    text_add(&c, pools.text);
    text_add(&c, r->kernel);
    number_add(&c, number("%.0f", people && one_thread ? NAN : (double)r->threads));
    text_add(&c, kvb_status_name(r->status));
    number_add(&c, people ? number("%.3g", r->rho) : raw(r->rho));
    number_add(&c, people ? number("%.3g %%", wide ? 100 * checked / (double)r->error.total_rows : NAN)
                          : number("%.0f", checked));
    number_add(&c, people ? kvb_time_text(time->median) : raw(time->median));
    number_add(&c, people ? kvb_error_text(time) : raw((time->high - time->low) / 2));
    number_add(&c, people ? kvb_time_text(time->p99) : raw(time->p99));
    number_add(&c, number("%.0f", !people && time->samples ? (double)time->samples : NAN));
    number_add(&c, people ? number("%.2f", wide ? r->traffic.gb_per_s : NAN) : raw(r->traffic.gb_per_s));
    number_add(&c, people ? number("%.1f %%", 100 * r->traffic.of_read) : raw(r->traffic.of_read));
    number_add(&c, people ? kvb_bytes_text(r->memory.allocator_peak) : number("%.0f", r->memory.allocator_peak));
    text_add(&c, (wide || !people) && *r->reason ? r->reason : NULL);
    for (size_t i = 0; i < COUNTS && c.n < extra->from; i++)
        number_add(&c, number(people ? "%.4f M" : "%.0f", people ? 1e-6 * of_steps[i] : of_steps[i]));
    for (size_t i = 0; i < extra->n; i++)
        number_add(&c, raw(count_of(r, extra->names[i])));
    kvb_table_row(table, c.at);
}

bool kvb_results_one_thread(const kvb_result *results, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (results[i].threads != 1)
            return false;
    return true;
}

int kvb_result_stream(const kvb_result *result, bool first, FILE *out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    int error = memory ? kvb_result_table(result, 1, true, false, KVB_TABLE_CSV, memory) : -ENOMEM;

    if (memory && fclose(memory) && !error)
        error = -ENOMEM;
    if (!error)
        error = fputs(first ? text : strchr(text, '\n') + 1, out) < 0 || fflush(out) ? -EIO : 0;
    free(text);
    return error;
}

int kvb_result_table(const kvb_result *results, size_t n, bool skips, bool counters, kvb_table_format format, FILE *out)
{
    bool for_people = kvb_table_is_for_people(format), one_thread = kvb_results_one_thread(results, n);
    const char *headings[COLUMNS + KVB_COUNTERS + 1] = {NULL};
    counted extra = {.from = for_people || counters ? COLUMNS : COLUMNS - COUNTS};
    char right[KVB_COUNTERS][KVB_NAME + 1];
    for (size_t i = 0; i < extra.from; i++)
        headings[i] = for_people ? columns[i].people : columns[i].programs;
    for (size_t i = 0; i < n && counters && !for_people; i++)
        counted_add(&extra, &results[i]);
    for (size_t i = 0; i < extra.n; i++) {
        snprintf(right[i], sizeof right[i], ">%s", extra.names[i]);
        headings[extra.from + i] = right[i];
    }
    kvb_table *table = kvb_table_new(headings);
    for (size_t i = 0; i < n; i++)
        if (skips || results[i].status != KVB_STATUS_SKIP)
            result_row(table, &results[i], for_people, one_thread, skips, &extra);
    if (for_people)
        kvb_table_drop_empty(table);
    if (for_people && !skips)
        kvb_table_fold(table);
    return kvb_table_end(table, format, out);
}
