/* SPDX-License-Identifier: Apache-2.0 */
/* Walking a table of fields: to JSON and back. */
#include "results/field_kind.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static const kvb_field_type *const types[KVB_FIELD_KINDS] = {
    [KVB_FIELD_FIXED] = &kvb_field_fixed,       [KVB_FIELD_TEXT] = &kvb_field_text,
    [KVB_FIELD_NOTE] = &kvb_field_note,         [KVB_FIELD_WORDS] = &kvb_field_words,
    [KVB_FIELD_U32] = &kvb_field_u32,           [KVB_FIELD_U64] = &kvb_field_u64,
    [KVB_FIELD_REAL] = &kvb_field_real,         [KVB_FIELD_COUNT] = &kvb_field_real,
    [KVB_FIELD_STATUS] = &kvb_field_status,     [KVB_FIELD_OBJECT] = &kvb_field_object,
    [KVB_FIELD_PLACE] = &kvb_field_place,       [KVB_FIELD_TIMES] = &kvb_field_times,
    [KVB_FIELD_COUNTERS] = &kvb_field_counters, [KVB_FIELD_ARRAY] = &kvb_field_array,
};

bool kvb_fault_set(kvb_fault *fault, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(fault->what, sizeof fault->what, format, list);
    va_end(list);
    return false;
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {"an object", "an array", "a string", "a whole number",
                                        "a number",  "true",     "false",    "null"};

    return names[json_typeof(value)];
}

bool kvb_fault_expected(kvb_fault *fault, const char *what, const json_t *found)
{
    return kvb_fault_set(fault, "expected %s, found %s", what, type_name(found));
}

bool kvb_fault_below(const char *key, bool good, kvb_fault *fault)
{
    if (!good) {
        char rest[sizeof fault->path];

        memcpy(rest, fault->path, sizeof rest);
        snprintf(fault->path, sizeof fault->path, rest[0] ? "%.60s.%.60s" : "%.60s%.60s", key, rest);
    }
    return good;
}

json_t *kvb_field_encode(const kvb_field *field, const char *record)
{
    return types[field->kind]->encode(field, record);
}

bool kvb_field_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    return types[field->kind]->decode(field, value, record, fault);
}

json_t *kvb_fields_encode(const kvb_field *fields, const void *record)
{
    json_t *object = json_object();

    for (; object && fields->key; fields++) {
        /* set_new takes a NULL value as a failure: memory ran out */
        if (json_object_set_new(object, fields->key, kvb_field_encode(fields, record)) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

bool kvb_object_decode(const kvb_field *fields, const json_t *object, char *record, kvb_fault *fault)
{
    size_t known = 0;

    if (!json_is_object(object))
        return kvb_fault_expected(fault, "an object", object);
    for (const kvb_field *field = fields; field->key; field++, known++) {
        const json_t *value = json_object_get(object, field->key);

        if (!value)
            return kvb_fault_set(fault, "expected the key \"%s\"", field->key);
        if (!kvb_fault_below(field->key, kvb_field_decode(field, value, record, fault), fault))
            return false;
    }
    if (json_object_size(object) == known)
        return true;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const kvb_field *field = fields;

        while (field->key && strcmp(field->key, key) != 0)
            field++;
        if (!field->key)
            return kvb_fault_set(fault, "the key \"%.60s\" is not known", key);
    }
    return true;
}

int kvb_fields_decode(const kvb_field *fields, const json_t *object, void *record, char *why, size_t why_bytes)
{
    kvb_fault fault = {"", ""};

    if (kvb_object_decode(fields, object, record, &fault))
        return 0;
    snprintf(why, why_bytes, "%s%s%s", fault.path, fault.path[0] ? ": " : "", fault.what);
    return -EINVAL;
}
