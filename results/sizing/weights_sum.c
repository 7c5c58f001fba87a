/* SPDX-License-Identifier: Apache-2.0 */
#include "results/sizing/weights_sum.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOST (UINT64_C(1) << 40) /* of a field; products of two fields stay inside 128 bits, and are checked */

void kvb_sum_stop(kvb_weights_sum *sum, int err, const char *format, ...)
{
    if (sum->err)
        return;
    sum->err = err;
    va_list args;
    va_start(args, format);
    vsnprintf(sum->why, sizeof sum->why, format, args);
    va_end(args);
}

/* ---- tensors ------------------------------------------------------------------------------------------------- */

void kvb_matrix_add(kvb_weights_sum *sum, kvb_part part, uint64_t n, uint64_t rows, uint64_t cols)
{
    uint64_t one, all, bytes;
    if (sum->err)
        return;
    if (__builtin_mul_overflow(rows, cols, &one) || __builtin_mul_overflow(one, n, &all) ||
        __builtin_add_overflow(sum->parts[part], all, &sum->parts[part]) || one > UINT64_MAX / 8 ||
        __builtin_mul_overflow(sum->tensor_bytes(part, rows, cols, sum->element), n, &bytes) ||
        __builtin_add_overflow(sum->bytes, bytes, &sum->bytes))
        kvb_sum_stop(sum, -EOVERFLOW, "weights: %llu tensors of %llu x %llu overflow 64 bits", (unsigned long long)n,
                     (unsigned long long)rows, (unsigned long long)cols);
}

void kvb_vector_add(kvb_weights_sum *sum, kvb_part part, uint64_t n, uint64_t elements)
{
    kvb_matrix_add(sum, part, n, 1, elements);
}

void kvb_linear_add(kvb_weights_sum *sum, kvb_part part, uint64_t n, uint64_t in, uint64_t out, bool bias)
{
    kvb_matrix_add(sum, part, n, out, in);
    if (bias)
        kvb_vector_add(sum, part, n, out);
}

/* ---- fields --------------------------------------------------------------------------------------------------- */

static const json_t *nested_get(const json_t *object, const char *path, size_t n)
{
    char name[80];
    while (object && n) {
        size_t part = strcspn(path, ". ");
        if (part > n)
            part = n;
        snprintf(name, sizeof name, "%.*s", (int)part, path);
        object = json_object_get(object, name);
        n -= part < n ? part + 1 : n;
        path += part + 1;
    }
    return object;
}

const json_t *kvb_field_find(const kvb_weights_sum *sum, const char *names)
{
    for (const char *at = names; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        const json_t *value = nested_get(sum->config, at, n);
        if (value && !json_is_null(value))
            return value;
        at += n;
    }
    return NULL;
}

static uint64_t count_get(kvb_weights_sum *sum, const char *names, const json_t *value, uint64_t least)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < (json_int_t)least || (uint64_t)number > MOST) {
        kvb_sum_stop(sum, -EINVAL, "%.*s: expected an integer of %llu or more (2^40 at most)", (int)strcspn(names, " "),
                     names, (unsigned long long)least);
        return least;
    }
    return (uint64_t)number;
}

uint64_t kvb_field(kvb_weights_sum *sum, const char *names)
{
    const json_t *value = kvb_field_find(sum, names);
    if (value)
        return count_get(sum, names, value, 1);
    kvb_sum_stop(sum, -ENOENT, "%.*s is missing", (int)strcspn(names, " "), names);
    return 1;
}

uint64_t kvb_field_or(kvb_weights_sum *sum, const char *names, uint64_t otherwise)
{
    const json_t *value = kvb_field_find(sum, names);
    return value ? count_get(sum, names, value, 0) : otherwise;
}

bool kvb_flag(kvb_weights_sum *sum, const char *rule)
{
    if (!rule)
        return false;
    const bool otherwise = *rule == '+', needed = *rule == '!';
    const char *name = rule + (otherwise || needed);
    const json_t *value = kvb_field_find(sum, name);
    if (value && !json_is_boolean(value))
        kvb_sum_stop(sum, -EINVAL, "%s: expected true or false", name);
    if (!value && needed)
        kvb_sum_stop(sum, -ENOENT, "%s is missing", name);
    return value ? json_is_true(value) : otherwise;
}

/* ---- layers --------------------------------------------------------------------------------------------------- */

bool kvb_group_attends(const kvb_layer_group *group)
{
    return group->kind != KVB_LAYER_STATE && group->kind != KVB_LAYER_NONE;
}

uint64_t kvb_state_layers(const kvb_weights_sum *sum)
{
    uint64_t n = 0;
    for (size_t g = 0; g < sum->model->n_groups; g++)
        if (sum->model->groups[g].state_elements || sum->model->groups[g].kind == KVB_LAYER_STATE)
            n += sum->model->groups[g].n;
    return n;
}
