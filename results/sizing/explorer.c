/* SPDX-License-Identifier: Apache-2.0 */
/* The explorer of a page: its form, the data that it computes from (models, formats, engines' constants), and its
 * script. */
#include "results/sizing/explorer.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "results/sizing/engines.h"
#include "results/sizing/weights.h"

__asm__(".pushsection .rodata\n"
        ".global kvb_explorer_text\n"
        ".hidden kvb_explorer_text\n"
        "kvb_explorer_text: .incbin \"results/sizing/explorer.js\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char kvb_explorer_text[] __attribute__((visibility("hidden")));

/* Ranks that the page offers. */
static const uint32_t ranks[] = {1, 2, 4, 8, 16, 32, 64};
enum { RANKS = sizeof ranks / sizeof *ranks };

/* All numbers are below 2^53, up to which a script reads numbers of JSON exactly, but sums of bytes; the model's own
 * sums are smaller than that by far: a weight above 2^53 bytes is left out as unknown. */
enum { EXACT_BITS = 53 };

static json_t *group_make(const kvb_sized_model *m, size_t i, const kvb_size_ask *ask)
{
    static const char *const kinds[] = {"full", "window", "chunk", "latent", "state", "none"};
    const kvb_sized_group *g = &m->groups[i];

    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:b, s:I}",
        "kind", kinds[g->kind], "layers", (json_int_t)kvb_layers_held(m, i, ask), "heads", (json_int_t)g->heads,
        "kv_heads", (json_int_t)g->kv_heads, "k_dim", (json_int_t)g->k_dim, "v_dim", (json_int_t)g->v_dim, "window",
        (json_int_t)g->window, "sinks", (json_int_t)g->sinks, "latent", (json_int_t)g->latent_dim + g->rope_dim,
        "index", (json_int_t)g->index_dim, "index_row", (json_int_t)kvb_index_row_bytes(g), "state",
        (json_int_t)g->state_elements, "conv", (json_int_t)g->conv_elements, "conv_width", (json_int_t)g->conv_width,
        "conv_groups", (json_int_t)g->conv_groups, "conv_group_width", (json_int_t)g->conv_group_width, "conv_drafts",
        g->conv_drafts, "state_f32", g->state_f32, "sglang_windowed", kvb_sglang_is_windowed(m, g), "sglang_knows",
        kvb_sglang_knows(g), "latent_rank", (json_int_t)g->latent_dim);
}

/* What weights take on a rank, by the number of ranks; those that are not known are missing. */
static json_t *weights_make(const kvb_size_row *row)
{
    json_t *weights = json_object();
    char name[16], why[256];
    uint64_t bytes;

    for (size_t i = 0; i < RANKS; i++) {
        bytes = 0;
        snprintf(name, sizeof name, "%u", ranks[i]);
        int error = row->terms.all_weight_bytes ? kvb_weights_rank(row->model, row->terms.all_weight_bytes, ranks[i],
                                                                   row->ask.pp, &bytes, why, sizeof why)
                                                : 0;
        if (row->terms.weights_known && !error && !(bytes >> EXACT_BITS))
            json_object_set_new(weights, name, json_integer((json_int_t)bytes));
    }
    return weights;
}

static json_t *model_make(const kvb_size_row *row)
{
    const kvb_sized_model *m = row->model;
    json_t *groups = json_array();

    for (size_t i = 0; i < m->n_groups; i++)
        json_array_append_new(groups, group_make(m, i, &row->ask));
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:o, s:o, s:s, s:s, s:I, s:I}", "name",
                     m->name, "dtype", (json_int_t)kvb_dtype_bytes(m->dtype), "hidden", (json_int_t)m->hidden,
                     "intermediate", (json_int_t)m->intermediate, "vocab", (json_int_t)m->vocab, "max_context",
                     (json_int_t)m->max_context, "llama_windows", kvb_llama_has_windows(m), "vllm_state",
                     (json_int_t)kvb_vllm_state_element(m, &row->ask), "sglang_state",
                     (json_int_t)kvb_sglang_state_element(m, &row->ask), "mlx", (json_int_t)kvb_mlx_caches_of(m),
                     "groups", groups, "weights", weights_make(row), "k", row->ask.k->name, "v", row->ask.v->name,
                     "context", (json_int_t)row->ask.context, "sequences", (json_int_t)row->ask.sequences);
}

/* Constants of an engine, as this ask has them. */
static json_t *engine_make(const kvb_size_row *row)
{
    const kvb_size_engine *e = row->engine;
    kvb_size_ask ask = row->ask;
    json_t *beside = json_object(), *stored = json_array();
    char name[16];

    for (size_t i = 0; i < RANKS; i++) { /* for SGLang, whose reserve depends on ranks alone */
        uint64_t bytes = 0;

        ask.tp = ranks[i];
        snprintf(name, sizeof name, "%u", ranks[i]);
        if (e->beside && !e->beside(row->model, &ask, &bytes))
            json_object_set_new(beside, name, json_integer((json_int_t)bytes));
    }
    for (size_t i = 0; kvb_kv_format_at(i); i++)
        if (!e->stored || kvb_names_have(e->stored, kvb_kv_format_at(i)->name))
            json_array_append_new(stored, json_string(kvb_kv_format_at(i)->name));
    uint32_t fraction = e->fraction && ask.utilization ? ask.utilization : e->fraction;

    ask.sequences = 0;
    return json_pack("{s:I, s:I, s:o, s:o, s:I, s:I, s:I}", "batch", (json_int_t)kvb_size_batch(e, &ask), "fraction",
                     (json_int_t)fraction, "beside", beside, "stored", stored, "max_seqs",
                     (json_int_t)kvb_vllm_max_seqs(&ask), "sampler_bytes", (json_int_t)KVB_VLLM_SAMPLER_BYTES,
                     "batches", (json_int_t)KVB_VLLM_BATCHES);
}

