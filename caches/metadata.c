/* SPDX-License-Identifier: Apache-2.0 */
/* The versioned metadata block: read, check, write. */
#include "caches/metadata.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PREFIX      "kv_cache."
#define VERSION_KEY PREFIX "schema_version"

/* Keys of version 1 besides the version itself. */
static const struct {
    const char *key;
    int64_t max;
    size_t offset; /* of a uint32_t in kvb_model_facts */
} fields[] = {
    {PREFIX "layers", 1024, offsetof(kvb_model_facts, layers)},
    {PREFIX "heads", 4096, offsetof(kvb_model_facts, heads)},
    {PREFIX "kv_heads", 4096, offsetof(kvb_model_facts, kv_heads)},
    {PREFIX "k_dim", 4096, offsetof(kvb_model_facts, k_dim)},
    {PREFIX "v_dim", 4096, offsetof(kvb_model_facts, v_dim)},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };
_Static_assert(N_FIELDS + 1 == KVB_METADATA_ENTRIES, "one entry for each key and the version");

static uint32_t *field_of(kvb_model_facts *facts, size_t i)
{
    return (uint32_t *)((char *)facts + fields[i].offset);
}

static int version_check(const kvb_metadata_entry *entries, size_t n, char *why, size_t why_bytes)
{
    const kvb_metadata_entry *found = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!entries[i].key || strcmp(entries[i].key, VERSION_KEY) != 0)
            continue;
        if (entries[i].value != KVB_METADATA_VERSION) {
            snprintf(why, why_bytes, "%s is %" PRId64 ": only %d is known", VERSION_KEY, entries[i].value,
                     KVB_METADATA_VERSION);
            return -EINVAL;
        }
        if (found) {
            snprintf(why, why_bytes, "%s is given twice", VERSION_KEY);
            return -EINVAL;
        }
        found = &entries[i];
    }
    if (found)
        return 0;
    snprintf(why, why_bytes, "%s is missing", VERSION_KEY);
    return -EINVAL;
}

static int entry_read(const kvb_metadata_entry *entry, kvb_model_facts *facts, bool given[N_FIELDS], char *why,
                      size_t why_bytes)
{
    if (!entry->key) {
        snprintf(why, why_bytes, "a metadata key is missing its name");
        return -EINVAL;
    }
    if (strncmp(entry->key, PREFIX, strlen(PREFIX)) != 0 || strcmp(entry->key, VERSION_KEY) == 0)
        return 0;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (strcmp(entry->key, fields[i].key) != 0)
            continue;
        if (given[i]) {
            snprintf(why, why_bytes, "%s is given twice", entry->key);
            return -EINVAL;
        }
        if (entry->value < 1 || entry->value > fields[i].max) {
            snprintf(why, why_bytes, "%s is %" PRId64 ": expected 1 .. %" PRId64, entry->key, entry->value,
                     fields[i].max);
            return -EINVAL;
        }
        given[i] = true;
        *field_of(facts, i) = (uint32_t)entry->value;
        return 0;
    }
    snprintf(why, why_bytes, "%s is not a key of version %d", entry->key, KVB_METADATA_VERSION);
    return -EINVAL;
}

int kvb_metadata_read(const kvb_metadata_entry *entries, size_t n, kvb_model_facts *facts, char *why, size_t why_bytes)
{
    kvb_model_facts read = {0};
    bool given[N_FIELDS] = {false};
    int error = version_check(entries, n, why, why_bytes);
    for (size_t i = 0; !error && i < n; i++)
        error = entry_read(&entries[i], &read, given, why, why_bytes);
    if (error)
        return error;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (given[i])
            continue;
        snprintf(why, why_bytes, "%s is missing", fields[i].key);
        return -EINVAL;
    }
    if (read.heads % read.kv_heads != 0) {
        snprintf(why, why_bytes, "%sheads is %u: not a multiple of %skv_heads, which is %u", PREFIX, read.heads, PREFIX,
                 read.kv_heads);
        return -EINVAL;
    }
    *facts = read;
    return 0;
}

void kvb_metadata_write(const kvb_model_facts *facts, kvb_metadata_entry entries[KVB_METADATA_ENTRIES])
{
    kvb_model_facts copy = *facts;
    entries[0] = (kvb_metadata_entry){VERSION_KEY, KVB_METADATA_VERSION};
    for (size_t i = 0; i < N_FIELDS; i++)
        entries[i + 1] = (kvb_metadata_entry){fields[i].key, *field_of(&copy, i)};
}
