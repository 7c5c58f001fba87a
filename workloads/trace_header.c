/* SPDX-License-Identifier: Apache-2.0 */
/* The header line of a trace: version, names, model block, source of values. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/values.h"
#include "workloads/rng.h"
#include "workloads/trace_internal.h"
#include "workloads/files.h"

/* Frees sink logits. */
static void model_clear(kvb_model *model);

/*
 * The model block of a trace header, read and written. Version 1: all layers are alike, fields have their own or the
 * published names. Version 2: layers in groups.
 */

#define VERSION_KEY "kv_cache.schema_version"

typedef struct model_field {
    const char *name;      /* in a group; behind "kv_cache." in version 1 */
    const char *published; /* the name in the published version 1, behind "kv_cache." */
    size_t offset;         /* of a uint32_t in kvb_group */
    int64_t min, max;
    bool optional; /* absent: 0 */
} model_field;

#define FIELD(NAME, PUBLISHED)                                                                                         \
    {                                                                                                                  \
#NAME, PUBLISHED, offsetof(kvb_group, NAME), 1, KVB_MODEL_WIDTH, false                                         \
    }
#define LIMIT(NAME)                                                                                                    \
    {                                                                                                                  \
#NAME, NULL, offsetof(kvb_group, NAME), 1, KVB_TRACE_MAX_CELLS, true                                           \
    }

static const model_field fields[] = {
    FIELD(heads, "n_heads"),
    FIELD(kv_heads, "n_kv_heads"),
    FIELD(k_dim, "head_dim"),
    FIELD(v_dim, "head_dim"),
    LIMIT(window),
    LIMIT(sinks),
    LIMIT(chunk),
};
static const char *const KINDS[] = {[KVB_GROUP_ATTEND] = "attend", [KVB_GROUP_SCAN] = "scan"};
static const char *const PAIRINGS[] = {"halves", "neighbours"};
enum { FIELDS = sizeof fields / sizeof *fields, SHAPE = 4 /* the first fields, which version 1 has */ };

