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
#include "kernels/scan.h"

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
static const struct {
    const char *name;
    kvb_elem elem;
} ELEMS[] = {{"f32", KVB_F32}, {"f16", KVB_F16}, {"bf16", KVB_BF16}};
enum {
    FIELDS = sizeof fields / sizeof *fields,
    SHAPE = 4, /* the first fields, which version 1 has */
    N_ELEMS = sizeof ELEMS / sizeof *ELEMS
};

static uint32_t *field_of(kvb_group *group, size_t i)
{
    return (uint32_t *)(void *)((char *)group + fields[i].offset);
}

/* ---- members of an object ------------------------------------------------------------------------------- */

/* Refuses a member of another type than `wanted`. */
static bool expect(kvb_parsing *r, bool fits, const char *key, const char *wanted, const json_t *found)
{
    if (!fits)
        kvb_parsing_fail(r, -EINVAL, "\"%s\": expected %s, found %s", key, wanted, kvb_json_type_name(found));
    return fits;
}

static int64_t integer_get(kvb_parsing *r, const json_t *object, const char *key, int64_t min, int64_t max)
{
    char what[48];
    snprintf(what, sizeof what, "\"%s\"", key);
    return kvb_json_integer(r, json_object_get(object, key), what, min, max);
}

static double number_get(kvb_parsing *r, const json_t *object, const char *key, double absent)
{
    const json_t *value = json_object_get(object, key);
    if (value)
        expect(r, json_is_number(value), key, "a number", value);
    return value ? json_number_value(value) : absent;
}

static bool boolean_get(kvb_parsing *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (value)
        expect(r, json_is_boolean(value), key, "true or false", value);
    return json_is_true(value);
}

/* A copy of a string member; NULL: absent and optional, or an error. */
static char *string_get(kvb_parsing *r, const json_t *object, const char *key, bool optional)
{
    const json_t *value = json_object_get(object, key);
    if ((!value && optional) || !expect(r, json_is_string(value), key, "a string", value))
        return NULL;
    char *copy = strdup(json_string_value(value));
    if (!copy)
        kvb_parsing_fail(r, -ENOMEM, "no memory");
    return copy;
}

static const json_t *object_get(kvb_parsing *r, const json_t *object, const char *key)
{
    const json_t *member = json_object_get(object, key);
    expect(r, json_is_object(member), key, "an object", member);
    return member;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* The optional members about logits, in both versions. The default scale needs k_dim. */
static void logits_parse(kvb_parsing *r, const json_t *block, kvb_group *group)
{
    group->scale = number_get(r, block, "scale", 1 / sqrt(group->k_dim));
    if (!(group->scale > 0))
        kvb_parsing_fail(r, -EINVAL, "\"scale\": expected a number above 0");
    group->softcap = (float)number_get(r, block, "softcap", 0);
    if (json_object_get(block, "softcap") && !(group->softcap > 0))
        kvb_parsing_fail(r, -EINVAL, "\"softcap\": expected a number above 0");
    const json_t *list = json_object_get(block, "sink_logits");
    if (list && (!json_is_array(list) || json_array_size(list) != group->heads))
        kvb_parsing_fail(r, -EINVAL, "\"sink_logits\": expected an array of %u numbers, one a head", group->heads);
    if (!list || r->error)
        return;
    float *logits = malloc(group->heads * sizeof *logits);
    if (!logits)
        kvb_parsing_fail(r, -ENOMEM, "no memory");
    group->sink_logits = logits;
    for (uint32_t h = 0; h < group->heads && logits; h++) {
        const json_t *value = json_array_get(list, h);
        if (!json_is_number(value))
            kvb_parsing_fail(r, -EINVAL, "\"sink_logits\"[%u]: expected a number, found %s", h,
                             kvb_json_type_name(value));
        logits[h] = (float)json_number_value(value);
    }
}

/* Version 1: a field by one of its two names. */
static uint32_t alike_field_get(kvb_parsing *r, const json_t *block, const char *name, const char *published,
                                int64_t max)
{
    char today[40], other[40];
    snprintf(today, sizeof today, "kv_cache.%s", name);
    snprintf(other, sizeof other, "kv_cache.%s", published);
    bool is_today = json_object_get(block, today), is_other = json_object_get(block, other);
    if (is_today && is_other)
        kvb_parsing_fail(r, -EINVAL, "\"%s\" and \"%s\" are the same: expected one of them", today, other);
    return (uint32_t)integer_get(r, block, is_other ? other : today, 1, max);
}

static void alike_parse(kvb_parsing *r, const json_t *block, kvb_model *model)
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
    kvb_json_keys_check(r, block, "model: ", known);
    model->n_layers = alike_field_get(r, block, "layers", "n_layers", KVB_MODEL_LAYERS);
    model->n_groups = 1;
    for (size_t i = 0; i < SHAPE; i++)
        *field_of(&model->groups[0], i) = alike_field_get(r, block, fields[i].name, fields[i].published, fields[i].max);
    logits_parse(r, block, &model->groups[0]);
}

