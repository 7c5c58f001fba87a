/* SPDX-License-Identifier: Apache-2.0 */
/* Shards of a matrix. */
#include "harness/shard.h"

#include <errno.h>
#include <stdio.h>

#include "harness/options.h"
#include "results/result.h"

int kvb_shard_parse(const char *text, kvb_shard *shard, char *why, size_t why_bytes)
{
    uint64_t index = 1, of = 1;
    char words[2][16] = {"", ""}, unused[128], end;
    bool good = !text || !text[0];

    if (!good)
        good = sscanf(text, "%15[0-9]/%15[0-9]%c", words[0], words[1], &end) == 2 &&
               !kvb_number_parse(words[1], 1, KVB_SHARDS, &of, unused, sizeof unused) &&
               !kvb_number_parse(words[0], 1, of, &index, unused, sizeof unused);
    *shard = (kvb_shard){.index = good ? (uint32_t)index - 1 : 0, .of = good ? (uint32_t)of : 1};
    if (!good)
        snprintf(why, why_bytes, "'%s' is no shard: expected I/N with N of 1 to %u and I of 1 to N, as 2/3", text,
                 KVB_SHARDS);
    return good ? 0 : -EINVAL;
}

bool kvb_shard_has(kvb_shard shard, size_t number)
{
    return number % shard.of == shard.index;
}

size_t kvb_shard_count(kvb_shard shard, size_t total)
{
    return (total + shard.of - 1 - shard.index) / shard.of;
}
