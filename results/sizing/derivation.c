/* SPDX-License-Identifier: Apache-2.0 */
/* How a size comes about: the reader's notes on each field, and what they multiply to. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "results/sizing/share.h"
#include "results/sizing/sizing_table.h"

static void notes_print(const kvb_model *m, int group, const char *indent, FILE *out)
{
    for (size_t i = 0; i < m->n_notes; i++)
        if (m->notes[i].group == group)
            fprintf(out, "%s%s  <- %s\n", indent, m->notes[i].text, m->notes[i].source);
}

/* The product for one layer, as a sum reads it. */
static void layer_print(const kvb_model *m, const kvb_layer_group *g, const kvb_size_ask *ask, FILE *out)
{
    char kv[KVB_KV_TEXT], bytes[KVB_UNIT_TEXT + 8], why[256];
    uint64_t row = 0, plain = kvb_plain_bytes(m, ask);

    kvb_kv_text(ask, kv);
    int error = kvb_layer_row_bytes(g, ask, &row, why, sizeof why);
    if (error) {
        fprintf(out, "    = cannot be stored: %s\n", why);
        return;
    }
    kvb_exact_bytes_text(row, bytes);
    switch (g->kind) {
    case KVB_LAYER_LATENT:
        fprintf(out, "    = %u + %u elements in %s: %s a token and layer\n", g->latent_dim, g->rope_dim, kv, bytes);
        break;
    case KVB_LAYER_STATE:
        fprintf(out,
                "    = %" PRIu64 " x %u + %" PRIu64 " x %" PRIu64 " bytes a sequence and layer, whatever the context\n",
                g->state_elements,
                g->state_f32 ? 4
                : ask->state ? kvb_dtype_bytes(ask->state)
                             : (unsigned)plain,
                g->conv_elements, plain);
        break;
    case KVB_LAYER_NONE:
        fprintf(out, "    = nothing\n");
        break;
    default:
        fprintf(out, "    = %u KV heads x (%u + %u) elements in %s: %s a token and layer", g->kv_heads, g->k_dim,
                g->v_dim, kv, bytes);
        if (g->kind == KVB_LAYER_WINDOW)
            fprintf(out, ", of the last %u tokens", g->window);
        if (g->kind == KVB_LAYER_CHUNK)
            fprintf(out, ", of at most %u tokens", g->window);
        if (g->sinks)
            fprintf(out, " and the first %u", g->sinks);
        fputc('\n', out);
    }
    if (g->index_dim)
        fprintf(out, "    + %u + 4 x %" PRIu64 " bytes a token and layer for the indexer\n", g->index_dim,
                kvb_ceil_div(g->index_dim, 128));
}

int kvb_size_explain(const kvb_model *m, const kvb_size_ask *ask, FILE *out)
{
    char text[KVB_UNIT_TEXT + 8], why[256];
    kvb_allocation whole;

    fprintf(out, "%s: %s, %u layers%s%s\n", m->name, m->architecture ? m->architecture : "?", m->n_layers,
            m->source ? "; " : "", m->source ? m->source : "");
    notes_print(m, -1, "  ", out);
    for (size_t i = 0; i < m->n_groups; i++) {
        fprintf(out, "  %u x %s\n", m->groups[i].n, m->groups[i].name ? m->groups[i].name : "layer");
        notes_print(m, (int)i, "    ", out);
        layer_print(m, &m->groups[i], ask, out);
    }
    if (kvb_engine_ideal.allocate(m, ask, &whole, why, sizeof why) == 0) {
        kvb_exact_bytes_text((uint64_t)whole.bytes_per_token, text);
        fprintf(out, "  together: %s a token", text);
        kvb_exact_bytes_text(whole.fixed_bytes_per_sequence, text);
        fprintf(out, ", and %s a sequence\n", text);
    }
    return ferror(out) ? -EIO : 0;
}
