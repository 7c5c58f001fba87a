/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Azure LLM inference traces (Azure/AzurePublicDataset; Patel et al., Splitwise, ISCA 2024): CSV of
 *
 *   TIMESTAMP,ContextTokens,GeneratedTokens
 *   2023-11-16 18:15:46.6805900,374,44
 *
 * What prompts share is not recorded. The later files add a zone to the time: +00:00.
 */
#include "workloads/import/import.h"
#include "workloads/why.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static const char header[] = "TIMESTAMP,ContextTokens,GeneratedTokens";

enum { FRACTION_DIGITS = 7 }; /* of a second; further ones are not compared */

/* A field of a date, as wide as its bounds. */
typedef struct date_field {
    uint32_t digits, min, max;
    char after; /* 0: the last one */
} date_field;

static const date_field date_fields[] = {{4, 1970, 9999, '-'}, {2, 1, 12, '-'}, {2, 1, 31, ' '},
                                         {2, 0, 23, ':'},      {2, 0, 59, ':'}, {2, 0, 60, 0}};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A number that orders times: its fields as digits, each of the base that its bounds ask for. */
static bool time_parse(const char *text, const char *end, uint64_t *time)
{
    uint64_t sum = 0;
    for (size_t f = 0; f < sizeof date_fields / sizeof *date_fields; f++) {
        const date_field *field = &date_fields[f];
        uint32_t number = 0;
        for (uint32_t i = 0; i < field->digits; i++, text++) {
            if (text == end || !is_digit(*text))
                return false;
            number = number * 10 + (uint32_t)(*text - '0');
        }
        if (number < field->min || number > field->max)
            return false;
        if (field->after && (text == end || *text++ != field->after))
            return false;
        sum = sum * (field->max + 1) + number;
    }
    bool fraction = text < end && *text == '.';
    text += fraction;
    for (int digits = 0; digits < FRACTION_DIGITS; digits++) {
        bool has = fraction && text < end && is_digit(*text);
        sum = sum * 10 + (has ? (uint64_t)(*text++ - '0') : 0);
    }
    while (fraction && text < end && is_digit(*text))
        text++;
    static const char zone[] = "+00:00";
    bool has_zone = (size_t)(end - text) == sizeof zone - 1 && !memcmp(text, zone, sizeof zone - 1);
    *time = sum;
    return text == end || has_zone;
}

static bool count_parse(const char *text, const char *end, int64_t *count)
{
    bool minus = text < end && *text == '-';
    int64_t n = 0;
    text += minus;
    if (text == end)
        return false;
    for (; text < end; text++)
        if (!is_digit(*text) || __builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *text - '0', &n))
            return false;
    *count = minus ? -n : n;
    return true;
}

static int parse(const char *line, size_t bytes, uint64_t number, kvb_import_line *request, char *why, size_t why_bytes)
{
    const char *end = line + bytes;
    if (number == 1) {
        if (bytes == sizeof header - 1 && !memcmp(line, header, bytes))
            return 0;
        return kvb_why_set(-EINVAL, why, why_bytes, "expected the header %s", header);
    }
    const char *first = memchr(line, ',', bytes);
    const char *second = first ? memchr(first + 1, ',', (size_t)(end - first - 1)) : NULL;
    if (!second || memchr(second + 1, ',', (size_t)(end - second - 1)))
        return kvb_why_set(-EINVAL, why, why_bytes, "expected the three fields %s", header);
    if (!time_parse(line, first, &request->time))
        return kvb_why_set(-EINVAL, why, why_bytes, "TIMESTAMP: expected YYYY-MM-DD hh:mm:ss.fraction, found '%.*s'",
                           (int)(first - line < 40 ? first - line : 40), line);
    if (!count_parse(first + 1, second, &request->input))
        return kvb_why_set(-EINVAL, why, why_bytes, "ContextTokens: expected a whole number of 64 bits");
    if (!count_parse(second + 1, end, &request->output))
        return kvb_why_set(-EINVAL, why, why_bytes, "GeneratedTokens: expected a whole number of 64 bits");
    return 1;
}

const kvb_import_format kvb_import_azure = {
    .name = "azure",
    .summary = "Azure LLM inference trace (CSV)",
    .parse = parse,
};
