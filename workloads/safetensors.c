/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files, mapped read-only. The whole header is checked before data is used. */
#include "workloads/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workloads/files.h"

#define LENGTH_BYTES     8u
#define MAX_HEADER_BYTES 100000000u /* as in the format's own implementation */

/* The data section against which the header is checked. */
typedef struct data_section {
    const uint8_t *data;
    uint64_t bytes;
} data_section;

/* ---- element types -------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t bytes;
} dtypes[KVB_DTYPES] = {
    [KVB_DTYPE_F64] = {"F64", 8},   [KVB_DTYPE_F32] = {"F32", 4},      [KVB_DTYPE_F16] = {"F16", 2},
    [KVB_DTYPE_BF16] = {"BF16", 2}, [KVB_DTYPE_E4M3] = {"F8_E4M3", 1}, [KVB_DTYPE_E5M2] = {"F8_E5M2", 1},
    [KVB_DTYPE_I8] = {"I8", 1},     [KVB_DTYPE_U8] = {"U8", 1},        [KVB_DTYPE_I16] = {"I16", 2},
    [KVB_DTYPE_U16] = {"U16", 2},   [KVB_DTYPE_I32] = {"I32", 4},      [KVB_DTYPE_U32] = {"U32", 4},
    [KVB_DTYPE_I64] = {"I64", 8},   [KVB_DTYPE_U64] = {"U64", 8},      [KVB_DTYPE_BOOL] = {"BOOL", 1},
};

size_t kvb_dtype_bytes(kvb_dtype dtype)
{
    assert(dtype < KVB_DTYPES);
    return dtypes[dtype].bytes;
}

int kvb_tensor_shape(kvb_tensor *t, bool column_major)
{
    uint64_t elements = 1, bytes = kvb_dtype_bytes(t->dtype);
    for (uint32_t i = 0; i < t->n_dims; i++) {
        const uint32_t d = column_major ? i : t->n_dims - 1 - i;
        t->strides[d] = elements;
        elements *= t->dims[d];
        if (__builtin_mul_overflow(bytes, t->dims[d], &bytes) || bytes > INT64_MAX)
            return -EOVERFLOW;
    }
    t->elements = elements;
    t->bytes = bytes;
    return 0;
}

/* ---- one tensor's entry -------------------------------------------------------------------------------- */

/* Refuses a number that is negative or no integer. */
static bool unsigned_get(const json_t *value, uint64_t *number)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *number = (uint64_t)json_integer_value(value);
    return true;
}

static void dtype_parse(kvb_parsing *r, const json_t *value, kvb_tensor *t)
{
    const char *name = json_string_value(value);
    char list[160] = "";
    for (unsigned d = 0; d < KVB_DTYPES; d++) {
        t->dtype = (kvb_dtype)d;
        if (name && strcmp(name, dtypes[t->dtype].name) == 0)
            return;
        kvb_list_add(list, sizeof list, ", ", "%s", dtypes[t->dtype].name);
    }
    kvb_parsing_fail(r, -EINVAL, "unknown dtype \"%.20s\", known: %s", name ? name : "", list);
}

/* Reads the shape, and from it finds strides, elements and bytes. */
static void shape_parse(kvb_parsing *r, const json_t *value, kvb_tensor *t)
{
    if (!json_is_array(value) || json_array_size(value) > KVB_TENSOR_DIMS) {
        kvb_parsing_fail(r, -EINVAL, "\"shape\": expected an array of at most %u integers", KVB_TENSOR_DIMS);
        return;
    }
    t->n_dims = (uint32_t)json_array_size(value);
    for (uint32_t d = 0; d < t->n_dims; d++)
        if (!unsigned_get(json_array_get(value, d), &t->dims[d]))
            kvb_parsing_fail(r, -EINVAL, "\"shape\"[%u]: expected an integer of 0 or more", d);
    if (kvb_tensor_shape(t, false))
        kvb_parsing_fail(r, -EINVAL, "\"shape\": its size overflows 64 bits");
}

