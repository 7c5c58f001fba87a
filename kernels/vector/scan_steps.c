/* SPDX-License-Identifier: Apache-2.0 */
/* Token by token: a strip of columns of the state is read once, and written once. The delta rule reads it twice. */
#include "kernels/vector/vec.h"
#include "kernels/vector/vector.h"

#define STRIP 4u /* vectors of a strip */

VEC_INLINE vf state_load(kvb_elem elem, const void *row, uint32_t c)
{
    return elem == KVB_F32   ? vf_load((const float *)row + c)
           : elem == KVB_F16 ? vf_load_f16((const uint16_t *)row + c)
                             : vf_load_bf16((const uint16_t *)row + c);
}

VEC_INLINE void state_store(kvb_elem elem, void *row, uint32_t c, vf x)
{
    if (elem == KVB_F32)
        vf_store((float *)row + c, x);
    else if (elem == KVB_F16)
        vf_store_f16((uint16_t *)row + c, x);
    else
        vf_store_bf16((uint16_t *)row + c, x);
}

/* Prefetches half h % 2 of row h / 2 of a strip that is read later. */
VEC_INLINE void half_prefetch(const char *strip, size_t row, uint32_t half, uint32_t h)
{
#pragma GCC unroll 2
    for (uint32_t at = 0; at < half; at += 64)
        __builtin_prefetch(strip + h / 2 * row + h % 2 * half + at, 0, 2);
}

/* A row of a strip, for states that begin as zeros. States that are not stored go to `nowhere`, which is never read. */
static const _Alignas(64) float zeros[STRIP * VL];
VEC_INLINE void strip_step(const kvb_scan_step *t, kvb_scan_kind kind, kvb_elem elem, uint32_t vecs, uint32_t c)
{
    const uint32_t bytes = elem == KVB_F32 ? 4 : 2;
    const size_t row = (size_t)t->row * bytes, from_row = t->from ? row : 0, to_row = t->to ? row : 0;
    float nowhere[STRIP * VL];
    const char *from = t->from ? (const char *)t->from + c * bytes : (const char *)zeros;
    char *to = t->to ? (char *)t->to + c * bytes : (char *)nowhere;
    vf write[STRIP], out[STRIP], exponent[STRIP];
    /* What is prefetched: the next strip, or the next head's first. Each pass of the delta rule prefetches half of it. */
    const uint32_t half = vecs * VL * bytes / 2;
    const char *ahead =
        from + (c + vecs * VL < t->columns || kind == KVB_SCAN_MAMBA1 ? 2 * half : t->d_k * row - c * bytes);

#pragma GCC unroll 4
    for (uint32_t v = 0; v < vecs; v++) {
        const vf x = vf_load(t->v + c + v * VL);
        out[v] = t->add ? vf_load(t->out + c + v * VL) : vf_set(0);
        write[v] = vf_set(0);
        exponent[v] = vf_set(t->decay);
        if (kind == KVB_SCAN_MAMBA1) {
            const vf gate = vf_load(t->gates + c + v * VL);
            exponent[v] = gate * vf_set(0x1.715476p+0f); /* log2(e) */
            write[v] = gate * x;
        } else if (kind != KVB_SCAN_DELTA) {
            write[v] = vf_set(t->gate) * x;
        }
    }
    if (kind == KVB_SCAN_DELTA) {
        for (uint32_t i = 0; i < t->d_k; i++) {
            half_prefetch(ahead, from_row, half, i);
#pragma GCC unroll 4
            for (uint32_t v = 0; v < vecs; v++)
                write[v] = vf_fma(vf_set(t->k[i]), state_load(elem, from + i * from_row, v * VL), write[v]);
        }
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++)
            write[v] = vf_set(t->gate) * (vf_load(t->v + c + v * VL) - vf_set(t->decay) * write[v]);
    }
    for (uint32_t i = 0; i < t->d_k; i++, from += from_row, to += to_row) {
        const vf k = vf_set(t->k[i]), q = vf_set(t->q[i]);
        if (kind != KVB_SCAN_DELTA)
            half_prefetch(ahead, from_row, half, 2 * i);
        half_prefetch(ahead, from_row, half, kind == KVB_SCAN_DELTA ? t->d_k + i : 2 * i + 1);
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++) {
            vf decay = exponent[v];
            if (kind == KVB_SCAN_MAMBA1)
                decay = vf_exp2(decay * vf_load(t->a + (size_t)i * t->a_row + c + v * VL));
            const vf s = vf_fma(decay, state_load(elem, from, v * VL), k * write[v]);
            state_store(elem, to, v * VL, s);
            __asm__ volatile("" ::: "memory"); /* so that gcc reads *t again, which is faster: kernels/NOTES.md */
            out[v] = vf_fma(q, s, out[v]);
        }
    }
