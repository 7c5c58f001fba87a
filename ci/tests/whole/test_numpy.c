/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the whole oracle (history, limits of groups, rows, solve) answers as numpy_attention.py does, which shares
 * nothing with it: every row of the recorded workloads, of one whose layers differ in everything, and with caps and
 * sinks.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include <stdlib.h>
#include <string.h>

#include "oracle/oracle.h"
#include "workloads/safetensors.h"

enum { LAYERS = 16, TENSORS = 4 * LAYERS + 3 };
static const char python[] = "/usr/bin/python3"; /* Debian's, which has its numpy */

static const struct scene {
    const char *trace; /* of $KVB_WORKLOADS; with a slash a path */
    float softcap;     /* 0: its own */
    bool sinks;        /* seeded ones */
} scenes[] = {
    {"plain-decode", 0, false},      {"agent-fork", 0, false},
    {"batched-multi-seq", 5, false}, {"parallel-sample", 0, true},
    {"eagle-tree", 0, false},        {"sliding-window", 0, false},
    {"sink-window", 2, true},        {"ci/tests/whole/groups.jsonl", 0, false},
    {"mla-decode", 0, false},        {"gpt-oss-like", 0, false},
    {"chunked-local", 0, false},     {"context-shift", 0, false},
    {"evict-rollback", 0, false},    {"ci/tests/whole/shifts.jsonl", 0, false},
    {"prefix-reuse", 0, false},      {"continuous-admission", 0, false},
    {"paged-sharing", 0, false},     {"shared-prompt", 0, false},
    {"beam-search", 0, false},       {"ci/tests/whole/lists.jsonl", 0, false},
    {"save-restore", 0, false},      {"preempt-resume", 0, false},
    {"spec-batch", 0, false},        {"self-extend", 0, false},
};

typedef struct answers {
    kvb_tensor tensors[TENSORS];
    char names[TENSORS][16];
    size_t n;
} answers;

static void tensor_add(answers *a, const char *name, uint32_t layer, kvb_dtype dtype, uint64_t rows, uint64_t heads,
                       uint64_t dim, const void *data)
{
    kvb_tensor *t = &a->tensors[a->n];
    snprintf(a->names[a->n], sizeof *a->names, layer == UINT32_MAX ? "%s" : "%s.%u", name, layer);
    *t = (kvb_tensor){.name = a->names[a->n++],
                      .dtype = dtype,
                      .n_dims = dim     ? 3
                                : heads ? 2
                                        : 1,
                      .dims = {rows, heads, dim},
                      .data = data,
                      .bytes = rows * (heads ? heads : 1) * (dim ? dim : 1) * kvb_dtype_bytes(dtype)};
}

static void values_add(answers *a, const kvb_trace *trace, const kvb_values *values)
{
    for (uint32_t layer = 0; layer < trace->header.model.n_layers; layer++) {
        const kvb_group *g = kvb_model_group(&trace->header.model, layer);
        tensor_add(a, "q", layer, KVB_DTYPE_F32, values->tokens, g->heads, g->k_dim,
                   kvb_values_rows(values, KVB_ROWS_Q, layer, 0));
        tensor_add(a, "k", layer, KVB_DTYPE_F32, values->tokens, g->kv_heads, g->k_dim,
                   kvb_values_rows(values, KVB_ROWS_K, layer, 0));
        if (!g->latent)
            tensor_add(a, "v", layer, KVB_DTYPE_F32, values->tokens, g->kv_heads, g->v_dim,
                       kvb_values_rows(values, KVB_ROWS_V, layer, 0));
        if (g->sink_logits)
            tensor_add(a, "sinks", layer, KVB_DTYPE_F32, g->heads, 0, 0, g->sink_logits);
    }
}

