/* SPDX-License-Identifier: Apache-2.0 */
/* Fields that are numbers. */
#include "results/field_kind.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *u32_encode(const kvb_field *field, const char *record)
{
    uint32_t number;

    memcpy(&number, record + field->offset, sizeof number);
    return json_integer(number);
}

static bool u32_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    json_int_t number = json_integer_value(value);
    uint32_t stored = (uint32_t)number;

    if (!json_is_integer(value))
        return kvb_fault_expected(fault, "a whole number", value);
    if (number < 0 || number > UINT32_MAX)
        return kvb_fault_set(fault, "expected a number from 0 to 4294967295, found %lld", (long long)number);
    memcpy(record + field->offset, &stored, sizeof stored);
    return true;
}

static json_t *u64_encode(const kvb_field *field, const char *record)
{
    uint64_t number;
    char digits[24];

    memcpy(&number, record + field->offset, sizeof number);
    if (number <= INT64_MAX)
        return json_integer((json_int_t)number);
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    return json_string(digits);
}

static bool u64_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    uint64_t number = (uint64_t)json_integer_value(value);

    if (json_is_string(value)) {
        const char *digits = json_string_value(value);

        errno = 0;
        number = strtoull(digits, NULL, 10);
        if (errno || !digits[0] || digits[strspn(digits, "0123456789")])
            return kvb_fault_set(fault, "expected digits of a number below 2^64, found \"%.30s\"", digits);
    } else if (!json_is_integer(value)) {
        return kvb_fault_expected(fault, "a whole number", value);
    } else if (json_integer_value(value) < 0) {
        return kvb_fault_set(fault, "expected a number not below 0, found %lld", (long long)json_integer_value(value));
    }
    memcpy(record + field->offset, &number, sizeof number);
    return true;
}

json_t *kvb_number_encode(double number, bool whole)
{
    if (isnan(number))
        return json_null();
    if (isinf(number))
        return json_real(number > 0 ? KVB_FIELD_INFINITY : -KVB_FIELD_INFINITY);
    if (whole && fabs(number) < 0x1p53 && number == floor(number))
        return json_integer((json_int_t)number);
    return json_real(number);
}

bool kvb_number_decode(const json_t *value, double *number, kvb_fault *fault)
{
    if (!json_is_number(value) && !json_is_null(value))
        return kvb_fault_expected(fault, "a number or null", value);
    *number = json_is_null(value) ? NAN : json_number_value(value);
    if (fabs(*number) >= KVB_FIELD_INFINITY)
        *number = *number > 0 ? INFINITY : -INFINITY;
    return true;
}

static json_t *real_encode(const kvb_field *field, const char *record)
{
    double number;

    memcpy(&number, record + field->offset, sizeof number);
    return kvb_number_encode(number, field->kind == KVB_FIELD_COUNT);
}

static bool real_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault)
{
    double number = 0;

    if (!kvb_number_decode(value, &number, fault))
        return false;
    memcpy(record + field->offset, &number, sizeof number);
    return true;
}

const kvb_field_type kvb_field_u32 = {u32_encode, u32_decode};
const kvb_field_type kvb_field_u64 = {u64_encode, u64_decode};
const kvb_field_type kvb_field_real = {real_encode, real_decode};
