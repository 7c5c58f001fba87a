/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of strings, printed as text, Markdown, CSV (RFC 4180), JSON or HTML. */
#include "results/table.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"

/* Texts for table cells follow UTF-8 by RFC 3629 (no surrogates, no overlong forms) and XML 1.0 (fifth edition). */

/* ---- characters ---------------------------------------------------------------------------------------- */

/* Returns the code point at the start of text. *bytes: its length; 0: it is not valid. */
static uint32_t utf8_decode(const char *text, size_t *bytes)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000}; /* a smaller code point is an overlong form */
    const unsigned char *s = (const unsigned char *)text;
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    uint32_t c = n < 2 ? s[0] : s[0] & (0x7fu >> n);

    *bytes = 0;
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) /* not a continuation byte; nor is the final 0 one */
            return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (n == 0 || c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    *bytes = n;
    return c;
}

size_t kvb_utf8_bytes(const char *text)
{
    size_t bytes;

    utf8_decode(text, &bytes);
    return bytes;
}

size_t kvb_utf8_width(const char *text)
{
    size_t width = 0;

    while (*text) {
        size_t bytes;
        uint32_t c = utf8_decode(text, &bytes);

        width += !(c >= 0x300 && c <= 0x36f); /* a combining mark takes no column of its own */
        text += bytes ? bytes : 1;
    }
    return width;
}

void kvb_utf8_clean(char *text)
{
    while (*text) {
        size_t bytes = kvb_utf8_bytes(text);

        if (bytes == 0)
            *text = '?';
        text += bytes ? bytes : 1;
    }
}

