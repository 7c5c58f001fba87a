/* SPDX-License-Identifier: Apache-2.0 */
/* Writes safetensors files. */
#include "workloads/output_file.h"
#include "workloads/safetensors.h"
#include "workloads/why.h"

#include <jansson.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA_ALIGNMENT 8u /* of the data section, so that the first tensor can be used where it is mapped */

static json_t *entry_new(const kvb_tensor *t, uint64_t begin)
{
    json_t *shape = json_array();
    for (uint32_t d = 0; d < t->n_dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", kvb_tensor_dtype_name(t->dtype), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + t->bytes));
}

/* Bytes that dtype and shape need, or -1 when they overflow. */
static int64_t tensor_bytes(const kvb_tensor *t)
{
    int64_t bytes = (int64_t)kvb_tensor_dtype_bytes(t->dtype);
    for (uint32_t d = 0; d < t->n_dims; d++)
        if (__builtin_mul_overflow(bytes, t->shape[d], &bytes))
            return -1;
    return bytes;
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
        if (!t->name || json_object_get(header, t->name) || !strcmp(t->name, "__metadata__") ||
            t->n_dims > KVB_TENSOR_MAX_DIMS || tensor_bytes(t) < 0 || (uint64_t)tensor_bytes(t) != t->bytes) {
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
    int err = kvb_output_file_open(path, &file, why, why_bytes);
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