int kvb_json_integer_get(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *number, char *why,
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

static uint32_t *field_of(kvb_group *group, size_t i)
{
    return (uint32_t *)(void *)((char *)group + fields[i].offset);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* A finite number. */
static int number_get(const json_t *object, const char *key, double absent, double *number, char *why, size_t why_bytes)
{
    const json_t *value = json_object_get(object, key);
    *number = absent;
    if (!value)
        return 0;
    if (!json_is_number(value))
        return kvb_why_set(-EINVAL, why, why_bytes, "header: \"%s\": expected a number, found %s", key,
                           kvb_json_type_name(value));
    *number = json_number_value(value);
    return 0;
}

/* The optional members about logits, in both versions. The default scale needs k_dim. */
static int logits_parse(const json_t *block, kvb_group *group, char *why, size_t why_bytes)
{
    double softcap = 0;
    int err = number_get(block, "scale", 1 / sqrt(group->k_dim), &group->scale, why, why_bytes);
    if (!err && !(group->scale > 0))
        err = kvb_why_set(-EINVAL, why, why_bytes, "header: \"scale\": expected a number above 0");
    if (!err)
        err = number_get(block, "softcap", 0, &softcap, why, why_bytes);
    group->softcap = (float)softcap;
    if (!err && json_object_get(block, "softcap") && !(group->softcap > 0))
        err = kvb_why_set(-EINVAL, why, why_bytes, "header: \"softcap\": expected a number above 0");
    const json_t *list = json_object_get(block, "sink_logits");
    if (err || !list)
        return err;
    if (!json_is_array(list) || json_array_size(list) != group->heads)
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "header: \"sink_logits\": expected an array of %u numbers, one a head", group->heads);
    float *logits = malloc(group->heads * sizeof *logits);
    if (!logits)
        return kvb_why_set(-ENOMEM, why, why_bytes, "header: no memory");
    group->sink_logits = logits;
    for (uint32_t h = 0; h < group->heads; h++) {
        const json_t *value = json_array_get(list, h);
        if (!json_is_number(value))
            return kvb_why_set(-EINVAL, why, why_bytes, "header: \"sink_logits\"[%u]: expected a number, found %s", h,
                               kvb_json_type_name(value));
        logits[h] = (float)json_number_value(value);
    }
    return 0;
}

/* Version 1: a field by one of its two names. */
static int alike_field_get(const json_t *block, const char *name, const char *published, int64_t max, int64_t *number,
                           char *why, size_t why_bytes)
{
    char today[40], other[40];
    snprintf(today, sizeof today, "kv_cache.%s", name);
    snprintf(other, sizeof other, "kv_cache.%s", published);
    bool is_today = json_object_get(block, today), is_other = json_object_get(block, other);
    if (is_today && is_other)
        return kvb_why_set(-EINVAL, why, why_bytes, "header: \"%s\" and \"%s\" are the same: expected one of them",
                           today, other);
    return kvb_json_integer_get(block, is_other ? other : today, 1, max, number, why, why_bytes);
}

static int alike_parse(const json_t *block, kvb_model *model, char *why, size_t why_bytes)
{
    static const char *const known[] = {VERSION_KEY,
                                        "kv_cache.layers",
                                        "kv_cache.heads",
                                        "kv_cache.kv_heads",
                                        "kv_cache.k_dim",
                                        "kv_cache.v_dim",
                                        "kv_cache.n_layers",
                                        "kv_cache.n_heads",
                                        "kv_cache.n_kv_heads",
                                        "kv_cache.head_dim",
                                        "scale",
                                        NULL};
    int64_t number = 0;
    int err = kvb_json_keys_check(block, "header: model", known, why, why_bytes);
    if (!err)
        err = alike_field_get(block, "layers", "n_layers", KVB_MODEL_LAYERS, &number, why, why_bytes);
    model->n_layers = (uint32_t)number;
    model->n_groups = 1;
    for (size_t i = 0; i < SHAPE && !err; i++) {
        err = alike_field_get(block, fields[i].name, fields[i].published, fields[i].max, &number, why, why_bytes);
        *field_of(&model->groups[0], i) = (uint32_t)number;
    }
    return err ? err : logits_parse(block, &model->groups[0], why, why_bytes);
}

/* Puts the listed layers in group g. */
static int layers_parse(const json_t *list, uint32_t g, bool *taken, kvb_model *model, char *why, size_t why_bytes)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return kvb_why_set(-EINVAL, why, why_bytes, "header: group %u: \"layers\": expected an array of layer numbers",
                           g);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        int64_t layer = json_integer_value(value);
        if (!json_is_integer(value) || layer < 0 || layer >= model->n_layers)
            return kvb_why_set(-EINVAL, why, why_bytes, "header: group %u: \"layers\"[%zu]: expected a layer, 0 .. %u",
                               g, i, model->n_layers - 1);
        if (taken[layer])
            return kvb_why_set(-EINVAL, why, why_bytes, "header: group %u: layer %u is in group %u already", g,
                               (unsigned)layer, model->group_of[layer]);
        taken[layer] = true;
        model->group_of[layer] = (uint8_t)g;
    }
    return 0;
}