static void entry_parse(kvb_parsing *r, const json_t *entry, const data_section *section, kvb_tensor *t)
{
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t begin = 0, end = 0;
    if (!dtype || !shape || !offsets || json_object_size(entry) != 3)
        kvb_parsing_fail(r, -EINVAL, "expected an object with the keys dtype, shape, data_offsets");
    dtype_parse(r, dtype, t);
    shape_parse(r, shape, t);
    if (json_array_size(offsets) != 2 || !unsigned_get(json_array_get(offsets, 0), &begin) ||
        !unsigned_get(json_array_get(offsets, 1), &end) || begin > end)
        kvb_parsing_fail(r, -EINVAL, "\"data_offsets\": expected two integers [begin, end], begin <= end");
    if (end > section->bytes)
        kvb_parsing_fail(r, -EINVAL, "data ends at byte %llu, but the file holds %llu bytes of data",
                         (unsigned long long)end, (unsigned long long)section->bytes);
    if (end - begin != t->bytes)
        kvb_parsing_fail(r, -EINVAL, "holds %llu bytes, but dtype and shape need %llu",
                         (unsigned long long)(end - begin), (unsigned long long)t->bytes);
    if (!r->error)
        t->data = section->data + begin;
}

/* ---- the header ------------------------------------------------------------------------------------------ */

static void metadata_check(kvb_parsing *r, const json_t *metadata)
{
    bool strings = json_is_object(metadata);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)metadata, key, value) strings &= json_is_string(value);
    if (!strings)
        kvb_parsing_fail(r, -EINVAL, "__metadata__: expected an object of strings");
}

static int by_place(const void *a, const void *b)
{
    const kvb_tensor *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    if (x->bytes != y->bytes) /* an empty tensor comes before the one that begins at the same byte */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Checks that the tensors, sorted by place, cover the data without overlap or gap. */
static void cover_check(kvb_parsing *r, const kvb_safetensors *f, const data_section *section)
{
    uint64_t at = 0;
    for (size_t i = 0; i < f->n; i++) {
        const kvb_tensor *t = &f->tensors[i];
        uint64_t begin = (uint64_t)((const uint8_t *)t->data - section->data);
        if (begin != at)
            kvb_parsing_fail(r, -EINVAL, "tensor '%.80s': begins at byte %llu of the data: %s, expected %llu", t->name,
                             (unsigned long long)begin, begin < at ? "overlaps the tensor before it" : "leaves a gap",
                             (unsigned long long)at);
        at = begin + t->bytes;
    }
    if (at != section->bytes)
        kvb_parsing_fail(r, -EINVAL, "%llu bytes of data belong to no tensor",
                         (unsigned long long)(section->bytes - at));
}

static int header_parse(kvb_parsing *r, kvb_safetensors *f)
{
    if (f->map_bytes < LENGTH_BYTES)
        return kvb_parsing_fail(r, -EINVAL, "%zu bytes are too few for a safetensors file", f->map_bytes);
    uint64_t length = 0;
    for (unsigned i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)f->map[i] << 8 * i;
    if (length > f->map_bytes - LENGTH_BYTES || length > MAX_HEADER_BYTES)
        return kvb_parsing_fail(r, -EINVAL, "header length %llu does not fit in the file's %zu bytes",
                                (unsigned long long)length, f->map_bytes);
    data_section section = {f->map + LENGTH_BYTES + length, f->map_bytes - LENGTH_BYTES - length};
    json_error_t error;
    f->header = json_loadb((const char *)f->map + LENGTH_BYTES, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(f->header))
        return kvb_parsing_fail(r, -EINVAL, "header: %s", f->header ? "expected an object" : error.text);
    f->tensors = calloc(json_object_size(f->header) + 1, sizeof *f->tensors);
    if (!f->tensors)
        return kvb_parsing_fail(r, -ENOMEM, "no memory");
    const char *name;
    json_t *entry;
    json_object_foreach(f->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            metadata_check(r, entry);
            continue;
        }
        snprintf(r->where, sizeof r->where, "tensor '%.80s': ", name);
        f->tensors[f->n].name = name;
        entry_parse(r, entry, &section, &f->tensors[f->n++]);
        r->where[0] = '\0';
    }
    if (r->error)
        return r->error;
    qsort(f->tensors, f->n, sizeof *f->tensors, by_place);
    cover_check(r, f, &section);
    return r->error;
}