void kvb_plain_put_n(const char *text, size_t n, FILE *out)
{
    for (; n > 0; n--, text++)
        putc((unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text, out);
}

void kvb_plain_put(const char *text, FILE *out)
{
    kvb_plain_put_n(text, strlen(text), out);
}

/* Words with control characters are written $'\n', for bash, zsh and ksh. */
bool kvb_shell_add(char *text, size_t bytes, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,=+@/:%";
    bool quoted = !*word || word[strspn(word, plain)], controls = false;
    size_t used = strlen(text);

    for (const char *c = word; *c; c++)
        controls |= (unsigned char)*c < 0x20 || *c == 0x7f;
    used += (size_t)snprintf(text + used, bytes - used, " %s", !quoted ? "" : controls ? "$'" : "'");
    for (; *word && used < bytes; word++) {
        const char *form = controls && ((unsigned char)*word < 0x20 || *word == 0x7f) ? "\\%03o"
                           : controls && (*word == '\'' || *word == '\\')             ? "\\%c"
                           : *word == '\''                                            ? "'\\''"
                                                                                      : "%c";
        used += (size_t)snprintf(text + used, bytes - used, form, (unsigned char)*word);
    }
    if (used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, "%s", quoted ? "'" : "");
    return used < bytes;
}

size_t kvb_words_that_fit(const char *text, size_t width)
{
    size_t blank = 0, columns = 0, at = 0;

    for (; text[at]; at += kvb_utf8_bytes(text + at)) {
        if (text[at] == ' ' && columns > width)
            break;
        if (text[at] == ' ')
            blank = at;
        columns++;
    }
    return columns > width && blank ? blank : at;
}

void kvb_folded_put(const char *text, size_t indent, FILE *out)
{
    size_t n = kvb_words_that_fit(text, KVB_PAGE_COLUMNS);

    kvb_plain_put_n(text, n, out);
    while (text[n]) {
        text += n + strspn(text + n, " ");
        n = kvb_words_that_fit(text, KVB_PAGE_COLUMNS - indent);
        fprintf(out, "\n%*s", (int)indent, "");
        kvb_plain_put_n(text, n, out);
    }
    putc('\n', out);
}

/* Returns the XML reference of a character; NULL: it needs none. White space needs one, as a parser turns it into
 * spaces inside an attribute. */
static const char *reference(char c)
{
    static const struct {
        char c;
        const char *text;
    } references[] = {
        {'&', "&amp;"},  {'<', "&lt;"},  {'>', "&gt;"},   {'"', "&quot;"},
        {'\'', "&#39;"}, {'\t', "&#9;"}, {'\n', "&#10;"}, {'\r', "&#13;"},
    };

    for (size_t i = 0; i < sizeof references / sizeof *references; i++)
        if (references[i].c == c)
            return references[i].text;
    return (unsigned char)c < 0x20 ? "?" : NULL;
}

void kvb_xml_put(const char *text, FILE *out)
{
    while (*text) {
        size_t bytes = kvb_utf8_bytes(text);
        const char *other = reference(*text);

        if (bytes == 0 || strncmp(text, "\xef\xbf\xbe", 3) == 0 || strncmp(text, "\xef\xbf\xbf", 3) == 0)
            other = "?";
        if (other)
            fputs(other, out);
        else
            fwrite(text, 1, bytes, out);
        text += bytes ? bytes : 1;
    }
}

/* ---- numbers with units -------------------------------------------------------------------------------- */

/* x, in units[0], as text in the largest fitting unit. units end with NULL; each is `step` times the one before it, and
 * is used from `from` of that one on. */
static kvb_number unit_text(double x, const char *const *units, double step, double from, bool three_digits)
{
    kvb_number n = {""};
    const char *const *unit = units;
    for (; unit[1] && x >= from; unit++)
        x /= step;
    const bool whole = unit == units && (!three_digits || x == floor(x));
    if (!isnan(x))
        snprintf(n.text, sizeof n.text, fabs(x) < 1e9 ? "%.*f %s" : "%.*g %s",
                 whole           ? 0
                 : !three_digits ? 1
                 : x < 9.995     ? 2
                 : x < 99.95     ? 1
                                 : 0,
                 x, *unit);
    return n;
}

kvb_number kvb_time_text(double ns)
{
    return unit_text(ns, (const char *const[]){"ns", "us", "ms", "s", NULL}, 1000, 999.5, true);
}

kvb_number kvb_bytes_text(double bytes)
{
    return unit_text(bytes, (const char *const[]){"B", "KiB", "MiB", "GiB", "TiB", "PiB", NULL}, 1024, 1023.95, false);
}

kvb_number kvb_whole_text(long double number)
{
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%.0Lf", number);
    kvb_number out = {""};
    size_t used = 0;
    for (int i = 0; i < n && used + 2 < sizeof out.text && !isnan(number); i++) {
        if (i && (n - i) % 3 == 0)
            out.text[used++] = ',';
        out.text[used++] = digits[i];
    }
    return out;
}

kvb_number kvb_change_text(double ratio)
{
    const double change = 100 * (ratio - 1);
    kvb_number n = {""};
    if (isfinite(ratio))
        snprintf(n.text, sizeof n.text, fabs(change) < 999.5 ? "%+.1f %%" : "%+.3g %%", change);
    return n;
}

/* Columns that the last and the first cell keep in a folded table. In a table that cannot fit the page the first cell
 * keeps more, as folding names would gain nothing. */
enum { LAST_LEAST = 32, FIRST_LEAST = 8, FIRST_LEAST_UNFIT = 18 };

/* ---- building a table ---------------------------------------------------------------------------------- */

typedef struct column {
    char *heading;
    bool right;   /* right-aligned; numbers in its cells are numbers in JSON */
    bool kept;    /* hidden after other columns of numbers */
    size_t width; /* of the widest cell */
    size_t shown; /* printed width: less than `width` if the table is folded */
    bool hidden;  /* left out, so that the table fits the terminal */
} column;

struct kvb_table {
    column *columns;
    size_t n_columns;
    char **cells; /* [n_rows][n_columns]; NULL: empty */
    size_t n_rows, room;
    size_t begun; /* cells of the row after these */
    int error;    /* of the first row that failed */
};

static size_t page = KVB_PAGE_COLUMNS; /* most columns of a line */
static bool must_fit, coloured;

void kvb_table_view(size_t columns, bool colours)
{
    page = columns ? columns : KVB_PAGE_COLUMNS;
    must_fit = columns && columns != SIZE_MAX;
    coloured = colours;
}

const char *kvb_table_colour(const char *word, const FILE *out)
{
    static const struct {
        const char *word, *sequence;
    } colours[] = {
        {"pass", "\033[32m"}, {"fail", "\033[31m"},   {"crash", "\033[31m"},  {"timeout", "\033[31m"},
        {"skip", "\033[33m"}, {"FASTER", "\033[32m"}, {"SLOWER", "\033[31m"}, {"LESS", "\033[32m"},
        {"MORE", "\033[31m"}, {"BROKEN", "\033[31m"}, {"GONE", "\033[31m"},
    };

    for (size_t i = 0; coloured && out == stdout && i < sizeof colours / sizeof *colours; i++)
        if (strcmp(colours[i].word, word) == 0)
            return colours[i].sequence;
    return "";
}

bool kvb_table_is_for_people(kvb_table_format format)
{
    return format == KVB_TABLE_TEXT || format == KVB_TABLE_MD || format == KVB_TABLE_HTML;
}

kvb_table *kvb_table_new(const char *const *headings)
{
    kvb_table *table = calloc(1, sizeof *table);
    size_t n = 0;

    while (headings[n])
        n++;
    assert(n > 0);
    if (!table || !(table->columns = calloc(n, sizeof *table->columns)))
        goto fail;
    table->n_columns = n;
    for (size_t i = 0; i < n; i++) {
        table->columns[i].right = headings[i][0] == '>';
        table->columns[i].kept = table->columns[i].right && headings[i][1] == '>';
        table->columns[i].heading = strdup(headings[i] + table->columns[i].right + table->columns[i].kept);
        if (!table->columns[i].heading)
            goto fail;
        table->columns[i].width = table->columns[i].shown = kvb_utf8_width(table->columns[i].heading);
    }
    return table;
fail:
    kvb_table_free(table);
    return NULL;
}

void kvb_table_free(kvb_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->n_rows * table->n_columns + table->begun; i++)
        free(table->cells[i]);
    for (size_t i = 0; i < table->n_columns; i++)
        free(table->columns[i].heading);
    free(table->cells);
    free(table->columns);
    free(table);
}

