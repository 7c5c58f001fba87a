/* SPDX-License-Identifier: Apache-2.0 */
/* Fields that are strings in the file. */
#include "results/field_kind.h"

#include <stdlib.h>
#include <string.h>

#include "results/text.h"

json_t *kvb_text_encode(const char *text)
{
    char *copy = strdup(text);
    json_t *value;

    if (!copy)
        return NULL;
    kvb_utf8_clean(copy);
    value = json_string(copy);
    free(copy);
    return value;
}

bool kvb_text_decode(const json_t *value, char *text, size_t bytes, kvb_fault *fault)
{
    if (!json_is_string(value))
        return kvb_fault_expected(fault, "a string", value);
    if (json_string_length(value) >= bytes)
        return kvb_fault_set(fault, "expected a string of at most %zu bytes, found one of %zu", bytes - 1,
                             json_string_length(value));
    memcpy(text, json_string_value(value), json_string_length(value) + 1);
    return true;
}

static json_t *fixed_encode(const kvb_field *field, const char *record)
{
    (void)record;
    return json_string(field->text);
}

static bool fixed_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    (void)record;
    if (!json_is_string(value))
        return kvb_fault_expected(fault, "a string", value);
    if (strcmp(json_string_value(value), field->text) != 0)
        return kvb_fault_set(fault, "\"%.60s\" is not known, this program reads \"%s\"", json_string_value(value),
                             field->text);
    return true;
}

static json_t *text_encode(const kvb_field *field, const char *record)
{
    return kvb_text_encode(record + field->offset);
}

static bool text_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    return kvb_text_decode(value, record + field->offset, field->bytes, fault);
}

static json_t *note_encode(const kvb_field *field, const char *record)
{
    return record[field->offset] ? kvb_text_encode(record + field->offset) : json_null();
}

static bool note_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    record[field->offset] = 0;
    return json_is_null(value) || kvb_text_decode(value, record + field->offset, field->bytes, fault);
}

static json_t *words_encode(const kvb_field *field, const char *record)
{
    char *copy = strdup(record + field->offset), *rest = NULL;
    json_t *array = json_array();

    if (copy) {
        kvb_utf8_clean(copy);
        for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
            json_array_append_new(array, json_string(word));
    }
    free(copy);
    return array;
}

static bool words_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    char *text = record + field->offset;
    size_t used = 0;

    if (!json_is_array(value))
        return kvb_fault_expected(fault, "an array of strings", value);
    text[0] = 0;
    for (size_t i = 0; i < json_array_size(value); i++) {
        size_t space = i > 0;

        if (used + space >= field->bytes)
            return kvb_fault_set(fault, "expected at most %zu bytes of words", field->bytes - 1);
        if (!kvb_text_decode(json_array_get(value, i), text + used + space, field->bytes - used - space, fault))
            return false;
        if (space)
            text[used] = ' ';
        used += strlen(text + used);
    }
    return true;
}

static json_t *status_encode(const kvb_field *field, const char *record)
{
    kvb_status status;

    memcpy(&status, record + field->offset, sizeof status);
    return json_string(kvb_status_name(status));
}

static bool status_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    char word[16];

    if (!kvb_text_decode(value, word, sizeof word, fault))
        return false;
    for (kvb_status status = 0; status < KVB_STATUSES; status++) {
        if (strcmp(word, kvb_status_name(status)) == 0) {
            memcpy(record + field->offset, &status, sizeof status);
            return true;
        }
    }
    return kvb_fault_set(fault, "expected pass, fail, skip, crash or timeout, found \"%s\"", word);
}

const kvb_field_type kvb_field_fixed = {fixed_encode, fixed_decode};
const kvb_field_type kvb_field_text = {text_encode, text_decode};
const kvb_field_type kvb_field_note = {note_encode, note_decode};
const kvb_field_type kvb_field_words = {words_encode, words_decode};
const kvb_field_type kvb_field_status = {status_encode, status_decode};
