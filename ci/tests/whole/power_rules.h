/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By which rules other projects' tests of attention pass an output, as their sources have them (read in November 2026).
 * Each is given what it is most at home with: the exact output over the stored rows for its reference, and the type
 * that it is for. Nothing of theirs is copied but the numbers. Include after power_rig.h.
 */
#ifndef KVB_TEST_POWER_RULES_H
#define KVB_TEST_POWER_RULES_H

#include <float.h>

#include "ci/tests/whole/power_rig.h"
#include "oracle/oracle.h"

/* What a rule compares: n elements of an output, the exact ones, their type, and what pytorch would compute in that
 * type. */
typedef struct power_outputs {
    const float *got;
    const double *exact, *low_precision;
    kvb_elem type; /* KVB_F16, KVB_BF16, or KVB_F32 */
    bool fp8;      /* K and V are */
} power_outputs;

typedef struct power_rule {
    const char *name, *source;
    bool (*passes)(const power_outputs *o);
} power_rule;

enum { ELEMENTS = ROWS * DIM };

static inline bool power_tolerated(const power_outputs *o, kvb_tolerance rule)
{
    kvb_closeness close = {0};
    kvb_closeness_row(&close, &rule, KVB_F32, o->got, ELEMENTS, o->exact, 1);
    return kvb_closeness_share(&close, &rule) <= 1;
}

static inline bool power_all_close(const power_outputs *o, double atol, double rtol)
{
    return power_tolerated(o, (kvb_tolerance){KVB_TOLERANCE_CLOSE, atol, rtol, ""});
}

static inline bool power_ggml(const power_outputs *o)
{
    return power_tolerated(o, (kvb_tolerance){KVB_TOLERANCE_NMSE, 5e-4, 0, ""});
}

static inline bool power_vllm(const power_outputs *o)
{
    return o->fp8 ? power_all_close(o, 0.2, 0.1) : power_all_close(o, 1.5e-2, 1e-2);
}

static inline bool power_sglang(const power_outputs *o)
{
    double dot = 0, got2 = 0, exact2 = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        dot += (double)o->got[i] * o->exact[i];
        got2 += (double)o->got[i] * (double)o->got[i];
        exact2 += o->exact[i] * o->exact[i];
    }
    return dot > 0.99 * sqrt(got2) * sqrt(exact2) && power_all_close(o, 3e-2, 1e-6);
}

/* FlashAttention: at most twice the error of pytorch in low precision, and 1e-5. */
static inline bool power_flash_attention(const power_outputs *o)
{
    double got = 0, low = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double error = fabs((double)o->got[i] - o->exact[i]);
        got = error > got || isnan(error) ? error : got;
        low = fmax(low, fabs(o->low_precision[i] - o->exact[i]));
    }
    return got <= 2 * low + 1e-5;
}

static inline float power_round(float x, kvb_elem type)
{
    uint16_t bits;
    if (type == KVB_F32)
        return x;
    kvb_elems_encode(type, &bits, &x, 1);
    kvb_elems_decode(type, &x, &bits, 1);
    return x;
}

/* benchdnn: rounds both to the type, and judges each element's relative error. If at most 1 of 1024 elements fails, it
 * judges the relative L2 error of all of them. */
static inline bool power_benchdnn(const power_outputs *o)
{
    const double threshold = o->type == KVB_F32 ? 1e-6 : o->type == KVB_F16 ? 0x1p-10 : 0x1p-7;
    double error2 = 0, exact2 = 0;
    size_t failed = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double want = (double)power_round((float)o->exact[i], o->type), got = (double)power_round(o->got[i], o->type);
        double error = fabs(got - want), size = fabs(want);
        error2 += error * error;
        exact2 += want * want;
        failed += !((size > 1e-5 ? error / size : error) <= threshold);
    }
    return failed == 0 || (failed <= ELEMENTS / 1024 && sqrt(error2) <= 1e-4 * sqrt(exact2));
}

static const power_rule power_rules[] = {
    {"ggml", "ggml-org/llama.cpp tests/test-backend-ops.cpp: test_flash_attn_ext::max_nmse_err, 5e-4", power_ggml},
    {"vLLM",
     "vllm-project/vllm tests/kernels/attention/test_cpu_attn.py: atol 1.5e-2, rtol 1e-2; fp8 atol 0.2, rtol 0.1",
     power_vllm},
    {"SGLang", "sgl-project/sglang test/srt/cpu/test_decode.py: cosine > 0.99, atol 3e-2, rtol 1e-6", power_sglang},
    {"FlashAttention",
     "Dao-AILab/flash-attention hopper/test_flash_attn.py: largest error <= 2 x that of pytorch in low precision + "
     "1e-5",
     power_flash_attention},
    {"benchdnn",
     "oneapi-src/oneDNN tests/benchdnn: matmul.cpp setup_cmp (1e-6 for f32, else the type's epsilon), "
     "utils/compare.cpp, and "
     "graph/ref_primitive.cpp (1 of 1024 may fail if the relative L2 error is at most 1e-4)",
     power_benchdnn},
};
enum { RULES = sizeof power_rules / sizeof *power_rules };

/*
 * Attention as pytorch does it in f16 or bf16, which FlashAttention's tests take for a yardstick (attention_ref with
 * upcast=False, reorder_ops=True): K / sqrt(dim), scores, softmax and output are rounded to the type; sums are not.
 */
static inline void power_low_precision(const filled *r, kvb_elem type, double *out)
{
    static float k[DIM], v[DIM];
    float scale = (float)r->spec->group->scale, *scores = malloc((size_t)r->cells * sizeof *scores);
    const float *q = filled_q(r, 0);
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t head = row % HEADS / (HEADS / KV_HEADS), n = r->cells - QUERIES + row / HEADS + 1;
        double max = -INFINITY, sum = 0, *to = out + (size_t)row * DIM;
        for (uint32_t i = 0; i < n; i++) {
            double s = 0;
            r->spec->k.format->read(&r->spec->k, head, i, 1, k);
            for (uint32_t c = 0; c < DIM; c++)
                s += (double)q[row * DIM + c] * (double)power_round(k[c] * scale, type);
            scores[i] = power_round((float)s, type);
            max = fmax(max, (double)scores[i]);
        }
        for (uint32_t i = 0; i < n; i++)
            sum += exp((double)scores[i] - max);
        memset(to, 0, DIM * sizeof *to);
        for (uint32_t i = 0; i < n; i++) {
            double p = (double)power_round((float)(exp((double)scores[i] - max) / sum), type);
            r->spec->v.format->read(&r->spec->v, head, i, 1, v);
            for (uint32_t c = 0; c < DIM; c++)
                to[c] += p * (double)v[c];
        }
        for (uint32_t c = 0; c < DIM; c++)
            to[c] = (double)power_round((float)to[c], type);
    }
    free(scores);
}

#endif
