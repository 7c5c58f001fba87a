/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as one HTML file: the explorer; for each model a plot of memory against context, drawn here as SVG;
 * then the tables. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "results/table.h"
#include "harness/size/engines.h"
#include "harness/size/sizing.h"
#include "harness/size/weights.h"

/* ---- the explorer ------------------------------------------------------------------------------------------- */

/* A part of the page that computes sizes again, for another context, number of sequences, format, ranks and memory: its
 * form, its data (models, formats, engines' constants), and its script. */

__asm__(".pushsection .rodata\n"
        ".global kvb_explorer_text\n"
        ".hidden kvb_explorer_text\n"
        "kvb_explorer_text: .incbin \"harness/size/explorer.js\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char kvb_explorer_text[] __attribute__((visibility("hidden")));

/* Ranks that the page offers. */
static const uint32_t ranks[] = {1, 2, 4, 8, 16, 32, 64};
enum { RANKS = sizeof ranks / sizeof *ranks };

/* A script reads numbers in JSON exactly up to 2^53. All numbers but sums of bytes are smaller, and real models' sums are
 * far smaller: weights above 2^53 bytes are left out as unknown. */
enum { EXACT_BITS = 53 };

static json_t *group_make(const kvb_sized_model *m, const kvb_sized_group *g, const kvb_size_ask *ask)
{
    static const char *const kinds[] = {"full", "window", "chunk", "latent", "pooled", "cross", "state", "none"};

    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, "
                     "s:b, s:I, s:I, s:I, s:I}",
                     "kind", kinds[g->kind], "layers", (json_int_t)kvb_layers_held(m, g, ask), "heads",
                     (json_int_t)g->heads, "kv_heads", (json_int_t)g->kv_heads, "k_dim", (json_int_t)g->k_dim, "v_dim",
                     (json_int_t)g->v_dim, "window", (json_int_t)g->window, "sinks", (json_int_t)g->sinks, "latent",
                     (json_int_t)g->latent_dim + g->rope_dim, "index", (json_int_t)g->index_dim, "index_row",
                     (json_int_t)kvb_index_row_bytes(g), "state", (json_int_t)g->state_elements, "conv",
                     (json_int_t)g->conv_elements, "conv_width", (json_int_t)g->conv_width, "conv_groups",
                     (json_int_t)g->conv_groups, "conv_group_width", (json_int_t)g->conv_group_width, "conv_drafts",
                     g->conv_drafts, "state_f32", g->state_f32, "sglang_windowed", kvb_sglang_is_windowed(m, g, ask),
                     "sglang_knows", kvb_sglang_knows(g), "latent_rank", (json_int_t)g->latent_dim, "readers",
                     (json_int_t)kvb_stage_layers(g->readers, ask), "every", (json_int_t)g->every, "rare",
                     (json_int_t)(g->kind == KVB_SIZED_POOLED || g->kind == KVB_SIZED_CROSS) << g->kind);
}

/* Bytes of weights on a rank, by the number of ranks; unknown ones are missing. */
static json_t *weights_make(const kvb_size_row *row)
{
    json_t *weights = json_object();
    char name[16], why[256];
    uint64_t bytes;

    for (size_t i = 0; i < RANKS; i++) {
        bytes = 0;
        snprintf(name, sizeof name, "%u", ranks[i]);
        int error = row->terms.all_weight_bytes ? kvb_weights_rank(row->model, row->terms.all_weight_bytes, ranks[i], 1,
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
        json_array_append_new(groups, group_make(m, &m->groups[i], &row->ask));
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:s, s:s, s:I, s:I}",
                     "name", m->name, "dtype", (json_int_t)kvb_config_dtype_bytes(m->dtype), "hidden",
                     (json_int_t)m->hidden, "intermediate", (json_int_t)m->intermediate, "vocab", (json_int_t)m->vocab,
                     "max_context", (json_int_t)m->max_context, "llama_windows", kvb_llama_has_windows(m), "llama_feed",
                     (json_int_t)kvb_llama_feed_width(m), "llama_heads", (json_int_t)kvb_llama_heads_width(m),
                     "vllm_state", (json_int_t)kvb_vllm_state_element(m, &row->ask), "sglang_state",
                     (json_int_t)kvb_sglang_state_element(m, &row->ask), "mlx", (json_int_t)kvb_mlx_caches_of(m),
                     "groups", groups, "weights", weights_make(row), "k", row->ask.k->name, "v", row->ask.v->name,
                     "context", (json_int_t)row->ask.context, "sequences", (json_int_t)row->ask.sequences);
}

