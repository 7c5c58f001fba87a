/* SPDX-License-Identifier: Apache-2.0 */
/* sgemm and sgemv behind a lock where OpenBLAS has none. One row is a matrix-vector product: no packing of K or V. */
#include "kernels/blas.h"

#include <cblas.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

bool kvb_blas_concurrent(void)
{
    return openblas_get_parallel() != OPENBLAS_SEQUENTIAL;
}

void kvb_blas_confine(void)
{
    /* Asked first: setting the number wakes a pool of threads that a fork had ended. */
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
}

static void turn_take(void)
{
    if (!kvb_blas_concurrent())
        pthread_mutex_lock(&turn);
}

static void turn_end(void)
{
    if (!kvb_blas_concurrent())
        pthread_mutex_unlock(&turn);
}

void kvb_scores_multiply(float *s, int s_ld, const float *q, int q_ld, const float *k, int k_ld, int rows, int n,
                         int dim)
{
    if (rows == 1) /* from zeros, with beta 1: s may hold NaN, and not every sgemv takes beta 0 as "do not read y" */
        memset(s, 0, (size_t)n * sizeof *s);
    turn_take();
    if (rows == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, n, dim, 1.0f, k, k_ld, q, 1, 1.0f, s, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, n, dim, 1.0f, q, q_ld, k, k_ld, 0.0f, s, s_ld);
    turn_end();
}

void kvb_sums_multiply(float *o, const float *w, int w_ld, const float *v, int v_ld, int rows, int n, int dim)
{
    turn_take();
    if (rows == 1)
        cblas_sgemv(CblasRowMajor, CblasTrans, n, dim, 1.0f, v, v_ld, w, 1, 1.0f, o, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, dim, n, 1.0f, w, w_ld, v, v_ld, 1.0f, o, dim);
    turn_end();
}