static int cell_add(kvb_table *table, const char *text)
{
    column *at = &table->columns[table->begun];
    if (kvb_array_reserve(&table->cells, &table->room, table->n_rows + 1, table->n_columns * sizeof *table->cells))
        return -ENOMEM;
    char *cell = table->cells[table->n_rows * table->n_columns + table->begun] = text ? strdup(text) : NULL;

    if (text && !cell)
        return -ENOMEM;
    if (cell)
        kvb_utf8_clean(cell);
    if (cell && kvb_utf8_width(cell) > at->width)
        at->width = at->shown = kvb_utf8_width(cell);
    table->begun = (table->begun + 1) % table->n_columns;
    table->n_rows += !table->begun;
    return 0;
}

int kvb_table_row(kvb_table *table, const char *const *cells)
{
    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < table->n_columns && !table->error; i++)
        table->error = cell_add(table, cells[i]);
    return table->error;
}

void kvb_table_cell(kvb_table *table, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    const int n = vasprintf(&text, format, args);
    va_end(args);
    if (table && !table->error)
        table->error = n < 0 ? -ENOMEM : cell_add(table, n ? text : NULL);
    if (n >= 0)
        free(text);
}

#define SEPARATOR "\xff" /* replaces the format's tabs: no UTF-8 text has this byte */

int kvb_table_put(kvb_table *table, const char *format, ...)
{
    char *text, *form = strdup(format);
    va_list args;
    for (char *tab = form ? strchr(form, '\t') : NULL; tab; tab = strchr(tab, '\t'))
        *tab = *SEPARATOR;
    va_start(args, format);
    const int n = form ? vasprintf(&text, form, args) : -1;
    va_end(args);
    free(form);
    if (!table || n < 0) {
        free(n < 0 ? NULL : text);
        return -ENOMEM;
    }
    char *rest = text;
    for (size_t i = 0; i < table->n_columns && !table->error; i++)
        table->error = cell_add(table, i + 1 < table->n_columns ? strsep(&rest, SEPARATOR) : rest);
    free(text);
    return table->error;
}