/* Constants of an engine for this ask. */
static json_t *engine_make(const kvb_size_row *row)
{
    const kvb_size_engine *e = row->engine;
    kvb_size_ask ask = row->ask;
    json_t *beside = json_object(), *stored = json_array();
    char name[16];

    for (size_t i = 0; i < RANKS; i++) { /* for SGLang: its reserve depends on ranks alone */
        uint64_t bytes = 0;

        ask.tp = ranks[i];
        snprintf(name, sizeof name, "%u", ranks[i]);
        if (e->beside && !e->beside(row->model, &ask, &bytes))
            json_object_set_new(beside, name, json_integer((json_int_t)bytes));
    }
    for (const kvb_kv_format *f = kvb_kv_formats; f->name; f++)
        if (!e->stored || kvb_names_have(e->stored, f->name))
            json_array_append_new(stored, json_string(f->name));
    uint32_t fraction = e->fraction && ask.utilization ? ask.utilization : e->fraction;

    ask.sequences = 0;
    return json_pack("{s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "batch", (json_int_t)kvb_size_batch(e, &ask),
                     "fraction", (json_int_t)fraction, "beside", beside, "stored", stored, "max_seqs",
                     (json_int_t)kvb_vllm_max_seqs(&ask), "sampler_bytes", (json_int_t)KVB_VLLM_SAMPLER_BYTES,
                     "batches", (json_int_t)kvb_vllm_batches(&ask), "states", (json_int_t)kvb_vllm_states(&ask),
                     "knows", (json_int_t)e->knows);
}

static json_t *formats_make(void)
{
    json_t *formats = json_array();

    for (const kvb_kv_format *f = kvb_kv_formats; f->name; f++)
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

    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "tp", (json_int_t)a->tp,
                     "pp", (json_int_t)a->pp, "spec_depth", (json_int_t)a->spec_depth, "block", (json_int_t)a->block,
                     "unified", a->unified, "whole", a->whole, "no_flash", a->no_flash, "outputs",
                     (json_int_t)a->outputs, "copies", (json_int_t)kvb_llama_copies(a), "state",
                     (json_int_t)(a->state ? kvb_config_dtype_bytes(a->state) : 0), "margin",
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

/* Prints the models and engines of the rows, for the ask of the first row; without costly engines. 0 or -ENOMEM. */
static int explorer_print(const kvb_sizes *rows, FILE *out)
{
    static const char form[] =
        "<style>\n#explorer label { display: inline-flex; flex-wrap: wrap; gap: 0.4rem; align-items: center; margin: 0 "
        "1.2rem 0.4rem 0; }\n"
        "#explorer input[type=text] { width: 7em; font: inherit; } #explorer input[aria-invalid=true] { outline: 2px "
        "solid var(--s1); }\n"
        "#explorer table { width: 100%; } .bar { display: flex; min-width: 9rem; height: 0.9rem; outline: 1px solid "
        "var(--line); }\n"
        ".bar.over { outline: 2px solid var(--s1); } .bar span { display: block; } #parts { width: 60%; }\n"
        ".no { color: var(--s1); font-weight: 600; } .yes { color: var(--s2); font-weight: 600; }\n"
        ".key { display: inline-block; width: 0.7rem; height: 0.7rem; margin: 0 0.3rem 0 0.6rem; }\n"
        "@media (max-width: 40rem) { #explorer input[type=range] { display: none; } #explorer label { margin-right: "
        "0.8rem; } #parts { width: auto; white-space: normal; } }\n"
        "@media (min-width: 60rem) { figure { display: grid; grid-template-columns: 34rem 1fr; gap: 1.5rem; max-width: "
        "none; align-items: center; } .legend { flex-direction: column; } }\n</style>\n"
        "<section id=\"explorer\" hidden>\n<h2>Explore</h2>\n<p>\n<label>model <select id=\"model\"></select></label>\n"
        "<label>context <input type=\"range\" id=\"context-slider\" min=\"0\" max=\"96\" aria-label=\"context\">\n"
        "<input type=\"text\" id=\"context\" inputmode=\"numeric\"></label>\n"
        "<label>sequences <input type=\"range\" id=\"sequences-slider\" min=\"0\" max=\"48\" "
        "aria-label=\"sequences\">\n"
        "<input type=\"text\" id=\"sequences\" inputmode=\"numeric\"></label>\n"
        "<label>K <select id=\"k\"></select></label> <label>V <select id=\"v\"></select></label>\n"
        "<label>ranks <select id=\"tp\"></select></label>\n"
        "<label>memory of a rank <input type=\"range\" id=\"budget-slider\" min=\"0\" max=\"48\" "
        "aria-label=\"memory of a rank\">\n<input type=\"text\" id=\"budget\" inputmode=\"decimal\"> "
        "GiB</label>\n</p>\n"
        "<p id=\"said\" role=\"status\"></p>\n<div class=\"scroll\" "
        "tabindex=\"0\">\n<table>\n<thead><tr><th>engine</th>"
        "<th></th><th class=\"n\">total</th><th id=\"parts\"></th><th class=\"n\">most</th><th "
        "class=\"n\">longest</th><th class=\"n\">KV</th><th class=\"n\">states</th><th "
        "class=\"n\">beside</th></tr></thead>\n"
        "<tbody id=\"engines\"></tbody>\n</table>\n</div>\n<p>Most, longest: the number of sequences and the context "
        "that "
        "still fit. Beside: what passes need, the runtime, the margin.</p>\n</section>\n"
        "<script type=\"application/json\" id=\"sizes\">";

    fputs(form, out);
    int error = data_print(rows, out);

    fprintf(out, "</script>\n<script>\n%s</script>\n", kvb_explorer_text);
    return error;
}

/* ---- plots -------------------------------------------------------------------------------------------------- */

/* The plot's geometry in units of its viewBox, small so that a phone shows its text large enough. */
enum { WIDTH = 420, HEIGHT = 270, LEFT = 62, RIGHT = 20, TOP = 12, BOTTOM = 36, POINTS = 96 };

/* Bytes of rows and states by this row's engine and format at another context. NAN: the engine cannot hold it. */
static double held_at(const kvb_size_row *row, double context)
{
    kvb_size_ask ask = row->ask;
    kvb_size_allocation held;
    char why[256];

    ask.context = context < 1 ? 1 : (uint64_t)context;
    return kvb_size_hold(row->engine, row->model, &ask, &held, why, sizeof why)
               ? NAN
               : (double)held.kv_bytes + (double)held.state_bytes;
}

/* The distance of ticks: 1, 2 or 5 times a power of the base (2 or 10), about five in `range`. */
static double step_of(double range, double base)
{
    double power = pow(base, floor(log(range / 4) / log(base)));

    for (double factor = base == 2 ? 2 : 5; factor > 1; factor = factor == 5 ? 2 : 1)
        if (power * factor <= range / 4)
            return power * factor;
    return power;
}

static double x_of(double context, double right)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * context / right;
}

