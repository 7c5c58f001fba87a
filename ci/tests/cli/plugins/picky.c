/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in of kernels that are never called, for the output of `kvbench list kernels`. */
#include "attend.h"

#include <stdio.h>
#include <string.h>

static bool decline(char *why, size_t why_bytes, const char *text)
{
    snprintf(why, why_bytes, "%s", text);
    return false;
}

/* Only K in f16 or q8_0, V in f16, dims that are multiples of 64, and f32 out. */
static bool supports_some(const kvb_problem *p, char *why, size_t n)
{
    if (strcmp(p->k_format->name, "f16") && strcmp(p->k_format->name, "q8_0"))
        return decline(why, n, "K in f16 or q8_0 only");
    if (strcmp(p->v_format->name, "f16"))
        return decline(why, n, "V in f16 only");
    if (p->k_dim % 64 || p->v_dim % 64)
        return decline(why, n, "not a multiple of 64");
    if (p->out_elem != KVB_F32)
        return decline(why, n, "f32 out only");
    return !p->v_in_k && !p->has_sinks && p->softcap == 0 ? true : decline(why, n, "the plain case only");
}

static bool supports_none(const kvb_problem *p, char *why, size_t n)
{
    (void)p;
    return decline(why, n, "not finished");
}

static bool nowhere(char *why, size_t n)
{
    return decline(why, n, "no such CPU was built");
}

static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    (void)p;
    *a = (kvb_arithmetic){.dot_chain = 1};
}

static int attend(const kvb_attend *a)
{
    (void)a;
    return -38;
}

static const kvb_kernel some = {.name = "picky",
                                .summary = "some problems",
                                .masks = KVB_MASK_BIT(KVB_MASK_NONE) | KVB_MASK_BIT(KVB_MASK_EXPLICIT),
                                .flags = KVB_KERNEL_VECTOR,
                                .supports = supports_some,
                                .arithmetic = arithmetic,
                                .attend = attend};
static const kvb_kernel none = {.name = "none",
                                .summary = "no problem",
                                .masks = KVB_MASK_BIT(KVB_MASK_EXPLICIT),
                                .available = nowhere,
                                .supports = supports_none,
                                .arithmetic = arithmetic,
                                .attend = attend};
static const kvb_kernel *const kernels[] = {&some, &none, NULL};
KVB_PLUGIN_EXPORT extern const kvb_plugin_v1 kvb_plugin;
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "picky", .kernels = kernels};
