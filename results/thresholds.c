/* SPDX-License-Identifier: Apache-2.0 */
#include "results/compare.h"

#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

static const char *const limit_names[KVB_LIMITS] = {"time", "memory", "bytes", "rho", "counts", "misses"};

void kvb_thresholds_init(kvb_thresholds *thresholds)
{
    *thresholds = (kvb_thresholds){.limit = {[KVB_LIMIT_TIME] = 0.05,
                                             [KVB_LIMIT_RHO] = INFINITY,
                                             [KVB_LIMIT_COUNTS] = 0.001,
                                             [KVB_LIMIT_MISSES] = 0.03},
                                   .confidence = KVB_CONFIDENCE};
}

/* Takes 0 .. 10 for all but time. No run could meet a time threshold of 0. */
static bool limit_read(kvb_limit limit, const json_t *value, double *number)
{
    *number = json_is_null(value) ? INFINITY : json_number_value(value);
    if (json_is_null(value))
        return true;
    return json_is_number(value) && *number >= (limit == KVB_LIMIT_TIME ? 0.001 : 0) && *number <= 10;
}

/* Reads one key of the file or of a pattern. 0; -ENOENT if it is not a limit; -EINVAL with why. */
static int key_read(const char *key, const json_t *value, double limit[KVB_LIMITS], char *why, size_t why_bytes)
{
    for (kvb_limit i = 0; i < KVB_LIMITS; i++) {
        if (strcmp(key, limit_names[i]) != 0)
            continue;
        if (limit_read(i, value, &limit[i]))
            return 0;
        snprintf(why, why_bytes, "%s: expected a number of %s .. 10 (0.05 is 5 %%), or null", key,
                 i == KVB_LIMIT_TIME ? "0.001" : "0");
        return -EINVAL;
    }
    return -ENOENT;
}

static int pattern_read(json_t *object, kvb_threshold_pattern *pattern, char *why, size_t why_bytes)
{
    const char *key, *match = json_string_value(json_object_get(object, "match"));
    json_t *value;

    if (!match || !*match || strlen(match) >= sizeof pattern->match) {
        snprintf(why, why_bytes, "match: expected a pattern of workload/cache/pool/kernel/threads/growth");
        return -EINVAL;
    }
    strcpy(pattern->match, match);
    for (kvb_limit i = 0; i < KVB_LIMITS; i++)
        pattern->limit[i] = NAN;
    json_object_foreach(object, key, value)
    {
        int error = strcmp(key, "match") == 0 ? 0 : key_read(key, value, pattern->limit, why, why_bytes);

        if (error == -ENOENT)
            snprintf(why, why_bytes, "%s: unknown key; known: match, time, memory, bytes, rho, counts, misses", key);
        if (error)
            return -EINVAL;
    }
    return 0;
}

static int patterns_read(const json_t *list, kvb_thresholds *thresholds, char *why, size_t why_bytes)
{
    if (!json_is_array(list) || json_array_size(list) > KVB_THRESHOLD_PATTERNS) {
        snprintf(why, why_bytes, "patterns: expected a list of at most %u", KVB_THRESHOLD_PATTERNS);
        return -EINVAL;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        char what[256];

        if (pattern_read(json_array_get(list, i), &thresholds->patterns[i], what, sizeof what)) {
            snprintf(why, why_bytes, "patterns[%zu].%s", i, what);
            return -EINVAL;
        }
    }
    thresholds->n = json_array_size(list);
    return 0;
}

static int confidence_read(const json_t *value, double *confidence, char *why, size_t why_bytes)
{
    *confidence = json_number_value(value);
    if (*confidence >= 0.5 && *confidence <= 0.9999)
        return 0;
    snprintf(why, why_bytes, "confidence: expected a number of 0.5 .. 0.9999");
    return -EINVAL;
}

static int root_read(json_t *root, kvb_thresholds *thresholds, char *why, size_t why_bytes)
{
    const char *key;
    json_t *value;

    if (json_integer_value(json_object_get(root, "kvbench_thresholds")) != 1) {
        snprintf(why, why_bytes, "expected {\"kvbench_thresholds\": 1, …}");
        return -EINVAL;
    }
    json_object_foreach(root, key, value)
    {
        int error;

        if (strcmp(key, "kvbench_thresholds") == 0)
            continue;
        if (strcmp(key, "patterns") == 0)
            error = patterns_read(value, thresholds, why, why_bytes);
        else if (strcmp(key, "confidence") == 0)
            error = confidence_read(value, &thresholds->confidence, why, why_bytes);
        else
            error = key_read(key, value, thresholds->limit, why, why_bytes);
        if (error == -ENOENT)
            snprintf(why, why_bytes,
                     "%s: unknown key; known: time, memory, bytes, rho, counts, misses, confidence, patterns", key);
        if (error)
            return -EINVAL;
    }
    return 0;
}

int kvb_thresholds_load(const char *path, kvb_thresholds *thresholds, char *why, size_t why_bytes)
{
    json_error_t fault;
    char what[384];
    FILE *in = fopen(path, "re");

    kvb_thresholds_init(thresholds);
    if (!in) {
        int error = -errno;

        snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
        return error;
    }
    json_t *root = json_loadf(in, JSON_REJECT_DUPLICATES, &fault);

    fclose(in);
    if (!root) {
        snprintf(why, why_bytes, "%s:%d: not valid JSON: %s", path, fault.line, fault.text);
        return -EINVAL;
    }
    int error = root_read(root, thresholds, what, sizeof what);
    if (error)
        snprintf(why, why_bytes, "%s: %s", path, what);
    json_decref(root);
    return error;
}

static bool is_match(const kvb_threshold_pattern *pattern, const char name[KVB_KEY_TEXT])
{
    return !fnmatch(pattern->match, name, 0);
}

double kvb_thresholds_of(const kvb_thresholds *thresholds, const kvb_result *result, kvb_limit limit)
{
    char name[KVB_KEY_TEXT];

    kvb_key_name(result, name);
    for (size_t i = thresholds->n; i-- > 0;)
        if (!isnan(thresholds->patterns[i].limit[limit]) && is_match(&thresholds->patterns[i], name))
            return thresholds->patterns[i].limit[limit];
    return thresholds->limit[limit];
}

void kvb_thresholds_meet(kvb_thresholds *thresholds, const kvb_result *results, size_t n)
{
    char name[KVB_KEY_TEXT];

    for (size_t r = 0; r < n && thresholds->n; r++) {
        kvb_key_name(&results[r], name);
        for (size_t i = 0; i < thresholds->n; i++)
            thresholds->patterns[i].met |= is_match(&thresholds->patterns[i], name);
    }
}

const char *kvb_thresholds_unmet(const kvb_thresholds *thresholds)
{
    for (size_t i = 0; i < thresholds->n; i++)
        if (!thresholds->patterns[i].met)
            return thresholds->patterns[i].match;
    return NULL;
}
