/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody's ggml, loaded at run time. Nothing of ggml is compiled in: its functions are declared here, found by name
 * when they are first needed, and what is assumed of its structs is tried out before anything rests on it.
 */
#ifndef KVB_GGML_ENGINE_H
#define KVB_GGML_ENGINE_H

#include "kernels/attend.h"

/* ggml's struct of a tensor. `ne`: elements along each axis, the fastest first; `nb`: bytes from one to the next. */
typedef struct ggml_tensor {
    int32_t type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
    int32_t op, op_params[16], flags;
    struct ggml_tensor *src[10], *view_src;
    size_t view_offs;
    void *data;
    char name[64];
    void *extra;
    char padding[8];
} ggml_tensor;

typedef struct ggml_context ggml_context; /* an arena of tensors and graphs */
typedef struct ggml_cgraph ggml_cgraph;
typedef void *ggml_handle; /* a backend, a device, a registry, a pool of threads */

/* Where tensors are made. */
typedef struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc; /* tensors get no data */
} ggml_init_params;

#define GGML_CPUS 512
typedef struct ggml_threadpool_params {
    bool cpumask[GGML_CPUS];
    int n_threads, prio;
    uint32_t poll; /* how long threads look for work before they sleep: 0 .. 100 */
    bool strict_cpu, paused;
} ggml_threadpool_params;

/* The functions used: by name in the library (engine.c). */
typedef struct engine_api {
    const char *(*version)(void), *(*commit)(void);
    void (*log_set)(void (*log)(int level, const char *text, void *ctx), void *ctx);
    size_t (*type_size)(int type);
    int64_t (*blck_size)(int type);
    const char *(*type_name)(int type);
    size_t (*tensor_overhead)(void), (*graph_overhead_custom)(size_t size, bool grads);
    size_t (*nbytes)(const ggml_tensor *tensor);
    void *(*get_data)(const ggml_tensor *tensor);
    const char *(*get_name)(const ggml_tensor *tensor);
    ggml_context *(*init)(ggml_init_params params);
    void (*reset)(ggml_context *context), (*free)(ggml_context *context);
    ggml_tensor *(*new_tensor_4d)(ggml_context *context, int type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);
    ggml_tensor *(*flash_attn_ext)(ggml_context *context, ggml_tensor *q, ggml_tensor *k, ggml_tensor *v,
                                   ggml_tensor *mask, float scale, float max_bias, float softcap);
    void (*flash_attn_ext_add_sinks)(ggml_tensor *attention, ggml_tensor *sinks);
    void (*flash_attn_ext_set_prec)(ggml_tensor *attention, int precision);
    ggml_tensor *(*mul_mat)(ggml_context *context, ggml_tensor *a, ggml_tensor *b);
    void (*mul_mat_set_prec)(ggml_tensor *product, int precision);
    ggml_tensor *(*soft_max_ext)(ggml_context *context, ggml_tensor *a, ggml_tensor *mask, float scale, float max_bias);
    void (*soft_max_add_sinks)(ggml_tensor *weights, ggml_tensor *sinks);
    ggml_tensor *(*scale)(ggml_context *context, ggml_tensor *a, float factor);
    ggml_tensor *(*tanh)(ggml_context *context, ggml_tensor *a), *(*cont)(ggml_context *context, ggml_tensor *a);
    ggml_tensor *(*transpose)(ggml_context *context, ggml_tensor *a);
    ggml_tensor *(*permute)(ggml_context *context, ggml_tensor *a, int axis0, int axis1, int axis2, int axis3);
    ggml_cgraph *(*new_graph_custom)(ggml_context *context, size_t size, bool grads);
    void (*build_forward_expand)(ggml_cgraph *graph, ggml_tensor *tensor);
    void (*threadpool_params_init)(ggml_threadpool_params *params, int n_threads);
    ggml_handle (*backend_load)(const char *path), (*backend_dev_by_type)(int type);
    ggml_handle (*backend_dev_backend_reg)(ggml_handle device);
    ggml_handle (*backend_dev_init)(ggml_handle device, const char *params);
    void *(*backend_reg_get_proc_address)(ggml_handle registry, const char *name);
    int (*backend_graph_compute)(ggml_handle backend, ggml_cgraph *graph);
    void (*backend_free)(ggml_handle backend);
    /* of the CPU's backend */
    void (*backend_set_n_threads)(ggml_handle backend, int n_threads);
    void (*backend_cpu_set_threadpool)(ggml_handle backend, ggml_handle pool);
    ggml_handle (*threadpool_new)(ggml_threadpool_params *params);
    void (*threadpool_free)(ggml_handle pool);
} engine_api;

enum { GGML_F32, GGML_F16, GGML_PREC_F32 = 10 };

/* ggml's number for an element that the kernels read in place; -1: it is none of these. */
int engine_type(kvb_elem elem);

#define ENGINE_NODES 16u /* steps of one graph at most */

/* Loads the library, once. NULL: why says what is missing. Else why says what was found. */
const engine_api *engine_load(char *why, size_t why_bytes);

/* A context for one call's graph, empty, and a backend whose threads sit where the team's do. They belong to the
 * engine, until the next call. 0, -ENOMEM, or -EINVAL for a team that is too large for ggml. */
int engine_begin(const kvb_team *team, ggml_context **context, ggml_handle *backend);

#endif