size_t kvb_table_rows(const kvb_table *table)
{
    return table ? table->n_rows : 0;
}

static bool column_is_empty(const kvb_table *table, size_t i)
{
    for (size_t row = 0; row < table->n_rows; row++)
        if (table->cells[row * table->n_columns + i] && *table->cells[row * table->n_columns + i])
            return false;
    return true;
}

static void column_remove(kvb_table *table, size_t gone)
{
    size_t kept = 0, n = table->n_rows * table->n_columns;

    for (size_t i = 0; i < n; i++)
        if (i % table->n_columns == gone)
            free(table->cells[i]);
        else
            table->cells[kept++] = table->cells[i];
    free(table->columns[gone].heading);
    table->n_columns--;
    memmove(&table->columns[gone], &table->columns[gone + 1], (table->n_columns - gone) * sizeof *table->columns);
}

void kvb_table_drop_empty(kvb_table *table)
{
    for (size_t i = table ? table->n_columns : 0; i-- > 1;)
        if (column_is_empty(table, i))
            column_remove(table, i);
}

/* Takes up to *excess columns from the shown width of a column, but leaves `least`. */
static void column_shrink(column *c, size_t least, size_t *excess)
{
    size_t spare = c->shown > least ? c->shown - least : 0, less = spare < *excess ? spare : *excess;

    c->shown -= less;
    *excess -= less;
}

static size_t width_of(const kvb_table *table)
{
    size_t width = 0;

    for (size_t i = 0; i < table->n_columns; i++)
        width += table->columns[i].hidden ? 0 : table->columns[i].shown + 2;
    return width - 2;
}

void kvb_table_fold(kvb_table *table)
{
    if (!table)
        return;
    column *first = &table->columns[0], *last = &table->columns[table->n_columns - 1];
    size_t width = width_of(table), excess = width > page ? width - page : 0;

    if (!last->right && last != first)
        column_shrink(last, LAST_LEAST, &excess);
    column_shrink(first, excess + FIRST_LEAST <= first->shown ? FIRST_LEAST : FIRST_LEAST_UNFIT, &excess);
}

/* Folds, then hides columns from the right until the table fits: numbers, then text, then `kept` numbers; never the
 * first column. */
static void table_fit(kvb_table *table)
{
    if (width_of(table) > page)
        kvb_table_fold(table);
    for (int turn = 0; turn < 3; turn++)
        for (size_t i = table->n_columns; i-- > 1 && width_of(table) > page;) {
            column *c = &table->columns[i];
            c->hidden = c->hidden || turn == (c->kept ? 2 : c->right ? 0 : 1);
        }
    for (size_t i = 1; i < table->n_columns; i++) { /* show hidden columns that fit after wider ones were hidden */
        column *c = &table->columns[i];
        const bool hidden = c->hidden;
        c->hidden = false;
        c->hidden = hidden && width_of(table) > page;
    }
}

/* ---- one cell ------------------------------------------------------------------------------------------ */

static void spaces_put(size_t n, FILE *out)
{
    fprintf(out, "%*s", (int)n, "");
}

static void md_put(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '|')
            putc('\\', out);
        putc((unsigned char)*text < 0x20 ? ' ' : *text, out);
    }
}

static void csv_put(const char *text, FILE *out)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', out);
        putc(*text, out);
    }
    putc('"', out);
}

static void json_put(const char *text, FILE *out)
{
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            putc(*text, out);
    }
    putc('"', out);
}

static bool is_number(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
    const bool is = json_is_number(value) && !strpbrk(text, " \t\r\n");
    json_decref(value);
    return is;
}

/* ---- whole tables -------------------------------------------------------------------------------------- */

/* Cell i of a row. Rows count from 1: row 0 is the headings. */
static const char *cell_of(const kvb_table *table, size_t row, size_t i)
{
    const char *cell = row == 0 ? table->columns[i].heading : table->cells[(row - 1) * table->n_columns + i];

    return cell ? cell : "";
}

