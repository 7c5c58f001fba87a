/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the safetensors reader share. */
#ifndef KVB_SAFETENSORS_INTERNAL_H
#define KVB_SAFETENSORS_INTERNAL_H

#include "workloads/safetensors.h"

const char *kvb_safetensors_path(const kvb_safetensors *file); /* as it was opened, for messages */

#endif