static double y_of(double bytes, double top)
{
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - bytes / top);
}

static void axes_print(double right, double top, FILE *out)
{
    double unit = 1;

    while (unit * 1024 <= top)
        unit *= 1024;
    for (double y = 0; y <= top * 1.0001; y += step_of(top / unit, 10) * unit)
        fprintf(out,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text>\n",
                LEFT, WIDTH - RIGHT, y_of(y, top), y_of(y, top), LEFT - 5, y_of(y, top) + 4,
                y > 0 ? kvb_bytes_text(y).text : "0");
    for (double x = 0; x <= right * 1.0001; x += step_of(right, 2)) {
        bool whole = x >= 1024 && fmod(x, 1024) == 0;

        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f%s</text>\n", x_of(x, right),
                HEIGHT - BOTTOM + 15, whole ? x / 1024 : x, whole ? "k" : "");
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">tokens of context</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4);
}

/* A line of the plot. It covers later lines that stay within a line's width of it. */
typedef struct line {
    double bytes[POINTS + 1]; /* NAN: the engine cannot hold this context */
    size_t engine, format;
    size_t drawn; /* the line that covers this one: itself, or an earlier one */
    char name[128];
} line;

static void line_make(const kvb_size_row *row, double right, line *l)
{
    char kv[KVB_KV_TEXT];

    kvb_kv_text(&row->ask, kv);
    snprintf(l->name, sizeof l->name, "%s, %s", row->engine->name, kv);
    for (int i = 0; i <= POINTS; i++)
        l->bytes[i] = held_at(row, right * i / POINTS);
}

static bool covers(const line *a, const line *b, double top)
{
    for (int i = 0; i <= POINTS; i++)
        if (isnan(a->bytes[i]) != isnan(b->bytes[i]) || fabs(y_of(a->bytes[i], top) - y_of(b->bytes[i], top)) > 2)
            return false;
    return true;
}

/* Colours distinguish engines, dashes formats. */
static void style_print(const line *l, FILE *out)
{
    static const char *const dashes[] = {"none", "7 3", "2 2", "9 3 2 3", "4 4", "1 4"};

    fprintf(out, "class=\"line\" style=\"stroke: var(--s%zu); stroke-dasharray: %s\"", l->engine % 7,
            dashes[l->format % 6]);
}

static void line_print(const line *l, double right, double top, FILE *out)
{
    bool begun = false;

    fprintf(out, "<path ");
    style_print(l, out);
    fprintf(out, " d=\"");
    for (int i = 0; i <= POINTS; i++) {
        if (!isnan(l->bytes[i]))
            fprintf(out, "%c%.1f %.1f", begun ? 'L' : 'M', x_of(right * i / POINTS, right), y_of(l->bytes[i], top));
        begun = begun || !isnan(l->bytes[i]);
    }
    fprintf(out, "\"/>\n");
}

