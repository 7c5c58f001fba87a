/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/selection/faces.h"

#include <errno.h>
#include <stdio.h>

#include "caches/scan_call.h"
#include "kernels/kernels.h"

uint8_t kvb_model_layers(const kvb_model *model)
{
    uint8_t layers = 0;
    for (uint32_t g = 0; g < model->n_groups; g++)
        layers |= kvb_group_scans(&model->groups[g]) ? KVB_LAYERS_SCAN : KVB_LAYERS_ATTEND;
    return layers;
}

uint8_t kvb_kernel_layers(const kvb_kernel *kernel)
{
    return (uint8_t)((kernel->attend ? KVB_LAYERS_ATTEND : 0) | (kernel->scan ? KVB_LAYERS_SCAN : 0));
}

const kvb_kernel *kvb_kernel_attending(const kvb_kernel *kernel)
{
    return kernel->attend ? kernel : &kvb_kernel_flash;
}

const kvb_kernel *kvb_kernel_scanning(const kvb_kernel *kernel)
{
    return kernel->scan ? kernel : &kvb_kernel_scan;
}

bool kvb_kernel_fits(const kvb_kernel *kernel, const kvb_model *model, kvb_elem out_elem, char *why, size_t why_bytes)
{
    const kvb_kernel *scans = kvb_kernel_scanning(kernel);
    if (!(kvb_kernel_layers(kernel) & kvb_model_layers(model))) {
        snprintf(why, why_bytes,
                 kernel->scan ? "no layer scans: there is nothing for scan kernel %s to run"
                              : "no layer attends, all scan: there is nothing for kernel %s to run",
                 kernel->name);
        return false;
    }
    if (kvb_model_scans(model) && scans->available && !scans->available(why, why_bytes))
        return false;
    for (uint32_t g = 0; g < model->n_groups; g++)
        for (int conv = 0; kvb_group_scans(&model->groups[g]) && conv < 2; conv++) {
            const kvb_group_scan *s = &model->groups[g].scan;
            if (conv && !s->conv_width)
                continue;
            const kvb_scan_problem problem = kvb_scan_call_problem(s, conv, out_elem, 1, 1);
            if (!scans->scan->supports(&problem, why, why_bytes))
                return false;
        }
    return true;
}

const char *kvb_kernel_beside(const kvb_kernel *kernel, const kvb_model *model)
{
    const uint8_t others = kvb_model_layers(model) & (uint8_t)~kvb_kernel_layers(kernel);
    if (kernel->flags & KVB_KERNEL_WITNESS || others == kvb_model_layers(model))
        return "";
    return others & KVB_LAYERS_ATTEND ? kvb_kernel_flash.name : others ? kvb_kernel_scan.name : "";
}

/* ---- defaults ---------------------------------------------------------------------------------------------------- */

#define KVB_KERNELS_COMPLETED 256u

static bool supports_all(const kvb_problem *problem, char *why, size_t why_bytes)
{
    (void)problem, (void)why, (void)why_bytes;
    return true;
}

static int attend_never(const kvb_attend *args)
{
    (void)args;
    return -ENOSYS;
}

const kvb_kernel kvb_kernel_best = {
    .name = "best",
    .summary = "whichever kernel was the fastest in an earlier run",
    .attend = attend_never,
    .masks = KVB_MASK_BIT(KVB_MASK_EXPLICIT),
    .supports = supports_all,
};

static bool supports_plain(const kvb_problem *p, char *why, size_t why_bytes)
{
    const char *lack = !kvb_format_is_f32(p->k_format) || !kvb_format_is_f32(p->v_format) ? "rows of f32 only"
                       : p->out_elem != KVB_F32                                           ? "out in f32 only"
                       : p->softcap != 0                                                  ? "no softcap"
                       : p->has_sinks                                                     ? "no sinks"
                                                                                          : NULL;
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

static bool scan_supports_all(const kvb_scan_problem *problem, char *why, size_t why_bytes)
{
    (void)problem, (void)why, (void)why_bytes;
    return true;
}

const kvb_kernel *kvb_kernel_complete(const kvb_kernel *kernel)
{
    static struct whole {
        const kvb_kernel *of;
        kvb_kernel kernel;
        kvb_scan_face scan;
    } wholes[KVB_KERNELS_COMPLETED];
    struct whole *w = wholes;
    const bool lacks = (kernel->attend && (!kernel->masks || !kernel->supports || !kernel->arithmetic)) ||
                       (kernel->scan && (!kernel->scan->supports || !kernel->scan->arithmetic));
    while (lacks && w < wholes + KVB_KERNELS_COMPLETED && w->of && w->of != kernel)
        w++;
    if (!lacks || w == wholes + KVB_KERNELS_COMPLETED)
        return lacks ? NULL : kernel;
    *w = (struct whole){.of = kernel, .kernel = *kernel};
    if (kernel->attend) {
        const bool plain = kernel->flags & KVB_KERNEL_PLAIN;
        w->kernel.masks = kernel->masks ? kernel->masks : KVB_MASKS_ALL;
        w->kernel.supports = kernel->supports ? kernel->supports : plain ? supports_plain : supports_all;
        w->kernel.arithmetic = kernel->arithmetic ? kernel->arithmetic : kvb_arithmetic_plain;
    }
    if (kernel->scan) {
        w->scan = *kernel->scan;
        w->scan.supports = w->scan.supports ? w->scan.supports : scan_supports_all;
        w->scan.arithmetic = w->scan.arithmetic ? w->scan.arithmetic : kvb_kernel_scan_reference.scan->arithmetic;
        w->kernel.scan = &w->scan;
    }
    return &w->kernel;
}