int kvb_file_map(const char *path, const uint8_t **map, size_t *bytes, char *why, size_t why_bytes)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st = {0};
    void *at = NULL;
    int err = file < 0 || fstat(file, &st) ? -errno : 0;
    if (!err && !S_ISREG(st.st_mode))
        err = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    else if (!err && st.st_size > 0 && /* an empty file cannot be mapped */
             (at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, file, 0)) == MAP_FAILED)
        err = -errno;
    if (file >= 0)
        close(file);
    if (err)
        return kvb_why_set(err, why, why_bytes, "%s: cannot be read: %s", path,
                           err == -EINVAL ? "no regular file" : strerror(-err));
    *map = at;
    *bytes = (size_t)st.st_size;
    return 0;
}

int kvb_safetensors_open(const char *path, kvb_safetensors **file, char *why, size_t why_bytes)
{
    *file = NULL;
    kvb_safetensors *f = calloc(1, sizeof *f);
    if (!f || !(f->path = strdup(path))) {
        free(f);
        return kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
    }
    kvb_parsing r = {0};
    int err = kvb_file_map(path, &f->map, &f->map_bytes, why, why_bytes);
    if (!err && (err = header_parse(&r, f)))
        kvb_why_set(err, why, why_bytes, "%s: %s", path, r.text);
    if (err) {
        kvb_safetensors_close(f);
        return err;
    }
    *file = f;
    return 0;
}

void kvb_safetensors_close(kvb_safetensors *file)
{
    if (!file)
        return;
    if (file->map)
        munmap((void *)file->map, file->map_bytes);
    json_decref(file->header);
    free(file->tensors);
    free(file->path);
    free(file);
}

const kvb_tensor *kvb_safetensors_find(const kvb_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}

char *kvb_safetensors_metadata(const kvb_safetensors *file)
{
    const json_t *metadata = json_object_get(file->header, "__metadata__");
    return metadata ? json_dumps(metadata, JSON_COMPACT) : NULL;
}

/* ---- tensors as floats -------------------------------------------------------------------------------------- */

static float f32_get(const uint8_t *bytes)
{
    float x;
    memcpy(&x, bytes, sizeof x);
    return x;
}

/* IEEE 754 binary16: sign, 5 bits of exponent, 10 of fraction. */
static float f16_get(const uint8_t *bytes)
{
    uint16_t h;
    memcpy(&h, bytes, sizeof h);
    int exponent = h >> 10 & 31;
    float fraction = (float)(h & 1023);
    float x = exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
              : exponent     ? ldexpf(1024 + fraction, exponent - 25)
                             : ldexpf(fraction, -24);
    return h >> 15 ? -x : x;
}

static float bf16_get(const uint8_t *bytes)
{
    uint16_t h;
    memcpy(&h, bytes, sizeof h);
    uint32_t word = (uint32_t)h << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}

static float (*const getters[KVB_DTYPES])(const uint8_t *bytes) = {
    [KVB_DTYPE_F32] = f32_get,
    [KVB_DTYPE_F16] = f16_get,
    [KVB_DTYPE_BF16] = bf16_get,
};

/* "[2,3]" */
static const char *shape_text(const uint64_t *shape, uint32_t n, char *text, size_t text_bytes)
{
    size_t at = (size_t)snprintf(text, text_bytes, "[");
    for (uint32_t d = 0; d < n && at < text_bytes; d++)
        at += (size_t)snprintf(text + at, text_bytes - at, "%s%llu", d ? "," : "", (unsigned long long)shape[d]);
    if (at < text_bytes)
        snprintf(text + at, text_bytes - at, "]");
    return text;
}

