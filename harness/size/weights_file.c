/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/size/weights_file.h"
#include "harness/size/gguf.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workloads/safetensors.h"
#include "workloads/why.h"

static bool ends_with(const char *word, const char *end)
{
    const size_t n = strlen(word), m = strlen(end);
    return n > m && strcmp(word + n - m, end) == 0;
}

static bool is_index(const char *path)
{
    return ends_with(path, ".safetensors.index.json");
}

bool kvb_weights_is_file(const char *word)
{
    return ends_with(word, ".safetensors") || ends_with(word, ".gguf") || is_index(word);
}

static int bytes_add(uint64_t *bytes, uint64_t more, const char *path, char *why, size_t why_bytes)
{
    if (__builtin_add_overflow(*bytes, more, bytes))
        return kvb_why_set(-EOVERFLOW, why, why_bytes, "%s: the sum of its tensors overflows 64 bits", path);
    return 0;
}

/* Adds one file's tensors; `names`: tensors that it must have, in an array, or NULL. */
static int shard_add(const char *path, const json_t *names, uint64_t *bytes, char *why, size_t why_bytes)
{
    kvb_safetensors *file;
    int err = kvb_safetensors_open(path, &file, why, why_bytes);
    if (err)
        return err;
    json_t *has = json_object();
    for (size_t i = 0; i < kvb_safetensors_count(file) && !err; i++) {
        const kvb_tensor *tensor = kvb_safetensors_at(file, i);
        err = bytes_add(bytes, tensor->bytes, path, why, why_bytes);
        if (!err && json_object_set_new(has, tensor->name, json_true()))
            err = kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
    }
    for (size_t i = 0; i < json_array_size(names) && !err; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (!json_object_get(has, name))
            err = kvb_why_set(-EINVAL, why, why_bytes, "%s: has no tensor '%.80s', but the index says so", path, name);
    }
    json_decref(has);
    kvb_safetensors_close(file);
    return err;
}

/* "weight_map": {tensor: shard} turned about: {shard: [tensors]}. NULL with err: not of this form. */
static json_t *shards_of(const char *path, const json_t *map, int *err, char *why, size_t why_bytes)
{
    json_t *shards = json_object(), *shard;
    const char *tensor;
    json_object_foreach((json_t *)map, tensor, shard)
    {
        const char *name = json_string_value(shard);
        if (!name || !*name || strchr(name, '/')) {
            *err = kvb_why_set(-EINVAL, why, why_bytes,
                               "%s: weight_map: '%.80s': expected the name of a file beside it", path, tensor);
            break;
        }
        json_t *tensors = json_object_get(shards, name);
        if (!tensors && !json_object_set_new(shards, name, json_array()))
            tensors = json_object_get(shards, name);
        if (json_array_append_new(tensors, json_string(tensor))) {
            *err = kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
            break;
        }
    }
    return shards;
}

static int index_add(const char *path, uint64_t *bytes, char *why, size_t why_bytes)
{
    json_error_t error;
    json_t *index = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const json_t *map = json_object_get(index, "weight_map");
    int err = 0;
    if (!index)
        err = error.line < 0 ? kvb_why_set(-EINVAL, why, why_bytes, "%s: cannot be read", path)
                             : kvb_why_set(-EINVAL, why, why_bytes, "%s: line %d: %s", path, error.line, error.text);
    else if (json_object_size(map) == 0)
        err =
            kvb_why_set(-EINVAL, why, why_bytes, "%s: weight_map: expected an object of tensors and their files", path);
    json_t *shards = err ? NULL : shards_of(path, map, &err, why, why_bytes);
    const char *name;
    json_t *names;
    const json_t *told = json_object_get(json_object_get(index, "metadata"), "total_size");
    bool alone = json_integer_value(told) > 0; /* no shard is there: the index itself says how much they hold */
    for (int summing = 0; summing < 2 && !err && (!summing || !alone); summing++)
        json_object_foreach(shards, name, names)
        {
            char *shard;
            if (err || asprintf(&shard, "%.*s%s", (int)(strrchr(path, '/') ? strrchr(path, '/') + 1 - path : 0), path,
                                name) < 0)
                break;
            if (summing)
                err = shard_add(shard, names, bytes, why, why_bytes);
            else
                alone = alone && access(shard, F_OK) != 0;
            free(shard);
        }
    if (!err && alone)
        err = bytes_add(bytes, (uint64_t)json_integer_value(told), path, why, why_bytes);
    json_decref(shards);
    json_decref(index);
    return err;
}

int kvb_weights_file(const char *path, uint64_t *bytes, char *why, size_t why_bytes)
{
    char *list = strdup(path), *rest = list;
    int err = list ? 0 : kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
    *bytes = 0;
    for (char *one; !err && (one = strsep(&rest, ","));)
        err = is_index(one)             ? index_add(one, bytes, why, why_bytes)
              : ends_with(one, ".gguf") ? kvb_gguf_bytes_add(one, bytes, why, why_bytes)
                                        : shard_add(one, NULL, bytes, why, why_bytes);
    free(list);
    return err;
}
