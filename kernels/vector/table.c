/* SPDX-License-Identifier: Apache-2.0 */
/* The table of functions of the level that is being compiled. */
#include "kernels/vector/vec.h"
#include "kernels/vector/vector.h"

#define FLOATS(f) extern __typeof__(KVB_ISA_NAME(kvb_##f)) KVB_FLOATS_NAME(kvb_##f);
#define ROWS(f)   extern __typeof__(KVB_ISA_NAME(kvb_##f)) KVB_ROWS_NAME(kvb_##f);
#define OWN(f)
KVB_VECTOR_FUNCTIONS(OWN, ROWS, FLOATS)
#undef FLOATS
#undef ROWS
#undef OWN

const kvb_vector KVB_ISA_NAME(kvb_vector) = {.lanes = VL,
#define OWN(f)    .f = KVB_ISA_NAME(kvb_##f),
#define ROWS(f)   .f = KVB_ROWS_NAME(kvb_##f),
#define FLOATS(f) .f = KVB_FLOATS_NAME(kvb_##f),
                                             KVB_VECTOR_FUNCTIONS(OWN, ROWS, FLOATS)
#undef FLOATS
#undef ROWS
#undef OWN
};
