/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request traces of Mooncake (kvcache-ai/Mooncake, FAST25-release/traces): JSON Lines of
 *
 *   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353, 2354]}
 *
 * timestamp in ms; a hash id stands for a block of 512 tokens together with all blocks before it. Further keys
 * are passed over.
 */
#include "workloads/import/import.h"
#include "workloads/why.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

static int integer_get(const json_t *object, const char *key, int64_t *number, char *why, size_t why_bytes)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        return kvb_why_set(-EINVAL, why, why_bytes, "expected an integer \"%s\", found %s", key,
                           value ? "something else" : "none");
    *number = json_integer_value(value);
    return 0;
}

static int blocks_get(const json_t *object, kvb_import_line *request, char *why, size_t why_bytes)
{
    const json_t *ids = json_object_get(object, "hash_ids");
    if (!json_is_array(ids))
        return kvb_why_set(-EINVAL, why, why_bytes, "expected an array \"hash_ids\", found %s",
                           ids ? "something else" : "none");
    size_t n = json_array_size(ids);
    request->blocks = malloc((n + 1) * sizeof *request->blocks);
    if (!request->blocks)
        return kvb_why_set(-ENOMEM, why, why_bytes, "no memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return kvb_why_set(-EINVAL, why, why_bytes, "expected \"hash_ids\"[%zu] to be an integer of at least 0", i);
        request->blocks[i] = json_integer_value(id);
    }
    request->n_blocks = n;
    return 0;
}

static int parse(const char *line, size_t bytes, uint64_t number, kvb_import_line *request, char *why, size_t why_bytes)
{
    (void)number;
    json_error_t error;
    json_t *json = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    int64_t time = 0;
    int err = 0;
    if (!json)
        return kvb_why_set(-EINVAL, why, why_bytes, "expected a JSON object, column %d: %s", error.column, error.text);
    if (!json_is_object(json))
        err = kvb_why_set(-EINVAL, why, why_bytes,
                          "expected a JSON object with timestamp, input_length, output_length, hash_ids");
    if (!err)
        err = integer_get(json, "timestamp", &time, why, why_bytes);
    if (!err && time < 0)
        err = kvb_why_set(-EINVAL, why, why_bytes, "expected a \"timestamp\" of at least 0 ms, found %lld",
                          (long long)time);
    if (!err)
        err = integer_get(json, "input_length", &request->input, why, why_bytes);
    if (!err)
        err = integer_get(json, "output_length", &request->output, why, why_bytes);
    if (!err)
        err = blocks_get(json, request, why, why_bytes);
    request->time = (uint64_t)time;
    json_decref(json);
    return err ? err : 1;
}

const kvb_import_format kvb_import_mooncake = {
    .name = "mooncake",
    .summary = "Mooncake request trace (JSON Lines)",
    .block_tokens = 512,
    .parse = parse,
};
