/* SPDX-License-Identifier: Apache-2.0 */
/* The check of a model from any source (a trace, a program, a plug-in), names, sizes and rope. */
#include "kernels/model.h"
#include "kernels/convert.h"
#include "kernels/scan.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 4, 5))) static int group_refuse(char *why, size_t why_bytes, uint32_t group,
                                                              const char *format, ...)
{
    va_list args;
    int at = snprintf(why, why_bytes, "group %u: ", group);
    va_start(args, format);
    if (at >= 0 && (size_t)at < why_bytes)
        vsnprintf(why + at, why_bytes - (size_t)at, format, args);
    va_end(args);
    return -EINVAL;
}

const char *kvb_scan_kind_name(uint32_t kind)
{
    static const char *const names[] = {[KVB_SCAN_MAMBA1] = "mamba1",
                                        [KVB_SCAN_MAMBA2] = "mamba2",
                                        [KVB_SCAN_LIGHTNING] = "lightning",
                                        [KVB_SCAN_DELTA] = "delta",
                                        [KVB_SCAN_CONV] = "conv"};
    return names[kind];
}

size_t kvb_group_slot_bytes(const kvb_group *group, bool conv)
{
    const kvb_group_scan *s = &group->scan;
    const size_t elems =
        conv ? (size_t)(s->conv_width ? s->conv_width - 1 : 0) * s->conv_channels : (size_t)s->heads * s->d_k * s->d_v;
    return (elems * ((conv ? s->conv_elem : s->state_elem) == KVB_F32 ? 4 : 2) + 63) / 64 * 64;
}

kvb_rope kvb_rope_usual(const kvb_group *group)
{
    const uint32_t first = group->latent ? group->v_dim : 0;
    return (kvb_rope){.known = true, .base = 10000, .first = first, .dims = (group->k_dim - first) / 2 * 2};
}

void kvb_rope_angles(const kvb_rope *rope, int64_t by, float *angles)
{
    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        /* in double: at long positions a float angle is off by a large part of a turn */
        const double angle = (double)by * pow(rope->base, -2.0 * i / rope->dims);
        angles[i] = (float)cos(angle);
        angles[rope->dims / 2 + i] = (float)sin(angle);
    }
}

void kvb_rope_turn(const kvb_rope *rope, const float *angles, float *row)
{
    const uint32_t half = rope->dims / 2, apart = rope->neighbours ? 1 : half, step = rope->neighbours ? 2 : 1;
    for (uint32_t i = 0; i < half; i++) {
        float *a = row + rope->first + (size_t)step * i, *b = a + apart;
        const float c = angles[i], s = angles[half + i], x = *a, y = *b;
        *a = x * c - y * s;
        *b = x * s + y * c;
    }
}

static int scan_check(const kvb_group *g, uint32_t i, char *why, size_t why_bytes)
{
    const kvb_group_scan *s = &g->scan;
    const struct {
        const char *name;
        uint64_t value;
        uint32_t min, most;
    } sizes[] = {
        {"heads", s->heads, 1, KVB_MODEL_WIDTH},
        {"groups", s->groups, 1, KVB_MODEL_WIDTH},
        {"k_dim", s->d_k, 1, KVB_MODEL_WIDTH},
        {"v_dim", s->d_v, 1, KVB_MODEL_ROW},
        {"groups x k_dim", (uint64_t)s->groups * s->d_k, 1, KVB_MODEL_ROW},
        {"heads x v_dim", (uint64_t)s->heads * s->d_v, 1, KVB_MODEL_ROW},
        {"the convolution's width", s->conv_width, s->conv_width ? 2 : 0, KVB_MODEL_TAPS},
        {"the convolution's channels", s->conv_channels, s->conv_width > 0, s->conv_width ? KVB_MODEL_ROW : 0}};
    if ((unsigned)s->kind >= KVB_SCAN_KINDS || s->kind == KVB_SCAN_CONV)
        return group_refuse(why, why_bytes, i, "there is no recurrence of number %u", (unsigned)s->kind);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        if (sizes[n].value < sizes[n].min || sizes[n].value > sizes[n].most)
            return group_refuse(why, why_bytes, i, "%s is %llu: expected %u .. %u", sizes[n].name,
                                (unsigned long long)sizes[n].value, sizes[n].min, sizes[n].most);
    if (s->heads % s->groups)
        return group_refuse(why, why_bytes, i, "%u heads are no multiple of %u groups", s->heads, s->groups);
    if (s->kind == KVB_SCAN_MAMBA1 && s->heads != 1)
        return group_refuse(why, why_bytes, i, "%u heads: mamba1 has one, of all channels", s->heads);
    if (!kvb_elem_bytes(s->state_elem) || !kvb_elem_bytes(s->conv_elem))
        return group_refuse(why, why_bytes, i, "states are f32, f16 or bf16");
    if (g->heads || g->kv_heads || g->k_dim || g->v_dim || g->latent || g->window || g->sinks || g->chunk ||
        g->rope.known || g->softcap != 0 || g->scale != 0 || g->sink_logits)
        return group_refuse(why, why_bytes, i, "a recurrence attends nothing: it has no rows, limits and logits");
    return 0;
}