static void dashes_put(size_t n, FILE *out)
{
    while (n-- > 0)
        putc('-', out);
}

static void text_row_print(const kvb_table *table, size_t row, FILE *out)
{
    size_t owed = 0, start = 0; /* spaces before the next cell (no line ends with spaces); column where a cell begins */

    for (size_t i = 0; i < table->n_columns; i++) {
        const column *c = &table->columns[i];
        const char *cell = cell_of(table, row, i);
        size_t width = kvb_utf8_width(cell), n = strlen(cell);

        if (c->hidden)
            continue;
        bool says = strcmp(c->heading, "status") == 0 || strcmp(c->heading, "verdict") == 0;
        const char *colour = says ? kvb_table_colour(cell, out) : "";
        if (i == 0 && width > c->shown) { /* folded: a line of its own */
            kvb_plain_put(cell, out);
            putc('\n', out);
            cell = "";
            width = n = 0;
        }
        if (width > c->shown)
            n = kvb_words_that_fit(cell, c->shown);
        size_t gap = width < c->shown ? c->shown - width : 0;

        owed += c->right ? gap : 0;
        if (n > 0) {
            spaces_put(owed, out);
            fputs(colour, out);
            kvb_plain_put_n(cell, n, out);
            fputs(*colour ? KVB_COLOUR_END : "", out);
            owed = 0;
        }
        for (; cell[n]; n = kvb_words_that_fit(cell, c->shown)) { /* folded: further lines */
            cell += n + strspn(cell + n, " ");
            putc('\n', out);
            spaces_put(start, out);
            kvb_plain_put_n(cell, kvb_words_that_fit(cell, c->shown), out);
        }
        owed += (c->right ? 0 : gap) + 2;
        start += c->shown + 2;
    }
    putc('\n', out);
}

static void text_print(kvb_table *table, FILE *out)
{
    const char *before = "(left out to fit the terminal: ";

    if (must_fit && out == stdout)
        table_fit(table);
    text_row_print(table, 0, out);
    for (size_t i = 0; i < table->n_columns; i++) {
        if (table->columns[i].hidden)
            continue;
        fputs(i ? "  " : "", out);
        dashes_put(table->columns[i].shown, out);
    }
    fputc('\n', out);
    for (size_t row = 1; row <= table->n_rows; row++)
        text_row_print(table, row, out);
    for (size_t i = 0; i < table->n_columns; i++)
        if (table->columns[i].hidden) {
            fprintf(out, "%s%s", before, table->columns[i].heading);
            before = ", ";
        }
    fputs(*before == ',' ? "; --wide shows all)\n" : "", out);
}

static void md_print(kvb_table *table, FILE *out)
{
    for (size_t row = 0; row <= table->n_rows; row++) {
        for (size_t i = 0; i < table->n_columns; i++) {
            const char *cell = cell_of(table, row, i);
            size_t gap = table->columns[i].width - kvb_utf8_width(cell);

            fputs(i ? " " : "| ", out);
            spaces_put(table->columns[i].right ? gap : 0, out);
            md_put(cell, out);
            spaces_put(table->columns[i].right ? 0 : gap, out);
            fputs(" |", out);
        }
        putc('\n', out);
        if (row > 0)
            continue;
        putc('|', out);
        for (size_t i = 0; i < table->n_columns; i++) {
            dashes_put(table->columns[i].width + 1, out);
            fputs(table->columns[i].right ? ":|" : "-|", out);
        }
        putc('\n', out);
    }
}

static void csv_print(kvb_table *table, FILE *out)
{
    for (size_t row = 0; row <= table->n_rows; row++) {
        for (size_t i = 0; i < table->n_columns; i++) {
            if (i)
                putc(',', out);
            csv_put(cell_of(table, row, i), out);
        }
        putc('\n', out);
    }
}