/* An entry of the legend: a piece of the line, its value at the right end, and the names of all lines that it covers. */
static void legend_print(const line *lines, size_t n, size_t i, FILE *out)
{
    const double end = lines[i].bytes[POINTS];
    fprintf(out, "<li><svg viewBox=\"0 0 36 8\" aria-hidden=\"true\"><path d=\"M0 4H36\" ");
    style_print(&lines[i], out);
    fprintf(out, "/></svg>%s%s", kvb_bytes_text(end).text, isnan(end) ? "" : ": ");
    for (size_t j = i; j < n; j++)
        if (lines[j].drawn == i) {
            fputs(j > i ? "; " : "", out);
            kvb_xml_put(lines[j].name, out);
        }
    fprintf(out, "%s</li>\n", isnan(end) ? " (not there: see the table)" : "");
}

/* The bytes of the budget, or of the device, without the weights. 0: none left, or neither is asked for. */
static double left_over(const kvb_size_row *row)
{
    const double budget = row->terms.budget ? (double)row->terms.budget
                          : row->ask.device ? (double)row->ask.device->memory
                                            : 0;
    const double left = budget - (row->terms.weights_known ? (double)row->terms.weight_bytes : 0);

    return left > 0 ? left : 0;
}

/* Prints the plot of one model's n rows, with a line for each format and engine, for the first of the asked contexts and
 * sequences. 0 or -ENOMEM. */
static int figure_print(const kvb_sizes *all, const kvb_size_row *rows, size_t n, FILE *out)
{
    const size_t a_format = n / all->n_formats, n_lines = all->n_formats * all->n_engines;
    const double left = left_over(rows);
    line *lines = calloc(n_lines, sizeof *lines);
    double right = 1, top = 1;

    if (!lines)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        right = (double)rows[i].ask.context > right ? (double)rows[i].ask.context : right;
    for (size_t i = 0; i < n_lines; i++) {
        lines[i] = (line){.engine = i % all->n_engines, .format = i / all->n_engines, .drawn = i};
        line_make(&rows[lines[i].format * a_format + lines[i].engine], right, &lines[i]);
        top = fmax(top, lines[i].bytes[POINTS]);
    }
    top *= 1.05;
    for (size_t i = 0; i < n_lines; i++)
        for (size_t j = 0; j < i && lines[i].drawn == i; j++)
            if (lines[j].drawn == j && covers(&lines[j], &lines[i], top))
                lines[i].drawn = j;
    fprintf(out, "<figure>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"memory against context\">\n", WIDTH,
            HEIGHT);
    axes_print(right, top, out);
    for (size_t i = 0; i < n_lines; i++)
        if (lines[i].drawn == i)
            line_print(&lines[i], right, top, out);
    if (left > 0 && left < top)
        fprintf(out, "<line class=\"budget\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, WIDTH - RIGHT,
                y_of(left, top), y_of(left, top));
    fprintf(out, "</svg>\n<figcaption>\nAt %.0f tokens:\n<ul class=\"legend\">\n", right);
    for (size_t i = 0; i < n_lines; i++)
        if (lines[i].drawn == i)
            legend_print(lines, n_lines, i, out);
    fprintf(out, "</ul>\nKV rows and recurrent states of %" PRIu64 " sequence%s, on one rank.", rows->ask.sequences,
            rows->ask.sequences > 1 ? "s" : "");
    if (left > 0)
        fprintf(out, " Beside the weights there is room for %s%s.", kvb_bytes_text(left).text,
                left < top ? " (dotted line)" : "");
    fprintf(out, "</figcaption>\n</figure>\n");
    free(lines);
    return 0;
}

/* ---- the page ----------------------------------------------------------------------------------------------- */

int kvb_size_page(const kvb_sizes *rows, FILE *out)
{
    kvb_page_begin("kvbench size", "What memory the context takes", out);
    int error = explorer_print(rows, out);

    for (size_t i = 0, n; i < rows->n; i += n) {
        for (n = 1; i + n < rows->n && rows->at[i + n].model == rows->at[i].model; n++)
            ;
        fprintf(out, "<h2>");
        kvb_xml_put(rows->at[i].model->name, out);
        fprintf(out, "</h2>\n");
        error = error ? error : figure_print(rows, rows->at + i, n, out);
    }
    fprintf(out, "<h2>Tables</h2>\n");
    error = error ? error : kvb_size_table(rows, KVB_TABLE_HTML, out);

    kvb_page_end(out);
    return error ? error : ferror(out) ? -EIO : 0;
}
