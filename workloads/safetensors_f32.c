/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a safetensors file as floats: shape, dtype and every value checked. */
#include "workloads/safetensors.h"
#include "workloads/safetensors_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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

static float (*const getters[KVB_TENSOR_DTYPES])(const uint8_t *bytes) = {
    [KVB_TENSOR_F32] = f32_get,
    [KVB_TENSOR_F16] = f16_get,
    [KVB_TENSOR_BF16] = bf16_get,
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
    const char *path = kvb_safetensors_path(file);
    const kvb_tensor *t = kvb_safetensors_find(file, name);
    if (!t)
        return kvb_why_set(-ENOENT, why, why_bytes, "%s: tensor '%.80s' is missing", path, name);
    if (t->n_dims != n_dims || memcmp(t->shape, shape, n_dims * sizeof *shape) != 0) {
        char has[200], want[200];
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: tensor '%.80s': has shape %s, expected %s", path, name,
                           shape_text(t->shape, t->n_dims, has, sizeof has),
                           shape_text(shape, n_dims, want, sizeof want));
    }
    if (!getters[t->dtype])
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: tensor '%.80s': has dtype %s, expected F32, F16 or BF16", path,
                           name, kvb_tensor_dtype_name(t->dtype));
    size_t size = kvb_tensor_dtype_bytes(t->dtype);
    uint64_t n = t->bytes / size;
    for (uint64_t i = 0; i < n; i++) {
        out[i] = getters[t->dtype]((const uint8_t *)t->data + i * size);
        if (isfinite(out[i]))
            continue;
        uint64_t place[KVB_TENSOR_MAX_DIMS], rest = i;
        char text[200];
        for (uint32_t d = n_dims; d-- > 0; rest /= shape[d])
            place[d] = rest % shape[d];
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: tensor '%.80s': %s at %s", path, name,
                           isnan(out[i]) ? "NaN" : "infinity", shape_text(place, n_dims, text, sizeof text));
    }
    return 0;
}