#pragma GCC unroll 4
    for (uint32_t v = 0; v < vecs; v++)
        vf_store(t->out + c + v * VL, out[v]);
}

VEC_INLINE void columns_step(const kvb_scan_step *t, kvb_scan_kind kind, kvb_elem elem)
{
    uint32_t c = 0;
    for (; c + STRIP * VL <= t->columns; c += STRIP * VL)
        strip_step(t, kind, elem, STRIP, c);
    for (; c < t->columns; c += VL)
        strip_step(t, kind, elem, 1, c);
}

#define ELEMS(KIND)                                                                                                    \
    if (t->elem == KVB_F32)                                                                                            \
        columns_step(t, KIND, KVB_F32);                                                                                \
    else if (t->elem == KVB_F16)                                                                                       \
        columns_step(t, KIND, KVB_F16);                                                                                \
    else                                                                                                               \
        columns_step(t, KIND, KVB_BF16);

void KVB_ISA_NAME(kvb_scan_token)(const kvb_scan_step *t)
{
    if (t->kind == KVB_SCAN_MAMBA1) {
        ELEMS(KVB_SCAN_MAMBA1)
    } else if (t->kind == KVB_SCAN_DELTA) {
        ELEMS(KVB_SCAN_DELTA)
    } else {
        ELEMS(KVB_SCAN_MAMBA2)
    }
}

/* The row and outputs of the next token are prefetched: they are far away. */
VEC_INLINE void taps_take(uint32_t taps, uint32_t d_v, uint32_t columns, const float *const *rows, const float *a,
                          const float *bias, bool silu, float *out, bool streams)
{
    for (uint32_t c = 0; c < columns; c += VL) {
        vf z = bias ? vf_load(bias + c) : vf_set(0);
        if (taps)
            __builtin_prefetch(rows[taps - 1] + d_v + c);
        if (!streams)
            __builtin_prefetch(out + d_v + c, 1);
        for (uint32_t i = 0; i < taps; i++)
            z = vf_fma(vf_load(a + (size_t)i * d_v + c), vf_load(rows[i] + c), z);
        if (silu) /* for exp(-z) beyond 2^126 the result is z 2^-126: below exp_floor */
            z = z / (vf_set(1) + vf_exp2(vf_min(vf_set(126), z * vf_set(-0x1.715476p+0f))));
        if (streams)
            vf_stream(out + c, z);
        else
            vf_store(out + c, z);
    }
}

void KVB_ISA_NAME(kvb_scan_taps)(uint32_t taps, uint32_t n, uint32_t d_v, uint32_t columns, const float *const *rows,
                                 const float *a, const float *bias, bool silu, float *out, bool streams)
{
    for (uint32_t t = 0; t < n; t++, out += d_v)
        if (taps == 4)
            taps_take(4, d_v, columns, rows + t, a, bias, silu, out, streams);
        else
            taps_take(taps, d_v, columns, rows + t, a, bias, silu, out, streams);
    vf_stream_end();
}
