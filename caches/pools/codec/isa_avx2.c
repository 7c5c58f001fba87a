/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs compiled for avx2. */
#if defined(__x86_64__)
#include <stdbool.h>

static bool available(void)
{
    return __builtin_cpu_supports("avx2");
}

#define KVB_ISA_NAME  "avx2"
#define KVB_ISA_TABLE kvb_codec_avx2
#include "caches/pools/codec/isa.h"
#endif
