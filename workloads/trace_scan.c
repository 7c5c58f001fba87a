/* SPDX-License-Identifier: Apache-2.0 */
/* The block of a group of a trace's header whose layers scan, read and written. */
#include "kernels/scan.h"
#include "workloads/trace_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *name;
    kvb_elem elem;
} ELEMS[] = {{"f32", KVB_F32}, {"f16", KVB_F16}, {"bf16", KVB_BF16}};
enum { N_ELEMS = sizeof ELEMS / sizeof *ELEMS };

/* ---- reading ------------------------------------------------------------------------------------------- */

static int object_check(const json_t *value, const char *key, const char *const *known, char *why, size_t why_bytes)
{
    char where[40];
    snprintf(where, sizeof where, "header: \"%s\"", key);
    return json_is_object(value) ? kvb_json_keys_check(value, where, known, why, why_bytes)
                                 : kvb_why_set(-EINVAL, why, why_bytes, "%s: expected an object, found %s", where,
                                               kvb_json_type_name(value));
}

static int recurrence_get(const json_t *block, uint32_t *kind, char *why, size_t why_bytes)
{
    const char *name = json_string_value(json_object_get(block, "recurrence"));
    char known[100] = "";
    for (unsigned k = 0; k < KVB_SCAN_KINDS; k++) {
        if (k == KVB_SCAN_CONV)
            continue;
        const char *each = kvb_scan_kind_name(k);
        *kind = k;
        if (name && !strcmp(name, each))
            return 0;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", k ? ", " : "", each);
    }
    return kvb_why_set(-EINVAL, why, why_bytes, "header: \"recurrence\": %s%s%s, known: %s", name ? "unknown \"" : "",
                       name ? name : "expected a name", name ? "\"" : "", known);
}

static int elem_get(const json_t *block, uint32_t absent, uint32_t *elem, char *why, size_t why_bytes)
{
    const json_t *value = json_object_get(block, "state");
    const char *name = json_string_value(value);
    *elem = absent;
    for (size_t i = 0; i < N_ELEMS; i++)
        if (name && !strcmp(name, ELEMS[i].name)) {
            *elem = ELEMS[i].elem;
            return 0;
        }
    return value ? kvb_why_set(-EINVAL, why, why_bytes, "header: \"state\": expected \"f32\", \"f16\" or \"bf16\"") : 0;
}

static int sizes_get(const json_t *block, const char *const *names, uint32_t *const *sizes, size_t n, char *why,
                     size_t why_bytes)
{
    int err = 0;
    for (size_t i = 0; i < n && !err; i++) {
        int64_t number = 0;
        err = kvb_json_integer_get(block, names[i], 1, KVB_MODEL_ROW, &number, why, why_bytes);
        *sizes[i] = (uint32_t)number;
    }
    return err;
}

static int conv_parse(const json_t *block, kvb_group_scan *s, char *why, size_t why_bytes)
{
    static const char *const known[] = {"width", "channels", "silu", "state", NULL};
    int err = object_check(block, "conv", known, why, why_bytes);
    if (!err)
        err = sizes_get(block, known, (uint32_t *const[]){&s->conv_width, &s->conv_channels}, 2, why, why_bytes);
    const json_t *silu = json_object_get(block, "silu");
    if (!err && silu && !json_is_boolean(silu))
        err = kvb_why_set(-EINVAL, why, why_bytes, "header: \"silu\": expected true or false, found %s",
                          kvb_json_type_name(silu));
    s->silu = json_is_true(silu);
    return err ? err : elem_get(block, s->state_elem, &s->conv_elem, why, why_bytes);
}

int kvb_scan_block_parse(const json_t *group, kvb_group *g, char *why, size_t why_bytes)
{
    static const char *const of_group[] = {"layers", "kind", "scan", NULL};
    static const char *const known[] = {"heads", "groups", "k_dim", "v_dim", "recurrence", "conv", "state", NULL};
    kvb_group_scan *s = &g->scan;
    const json_t *block = json_object_get(group, "scan"), *conv = json_object_get(block, "conv");
    int err = kvb_json_keys_check(group, "header", of_group, why, why_bytes);
    g->kind = KVB_GROUP_SCAN;
    if (!err)
        err = object_check(block, "scan", known, why, why_bytes);
    if (!err)
        err = recurrence_get(block, &s->kind, why, why_bytes);
    if (!err)
        err = sizes_get(block, known, (uint32_t *const[]){&s->heads, &s->groups, &s->d_k, &s->d_v}, 4, why, why_bytes);
    if (!err)
        err = elem_get(block, KVB_F32, &s->state_elem, why, why_bytes);
    s->conv_elem = s->state_elem;
    return err || !conv ? err : conv_parse(conv, s, why, why_bytes);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static const char *elem_name(uint32_t elem)
{
    size_t i = 0;
    while (i + 1 < N_ELEMS && ELEMS[i].elem != elem)
        i++;
    return ELEMS[i].name;
}

void kvb_scan_block_print(FILE *out, const kvb_group_scan *s)
{
    fprintf(out, "{\"recurrence\":\"%s\",\"heads\":%u,\"groups\":%u,\"k_dim\":%u,\"v_dim\":%u",
            kvb_scan_kind_name(s->kind), s->heads, s->groups, s->d_k, s->d_v);
    if (s->conv_width)
        fprintf(out, ",\"conv\":{\"width\":%u,\"channels\":%u,\"silu\":%s,\"state\":\"%s\"}", s->conv_width,
                s->conv_channels, s->silu ? "true" : "false", elem_name(s->conv_elem));
    fprintf(out, ",\"state\":\"%s\"}", elem_name(s->state_elem));
}
