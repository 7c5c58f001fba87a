/* SPDX-License-Identifier: Apache-2.0 */
/* What the file of a saved cache is of: lines that say it, and are compared. Its checksum; what goes wrong with it. */
#include "caches/saved.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define AT_ONCE ((size_t)1 << 30) /* bytes that zlib is given */

int kvb_saved_fail(const kvb_store_site *site, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(site->why, site->why_bytes, format, args);
    va_end(args);
    return error;
}

int kvb_saved_no_memory(const kvb_store_site *site, const char *path)
{
    return kvb_saved_fail(site, -ENOMEM, "%.120s: no memory for what is saved", path);
}

int kvb_saved_system(const kvb_store_site *site, int error, const char *path)
{
    return kvb_saved_fail(site, error, "%.120s: %s", path, strerror(-error));
}

uint32_t kvb_saved_sum(uint32_t sum, const void *bytes, size_t n)
{
    for (size_t done = 0, some; done < n; done += some) {
        some = n - done < AT_ONCE ? n - done : AT_ONCE;
        sum = (uint32_t)crc32(sum, (const unsigned char *)bytes + done, (unsigned)some);
    }
    return sum;
}

/* ---- the description --------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void text_add(kvb_saved_words *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    t->n += (size_t)vsnprintf(t->at + t->n, t->room - t->n, format, args);
    va_end(args);
}

/* A sum over the fixed scales of all pools of a side. */
static uint32_t scales_sum(const kvb_store_site *site, kvb_store *const *stores, bool is_v)
{
    uint32_t sum = 0;
    for (uint32_t layer = 0; layer < site->model->n_layers; layer++) {
        const kvb_pool *pool = stores[site->model->group_of[layer]]->pools[2 * (size_t)layer + is_v];
        kvb_view view = {0};
        if (pool)
            pool->type->view(pool, 0, &view);
        if (view.head_scales)
            sum = kvb_saved_sum(sum, view.head_scales,
                                stores[site->model->group_of[layer]]->group->kv_heads * sizeof(float));
    }
    return sum;
}

int kvb_saved_text(const kvb_store_site *site, kvb_store *const *stores, bool whole, bool any, kvb_saved_words *t)
{
    const kvb_model *m = site->model;
    const kvb_cache_options *o = site->options;
    t->room = 1024 + strlen(site->type->name) + 4 * (size_t)m->n_layers + 128 * (size_t)m->n_groups;
    t->at = kvb_alloc(o->allocator, t->room);
    if (!t->at)
        return -ENOMEM;
    text_add(t, "cache %s", any ? "any" : site->type->name);
    if (whole)
        text_add(t, " page_cells %u seq_capacity %u", o->page_cells, o->seq_capacity);
    text_add(t, "\nholds %s\n", whole ? "the whole cache" : "one sequence");
    text_add(t, "k_pool %.64s scales %08x\n", o->k_pool->name, scales_sum(site, stores, false));
    text_add(t, "v_pool %.64s scales %08x\n", o->v_pool->name, scales_sum(site, stores, true));
    text_add(t, "layers");
    for (uint32_t layer = 0; layer < m->n_layers; layer++)
        text_add(t, " %u", m->group_of[layer]);
    for (uint32_t i = 0; i < m->n_groups; i++) {
        const kvb_group *g = &m->groups[i];
        const kvb_group_scan *r = &g->scan;
        if (kvb_group_scans(g)) {
            text_add(t, "\ngroup %s heads %u groups %u k_dim %u v_dim %u as %d conv %u x %u as %d",
                     kvb_scan_kind_name(r->kind), r->heads, r->groups, r->d_k, r->d_v, (int)r->state_elem,
                     r->conv_width, r->conv_channels, (int)r->conv_elem);
            continue;
        }
        text_add(t, "\ngroup kv_heads %u k_dim %u v_dim %u%s window %u sinks %u chunk %u", g->kv_heads, g->k_dim,
                 g->v_dim, g->latent ? " latent" : "", g->window, g->sinks, g->chunk);
    }
    text_add(t, "\n");
    return 0;
}

/* Bytes of a line that are shown. */
static int line_length(const char *line, size_t left)
{
    const char *end = memchr(line, '\n', left < 60 ? left : 60);
    return end ? (int)(end - line) : left < 60 ? (int)left : 60;
}

int kvb_saved_text_check(const kvb_store_site *site, const char *path, const char *saved, size_t n,
                         const kvb_saved_words *own)
{
    static const char any[] = "cache any\n";
    size_t a = 0, b = 0;
    if (n >= sizeof any - 1 && !memcmp(saved, any, sizeof any - 1)) {
        a = sizeof any - 1;
        b = (size_t)((char *)memchr(own->at, '\n', own->n) - own->at) + 1;
    }
    while (a < n && b < own->n && saved[a] == own->at[b])
        a++, b++;
    if (a == n && b == own->n)
        return 0;
    while (b > 0 && (b == own->n || own->at[b - 1] != '\n'))
        a--, b--;
    return kvb_saved_fail(site, -EINVAL, "%.60s: was saved with \"%.*s\", this cache has \"%.*s\"", path,
                          line_length(saved + a, n - a), saved + a, line_length(own->at + b, own->n - b), own->at + b);
}

int kvb_saved_pools_check(const kvb_store_site *site, kvb_store *const *stores, bool whole)
{
    for (uint32_t g = 0; g < site->model->n_groups; g++)
        for (size_t i = 0; i < stores[g]->n_pools; i++) {
            const kvb_pool *pool = stores[g]->pools[i];
            if (pool && !pool->type->raw_bytes)
                return kvb_saved_fail(site, -ENOTSUP, "pool %s cannot be saved", pool->type->name);
            if (pool && !whole && !pool->type->raw_bytes(pool, &(uint32_t){0}, 1))
                return kvb_saved_fail(
                    site, -ENOTSUP,
                    "pool %s: rows share scales or slots with rows of other sequences; the whole cache can be "
                    "saved and loaded, one sequence cannot",
                    pool->type->name);
        }
    return 0;
}
