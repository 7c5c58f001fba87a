/* SPDX-License-Identifier: Apache-2.0 */
/* The header line of a trace: version, names, the model block, where values come from. */
#include "workloads/profile_internal.h"
#include "workloads/trace_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const header_keys[] = {"kvbench_trace", "name",     "source", "model",
                                          "values",        "capacity", "note",   NULL};

/* A copy of a string member; absent and optional: NULL. */
static int string_get(const json_t *object, const char *key, bool optional, char **string, char *why, size_t why_bytes)
{
    const json_t *value = json_object_get(object, key);
    if (!value && optional)
        return 0;
    if (!json_is_string(value))
        return kvb_why_set(-EINVAL, why, why_bytes, "header: \"%s\": expected a string, found %s", key,
                           kvb_json_type_name(value));
    *string = strdup(json_string_value(value));
    return *string ? 0 : kvb_why_set(-ENOMEM, why, why_bytes, "header: no memory");
}

static int object_get(const json_t *object, const char *key, const json_t **member, char *why, size_t why_bytes)
{
    *member = json_object_get(object, key);
    if (!json_is_object(*member))
        return kvb_why_set(-EINVAL, why, why_bytes, "header: \"%s\": expected an object, found %s", key,
                           kvb_json_type_name(*member));
    return 0;
}

/* A name beside the trace: its folder + name. */
static int tensors_resolve(const char *path, const char *name, char **resolved, char *why, size_t why_bytes)
{
    if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "header: \"tensors\": expected the name of a file beside the trace, found \"%.60s\"", name);
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    if (asprintf(resolved, "%.*s%s", folder, path, name) < 0) {
        *resolved = NULL;
        return kvb_why_set(-ENOMEM, why, why_bytes, "header: no memory");
    }
    return 0;
}

static int values_parse(const json_t *block, const char *path, kvb_trace_header *header, char *why, size_t why_bytes)
{
    static const char *const recorded_keys[] = {"tensors", NULL};
    static const char *const seeded_keys[] = {"profile", "seed", NULL};
    const kvb_profile *profile;
    char *name = NULL;
    int err;
    if (json_object_get(block, "tensors")) {
        err = kvb_json_keys_check(block, "header: values", recorded_keys, why, why_bytes);
        if (!err)
            err = string_get(block, "tensors", false, &name, why, why_bytes);
        if (!err)
            err = tensors_resolve(path, name, &header->tensors, why, why_bytes);
        free(name);
        return err;
    }
    err = kvb_json_keys_check(block, "header: values", seeded_keys, why, why_bytes);
    if (!err)
        err = string_get(block, "profile", false, &header->profile, why, why_bytes);
    if (!err)
        err = kvb_profile_choose(header->profile, &profile, why, why_bytes);
    int64_t seed = 0;
    if (!err)
        err = kvb_json_integer_get(block, "seed", 0, INT64_MAX, &seed, why, why_bytes);
    header->seed = (uint64_t)seed;
    return err;
}

int kvb_trace_header_parse(const json_t *line, const char *path, kvb_trace_header *header, char *why, size_t why_bytes)
{
    *header = (kvb_trace_header){0};
    if (!json_is_object(line) || !json_object_get(line, "kvbench_trace"))
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "expected a trace header, an object with the key \"kvbench_trace\"");
    const json_t *model = NULL, *values = NULL;
    int64_t version = 0, number = 0;
    int err = kvb_json_integer_get(line, "kvbench_trace", 1, KVB_TRACE_VERSION, &version, why, why_bytes);
    if (!err)
        err = kvb_json_keys_check(line, "header", header_keys, why, why_bytes);
    if (!err)
        err = string_get(line, "name", false, &header->name, why, why_bytes);
    if (!err && !*header->name)
        err = kvb_why_set(-EINVAL, why, why_bytes, "header: \"name\": is empty");
    if (!err)
        err = string_get(line, "source", false, &header->source, why, why_bytes);
    if (!err)
        err = string_get(line, "note", true, &header->note, why, why_bytes);
    if (!err)
        err = object_get(line, "model", &model, why, why_bytes);
    if (!err)
        err = kvb_model_block_parse(model, version, &header->model, why, why_bytes);
    if (!err)
        err = object_get(line, "values", &values, why, why_bytes);
    if (!err)
        err = values_parse(values, path, header, why, why_bytes);
    number = 0;
    if (!err && json_object_get(line, "capacity"))
        err = kvb_json_integer_get(line, "capacity", 1, KVB_TRACE_MAX_CELLS, &number, why, why_bytes);
    header->capacity = (uint32_t)number;
    if (err)
        kvb_trace_header_clear(header);
    return err;
}

void kvb_trace_header_clear(kvb_trace_header *header)
{
    free(header->name);
    free(header->source);
    free(header->note);
    free(header->tensors);
    free(header->profile);
    kvb_model_clear(&header->model);
    *header = (kvb_trace_header){0};
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static void string_write(FILE *out, const char *key, const char *string)
{
    json_t *value = json_string(string);
    fprintf(out, ",\"%s\":", key);
    json_dumpf(value, out, JSON_ENCODE_ANY);
    json_decref(value);
}

void kvb_trace_header_print(FILE *out, const kvb_trace_header *h)
{
    fprintf(out, "{\"kvbench_trace\":%d", kvb_model_is_plain(&h->model) ? 1 : KVB_TRACE_VERSION);
    string_write(out, "name", h->name);
    string_write(out, "source", h->source);
    if (h->note)
        string_write(out, "note", h->note);
    fputs(",\"model\":", out);
    kvb_model_block_print(out, &h->model);
    fputs(",\"values\":{", out);
    if (h->tensors) {
        const char *slash = strrchr(h->tensors, '/');
        json_t *value = json_string(slash ? slash + 1 : h->tensors);
        fputs("\"tensors\":", out);
        json_dumpf(value, out, JSON_ENCODE_ANY);
        json_decref(value);
    } else {
        fprintf(out, "\"profile\":\"%s\",\"seed\":%llu", h->profile, (unsigned long long)h->seed);
    }
    fputc('}', out);
    if (h->capacity)
        fprintf(out, ",\"capacity\":%u", h->capacity);
    fputs("}\n", out);
}
