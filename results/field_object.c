/* SPDX-License-Identifier: Apache-2.0 */
/* Fields that are objects. */
#include "results/field_kind.h"

#include <math.h>
#include <string.h>

static json_t *nested_encode(const kvb_field *field, const char *record)
{
    return kvb_fields_encode(field->fields, record + field->offset);
}

static bool nested_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    return kvb_object_decode(field->fields, value, record + field->offset, fault);
}

static json_t *place_encode(const kvb_field *field, const char *record)
{
    bool there;

    memcpy(&there, record + field->offset, sizeof there);
    return there ? kvb_fields_encode(field->fields, record) : json_null();
}

static bool place_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    bool there = !json_is_null(value);

    memcpy(record + field->offset, &there, sizeof there);
    return !there || kvb_object_decode(field->fields, value, record, fault);
}

static json_t *times_encode(const kvb_field *field, const char *record)
{
    json_t *object = json_object();

    for (kvb_step_kind i = 0; i < KVB_STEP_KINDS; i++) {
        kvb_time_stats stats;

        memcpy(&stats, record + field->offset + i * sizeof stats, sizeof stats);
        if (stats.samples)
            json_object_set_new(object, kvb_step_kind_name(i), kvb_fields_encode(kvb_times_fields, &stats));
    }
    return object;
}

static bool times_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    size_t taken = 0;

    if (!json_is_object(value))
        return kvb_fault_expected(fault, "an object", value);
    for (kvb_step_kind i = 0; i < KVB_STEP_KINDS; i++) {
        const char *name = kvb_step_kind_name(i);
        char *stats = record + field->offset + i * sizeof(kvb_time_stats);
        const json_t *times = json_object_get(value, name);

        if (times && !kvb_fault_below(name, kvb_object_decode(kvb_times_fields, times, stats, fault), fault))
            return false;
        taken += times != NULL;
    }
    if (taken != json_object_size(value))
        return kvb_fault_set(fault, "expected no keys but prefill, decode, fork, verify, fill and control");
    return true;
}

static json_t *counters_encode(const kvb_field *field, const char *record)
{
    const kvb_result *result = (const kvb_result *)(const void *)record;
    json_t *object = json_object(), *reasons = json_object(), *shares = json_object();

    (void)field;
    for (uint32_t i = 0; i < result->n_counters; i++) {
        const kvb_counter *counter = &result->counters[i];

        json_object_set_new(object, counter->name, kvb_number_encode(counter->value, true));
        if (isnan(counter->value))
            json_object_set_new(reasons, counter->name, kvb_text_encode(counter->unavailable));
        if (!isnan(counter->share))
            json_object_set_new(shares, counter->name, kvb_number_encode(counter->share, false));
    }
    json_object_set_new(object, "unavailable", reasons);
    json_object_set_new(object, "multiplexed", shares);
    return object;
}

static bool counter_decode(const char *name, const json_t *value, const json_t *reason, const json_t *share,
                           kvb_counter *counter, kvb_fault *fault)
{
    if (strlen(name) >= sizeof counter->name)
        return kvb_fault_set(fault, "expected a name of at most %zu bytes", sizeof counter->name - 1);
    memcpy(counter->name, name, strlen(name) + 1);
    if (!kvb_number_decode(value, &counter->value, fault))
        return false;
    if (isnan(counter->value) != (reason != NULL))
        return kvb_fault_set(fault, "expected a reason in \"unavailable\" when it is null, and only then");
    counter->unavailable[0] = 0;
    counter->share = NAN;
    if (reason && !kvb_text_decode(reason, counter->unavailable, sizeof counter->unavailable, fault))
        return false;
    return !share || kvb_number_decode(share, &counter->share, fault);
}

static bool counters_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    kvb_result *result = (kvb_result *)(void *)record;
    const json_t *reasons = json_object_get(value, "unavailable"), *shares = json_object_get(value, "multiplexed");
    const json_t *counter;
    const char *name;
    size_t notes = 0; /* reasons and shares that belong to a counter */

    (void)field;
    result->n_counters = 0;
    if (!json_is_object(value))
        return kvb_fault_expected(fault, "an object", value);
    if (!json_is_object(reasons) || !json_is_object(shares))
        return kvb_fault_set(fault, "expected objects \"unavailable\" of reasons and \"multiplexed\" of shares");
    if (json_object_size(value) > KVB_COUNTERS + 2)
        return kvb_fault_set(fault, "expected at most %u counters", KVB_COUNTERS);
    json_object_foreach((json_t *)(uintptr_t)value, name, counter)
    {
        const json_t *reason = json_object_get(reasons, name), *share = json_object_get(shares, name);

        if (counter == reasons || counter == shares)
            continue;
        if (!kvb_fault_below(name,
                             counter_decode(name, counter, reason, share, &result->counters[result->n_counters], fault),
                             fault))
            return false;
        notes += (reason != NULL) + (share != NULL);
        result->n_counters++;
    }
    if (notes != json_object_size(reasons) + json_object_size(shares))
        return kvb_fault_set(fault,
                             "expected \"unavailable\" and \"multiplexed\" to name only counters that are there");
    return true;
}

const kvb_field_type kvb_field_object = {nested_encode, nested_decode};
const kvb_field_type kvb_field_place = {place_encode, place_decode};
const kvb_field_type kvb_field_times = {times_encode, times_decode};
const kvb_field_type kvb_field_counters = {counters_encode, counters_decode};
