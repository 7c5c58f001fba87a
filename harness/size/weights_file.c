/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/size/weights_file.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workloads/safetensors.h"
#include "workloads/why.h"

/* ---- GGUF files, by their headers alone (ggml-org/ggml docs/gguf.md) --------------------------------------------- */

/* Elements and bytes of a block, by ggml's number of the type (ggml.h, ggml_type; gguf-py/gguf/constants.py,
 * GGML_QUANT_SIZES). */
static const struct {
    uint16_t elements, bytes;
} types[] = {
    [0] = {1, 4},      /* F32 */
    [1] = {1, 2},      /* F16 */
    [2] = {32, 18},    /* Q4_0 */
    [3] = {32, 20},    /* Q4_1 */
    [6] = {32, 22},    /* Q5_0 */
    [7] = {32, 24},    /* Q5_1 */
    [8] = {32, 34},    /* Q8_0 */
    [9] = {32, 36},    /* Q8_1 */
    [10] = {256, 84},  /* Q2_K */
    [11] = {256, 110}, /* Q3_K */
    [12] = {256, 144}, /* Q4_K */
    [13] = {256, 176}, /* Q5_K */
    [14] = {256, 210}, /* Q6_K */
    [15] = {256, 292}, /* Q8_K */
    [16] = {256, 66},  /* IQ2_XXS */
    [17] = {256, 74},  /* IQ2_XS */
    [18] = {256, 98},  /* IQ3_XXS */
    [19] = {256, 50},  /* IQ1_S */
    [20] = {32, 18},   /* IQ4_NL */
    [21] = {256, 110}, /* IQ3_S */
    [22] = {256, 82},  /* IQ2_S */
    [23] = {256, 136}, /* IQ4_XS */
    [24] = {1, 1},     /* I8 */
    [25] = {1, 2},     /* I16 */
    [26] = {1, 4},     /* I32 */
    [27] = {1, 8},     /* I64 */
    [28] = {1, 8},     /* F64 */
    [29] = {256, 56},  /* IQ1_M */
    [30] = {1, 2},     /* BF16 */
    [34] = {256, 54},  /* TQ1_0 */
    [35] = {256, 66},  /* TQ2_0 */
    [39] = {32, 17},   /* MXFP4 */
};

enum { STRING = 8, ARRAY = 9, ARRAYS_MOST = 4, DIMS_MOST = 4 };
/* Bytes of a value of the metadata, by its type; 0: a string or an array. */
static const uint8_t value_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

typedef struct reader {
    FILE *file;
    uint64_t left; /* bytes of the file that were not read */
    bool cut;      /* more was asked for */
} reader;

/* A little-endian number of n bytes; 0 behind the end. */
static uint64_t number_read(reader *r, uint32_t n)
{
    uint8_t bytes[8] = {0};
    uint64_t number = 0;

    r->cut = r->cut || r->left < n || fread(bytes, 1, n, r->file) != n;
    r->left -= r->cut ? 0 : n;
    for (uint32_t i = 0; i < n && !r->cut; i++)
        number |= (uint64_t)bytes[i] << 8 * i;
    return number;
}

static void skip(reader *r, uint64_t n)
{
    r->cut = r->cut || n > r->left || fseeko(r->file, (off_t)n, SEEK_CUR) != 0;
    r->left -= r->cut ? 0 : n;
}

static void string_skip(reader *r)
{
    skip(r, number_read(r, 8));
}

/* False: the type is unknown, or arrays lie too deep in each other. */
static bool value_skip(reader *r, uint64_t type, uint32_t depth)
{
    if (type >= sizeof value_bytes || depth > ARRAYS_MOST)
        return false;
    if (value_bytes[type]) {
        skip(r, value_bytes[type]);
        return true;
    }
    if (type == STRING) {
        string_skip(r);
        return true;
    }
    uint64_t of = number_read(r, 4), n = number_read(r, 8);

    if (of < sizeof value_bytes && value_bytes[of]) {
        skip(r, n > r->left ? UINT64_MAX : n * value_bytes[of]);
        return true;
    }
    for (bool good = true; n > 0 && !r->cut; n--)
        if (!(good = value_skip(r, of, depth + 1)))
            return false;
    return true;
}

/* The bytes of one tensor's entry. */
static int tensor_add(reader *r, const char *path, uint64_t *bytes, char *why, size_t why_bytes)
{
    uint64_t elements = 1, more;

    string_skip(r);
    uint64_t dims = number_read(r, 4);
    bool fits = dims <= DIMS_MOST;

    for (uint64_t i = 0; i < dims && fits && !r->cut; i++)
        fits = !__builtin_mul_overflow(elements, number_read(r, 8), &elements);
    uint64_t type = number_read(r, 4);

    number_read(r, 8); /* where it lies */
    if (r->cut)
        return 0;
    if (!fits)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: a tensor of more than %d dimensions or 64 bits", path,
                           DIMS_MOST);
    if (type >= sizeof types / sizeof *types || !types[type].elements)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: a tensor of type %llu, whose size is not known", path,
                           (unsigned long long)type);
    if (elements % types[type].elements)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: a tensor of %llu elements, but its type has blocks of %u",
                           path, (unsigned long long)elements, types[type].elements);
    if (__builtin_mul_overflow(elements / types[type].elements, types[type].bytes, &more) ||
        __builtin_add_overflow(*bytes, more, bytes))
        return kvb_why_set(-EOVERFLOW, why, why_bytes, "%s: the sum of its tensors overflows 64 bits", path);
    return 0;
}

static int header_read(reader *r, const char *path, uint64_t *bytes, char *why, size_t why_bytes)
{
    uint64_t magic = number_read(r, 4), version = number_read(r, 4), tensors = number_read(r, 8),
             pairs = number_read(r, 8);
    int error = 0;

    if (magic != 0x46554747 || version < 2 || version > 3)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: no GGUF file of version 2 or 3", path);
    for (; pairs > 0 && !r->cut; pairs--) {
        string_skip(r);
        uint64_t type = number_read(r, 4);

        if (!r->cut && !value_skip(r, type, 0))
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: metadata of type %llu, which is not known", path,
                               (unsigned long long)type);
    }
    for (; tensors > 0 && !r->cut && !error; tensors--)
        error = tensor_add(r, path, bytes, why, why_bytes);
    return !error && r->cut ? kvb_why_set(-EINVAL, why, why_bytes, "%s: its header is cut", path) : error;
}

/* Adds the bytes of all tensors of the file, of whatever type, without padding between them. 0; -EINVAL with "file:
 * what was expected" in why: cannot be read, is cut, is no GGUF of version 2 or 3 in little-endian order, or has a type
 * without known size; -EOVERFLOW. */
static int gguf_add(const char *path, uint64_t *bytes, char *why, size_t why_bytes)
{
    reader r = {.file = fopen(path, "rb")};
    off_t end = -1;

    if (r.file && fseeko(r.file, 0, SEEK_END) == 0 && (end = ftello(r.file)) >= 0)
        rewind(r.file);
    int error = end < 0 ? kvb_why_set(-EINVAL, why, why_bytes, "%s: %s", path, strerror(errno)) : 0;

    r.left = end < 0 ? 0 : (uint64_t)end;
    if (!error)
        error = header_read(&r, path, bytes, why, why_bytes);
    if (r.file)
        fclose(r.file);
    return error;
}

/* ---- files by their names ---------------------------------------------------------------------------------------- */

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
              : ends_with(one, ".gguf") ? gguf_add(one, bytes, why, why_bytes)
                                        : shard_add(one, NULL, bytes, why, why_bytes);
    free(list);
    return err;
}