/* The oracle's rows, with what they are over, as a file. */
static void answers_write(const char *path, const kvb_trace *trace, const kvb_values *values, const kvb_oracle *oracle,
                          const char *softcap)
{
    static answers a;
    size_t channels = 0;
    for (size_t i = 0; i < oracle->n_rows; i++)
        channels += kvb_model_group(&trace->header.model, oracle->rows[i].layer)->v_dim;
    int32_t(*rows)[5] = malloc(oracle->n_rows * sizeof *rows);
    double *lse = malloc(oracle->n_rows * sizeof *lse), *out = malloc(channels * sizeof *out);
    size_t at = 0;
    for (size_t i = 0; i < oracle->n_rows; i++) {
        const kvb_expect *e = &oracle->rows[i];
        const int32_t row[5] = {(int32_t)trace->events[e->event].line, (int32_t)e->layer, (int32_t)e->query,
                                (int32_t)e->head, (int32_t)e->visible};
        memcpy(rows[i], row, sizeof row);
        lse[i] = e->lse;
        for (uint32_t c = 0; c < kvb_model_group(&trace->header.model, e->layer)->v_dim; c++)
            out[at++] = e->terms[c].o;
    }
    a.n = 0;
    values_add(&a, trace, values);
    tensor_add(&a, "rows", UINT32_MAX, KVB_DTYPE_I32, oracle->n_rows, 5, 0, rows);
    tensor_add(&a, "lse", UINT32_MAX, KVB_DTYPE_F64, oracle->n_rows, 0, 0, lse);
    tensor_add(&a, "out", UINT32_MAX, KVB_DTYPE_F64, channels, 0, 0, out);
    const char *const facts[] = {"softcap", softcap, NULL};
    char why[300] = "";
    if (kvb_safetensors_write(path, a.tensors, a.n, facts, why, sizeof why))
        fail_msg("%s", why);
    free(rows);
    free(lse);
    free(out);
}

static void scene_check(const struct scene *scene)
{
    static const kvb_format f32 = {.name = "f32", .elem = KVB_F32};
    const kvb_oracle_options options = {.k_format = &f32, .v_format = &f32, .max_pairs = UINT64_MAX};
    const char *folder = getenv("KVB_WORKLOADS"), *base = getenv("TMPDIR");
    char path[600], file[600], command[1400], softcap[32], why[300] = "";
    kvb_trace *trace;
    kvb_values *values;
    kvb_oracle *oracle = NULL;
    const kvb_logit_changes changes = {.softcap = scene->softcap, .sinks = scene->sinks, .seed = 3};
    if (strchr(scene->trace, '/'))
        snprintf(path, sizeof path, "%s", scene->trace);
    else
        snprintf(path, sizeof path, "%s/%s.jsonl", folder ? folder : "workloads/recorded", scene->trace);
    snprintf(file, sizeof file, "%s/answers-%d.safetensors", base ? base : "/tmp", (int)getpid());
    snprintf(softcap, sizeof softcap, "%.9g", (double)scene->softcap);
    if (kvb_trace_load(path, 0, &trace, why, sizeof why))
        fail_msg("%s", why);
    assert_true(trace->header.model.n_layers <= LAYERS);
    if (scene->softcap > 0 || scene->sinks)
        assert_int_equal(kvb_trace_change_logits(trace, &changes), 0);
    if (kvb_values_open(trace, NULL, 0, NULL, NULL, &values, why, sizeof why) ||
        kvb_oracle_open(trace, values, &options, &oracle, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(oracle->n_rows, oracle->total_rows);
    answers_write(file, trace, values, oracle, softcap);
    printf("# %s: ", scene->trace);
    fflush(stdout);
    snprintf(command, sizeof command, "OPENBLAS_NUM_THREADS=1 %s ci/tests/whole/numpy_attention.py %s %s", python, path,
             file);
    int status = system(command);
    unlink(file);
    kvb_oracle_free(oracle);
    kvb_values_free(values);
    kvb_trace_free(trace);
    assert_int_equal(status, 0);
}

static void test_scenes(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "%s -c 'import numpy' 2>/dev/null", python);
    if (system(command))
        skip(); /* no numpy here */
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        scene_check(&scenes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scenes)};
    return cmocka_run_group_tests_name("the oracle against NumPy", tests, NULL, NULL);
}
