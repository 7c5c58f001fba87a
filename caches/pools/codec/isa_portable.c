/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs compiled for any CPU. */
#include <stdbool.h>

static bool available(void)
{
    return true;
}

#define KVB_ISA_NAME  "portable"
#define KVB_ISA_TABLE kvb_codec_portable
#include "caches/pools/codec/isa.h"
