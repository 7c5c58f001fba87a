/* SPDX-License-Identifier: Apache-2.0 */
#include "results/result.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "results/schema.h"

/* ---- key by key, through the table of the schema --------------------------------------------------------- */

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

void kvb_manifest_text(const kvb_manifest *manifest, const char *key, char text[KVB_MANIFEST_TEXT])
{
    const kvb_field *field = field_find(key);
    const void *at = (const char *)manifest + field->offset;

    if (field->kind == KVB_FIELD_U32)
        snprintf(text, KVB_MANIFEST_TEXT, "%" PRIu32, *(const uint32_t *)at);
    else if (field->kind == KVB_FIELD_U64)
        snprintf(text, KVB_MANIFEST_TEXT, "%" PRIu64, *(const uint64_t *)at);
    else
        snprintf(text, KVB_MANIFEST_TEXT, "%s", (const char *)at);
}

static bool is_same(const char *key, const kvb_manifest *a, const kvb_manifest *b)
{
    char x[KVB_MANIFEST_TEXT], y[KVB_MANIFEST_TEXT];

    kvb_manifest_text(a, key, x);
    kvb_manifest_text(b, key, y);
    return strcmp(x, y) == 0;
}

static void value_print(const char *key, const kvb_manifest *manifest, char *text, size_t bytes)
{
    kvb_field one[2] = {*field_find(key), {.key = NULL}};
    json_t *object = kvb_fields_encode(one, manifest);
    char *value = object ? json_dumps(json_object_get(object, key), JSON_ENCODE_ANY) : NULL;

    snprintf(text, bytes, "%s", value ? value : "?");
    free(value);
    json_decref(object);
}

const char *kvb_manifest_difference(const kvb_manifest *a, const kvb_manifest *b, const char *const *keys, char *text,
                                    char *other, size_t bytes)
{
    while (*keys && is_same(*keys, a, b))
        keys++;
    if (*keys) {
        value_print(*keys, a, text, bytes);
        value_print(*keys, b, other, bytes);
    }
    return *keys;
}

void kvb_manifest_blend(kvb_manifest *into, const kvb_manifest *from)
{
    static const char *const more[] = {"memory_bytes", "os", "openblas_note", "tuning", NULL};
    const char *const *const lists[] = {kvb_machine_keys, more};

    char text[8], other[8];

    if (kvb_manifest_difference(into, from, kvb_machine_keys, text, other, sizeof text))
        into->n_machine = 0;
    if (strcmp(into->host.name, from->host.name))
        into->host = (kvb_host){.cpus = 0};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const char *const *key = lists[l]; *key; key++) {
            const kvb_field *field = field_find(*key);
            char *value = (char *)into + field->offset;

            if (is_same(*key, into, from))
                continue;
            memset(value, 0, field->bytes);
            if (field->kind != KVB_FIELD_U32 && field->kind != KVB_FIELD_U64)
                snprintf(value, field->bytes, "several");
        }
}

/* Options of `kvbench run` that change neither what is measured nor how. */
static const struct {
    const char *name;
    bool value; /* the next word is the option's value */
} left_out[] = {
    {"-o", true},      {"--resume", false}, {"--shard", true},     {"--format", true}, {"--all", false},
    {"--wide", false}, {"--color", true},   {"--counters", false}, {"--junit", true},  {"--timeline", true},
};

/* Bytes of the first word, as a shell reads it. */
static size_t word_length(const char *command)
{
    bool quoted = false;
    size_t n = 0;

    for (; command[n] && (quoted || command[n] != ' '); n++)
        if (command[n] == '\'')
            quoted = !quoted;
        else if (!quoted && command[n] == '\\' && command[n + 1])
            n++;
    return n;
}

void kvb_command_essence(const char *command, char *essence)
{
    size_t used = 0;

    while (*command) {
        size_t n = word_length(command), name = strcspn(command, " =");
        const bool knob = name == 5 && strncmp(command, "--set", 5) == 0 && command[5]; /* --set KEY, --set=KEY */
        const char *key = command + (knob ? 6 : 0);
        bool skip = false, value = false;

        if (knob)
            name = strcspn(key, " =");
        for (size_t i = 0; i < sizeof left_out / sizeof *left_out && !skip; i++) {
            const char *option = left_out[i].name + (knob ? 2 : 0); /* "-o" is no knob */
            skip = strlen(option) == name && strncmp(key, option, name) == 0;
            value = skip && (knob ? command[5] == ' ' : left_out[i].value && name == n);
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
            command += word_length(command);
            command += *command == ' ';
        }
    }
    essence[used] = 0;
}

/* ---- machines ------------------------------------------------------------------------------------------- */

#define MODEL_BYTES 48u /* most bytes of the processor's name */

/* FNV-1a, 32 bits. Includes the final 0, so "ab", "c" and "a", "bc" differ. */
static uint32_t hash_add(uint32_t hash, const char *text)
{
    do {
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    } while (*text++);
    return hash;
}