/* Puts the listed layers in group g. */
static void layers_parse(kvb_parsing *r, const json_t *list, uint32_t g, bool *taken, kvb_model *model)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        kvb_parsing_fail(r, -EINVAL, "\"layers\": expected an array of layer numbers");
    for (size_t i = 0; i < json_array_size(list) && !r->error; i++) {
        const json_t *value = json_array_get(list, i);
        int64_t layer = json_integer_value(value);
        if (!json_is_integer(value) || layer < 0 || layer >= model->n_layers) {
            kvb_parsing_fail(r, -EINVAL, "\"layers\"[%zu]: expected a layer, 0 .. %u", i, model->n_layers - 1);
            return;
        }
        if (taken[layer])
            kvb_parsing_fail(r, -EINVAL, "layer %u is in group %u already", (unsigned)layer, model->group_of[layer]);
        taken[layer] = true;
        model->group_of[layer] = (uint8_t)g;
    }
}

static void rope_parse(kvb_parsing *r, const json_t *block, kvb_group *group)
{
    static const char *const known[] = {"base", "dims", "first", "pairing", NULL};
    kvb_rope *rope = &group->rope;
    expect(r, json_is_object(block), "rope", "an object", block);
    kvb_json_keys_check(r, block, "\"rope\": ", known);
    rope->known = true;
    rope->dims = (uint32_t)integer_get(r, block, "dims", 0, KVB_MODEL_WIDTH);
    rope->first = group->latent ? group->v_dim : 0;
    if (json_object_get(block, "first"))
        rope->first = (uint32_t)integer_get(r, block, "first", 0, KVB_MODEL_WIDTH);
    rope->first = rope->dims ? rope->first : 0;
    rope->base = number_get(r, block, "base", 0);
    const char *pairing = json_string_value(json_object_get(block, "pairing"));
    rope->neighbours = pairing && !strcmp(pairing, PAIRINGS[1]);
    if (rope->dims && !rope->neighbours && !(pairing && !strcmp(pairing, PAIRINGS[0])))
        kvb_parsing_fail(r, -EINVAL, "\"rope\": \"pairing\": expected \"%s\" or \"%s\"", PAIRINGS[0], PAIRINGS[1]);
}

static void attend_parse(kvb_parsing *r, const json_t *block, kvb_group *group)
{
    static const char *const known[] = {"layers", "kind",    "heads",       "kv_heads", "k_dim",
                                        "v_dim",  "latent",  "window",      "sinks",    "chunk",
                                        "scale",  "softcap", "sink_logits", "rope",     NULL};
    kvb_json_keys_check(r, block, "", known);
    for (size_t i = 0; i < FIELDS; i++)
        if (!fields[i].optional || json_object_get(block, fields[i].name))
            *field_of(group, i) = (uint32_t)integer_get(r, block, fields[i].name, fields[i].min, fields[i].max);
    group->latent = boolean_get(r, block, "latent");
    if (json_object_get(block, "rope"))
        rope_parse(r, json_object_get(block, "rope"), group);
    logits_parse(r, block, group);
}

static uint32_t recurrence_get(kvb_parsing *r, const json_t *block)
{
    const char *name = json_string_value(json_object_get(block, "recurrence"));
    char known[100] = "";
    for (unsigned k = 0; k < KVB_SCAN_KINDS; k++) {
        if (k == KVB_SCAN_CONV)
            continue;
        if (name && !strcmp(name, kvb_scan_kind_name(k)))
            return k;
        kvb_list_add(known, sizeof known, ", ", "%s", kvb_scan_kind_name(k));
    }
    kvb_parsing_fail(r, -EINVAL, "\"recurrence\": %s%s%s, known: %s", name ? "unknown \"" : "",
                     name ? name : "expected a name", name ? "\"" : "", known);
    return 0;
}

static uint32_t elem_get(kvb_parsing *r, const json_t *block, uint32_t absent)
{
    const json_t *value = json_object_get(block, "state");
    const char *name = json_string_value(value);
    for (size_t i = 0; i < N_ELEMS; i++)
        if (name && !strcmp(name, ELEMS[i].name))
            return ELEMS[i].elem;
    if (value)
        kvb_parsing_fail(r, -EINVAL, "\"state\": expected \"f32\", \"f16\" or \"bf16\"");
    return absent;
}

static uint32_t size_get(kvb_parsing *r, const json_t *block, const char *key)
{
    return (uint32_t)integer_get(r, block, key, 1, KVB_MODEL_ROW);
}

