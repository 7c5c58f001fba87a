/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as one HTML file: the explorer; for each model a plot of memory against context, drawn here as SVG;
 * then the tables. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/page.h"
#include "results/sizing/explorer.h"
#include "results/sizing/sizing.h"

/* The plot's geometry in units of its viewBox, small enough that a phone shows its text large enough. */
enum { WIDTH = 420, HEIGHT = 270, LEFT = 62, RIGHT = 20, TOP = 12, BOTTOM = 36, POINTS = 96 };

/* What the past takes by this row's engine and format at another context. NAN: the engine cannot have it. */
static double held_at(const kvb_size_row *row, double context)
{
    kvb_size_ask ask = row->ask;
    kvb_size_allocation held;
    char why[256];

    ask.context = context < 1 ? 1 : (uint64_t)context;
    return row->engine->allocate(row->model, &ask, &held, why, sizeof why)
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
    char text[KVB_UNIT_TEXT];
    double unit = 1;

    while (unit * 1024 <= top)
        unit *= 1024;
    for (double y = 0; y <= top * 1.0001; y += step_of(top / unit, 10) * unit) {
        kvb_bytes_text(y, text);
        fprintf(out,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text>\n",
                LEFT, WIDTH - RIGHT, y_of(y, top), y_of(y, top), LEFT - 5, y_of(y, top) + 4, y > 0 ? text : "0");
    }
    for (double x = 0; x <= right * 1.0001; x += step_of(right, 2)) {
        bool whole = x >= 1024 && fmod(x, 1024) == 0;

        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f%s</text>\n", x_of(x, right),
                HEIGHT - BOTTOM + 15, whole ? x / 1024 : x, whole ? "k" : "");
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">tokens of context</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4);
}

/* Colours tell engines apart, dashes formats. Lines of later engines are thinner, so that lines on top of each other
 * show. */
static void style_print(size_t engine, size_t format, FILE *out)
{
    static const char *const dashes[] = {"none", "7 3", "2 2", "9 3 2 3", "4 4", "1 4"};
    static const char *const widths[] = {"6", "4", "2.5", "1.2"};

    fprintf(out, "class=\"line\" style=\"stroke: var(--s%zu); stroke-width: %s; stroke-dasharray: %s\"", engine % 6,
            widths[engine < 3 ? engine : 3], dashes[format % 6]);
}

/* An entry of the legend: a piece of the line and its name. */
static void legend_print(size_t engine, size_t format, const char *name, FILE *out)
{
    fprintf(out, "<li><svg viewBox=\"0 0 36 8\" aria-hidden=\"true\"><path d=\"M0 4H36\" ");
    style_print(engine, format, out);
    fprintf(out, "/></svg>");
    kvb_xml_put(name, out);
    fprintf(out, "</li>\n");
}

/* The plot of one model's n rows. Each format and engine has a line, with the first of the asked contexts and
 * sequences. */
static void figure_print(const kvb_sizes *all, const kvb_size_row *rows, size_t n, FILE *out)
{
    size_t a_format = n / all->n_formats;
    double right = 1, top = 1;
    char text[KVB_UNIT_TEXT], kv[KVB_KV_TEXT];

    for (size_t i = 0; i < n; i++)
        right = (double)rows[i].ask.context > right ? (double)rows[i].ask.context : right;
    for (size_t f = 0; f < all->n_formats; f++)
        for (size_t e = 0; e < all->n_engines; e++)
            top = fmax(top, held_at(&rows[f * a_format + e], right));
    top *= 1.05;
    fprintf(out, "<figure>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"memory against context\">\n", WIDTH,
            HEIGHT);
    axes_print(right, top, out);
    for (size_t f = 0; f < all->n_formats; f++)
        for (size_t e = 0; e < all->n_engines; e++) {
            const kvb_size_row *row = &rows[f * a_format + e];
            bool begun = false;

            if (isnan(held_at(row, right)))
                continue;
            fprintf(out, "<path ");
            style_print(e, f, out);
            fprintf(out, " d=\"");
            for (int i = 0; i <= POINTS; i++) {
                double bytes = held_at(row, right * i / POINTS);

                if (!isnan(bytes))
                    fprintf(out, "%c%.1f %.1f", begun ? 'L' : 'M', x_of(right * i / POINTS, right), y_of(bytes, top));
                begun = begun || !isnan(bytes);
            }
            fprintf(out, "\"/>\n");
        }
    const kvb_size_terms *terms = &rows->terms;
    double left = (double)terms->budget - (terms->weights_known ? (double)terms->weight_bytes : 0);

    if (terms->budget && left > 0 && left < top)
        fprintf(out, "<line class=\"budget\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, WIDTH - RIGHT,
                y_of(left, top), y_of(left, top));
    fprintf(out, "</svg>\n<figcaption>\n<ul class=\"legend\">\n");
    for (size_t f = 0; f < all->n_formats; f++)
        for (size_t e = 0; e < all->n_engines; e++) {
            const kvb_size_row *row = &rows[f * a_format + e];
            char name[128];

            kvb_kv_text(&row->ask, kv);
            snprintf(name, sizeof name, "%s, %s%s", row->engine->name, kv,
                     isnan(held_at(row, right)) ? " (not there: see the table)" : "");
            legend_print(e, f, name, out);
        }
    fprintf(out, "</ul>\nKV rows and recurrent states of %" PRIu64 " sequence%s, on one rank.", rows->ask.sequences,
            rows->ask.sequences > 1 ? "s" : "");
    if (terms->budget && left > 0) {
        kvb_bytes_text(left, text);
        fprintf(out, " The budget leaves %s beside the weights%s.", text, left < top ? " (dotted line)" : "");
    }
    fprintf(out, "</figcaption>\n</figure>\n");
}

int kvb_size_page(const kvb_sizes *rows, FILE *out)
{
    kvb_page_begin("kvbench size", "What memory the context takes", out);
    int error = kvb_size_explorer(rows, out);

    for (size_t i = 0, n; i < rows->n; i += n) {
        for (n = 1; i + n < rows->n && rows->at[i + n].model == rows->at[i].model; n++)
            ;
        fprintf(out, "<h2>");
        kvb_xml_put(rows->at[i].model->name, out);
        fprintf(out, "</h2>\n");
        figure_print(rows, rows->at + i, n, out);
    }
    fprintf(out, "<h2>Tables</h2>\n");
    error = error ? error : kvb_size_table(rows, KVB_TABLE_HTML, out);

    kvb_page_end(out);
    return error ? error : ferror(out) ? -EIO : 0;
}