int kvb_safetensors_read_f32(const kvb_safetensors *file, const char *name, const uint64_t *shape, uint32_t n_dims,
                             float *out, char *why, size_t why_bytes)
{
    const char *path = file->path;
    const kvb_tensor *t = kvb_safetensors_find(file, name);
    if (!t)
        return kvb_why_set(-ENOENT, why, why_bytes, "%s: tensor '%.80s' is missing", path, name);
    if (t->n_dims != n_dims || memcmp(t->dims, shape, n_dims * sizeof *shape) != 0) {
        char has[200], want[200];
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: tensor '%.80s': has shape %s, expected %s", path, name,
                           shape_text(t->dims, t->n_dims, has, sizeof has),
                           shape_text(shape, n_dims, want, sizeof want));
    }
    if (!getters[t->dtype])
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: tensor '%.80s': has dtype %s, expected F32, F16 or BF16", path,
                           name, dtypes[t->dtype].name);
    size_t size = kvb_dtype_bytes(t->dtype);
    uint64_t n = t->bytes / size;
    for (uint64_t i = 0; i < n; i++) {
        out[i] = getters[t->dtype]((const uint8_t *)t->data + i * size);
        if (isfinite(out[i]))
            continue;
        uint64_t place[KVB_TENSOR_DIMS], rest = i;
        char text[200];
        for (uint32_t d = n_dims; d-- > 0; rest /= shape[d])
            place[d] = rest % shape[d];
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: tensor '%.80s': %s at %s", path, name,
                           isnan(out[i]) ? "NaN" : "infinity", shape_text(place, n_dims, text, sizeof text));
    }
    return 0;
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

#define DATA_ALIGNMENT 8u /* of the data section, so that the first tensor can be used in the mapping */

static json_t *entry_new(const kvb_tensor *t, uint64_t begin)
{
    json_t *shape = json_array();
    for (uint32_t d = 0; d < t->n_dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[t->dtype].name, "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + t->bytes));
}

/* The header as text, padded with blanks to the alignment; NULL with why. */
static char *header_new(const char *path, const kvb_tensor *tensors, size_t n, const char *const *metadata,
                        size_t *length, char *why, size_t why_bytes)
{
    json_t *header = json_object();
    char *text = NULL, *padded = NULL;
    bool ok = header != NULL;
    if (metadata) {
        json_t *block = json_object();
        for (size_t i = 0; metadata[i]; i += 2)
            ok &= json_object_set_new(block, metadata[i], json_string(metadata[i + 1])) == 0;
        ok &= json_object_set_new(header, "__metadata__", block) == 0;
    }
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const kvb_tensor *t = &tensors[i];
        kvb_tensor shape = *t;
        if (!t->name || json_object_get(header, t->name) || !strcmp(t->name, "__metadata__") ||
            t->n_dims > KVB_TENSOR_DIMS || kvb_tensor_shape(&shape, false) || shape.bytes != t->bytes) {
            kvb_why_set(-EINVAL, why, why_bytes, "%s: tensor '%.80s': name is taken, or bytes disagree with its shape",
                        path, t->name ? t->name : "");
            goto out;
        }
        ok &= json_object_set_new(header, t->name, entry_new(t, at)) == 0;
        at += t->bytes;
    }
    text = ok ? json_dumps(header, JSON_COMPACT) : NULL;
    *length = text ? (strlen(text) + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT : 0;
    if (!text || asprintf(&padded, "%-*s", (int)*length, text) < 0) {
        padded = NULL;
        kvb_why_set(-EINVAL, why, why_bytes, "%s: a name or metadata is not UTF-8, or no memory", path);
    }
out:
    free(text);
    json_decref(header);
    return padded;
}

int kvb_safetensors_write(const char *path, const kvb_tensor *tensors, size_t n, const char *const *metadata, char *why,
                          size_t why_bytes)
{
    size_t length = 0;
    char *header = header_new(path, tensors, n, metadata, &length, why, why_bytes);
    if (!header)
        return -EINVAL;
    kvb_output_file file;
    int err = kvb_output_file_open(path, false, &file, why, why_bytes);
    if (err)
        goto out;
    for (unsigned i = 0; i < 8; i++) /* little-endian, whatever the machine is */
        fputc((int)((uint64_t)length >> 8 * i & 0xff), file.stream);
    bool ok = fwrite(header, 1, length, file.stream) == length;
    for (size_t i = 0; i < n && ok; i++)
        ok = fwrite(tensors[i].data, 1, (size_t)tensors[i].bytes, file.stream) == tensors[i].bytes;
    int write_error = ok ? 0 : errno;
    err = kvb_output_file_close(&file, ok, why, why_bytes);
    if (write_error)
        err = kvb_why_set(-write_error, why, why_bytes, "%s: cannot be written: %s", path, strerror(write_error));
out:
    free(header);
    return err;
}
