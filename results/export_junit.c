/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JUnit XML, as Ant's junit task writes it (XMLJUnitResultFormatter) and Jenkins, GitLab and GitHub's actions read it:
 * a testsuite for each workload, a testcase for each combination. A wrong answer is a failure; a crash or a time limit
 * is an error. Every testsuite has exactly the elements that Ant's format requires, empty ones too.
 */
#include "results/export.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The element inside a testcase that says its status. */
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

static void property_put(const char *name, const char *value, FILE *out)
{
    fputs("      <property", out);
    attribute_put("name", name, out);
    attribute_put("value", value, out);
    fputs("/>\n", out);
}

static void properties_put(const kvb_manifest *m, FILE *out)
{
    char cores[16], memory[24], seed[24];
    const char *const properties[][2] = {
        {"version", m->version},
        {"commit", m->commit},
        {"compiler", m->compiler},
        {"flags", m->flags},
        {"cpu_model", m->cpu_model},
        {"isa", m->isa},
        {"cores", cores},
        {"memory_bytes", memory},
        {"os", m->os},
        {"openblas_version", m->openblas_version},
        {"openblas_core", m->openblas_core},
        {"suite", m->suite},
        {"seed", seed},
        {"command", m->command},
    };

    snprintf(cores, sizeof cores, "%" PRIu32, m->cores);
    snprintf(memory, sizeof memory, "%" PRIu64, m->memory_bytes);
    snprintf(seed, sizeof seed, "%" PRIu64, m->seed);
    fputs("    <properties>\n", out);
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        property_put(properties[i][0], properties[i][1], out);
    fputs("    </properties>\n", out);
}

/* How long the timed steps of all passes took, in seconds. */
static double seconds_of(const kvb_result *result)
{
    double ns = 0;

    for (size_t kind = 0; kind < KVB_STEP_KINDS; kind++)
        if (result->time.kinds[kind].samples)
            ns += result->time.kinds[kind].total;
    return 1e-9 * ns;
}

/* The reason, which is the message too, and how to see it again. */
static void details_put(const kvb_result *r, FILE *out)
{
    fputc('\n', out);
    kvb_xml_put(r->reason, out);
    if (*r->replay) {
        fputs("\nalone: ", out);
        kvb_xml_put(r->replay, out);
    }
    fputc('\n', out);
}

static void case_put(const kvb_result *result, FILE *out)
{
    const char *element = elements[result->status];
    char name[KVB_KEY_TEXT], class[2 * KVB_NAME + 2];

    kvb_key_name(result, name);
    snprintf(class, sizeof class, "%s.%s", result->workload, result->cache);
    fputs("    <testcase", out);
    attribute_put("name", name, out);
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
        putc('>', out);
        details_put(result, out);
        fprintf(out, "      </%s>\n", element);
    }
    fputs("    </testcase>\n", out);
}

typedef struct tally {
    size_t tests, count[KVB_STATUSES];
    double seconds;
} tally;

/* Counts the results of one workload, or of all if it is NULL. */
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