static int rope_parse(const json_t *block, kvb_group *group, char *why, size_t why_bytes)
{
    static const char *const known[] = {"base", "dims", "first", "pairing", NULL};
    kvb_rope *rope = &group->rope;
    int64_t dims = 0, first = group->latent ? group->v_dim : 0;
    if (!json_is_object(block))
        return kvb_why_set(-EINVAL, why, why_bytes, "header: \"rope\": expected an object, found %s",
                           kvb_json_type_name(block));
    int err = kvb_json_keys_check(block, "header: \"rope\"", known, why, why_bytes);
    if (!err)
        err = kvb_json_integer_get(block, "dims", 0, KVB_MODEL_WIDTH, &dims, why, why_bytes);
    if (!err && json_object_get(block, "first"))
        err = kvb_json_integer_get(block, "first", 0, KVB_MODEL_WIDTH, &first, why, why_bytes);
    if (!err)
        err = number_get(block, "base", 0, &rope->base, why, why_bytes);
    const char *pairing = json_string_value(json_object_get(block, "pairing"));
    rope->neighbours = pairing && !strcmp(pairing, PAIRINGS[1]);
    if (!err && dims && !rope->neighbours && !(pairing && !strcmp(pairing, PAIRINGS[0])))
        err = kvb_why_set(-EINVAL, why, why_bytes, "header: \"rope\": \"pairing\": expected \"%s\" or \"%s\"",
                          PAIRINGS[0], PAIRINGS[1]);
    rope->known = true;
    rope->dims = (uint32_t)dims;
    rope->first = dims ? (uint32_t)first : 0;
    return err;
}

static int attend_parse(const json_t *block, kvb_group *group, char *why, size_t why_bytes)
{
    static const char *const known[] = {"layers", "kind",    "heads",       "kv_heads", "k_dim",
                                        "v_dim",  "latent",  "window",      "sinks",    "chunk",
                                        "scale",  "softcap", "sink_logits", "rope",     NULL};
    int err = kvb_json_keys_check(block, "header", known, why, why_bytes);
    for (size_t i = 0; i < FIELDS && !err; i++) {
        int64_t number = 0;
        if (!fields[i].optional || json_object_get(block, fields[i].name))
            err = kvb_json_integer_get(block, fields[i].name, fields[i].min, fields[i].max, &number, why, why_bytes);
        *field_of(group, i) = (uint32_t)number;
    }
    const json_t *latent = json_object_get(block, "latent");
    if (!err && latent && !json_is_boolean(latent))
        err = kvb_why_set(-EINVAL, why, why_bytes, "header: \"latent\": expected true or false, found %s",
                          kvb_json_type_name(latent));
    group->latent = json_is_true(latent);
    const json_t *rope = json_object_get(block, "rope");
    if (!err && rope)
        err = rope_parse(rope, group, why, why_bytes);
    return err ? err : logits_parse(block, group, why, why_bytes);
}

static int group_parse(const json_t *block, kvb_group *group, char *why, size_t why_bytes)
{
    const json_t *kind = json_object_get(block, "kind");
    const char *name = kind ? json_string_value(kind) : KINDS[KVB_GROUP_ATTEND];
    if (name && !strcmp(name, KINDS[KVB_GROUP_SCAN]))
        return kvb_scan_block_parse(block, group, why, why_bytes);
    if (!name || strcmp(name, KINDS[KVB_GROUP_ATTEND]))
        return kvb_why_set(-EINVAL, why, why_bytes, "header: \"kind\": expected \"%s\" or \"%s\"",
                           KINDS[KVB_GROUP_ATTEND], KINDS[KVB_GROUP_SCAN]);
    return attend_parse(block, group, why, why_bytes);
}

