/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices. Memory is what nvidia-smi says in public logs ("0MiB / 81559MiB" beside the device's name). What a process
 * sees is less by what the driver keeps: vLLM logs total_gpu_memory (79.11GiB) where nvidia-smi says 79.65.
 */
#include "results/sizing/sizing.h"

#include <strings.h>

#define MIB(n) ((uint64_t)(n) << 20)

static const kvb_device devices[] = {
    {"T4", MIB(15360), false},       {"A10", MIB(23028), false},       {"A10G", MIB(23028), false},
    {"L4", MIB(23034), false},       {"RTX-4090", MIB(24564), false},  {"RTX-3090", MIB(24576), false},
    {"A30", MIB(24576), false},      {"RTX-5090", MIB(32607), false},  {"A100-40GB", MIB(40960), false},
    {"A40", MIB(46068), false},      {"L40S", MIB(46068), false},      {"RTX-A6000", MIB(49140), false},
    {"H100-80GB", MIB(81559), true}, {"A100-80GB", MIB(81920), false}, {"H200-141GB", MIB(143771), true},
    {"B200", MIB(183359), true},
};

const kvb_device *kvb_device_at(size_t i)
{
    return i < sizeof devices / sizeof *devices ? &devices[i] : NULL;
}

const kvb_device *kvb_device_find(const char *name)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcasecmp(devices[i].name, name) == 0)
            return &devices[i];
    return NULL;
}