static void conv_parse(kvb_parsing *r, const json_t *group, kvb_group_scan *s)
{
    static const char *const known[] = {"width", "channels", "silu", "state", NULL};
    const json_t *block = object_get(r, group, "conv");
    kvb_json_keys_check(r, block, "\"conv\": ", known);
    s->conv_width = size_get(r, block, "width");
    s->conv_channels = size_get(r, block, "channels");
    s->silu = boolean_get(r, block, "silu");
    s->conv_elem = elem_get(r, block, s->state_elem);
}

/* Reads a group of layers that scan. */
static void scan_parse(kvb_parsing *r, const json_t *group, kvb_group *g)
{
    static const char *const of_group[] = {"layers", "kind", "scan", NULL};
    static const char *const known[] = {"heads", "groups", "k_dim", "v_dim", "recurrence", "conv", "state", NULL};
    kvb_group_scan *s = &g->scan;
    kvb_json_keys_check(r, group, "", of_group);
    g->kind = KVB_GROUP_SCAN;
    const json_t *block = object_get(r, group, "scan");
    kvb_json_keys_check(r, block, "\"scan\": ", known);
    s->kind = recurrence_get(r, block);
    s->heads = size_get(r, block, "heads");
    s->groups = size_get(r, block, "groups");
    s->d_k = size_get(r, block, "k_dim");
    s->d_v = size_get(r, block, "v_dim");
    s->conv_elem = s->state_elem = elem_get(r, block, KVB_F32);
    if (json_object_get(block, "conv"))
        conv_parse(r, block, s);
}

static void group_parse(kvb_parsing *r, const json_t *block, kvb_group *group)
{
    const json_t *kind = json_object_get(block, "kind");
    const char *name = kind ? json_string_value(kind) : KINDS[KVB_GROUP_ATTEND];
    if (name && !strcmp(name, KINDS[KVB_GROUP_SCAN]))
        scan_parse(r, block, group);
    else if (name && !strcmp(name, KINDS[KVB_GROUP_ATTEND]))
        attend_parse(r, block, group);
    else
        kvb_parsing_fail(r, -EINVAL, "\"kind\": expected \"%s\" or \"%s\"", KINDS[KVB_GROUP_ATTEND],
                         KINDS[KVB_GROUP_SCAN]);
}

static void groups_parse(kvb_parsing *r, const json_t *block, kvb_model *model)
{
    static const char *const known[] = {VERSION_KEY, "kv_cache.layers", "kv_cache.n_layers", "groups", NULL};
    bool taken[KVB_MODEL_LAYERS] = {false};
    const json_t *groups = json_object_get(block, "groups");
    const size_t n = json_array_size(groups);
    kvb_json_keys_check(r, block, "model: ", known);
    model->n_layers = alike_field_get(r, block, "layers", "n_layers", KVB_MODEL_LAYERS);
    if (n < 1 || n > KVB_MODEL_GROUPS)
        kvb_parsing_fail(r, -EINVAL, "\"groups\": expected an array of 1 .. %u groups of layers", KVB_MODEL_GROUPS);
    for (uint32_t g = 0; g < n && !r->error; g++) {
        const json_t *group = json_array_get(groups, g);
        snprintf(r->where, sizeof r->where, "header: group %u: ", g);
        if (!json_is_object(group))
            kvb_parsing_fail(r, -EINVAL, "expected an object, found %s", kvb_json_type_name(group));
        model->n_groups = g + 1;
        layers_parse(r, json_object_get(group, "layers"), g, taken, model);
        group_parse(r, group, &model->groups[g]);
    }
    strcpy(r->where, "header: ");
    for (uint32_t layer = 0; layer < model->n_layers && !r->error; layer++)
        if (!taken[layer])
            kvb_parsing_fail(r, -EINVAL, "layer %u is in no group", layer);
}

/* The model of a header of trace_version. Its version comes first: the rest depends on it. A trace of version 1 has a
 * model of version 1. */
