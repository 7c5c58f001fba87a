/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs compiled for avx512. */
#if defined(__x86_64__)
#include <stdbool.h>

static bool available(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#define KVB_ISA_NAME  "avx512"
#define KVB_ISA_TABLE kvb_codec_avx512
#include "caches/pools/codec/isa.h"
#endif