void kvb_fingerprint(const kvb_manifest *m, char text[KVB_FINGERPRINT_TEXT])
{
    char model[MODEL_BYTES + 1], size[40];
    size_t n = 0;

    for (const char *c = m->cpu_model; *c && n < MODEL_BYTES; c++) {
        if (isalnum((unsigned char)*c))
            model[n++] = (char)tolower((unsigned char)*c);
        else if (n > 0 && model[n - 1] != '-')
            model[n++] = '-';
    }
    while (n > 0 && model[n - 1] == '-')
        n--;
    model[n] = '\0';
    /* rounded: the system keeps a part of the memory, which varies */
    snprintf(size, sizeof size, "%uc-%" PRIu64 "g", m->cores, (m->memory_bytes + (UINT64_C(1) << 29)) >> 30);
    uint32_t hash = hash_add(hash_add(hash_add(2166136261u, m->cpu_model), m->cpu_features), size);
    snprintf(text, KVB_FINGERPRINT_TEXT, "%s%s%s-%08" PRIx32, model, n ? "-" : "", size, hash);
}

size_t kvb_manifest_notes(const kvb_manifest *base, const kvb_manifest *new, char notes[KVB_NOTES][KVB_NOTE_TEXT])
{
    static const char *const facts[][3] = {
        /* in words, key, what stands for "" */
        {"machine", NULL}, /* the fingerprint */
        {"level of instructions", "isa"},
        {"version", "version"},
        {"commit", "commit"},
        {"compiler", "compiler"},
        {"flags", "flags"},
        {"operating system", "os"},
        {"OpenBLAS", "openblas_version"},
        {"OpenBLAS core", "openblas_core"},
        {"OpenBLAS threads", "openblas_threads"},
        {"tuning", "tuning", "built-in"},
        {"suite", "suite"},
        {"seed", "seed"},
    };
    const kvb_manifest *const sides[2] = {base, new};
    size_t n = 0;

    _Static_assert(sizeof facts / sizeof *facts <= KVB_NOTES, "a place for every fact");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        char is[2][KVB_MANIFEST_TEXT];

        for (int side = 0; side < 2; side++) {
            if (!facts[i][1])
                kvb_fingerprint(sides[side], is[side]);
            else
                kvb_manifest_text(sides[side], facts[i][1], is[side]);
            if (!*is[side] && facts[i][2])
                strcpy(is[side], facts[i][2]);
        }
        if (strcmp(is[0], is[1]) != 0)
            snprintf(notes[n++], KVB_NOTE_TEXT, "%s: %.300s, then %.300s", facts[i][0], is[0], is[1]);
    }
    return n;
}

/* ---- for people ------------------------------------------------------------------------------------------ */

int kvb_manifest_print(const kvb_manifest *m, kvb_table_format format, FILE *out)
{
    kvb_table *t = kvb_table_new((const char *const[]){"fact", "value", NULL});

    kvb_table_put(t, "command\t%s", m->command);
    kvb_table_put(t, "date\t%s", m->date);
    kvb_table_put(t, "kvbench\t%s, commit %s, %s, %s", m->version, m->commit, m->compiler, m->flags);
    kvb_table_put(t, "machine\t%s, %u cores, %.1f GiB, %s", m->cpu_model, m->cores,
                  (double)m->memory_bytes / (1024.0 * 1024 * 1024), m->os);
    if (m->host.cpus)
        kvb_table_put(t, "host\t%s; hypervisor: %s; governor: %s; load %.2f, %.2f, %.2f%s%s",
                      *m->host.name ? m->host.name : "?", *m->host.hypervisor ? m->host.hypervisor : "?",
                      *m->host.governor ? m->host.governor : "?", m->host.load_1m, m->host.load_5m, m->host.load_15m,
                      *m->host.unknown ? "; not known: " : "", m->host.unknown);
    kvb_table_put(t, "features\t%s", m->cpu_features);
    kvb_table_put(t, "level\t%s", m->isa);
    kvb_table_put(t, "OpenBLAS\tcore %s%s%s", m->openblas_core, m->openblas_note[0] ? "; " : "", m->openblas_note);
    if (*m->tuning)
        kvb_table_put(t, "tuning\t%s", m->tuning);
    kvb_table_put(t, "suite\t%s, seed %" PRIu64, m->suite, m->seed);
    if (m->shard[0])
        kvb_table_put(t, "shard\t%s", m->shard);
    for (uint32_t i = 0; i < m->n_joined; i++)
        kvb_table_put(t, "joined\tshard %u/%u, %s, %s, %u cores, %s", i + 1, m->n_joined, m->joined[i].date,
                      m->joined[i].cpu_model, m->joined[i].cores, m->joined[i].isa);
    if (t)
        kvb_table_fold(t);
    return kvb_table_end(t, format, out);
}
