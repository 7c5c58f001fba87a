/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/selection/scan_kernel.h"

#include <stdio.h>

#include "caches/scan_call.h"
#include "harness/selection/registry.h"
#include "kernels/kernels.h"

#define STANDS_FOR_SCAN (1u << 31) /* among the flags of a stand-in: no plug-in's */

static struct stand_in {
    kvb_kernel kernel;
    const kvb_scan_kernel *scan;
} stand_ins[2 * KVB_REGISTRY_MAX];

const kvb_kernel *kvb_scan_stand_in(const kvb_scan_kernel *scan)
{
    size_t i = 0;
    while (i < sizeof stand_ins / sizeof *stand_ins && stand_ins[i].scan && stand_ins[i].scan != scan)
        i++;
    if (i == sizeof stand_ins / sizeof *stand_ins)
        return NULL;
    stand_ins[i].scan = scan;
    stand_ins[i].kernel = kvb_kernel_flash;
    stand_ins[i].kernel.name = scan->name;
    stand_ins[i].kernel.summary = scan->summary;
    stand_ins[i].kernel.available = scan->available;
    stand_ins[i].kernel.flags |= STANDS_FOR_SCAN;
    return &stand_ins[i].kernel;
}

const kvb_scan_kernel *kvb_scan_behind(const kvb_kernel *kernel)
{
    size_t i = 0;
    if (!(kernel->flags & STANDS_FOR_SCAN))
        return NULL;
    while (stand_ins[i].scan->name != kernel->name)
        i++;
    return stand_ins[i].scan;
}

const kvb_kernel *kvb_kernel_of_attention(const kvb_kernel *kernel)
{
    const kvb_scan_kernel *behind = kvb_scan_behind(kernel);
    return behind && kernel == kvb_scan_stand_in(behind) ? &kvb_kernel_flash
                                                         : kernel; /* a copy is flash but for its name */
}

const kvb_scan_kernel *kvb_kernel_of_scans(const kvb_kernel *kernel)
{
    const kvb_scan_kernel *behind = kvb_scan_behind(kernel);
    return behind ? behind : &kvb_scan_kernel_vector;
}

static bool model_attends(const kvb_model *model)
{
    uint32_t g = 0;
    while (g < model->n_groups && kvb_group_scans(&model->groups[g]))
        g++;
    return g < model->n_groups;
}

bool kvb_kernel_fits(const kvb_kernel *kernel, const kvb_model *model, kvb_elem out_elem, char *why, size_t why_bytes)
{
    const kvb_scan_kernel *behind = kvb_scan_behind(kernel), *scan = kvb_kernel_of_scans(kernel);
    if (behind ? !kvb_model_scans(model) : !model_attends(model)) {
        snprintf(why, why_bytes,
                 behind ? "no layer scans: there is nothing for scan kernel %s to run"
                        : "no layer attends, all scan: there is nothing for kernel %s to run",
                 kernel->name);
        return false;
    }
    if (kvb_model_scans(model) && scan->available && !scan->available(why, why_bytes))
        return false;
    for (uint32_t g = 0; g < model->n_groups; g++)
        for (int conv = 0; kvb_group_scans(&model->groups[g]) && conv < 2; conv++) {
            const kvb_group_scan *s = &model->groups[g].scan;
            if (conv && !s->conv_width)
                continue;
            const kvb_scan_problem problem = kvb_scan_call_problem(s, conv, out_elem, 1, 1);
            if (!scan->supports(&problem, why, why_bytes))
                return false;
        }
    return true;
}

const char *kvb_kernel_beside(const kvb_kernel *kernel, const kvb_model *model)
{
    const bool both = kvb_model_scans(model) && model_attends(model) && !(kernel->flags & KVB_KERNEL_WITNESS);
    return !both ? "" : kvb_scan_behind(kernel) ? kvb_kernel_flash.name : kvb_scan_kernel_vector.name;
}