static int groups_parse(const json_t *block, kvb_model *model, char *why, size_t why_bytes)
{
    static const char *const known[] = {VERSION_KEY, "kv_cache.layers", "kv_cache.n_layers", "groups", NULL};
    bool taken[KVB_MODEL_LAYERS] = {false};
    const json_t *groups = json_object_get(block, "groups");
    int64_t layers = 0;
    int err = kvb_json_keys_check(block, "header: model", known, why, why_bytes);
    if (!err)
        err = alike_field_get(block, "layers", "n_layers", KVB_MODEL_LAYERS, &layers, why, why_bytes);
    model->n_layers = (uint32_t)layers;
    size_t n = json_array_size(groups);
    if (!err && (n < 1 || n > KVB_MODEL_GROUPS))
        err = kvb_why_set(-EINVAL, why, why_bytes, "header: \"groups\": expected an array of 1 .. %u groups of layers",
                          KVB_MODEL_GROUPS);
    for (uint32_t g = 0; g < n && !err; g++) {
        const json_t *group = json_array_get(groups, g);
        if (!json_is_object(group))
            return kvb_why_set(-EINVAL, why, why_bytes, "header: group %u: expected an object, found %s", g,
                               kvb_json_type_name(group));
        model->n_groups = g + 1;
        err = layers_parse(json_object_get(group, "layers"), g, taken, model, why, why_bytes);
        char text[400];
        if (!err && (err = group_parse(group, &model->groups[g], text, sizeof text)))
            kvb_why_set(err, why, why_bytes, "header: group %u: %s", g, text + strlen("header: "));
    }
    for (uint32_t layer = 0; layer < model->n_layers && !err; layer++)
        if (!taken[layer])
            err = kvb_why_set(-EINVAL, why, why_bytes, "header: layer %u is in no group", layer);
    return err;
}

/* trace_version: of the header that holds the block. On failure the model is cleared. */
static int model_block_parse(const json_t *block, int64_t trace_version, kvb_model *model, char *why, size_t why_bytes)
{
    /* The version comes first: the rest depends on it. A trace of version 1 has a model of version 1. */
    int64_t version = 0;
    char text[200];
    int err = kvb_json_integer_get(block, VERSION_KEY, 1, trace_version, &version, why, why_bytes);
    *model = (kvb_model){0};
    if (!err)
        err = version == 1 ? alike_parse(block, model, why, why_bytes) : groups_parse(block, model, why, why_bytes);
    if (!err && kvb_model_check(model, text, sizeof text))
        err = version == 1 ? kvb_why_set(-EINVAL, why, why_bytes, "header: %s", text + strlen("group 0: "))
                           : kvb_why_set(-EINVAL, why, why_bytes, "header: %s", text);
    if (err)
        model_clear(model);
    return err;
}

static void model_clear(kvb_model *model)
{
    for (uint32_t g = 0; g < model->n_groups; g++)
        free((float *)(uintptr_t)model->groups[g].sink_logits);
    *model = (kvb_model){0};
}