static int attend_check(const kvb_group *g, uint32_t i, char *why, size_t why_bytes)
{
    const struct {
        const char *name;
        uint32_t value;
    } sizes[] = {{"heads", g->heads}, {"kv_heads", g->kv_heads}, {"k_dim", g->k_dim}, {"v_dim", g->v_dim}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        if (sizes[s].value < 1 || sizes[s].value > KVB_MODEL_WIDTH)
            return group_refuse(why, why_bytes, i, "%s is %u: expected 1 .. %u", sizes[s].name, sizes[s].value,
                                KVB_MODEL_WIDTH);
    if (g->heads % g->kv_heads)
        return group_refuse(why, why_bytes, i, "%u heads are no multiple of %u kv_heads", g->heads, g->kv_heads);
    if (g->latent && g->v_dim > g->k_dim)
        return group_refuse(why, why_bytes, i, "latent rows of k_dim %u cannot hold v_dim %u", g->k_dim, g->v_dim);
    if (g->window && g->chunk)
        return group_refuse(why, why_bytes, i, "window %u and chunk %u: expected one of them", g->window, g->chunk);
    if (g->sinks && !g->window)
        return group_refuse(why, why_bytes, i, "%u sinks without a window", g->sinks);
    if (g->rope.dims % 2 || g->rope.dims > g->k_dim || g->rope.first > g->k_dim - g->rope.dims)
        return group_refuse(why, why_bytes, i, "rope turns %u dims from %u on: expected an even number within k_dim %u",
                            g->rope.dims, g->rope.first, g->k_dim);
    if (g->rope.dims && !(g->rope.base > 0 && isfinite(g->rope.base)))
        return group_refuse(why, why_bytes, i, "rope's base is %g: expected a number above 0", g->rope.base);
    if (!(g->scale >= (double)FLT_MIN && g->scale <= (double)FLT_MAX)) /* kernels get it as a float */
        return group_refuse(why, why_bytes, i, "scale is %g: expected a number above 0 that a float can hold",
                            g->scale);
    if (!(g->softcap >= 0 && g->softcap <= FLT_MAX))
        return group_refuse(why, why_bytes, i, "softcap is %g: expected a number above 0, or 0 for none",
                            (double)g->softcap);
    for (uint32_t h = 0; g->sink_logits && h < g->heads; h++)
        if (!isfinite(g->sink_logits[h]))
            return group_refuse(why, why_bytes, i, "sink logit %u is no finite number", h);
    return 0;
}

static int group_check(const kvb_group *g, uint32_t i, char *why, size_t why_bytes)
{
    if (g->kind == KVB_GROUP_ATTEND)
        return attend_check(g, i, why, why_bytes);
    return kvb_group_scans(g)
               ? scan_check(g, i, why, why_bytes)
               : group_refuse(why, why_bytes, i, "there is no kind of layers of number %u", (unsigned)g->kind);
}

int kvb_model_check(const kvb_model *m, char *why, size_t why_bytes)
{
    bool used[KVB_MODEL_GROUPS] = {false};
    if (m->n_layers < 1 || m->n_layers > KVB_MODEL_LAYERS || m->n_groups < 1 || m->n_groups > KVB_MODEL_GROUPS) {
        snprintf(why, why_bytes, "%u layers in %u groups: expected 1 .. %u and 1 .. %u", m->n_layers, m->n_groups,
                 KVB_MODEL_LAYERS, KVB_MODEL_GROUPS);
        return -EINVAL;
    }
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        if (m->group_of[layer] >= m->n_groups) {
            snprintf(why, why_bytes, "layer %u is in no group", layer);
            return -EINVAL;
        }
        used[m->group_of[layer]] = true;
    }
    for (uint32_t g = 0; g < m->n_groups; g++) {
        int error =
            used[g] ? group_check(&m->groups[g], g, why, why_bytes) : group_refuse(why, why_bytes, g, "no layers");
        if (error)
            return error;
    }
    return 0;
}