static json_t *formats_make(void)
{
    json_t *formats = json_array();
    const kvb_kv_format *f;

    for (size_t i = 0; (f = kvb_kv_format_at(i)); i++)
        json_array_append_new(formats,
                              json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", f->name, "group", (json_int_t)f->group,
                                        "bytes", (json_int_t)f->group_bytes, "extra", (json_int_t)f->extra_bytes,
                                        "plain", (json_int_t)kvb_plain_format_bytes(f)));
    return formats;
}

static json_t *ask_make(const kvb_size_row *row)
{
    const kvb_size_ask *a = &row->ask;
    uint64_t budget = row->terms.budget ? row->terms.budget : a->device ? a->device->memory : 0;

    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:b}", "tp", (json_int_t)a->tp, "pp",
                     (json_int_t)a->pp, "spec_depth", (json_int_t)a->spec_depth, "block", (json_int_t)a->block,
                     "unified", a->unified, "state", (json_int_t)(a->state ? kvb_dtype_bytes(a->state) : 0), "margin",
                     (json_int_t)row->terms.margin, "runtime", (json_int_t)row->terms.runtime_bytes, "budget",
                     (json_int_t)(budget >> EXACT_BITS ? 0 : budget), "device", a->device && !row->terms.budget);
}

static int data_print(const kvb_sizes *rows, FILE *out)
{
    json_t *models = json_array(), *engines = json_object(), *offered = json_array();

    for (size_t i = 0; i < rows->n; i++)
        if (i == 0 || rows->at[i].model != rows->at[i - 1].model)
            json_array_append_new(models, model_make(&rows->at[i]));
    for (size_t i = 0; i < rows->n_engines; i++)
        if (!rows->at[i].engine->costly)
            json_object_set_new(engines, rows->at[i].engine->name, engine_make(&rows->at[i]));
    for (size_t i = 0; i < RANKS; i++)
        json_array_append_new(offered, json_integer(ranks[i]));
    json_t *data = json_pack("{s:o, s:o, s:o, s:o, s:o}", "ranks", offered, "ask", ask_make(rows->at), "formats",
                             formats_make(), "engines", engines, "models", models);
    char *text = data ? json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

    json_decref(data);
    if (!text)
        return -ENOMEM;
    for (const char *c = text; *c; c++) /* a name must not end the element */
        fputs(*c == '<' ? "\\u003c" : (char[]){*c, 0}, out);
    free(text);
    return 0;
}

int kvb_size_explorer(const kvb_sizes *rows, FILE *out)
{
    static const char form[] =
        "<style>\n#explorer label { display: inline-flex; flex-wrap: wrap; gap: 0.4rem; align-items: center; margin: 0 "
        "1.2rem "
        "0.4rem 0; }\n"
        "#explorer input[type=number] { width: 8.7em; } .bar { display: flex; width: 14rem; height: 0.9rem; outline: "
        "1px "
        "solid var(--line); }\n"
        ".bar.over { outline: 2px solid var(--s1); } .bar span { display: block; }\n"
        ".key { display: inline-block; width: 0.7rem; height: 0.7rem; margin: 0 0.3rem 0 0.6rem; }\n</style>\n"
        "<section id=\"explorer\" hidden>\n<h2>Explore</h2>\n<p>\n<label>model <select id=\"model\"></select></label>\n"
        "<label>context <input type=\"range\" id=\"context-slider\" min=\"0\" max=\"96\" aria-label=\"context\">\n"
        "<input type=\"number\" id=\"context\" min=\"1\"></label>\n"
        "<label>sequences <input type=\"range\" id=\"sequences-slider\" min=\"0\" max=\"48\" "
        "aria-label=\"sequences\">\n"
        "<input type=\"number\" id=\"sequences\" min=\"1\"></label>\n"
        "<label>K <select id=\"k\"></select></label> <label>V <select id=\"v\"></select></label>\n"
        "<label>ranks <select id=\"tp\"></select></label>\n"
        "<label>memory of a rank <input type=\"range\" id=\"budget-slider\" min=\"0\" max=\"48\" "
        "aria-label=\"memory of a rank\">\n<input type=\"number\" id=\"budget\" min=\"0\" step=\"any\"> "
        "GiB</label>\n</p>\n"
        "<p id=\"said\"></p>\n<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr><th>engine</th><th "
        "class=\"n\">KV</th><th class=\"n\">states</th><th class=\"n\">beside</th><th class=\"n\">total</th><th "
        "class=\"n\">longest</th><th class=\"n\">most</th><th id=\"parts\"></th></tr></thead>\n"
        "<tbody id=\"engines\"></tbody>\n</table>\n</div>\n<p>Beside: what passes need, the runtime, the margin. "
        "Longest, "
        "most: the context and the number of sequences that still fit.</p>\n</section>\n"
        "<script type=\"application/json\" id=\"sizes\">";

    fputs(form, out);
    int error = data_print(rows, out);

    fprintf(out, "</script>\n<script>\n%s</script>\n", kvb_explorer_text);
    return error;
}