int kvb_trace_change_logits(kvb_trace *trace, const kvb_logit_changes *changes)
{
    kvb_model *m = &trace->header.model;
    trace->header.before_rope |= changes->before_rope;
    for (uint32_t g = 0; g < m->n_groups; g++) {
        kvb_group *group = &m->groups[g];
        if (kvb_group_scans(group))
            continue;
        if (changes->softcap > 0)
            group->softcap = changes->softcap;
        if (changes->scale > 0)
            group->scale = changes->scale;
        if (changes->before_rope && !group->rope.known)
            group->rope = kvb_rope_usual(group);
        if (!changes->sinks)
            continue;
        float *logits = malloc(group->heads * sizeof *logits);
        if (!logits)
            return -ENOMEM;
        kvb_rng_normals(kvb_rng_key(changes->seed, g), 1, group->heads, logits);
        free((float *)(uintptr_t)group->sink_logits);
        group->sink_logits = logits;
    }
    return 0;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* The shortest decimal that reads back as the same double. */
static void json_double_print(FILE *out, double x)
{
    char text[32];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    fputs(text, out);
}

/* Does version 1 suffice for the model: one group without limits, softcap, sink logits and rope? */
static bool model_is_plain(const kvb_model *model)
{
    const kvb_group *g = &model->groups[0];
    return model->n_groups == 1 && !kvb_group_scans(g) && !g->latent && !g->rope.known && !kvb_group_limits(g) &&
           !(g->softcap > 0) && !g->sink_logits;
}

static void group_print(FILE *out, const kvb_model *model, uint32_t g)
{
    kvb_group group = model->groups[g];
    bool first = true;
    fputs("{\"layers\":[", out);
    for (uint32_t layer = 0; layer < model->n_layers; layer++)
        if (model->group_of[layer] == g) {
            fprintf(out, "%s%u", first ? "" : ",", layer);
            first = false;
        }
    fputc(']', out);
    if (kvb_group_scans(&group)) {
        fprintf(out, ",\"kind\":\"%s\",\"scan\":", KINDS[group.kind]);
        kvb_scan_block_print(out, &group.scan);
        fputc('}', out);
        return;
    }
    for (size_t i = 0; i < FIELDS; i++)
        if (!fields[i].optional || *field_of(&group, i))
            fprintf(out, ",\"%s\":%u", fields[i].name, *field_of(&group, i));
    if (group.latent)
        fputs(",\"latent\":true", out);
    fputs(",\"scale\":", out);
    json_double_print(out, group.scale);
    if (group.softcap > 0) {
        fputs(",\"softcap\":", out);
        json_double_print(out, (double)group.softcap);
    }
    if (group.rope.known && group.rope.dims) {
        fputs(",\"rope\":{\"base\":", out);
        json_double_print(out, group.rope.base);
        fprintf(out, ",\"dims\":%u,\"first\":%u,\"pairing\":\"%s\"}", group.rope.dims, group.rope.first,
                PAIRINGS[group.rope.neighbours]);
    } else if (group.rope.known) {
        fputs(",\"rope\":{\"dims\":0}", out);
    }
    for (uint32_t h = 0; group.sink_logits && h < group.heads; h++) {
        fputs(h ? "," : ",\"sink_logits\":[", out);
        json_double_print(out, (double)group.sink_logits[h]);
    }
    fputs(group.sink_logits ? "]}" : "}", out);
}

static void model_block_print(FILE *out, const kvb_model *model)
{
    const kvb_group *all = &model->groups[0];
    if (!model_is_plain(model)) {
        fprintf(out, "{\"" VERSION_KEY "\":2,\"kv_cache.layers\":%u,\"groups\":[", model->n_layers);
        for (uint32_t g = 0; g < model->n_groups; g++) {
            fputs(g ? "," : "", out);
            group_print(out, model, g);
        }
        fputs("]}", out);
        return;
    }
    fprintf(out,
            "{\"" VERSION_KEY "\":1,\"kv_cache.layers\":%u,\"kv_cache.heads\":%u,\"kv_cache.kv_heads\":%u,"
            "\"kv_cache.k_dim\":%u,\"kv_cache.v_dim\":%u,\"scale\":",
            model->n_layers, all->heads, all->kv_heads, all->k_dim, all->v_dim);
    json_double_print(out, all->scale);
    fputc('}', out);
}

static const char *const header_keys[] = {"kvbench_trace", "name",     "source", "model", "values",
                                          "outputs",       "capacity", "note",   NULL};
static const char *const outputs_keys[] = {"engine", "model", "setup", "rows", "arithmetic", NULL};
enum { OUTPUTS = sizeof outputs_keys / sizeof *outputs_keys - 1 };

/* The member of that key. */
static char **output_at(kvb_trace_outputs *o, size_t key)
{
    char **const members[] = {&o->engine, &o->model, &o->setup, &o->rows, &o->arithmetic};
    return members[key];
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

/* The path of a file beside the trace. */
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

static int before_rope_parse(const json_t *block, kvb_trace_header *header, char *why, size_t why_bytes)
{
    const json_t *stated = json_object_get(block, "before_rope");
    const int unknown = kvb_model_unknown_rope(&header->model);
    if (stated && !json_is_boolean(stated))
        return kvb_why_set(-EINVAL, why, why_bytes, "header: values: \"before_rope\": expected true or false, found %s",
                           kvb_json_type_name(stated));
    header->before_rope = json_is_true(stated);
    if (header->before_rope && unknown >= 0)
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "header: values: \"before_rope\": expected the \"rope\" of group %d", unknown);
    return 0;
}

static int values_parse(const json_t *block, const char *path, kvb_trace_header *header, char *why, size_t why_bytes)
{
    static const char *const recorded_keys[] = {"tensors", "before_rope", NULL};
    static const char *const seeded_keys[] = {"profile", "seed", "before_rope", NULL};
    const kvb_profile *profile;
    char *name = NULL;
    int err = before_rope_parse(block, header, why, why_bytes);
    if (err)
        return err;
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

static int outputs_parse(const json_t *block, kvb_trace_header *header, char *why, size_t why_bytes)
{
    char text[200];
    int err = kvb_json_keys_check(block, "header: outputs", outputs_keys, why, why_bytes);
    for (size_t i = 0; i < OUTPUTS && !err; i++)
        if ((err = string_get(block, outputs_keys[i], false, output_at(&header->outputs, i), text, sizeof text)))
            kvb_why_set(err, why, why_bytes, "header: outputs: %s", text + strlen("header: "));
    if (!err && (!header->tensors || header->before_rope))
        err = kvb_why_set(-EINVAL, why, why_bytes,
                          "header: \"outputs\": expected \"values\" with \"tensors\", after rope");
    return err;
}

int kvb_trace_header_parse(const json_t *line, const char *path, kvb_trace_header *header, char *why, size_t why_bytes)
{
    *header = (kvb_trace_header){0};
    if (!json_is_object(line) || !json_object_get(line, "kvbench_trace"))
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "expected a trace header, an object with the key \"kvbench_trace\"");
    const json_t *model = NULL, *values = NULL, *outputs = NULL;
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
        err = model_block_parse(model, version, &header->model, why, why_bytes);
    if (!err)
        err = object_get(line, "values", &values, why, why_bytes);
    if (!err)
        err = values_parse(values, path, header, why, why_bytes);
    if (!err && json_object_get(line, "outputs"))
        err = object_get(line, "outputs", &outputs, why, why_bytes);
    if (!err && outputs)
        err = outputs_parse(outputs, header, why, why_bytes);
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
    for (size_t i = 0; i < OUTPUTS; i++)
        free(*output_at(&header->outputs, i));
    model_clear(&header->model);
    *header = (kvb_trace_header){0};
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* before: printed before the key. */
static void string_write(FILE *out, const char *before, const char *key, const char *string)
{
    json_t *value = json_string(string);
    fprintf(out, "%s\"%s\":", before, key);
    json_dumpf(value, out, JSON_ENCODE_ANY);
    json_decref(value);
}

void kvb_trace_header_print(FILE *out, const kvb_trace_header *h)
{
    fprintf(out, "{\"kvbench_trace\":%d", model_is_plain(&h->model) ? 1 : KVB_TRACE_VERSION);
    string_write(out, ",", "name", h->name);
    string_write(out, ",", "source", h->source);
    if (h->note)
        string_write(out, ",", "note", h->note);
    fputs(",\"model\":", out);
    model_block_print(out, &h->model);
    fputs(",\"values\":{", out);
    if (h->tensors) {
        const char *slash = strrchr(h->tensors, '/');
        string_write(out, "", "tensors", slash ? slash + 1 : h->tensors);
    } else {
        fprintf(out, "\"profile\":\"%s\",\"seed\":%llu", h->profile, (unsigned long long)h->seed);
    }
    fputs(h->before_rope ? ",\"before_rope\":true}" : "}", out);
    kvb_trace_outputs outputs = h->outputs;
    for (size_t i = 0; i < OUTPUTS && outputs.engine; i++)
        string_write(out, i ? "," : ",\"outputs\":{", outputs_keys[i], *output_at(&outputs, i));
    fputs(outputs.engine ? "}" : "", out);
    if (h->capacity)
        fprintf(out, ",\"capacity\":%u", h->capacity);
    fputs("}\n", out);
}
