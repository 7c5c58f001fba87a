/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests compared key by key, through the table that writes them. */
#include "results/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "results/field.h"

const char *const kvb_program_keys[] = {"version", "commit", "compiler", "flags", "suite", "seed", NULL};
const char *const kvb_machine_keys[] = {"cpu_model",     "cpu_features",     "isa",
                                        "cores",         "threads_max",      "openblas_version",
                                        "openblas_core", "openblas_threads", NULL};

static const kvb_field *field_find(const char *key)
{
    const kvb_field *field = kvb_manifest_fields;

    while (field->key && strcmp(field->key, key) != 0)
        field++;
    return field;
}

static bool is_same(const kvb_field *field, const kvb_manifest *a, const kvb_manifest *b)
{
    const char *x = (const char *)a + field->offset, *y = (const char *)b + field->offset;
    bool text = field->kind == KVB_FIELD_TEXT || field->kind == KVB_FIELD_NOTE || field->kind == KVB_FIELD_WORDS;

    return text ? strcmp(x, y) == 0 : memcmp(x, y, field->bytes) == 0;
}

static void value_print(const kvb_field *field, const kvb_manifest *manifest, char *text, size_t bytes)
{
    kvb_field one[2] = {*field, {.key = NULL}};
    json_t *object = kvb_fields_encode(one, manifest);
    char *value = object ? json_dumps(json_object_get(object, field->key), JSON_ENCODE_ANY) : NULL;

    snprintf(text, bytes, "%s", value ? value : "?");
    free(value);
    json_decref(object);
}

const char *kvb_manifest_difference(const kvb_manifest *a, const kvb_manifest *b, const char *const *keys, char *text,
                                    char *other, size_t bytes)
{
    for (; *keys; keys++) {
        const kvb_field *field = field_find(*keys);

        if (is_same(field, a, b))
            continue;
        value_print(field, a, text, bytes);
        value_print(field, b, other, bytes);
        return *keys;
    }
    return NULL;
}

void kvb_manifest_blend(kvb_manifest *into, const kvb_manifest *from)
{
    static const char *const more[] = {"memory_bytes", "os", "openblas_note", NULL};
    const char *const *const lists[] = {kvb_machine_keys, more};

    char text[8], other[8];

    if (kvb_manifest_difference(into, from, kvb_machine_keys, text, other, sizeof text))
        into->n_machine = 0;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const char *const *key = lists[l]; *key; key++) {
            const kvb_field *field = field_find(*key);
            char *value = (char *)into + field->offset;

            if (is_same(field, into, from))
                continue;
            memset(value, 0, field->bytes);
            if (field->kind != KVB_FIELD_U32 && field->kind != KVB_FIELD_U64)
                snprintf(value, field->bytes, "several");
        }
}

/* Options of `run` that change nothing of what is measured. */
static const struct {
    const char *name;
    bool value; /* a word of its own follows */
} left_out[] = {
    {"-o", true}, {"--resume", false}, {"--shard", true}, {"--format", true}, {"--junit", true}, {"--timeline", true},
};

void kvb_command_essence(const char *command, char *essence)
{
    size_t used = 0;

    while (*command) {
        size_t n = strcspn(command, " "), name = strcspn(command, " =");
        bool skip = false, value = false;

        for (size_t i = 0; i < sizeof left_out / sizeof *left_out && !skip; i++) {
            skip = strlen(left_out[i].name) == name && strncmp(command, left_out[i].name, name) == 0;
            value = skip && left_out[i].value && name == n;
        }
        if (!skip) {
            if (used)
                essence[used++] = ' ';
            memcpy(essence + used, command, n);
            used += n;
        }
        command += n;
        command += *command == ' ';
        if (value) {
            command += strcspn(command, " ");
            command += *command == ' ';
        }
    }
    essence[used] = 0;
}
