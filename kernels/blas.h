/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two products of attention by OpenBLAS, safe to call from several threads at once.
 *
 * A sequential OpenBLAS (Debian's libopenblas-serial) is built without locks: two threads may be handed
 * the same packing buffer, and then the products are wrong, about one in twenty on two cores (OpenBLAS
 * 0.3.21; OpenBLAS issues 2126 and 2711 say why). With such a build products take turns, under a mutex. A threaded
 * build guards its buffers; it is told to use one thread, and the team's threads run side by side.
 */
#ifndef KVB_BLAS_H
#define KVB_BLAS_H

#include <stdbool.h>

/* Keep a threaded OpenBLAS to the thread that calls it. Not while another thread is in a product. */
void kvb_blas_confine(void);

/* Do products of several threads run side by side? */
bool kvb_blas_concurrent(void);

/* s [rows][n] = q [rows][dim] . k [n][dim]^T. The *_ld are floats from one row to the next. */
void kvb_scores_multiply(float *s, int s_ld, const float *q, int q_ld, const float *k, int k_ld, int rows, int n,
                         int dim);

/* o [rows][dim], packed, += w [rows][n] . v [n][dim] */
void kvb_sums_multiply(float *o, const float *w, int w_ld, const float *v, int v_ld, int rows, int n, int dim);

#endif
