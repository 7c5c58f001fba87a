/* SPDX-License-Identifier: Apache-2.0 */
/* Asks kernels' supports(). */
#include "harness/native.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool kvb_kernel_reads(const kvb_kernel *kernel, const kvb_format *k, const kvb_format *v)
{
    char why[256];
    kvb_problem problem = {
        .n_tok = 1,
        .n_heads = 8,
        .n_kv_heads = 2,
        .k_dim = 128,
        .v_dim = 128,
        .n_cells = 256,
        .scale = 1,
        .out_elem = KVB_F32,
        .mask = kernel->masks & KVB_MASK_BIT(KVB_MASK_NONE) ? KVB_MASK_NONE : KVB_MASK_EXPLICIT,
        .k_format = k,
        .v_format = v,
    };
    return kernel->supports(&problem, why, sizeof why);
}

/* Appends a name to a list of them. */
static void name_add(char *text, size_t bytes, const char *name)
{
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", name);
}

int kvb_native_check(const kvb_selection *s, const kvb_parts *parts, char *why, size_t why_bytes)
{
    for (size_t p = 0; p < s->n_pools; p++) {
        const kvb_format *k = s->pools[p].k->format, *v = s->pools[p].v->format;
        char kernels[256] = "", pools[512] = "";
        bool read = false;
        for (size_t i = 0; i < s->n_kernels && !read; i++)
            read = kvb_kernel_reads(s->kernels[i], k, v);
        if (read)
            continue;
        for (size_t i = 0; i < parts->n[KVB_SORT_KERNEL]; i++)
            if (kvb_kernel_reads(parts->at[KVB_SORT_KERNEL][i].definition, k, v))
                name_add(kernels, sizeof kernels, parts->at[KVB_SORT_KERNEL][i].name);
        for (size_t i = 0; i < parts->n[KVB_SORT_POOL]; i++) {
            const kvb_pool_type *pool = parts->at[KVB_SORT_POOL][i].definition;
            bool any = false;
            for (size_t j = 0; j < s->n_kernels && !any; j++)
                any = kvb_kernel_reads(s->kernels[j], pool->format, pool->format);
            if (any)
                name_add(pools, sizeof pools, pool->name);
        }
        snprintf(why, why_bytes,
                 "--no-staging: no selected kernel reads pool k=%s,v=%s; kernels that do: %s; pools that the selected "
                 "kernels read: %s",
                 s->pools[p].k->name, s->pools[p].v->name, *kernels ? kernels : "none", *pools ? pools : "none");
        return -EINVAL;
    }
    return 0;
}
