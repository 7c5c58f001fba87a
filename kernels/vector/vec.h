/* SPDX-License-Identifier: Apache-2.0 */
/* The vectors of floats of the level that is being compiled: VL lanes, type vf. One header for each; all have the
 * functions of vec_avx512.h. */
#ifndef KVB_VECTOR_VEC_H
#define KVB_VECTOR_VEC_H

#if defined(__AVX512F__)
#include "kernels/vector/vec_avx512.h"
#elif defined(__AVX2__)
#include "kernels/vector/vec_avx2.h"
#else
#include "kernels/vector/vec_portable.h"
#endif

#endif