static void model_parse(kvb_parsing *r, const json_t *block, int64_t trace_version, kvb_model *model)
{
    char text[200];
    const int64_t version = integer_get(r, block, VERSION_KEY, 1, trace_version);
    if (!r->error)
        version == 1 ? alike_parse(r, block, model) : groups_parse(r, block, model);
    if (!r->error && kvb_model_check(model, text, sizeof text))
        kvb_parsing_fail(r, -EINVAL, "%s", text + (version == 1 ? strlen("group 0: ") : 0));
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

static const char *elem_name(uint32_t elem)
{
    size_t i = 0;
    while (i + 1 < N_ELEMS && ELEMS[i].elem != elem)
        i++;
    return ELEMS[i].name;
}

static void scan_print(FILE *out, const kvb_group_scan *s)
{
    fprintf(out, "{\"recurrence\":\"%s\",\"heads\":%u,\"groups\":%u,\"k_dim\":%u,\"v_dim\":%u",
            kvb_scan_kind_name(s->kind), s->heads, s->groups, s->d_k, s->d_v);
    if (s->conv_width)
        fprintf(out, ",\"conv\":{\"width\":%u,\"channels\":%u,\"silu\":%s,\"state\":\"%s\"}", s->conv_width,
                s->conv_channels, s->silu ? "true" : "false", elem_name(s->conv_elem));
    fprintf(out, ",\"state\":\"%s\"}", elem_name(s->state_elem));
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
        scan_print(out, &group.scan);
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

/* The path of a file beside the trace. */
static char *tensors_resolve(kvb_parsing *r, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    char *resolved = NULL;
    if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        kvb_parsing_fail(r, -EINVAL, "\"tensors\": expected the name of a file beside the trace, found \"%.60s\"",
                         name);
    else if (asprintf(&resolved, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name) < 0) {
        resolved = NULL;
        kvb_parsing_fail(r, -ENOMEM, "no memory");
    }
    return resolved;
}

static void values_parse(kvb_parsing *r, const json_t *block, const char *path, kvb_trace_header *header)
{
    static const char *const recorded_keys[] = {"tensors", "before_rope", NULL};
    static const char *const seeded_keys[] = {"profile", "seed", "before_rope", NULL};
    const bool recorded = json_object_get(block, "tensors");
    const int unknown = kvb_model_unknown_rope(&header->model);
    strcpy(r->where, "header: values: ");
    header->before_rope = boolean_get(r, block, "before_rope");
    if (header->before_rope && unknown >= 0)
        kvb_parsing_fail(r, -EINVAL, "\"before_rope\": expected the \"rope\" of group %d", unknown);
    kvb_json_keys_check(r, block, "", recorded ? recorded_keys : seeded_keys);
    strcpy(r->where, "header: ");
    if (recorded) {
        char *name = string_get(r, block, "tensors", false);
        header->tensors = name ? tensors_resolve(r, path, name) : NULL;
        free(name);
        return;
    }
    const kvb_profile *profile;
    char text[300];
    header->profile = string_get(r, block, "profile", false);
    if (header->profile && kvb_profile_choose(header->profile, &profile, text, sizeof text)) {
        r->where[0] = '\0';
        kvb_parsing_fail(r, -EINVAL, "%s", text);
    }
    header->seed = (uint64_t)integer_get(r, block, "seed", 0, INT64_MAX);
}

static void outputs_parse(kvb_parsing *r, const json_t *block, kvb_trace_header *header)
{
    strcpy(r->where, "header: outputs: ");
    kvb_json_keys_check(r, block, "", outputs_keys);
    for (size_t i = 0; i < OUTPUTS; i++)
        *output_at(&header->outputs, i) = string_get(r, block, outputs_keys[i], false);
    strcpy(r->where, "header: ");
    if (!header->tensors || header->before_rope)
        kvb_parsing_fail(r, -EINVAL, "\"outputs\": expected \"values\" with \"tensors\", after rope");
}

int kvb_trace_header_parse(kvb_parsing *r, const json_t *line, const char *path, kvb_trace_header *header)
{
    *header = (kvb_trace_header){0};
    if (!json_is_object(line) || !json_object_get(line, "kvbench_trace"))
        return kvb_parsing_fail(r, -EINVAL, "expected a trace header, an object with the key \"kvbench_trace\"");
    strcpy(r->where, "header: ");
    const int64_t version = integer_get(r, line, "kvbench_trace", 1, KVB_TRACE_VERSION);
    kvb_json_keys_check(r, line, "", header_keys);
    header->name = string_get(r, line, "name", false);
    if (header->name && !*header->name)
        kvb_parsing_fail(r, -EINVAL, "\"name\": is empty");
    header->source = string_get(r, line, "source", false);
    header->note = string_get(r, line, "note", true);
    const json_t *model = object_get(r, line, "model");
    if (!r->error)
        model_parse(r, model, version, &header->model);
    const json_t *values = object_get(r, line, "values");
    if (!r->error)
        values_parse(r, values, path, header);
    if (json_object_get(line, "outputs"))
        outputs_parse(r, object_get(r, line, "outputs"), header);
    if (json_object_get(line, "capacity"))
        header->capacity = (uint32_t)integer_get(r, line, "capacity", 1, KVB_TRACE_MAX_CELLS);
    if (r->error)
        kvb_trace_header_clear(header);
    return r->error;
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
    for (uint32_t g = 0; g < header->model.n_groups; g++)
        free((float *)(uintptr_t)header->model.groups[g].sink_logits);
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
