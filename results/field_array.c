/* SPDX-License-Identifier: Apache-2.0 */
/* Fields that are arrays: elements of any one kind, side by side in memory, and their number. */
#include "results/field_kind.h"

#include <string.h>

static json_t *array_encode(const kvb_field *field, const char *record)
{
    const kvb_field *element = field->fields;
    json_t *array = json_array();
    uint32_t n;

    memcpy(&n, record + field->count, sizeof n);
    for (uint32_t i = 0; i < n && array; i++) {
        const char *at = record + field->offset + i * element->bytes;

        if (json_array_append_new(array, kvb_field_encode(element, at)) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

static bool array_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    const kvb_field *element = field->fields;
    size_t most = field->bytes / element->bytes;
    uint32_t n = (uint32_t)json_array_size(value);

    if (!json_is_array(value))
        return kvb_fault_expected(fault, "an array", value);
    if (json_array_size(value) > most)
        return kvb_fault_set(fault, "expected at most %zu elements, found %zu", most, json_array_size(value));
    memcpy(record + field->count, &n, sizeof n);
    for (uint32_t i = 0; i < n; i++) {
        char *at = record + field->offset + i * element->bytes, index[16];

        snprintf(index, sizeof index, "%u", i);
        if (!kvb_fault_below(index, kvb_field_decode(element, json_array_get(value, i), at, fault), fault))
            return false;
    }
    return true;
}

const kvb_field_type kvb_field_array = {array_encode, array_decode};
