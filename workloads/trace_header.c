/* SPDX-License-Identifier: Apache-2.0 */
/* The header line of a trace: version, names, the model block, where values come from. */
#include "workloads/profile_internal.h"
#include "workloads/trace_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_SCHEMA_VERSION 1

static const char *const header_keys[] = {"kvbench_trace", "name",     "source", "model",
                                          "values",        "capacity", "note",   NULL};

/* The model block; its ranges are those of the caches' metadata block of the same schema version. */
typedef struct model_field {
    const char *key;
    size_t offset; /* in kvb_trace_model */
    int64_t max;
} model_field;

static const model_field model_fields[] = {
    {"kv_cache.layers", offsetof(kvb_trace_model, layers), 1024},
    {"kv_cache.heads", offsetof(kvb_trace_model, heads), 4096},
    {"kv_cache.kv_heads", offsetof(kvb_trace_model, kv_heads), 4096},
    {"kv_cache.k_dim", offsetof(kvb_trace_model, k_dim), 4096},
    {"kv_cache.v_dim", offsetof(kvb_trace_model, v_dim), 4096},
};
static const char *const model_keys[] = {
    "kv_cache.schema_version", "kv_cache.layers", "kv_cache.heads", "kv_cache.kv_heads",
    "kv_cache.k_dim",          "kv_cache.v_dim",  "scale",          NULL};

static int integer_get(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *number, char *why,
                       size_t why_bytes)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        return kvb_why_set(-EINVAL, why, why_bytes, "header: \"%s\": expected an integer, found %s", key,
                           kvb_json_type_name(value));
    *number = json_integer_value(value);
    if (*number < min || *number > max)
        return kvb_why_set(-EINVAL, why, why_bytes, "header: \"%s\": %lld is out of range %lld .. %lld", key,
                           (long long)*number, (long long)min, (long long)max);
    return 0;
}

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

static int model_parse(const json_t *block, kvb_trace_model *model, char *why, size_t why_bytes)
{
    /* The version first: what follows is only known for this one. */
    int64_t version = 0, number = 0;
    int err = integer_get(block, "kv_cache.schema_version", MODEL_SCHEMA_VERSION, MODEL_SCHEMA_VERSION, &version, why,
                          why_bytes);
    if (!err)
        err = kvb_json_keys_check(block, "header: model", model_keys, why, why_bytes);
    for (size_t i = 0; i < sizeof model_fields / sizeof *model_fields && !err; i++) {
        err = integer_get(block, model_fields[i].key, 1, model_fields[i].max, &number, why, why_bytes);
        if (!err)
            *(uint32_t *)((char *)model + model_fields[i].offset) = (uint32_t)number;
    }
    if (err)
        return err;
    if (model->heads % model->kv_heads)
        return kvb_why_set(-EINVAL, why, why_bytes, "header: %u heads are no multiple of %u kv_heads", model->heads,
                           model->kv_heads);
    const json_t *scale = json_object_get(block, "scale");
    model->scale = scale ? json_number_value(scale) : 1 / sqrt(model->k_dim);
    if (!(model->scale >= FLT_MIN && model->scale <= FLT_MAX)) /* kernels take it as a float */
        return kvb_why_set(-EINVAL, why, why_bytes, "header: \"scale\": expected a number above 0");
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
        err = integer_get(block, "seed", 0, INT64_MAX, &seed, why, why_bytes);
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
    int64_t number = 0;
    int err = integer_get(line, "kvbench_trace", KVB_TRACE_VERSION, KVB_TRACE_VERSION, &number, why, why_bytes);
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
        err = model_parse(model, &header->model, why, why_bytes);
    if (!err)
        err = object_get(line, "values", &values, why, why_bytes);
    if (!err)
        err = values_parse(values, path, header, why, why_bytes);
    number = 0;
    if (!err && json_object_get(line, "capacity"))
        err = integer_get(line, "capacity", 1, KVB_TRACE_MAX_CELLS, &number, why, why_bytes);
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
    *header = (kvb_trace_header){0};
}