static void json_print(kvb_table *table, FILE *out)
{
    putc('[', out);
    for (size_t row = 0; row < table->n_rows; row++) {
        fputs(row ? ",\n {" : "\n {", out);
        for (size_t i = 0; i < table->n_columns; i++) {
            const char *cell = table->cells[row * table->n_columns + i];

            if (i)
                fputs(", ", out);
            json_put(table->columns[i].heading, out);
            fputs(": ", out);
            if (!cell)
                fputs("null", out);
            else if (table->columns[i].right && is_number(cell))
                fputs(cell, out);
            else
                json_put(cell, out);
        }
        putc('}', out);
    }
    fputs(table->n_rows ? "\n]\n" : "]\n", out);
}

static void html_print(kvb_table *table, FILE *out)
{
    fputs("<table>\n<thead>\n", out);
    for (size_t row = 0; row <= table->n_rows; row++) {
        const char *element = row == 0 ? "th" : "td";

        fputs("<tr>", out);
        for (size_t i = 0; i < table->n_columns; i++) {
            fprintf(out, table->columns[i].right ? "<%s class=\"n\">" : "<%s>", element);
            kvb_xml_put(cell_of(table, row, i), out);
            fprintf(out, "</%s>", element);
        }
        fputs(row == 0 ? "</tr>\n</thead>\n<tbody>\n" : "</tr>\n", out);
    }
    fputs("</tbody>\n</table>\n", out);
}

int kvb_table_print(kvb_table *table, kvb_table_format format, FILE *out)
{
    static void (*const prints[KVB_TABLE_FORMATS])(kvb_table *, FILE *) = {
        text_print, md_print, csv_print, json_print, html_print,
    };

    assert(format < KVB_TABLE_FORMATS);
    if (!table || table->error)
        return -ENOMEM;
    prints[format](table, out);
    return fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}

int kvb_table_end(kvb_table *table, kvb_table_format format, FILE *out)
{
    const int error = kvb_table_print(table, format, out);
    kvb_table_free(table);
    return error;
}

static const char before_title[] = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>";
static const char looks[] =
    "</title>\n<style>\n"
    ":root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --page: #fff; --box: #f5f7f9; --line: "
    "#d4d9df;\n"
    "  --s0: #0b6fb8; --s1: #c2410c; --s2: #15803d; --s3: #8b3fb0; --s4: #946200; --s5: #0f766e; --s6: #a21caf; }\n"
    "@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #a3adb8; --page: #14181d; --box: #1d232a;\n"
    "  --line: #3a424c; --s0: #58a6ff; --s1: #fb923c; --s2: #4ade80; --s3: #d79bf5; --s4: #eab308; --s5: #2dd4bf; "
    "--s6: #f0abfc; } }\n"
    "body { margin: 0 auto; max-width: 90rem; padding: 1rem; background: var(--page); color: var(--ink);\n"
    "  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }\n"
    "h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; border-top: 1px solid var(--line); padding-top: 1rem; }\n"
    "figure { margin: 0; max-width: 36rem; } figcaption { color: var(--soft); font-size: 0.9rem; }\n"
    "svg { display: block; width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: var(--ink); "
    "}\n"
    "svg .grid { stroke: var(--line); } svg .budget { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 2 3; }\n"
    "svg .line { fill: none; stroke-width: 2.5; }\n"
    ".legend { display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; list-style: none; padding: 0; margin: 0.25rem 0; }\n"
    ".legend svg { display: inline-block; width: 2.2rem; height: 0.6rem; margin-right: 0.4rem; }\n"
    ".scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; margin: 1rem 0; }\n"
    "table { border-collapse: collapse; font-size: 0.8125rem; overflow-wrap: normal; }\n"
    "th, td { padding: 0.25rem 0.6rem; text-align: left; border-top: 1px solid var(--line); white-space: nowrap; }\n"
    "thead th { background: var(--box); border-top: 0; } .n { text-align: right; font-variant-numeric: tabular-nums; "
    "}\n"
    "</style>\n</head>\n<body>\n<h1>";

void kvb_page_begin(const char *title, const char *heading, FILE *out)
{
    fprintf(out, "%s%s%s%s</h1>\n", before_title, title, looks, heading);
}

void kvb_page_end(FILE *out)
{
    fputs("</body>\n</html>\n", out);
}
