/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's part of a layer. */
#include "results/sizing/share.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int kvb_add_product(uint64_t *sum, const uint64_t *factors, size_t n)
{
    uint64_t product = 1;

    for (size_t i = 0; i < n; i++)
        if (factors[i] == 0)
            return 0; /* whatever the others are */
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(product, factors[i], &product))
            return -EOVERFLOW;
    return __builtin_add_overflow(*sum, product, sum) ? -EOVERFLOW : 0;
}

uint64_t kvb_ceil_div(uint64_t x, uint64_t by)
{
    return x / by + (x % by != 0);
}

int kvb_round_up(uint64_t *x, uint64_t to)
{
    return __builtin_mul_overflow(kvb_ceil_div(*x, to), to, x) ? -EOVERFLOW : 0;
}

int kvb_too_large(char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "a size is above 64 bits");
    return -EOVERFLOW;
}

bool kvb_layer_grows(kvb_layer_kind kind)
{
    return kind == KVB_LAYER_FULL || kind == KVB_LAYER_LATENT;
}

uint64_t kvb_layers_held(const kvb_model *model, size_t i, const kvb_size_ask *ask)
{
    size_t last = model->n_groups; /* the last group that has attention */

    for (size_t j = 0; j < model->n_groups; j++)
        if (model->groups[j].kind != KVB_LAYER_STATE && model->groups[j].kind != KVB_LAYER_NONE)
            last = j;
    return kvb_ceil_div(model->groups[i].n, ask->pp) + (ask->mtp && i == last ? model->mtp_layers : 0);
}

static int row_add(uint64_t *bytes, const kvb_kv_format *format, const char *which, uint32_t heads, uint32_t elements,
                   char *why, size_t why_bytes)
{
    uint64_t row = kvb_kv_row_bytes(format, elements);

    if (elements && !row) {
        snprintf(why, why_bytes, "%s stores groups of %u, %s rows of %u are no multiple", format->name, format->group,
                 which, elements);
        return -ENOTSUP;
    }
    return kvb_add(bytes, heads, row);
}

int kvb_layer_row_bytes(const kvb_layer_group *g, const kvb_size_ask *ask, uint64_t *bytes, char *why, size_t why_bytes)
{
    uint32_t heads = g->kv_heads >= ask->tp ? g->kv_heads / ask->tp : 1;

    *bytes = 0;
    if (g->kind == KVB_LAYER_STATE || g->kind == KVB_LAYER_NONE)
        return 0;
    if (g->kind == KVB_LAYER_LATENT) /* each rank needs the whole row: its own heads are computed from it */
        return row_add(bytes, ask->k, "latent", 1, g->latent_dim + g->rope_dim, why, why_bytes);
    if (g->kv_heads >= ask->tp ? g->kv_heads % ask->tp : ask->tp % g->kv_heads) {
        snprintf(why, why_bytes, "%u KV heads are not divided by --tp %u", g->kv_heads, ask->tp);
        return -ENOTSUP;
    }
    int error = row_add(bytes, ask->k, "K", heads, g->k_dim, why, why_bytes);
    return error ? error : row_add(bytes, ask->v, "V", heads, g->v_dim, why, why_bytes);
}

int kvb_layer_state_bytes(const kvb_layer_group *g, const kvb_size_ask *ask, uint32_t state_element,
                          uint32_t conv_element, uint64_t *bytes)
{
    *bytes = 0;
    return kvb_add(bytes, kvb_ceil_div(g->state_elements, ask->tp), g->state_f32 ? 4 : state_element) ||
                   kvb_add(bytes, kvb_ceil_div(g->conv_elements, ask->tp), conv_element)
               ? -EOVERFLOW
               : 0;
}

uint32_t kvb_dtype_bytes(const char *dtype)
{
    return strcmp(dtype, "f32") == 0 ? 4 : 2;
}

uint32_t kvb_plain_bytes(const kvb_model *model, const kvb_size_ask *ask)
{
    static const char *const plain[] = {"f32", "f16", "bf16"};

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(ask->k->name, plain[i]) == 0)
            return kvb_dtype_bytes(plain[i]);
    return kvb_dtype_bytes(model->dtype);
}
