/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of strings, which every command prints through, and the texts that go into their cells: numbers with units,
 * UTF-8, XML.
 */
#ifndef KVB_TABLE_H
#define KVB_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define KVB_PAGE_COLUMNS 100u /* width that reports for people keep to */

typedef enum kvb_table_format {
    KVB_TABLE_TEXT,
    KVB_TABLE_MD,
    KVB_TABLE_CSV,
    KVB_TABLE_JSON,
    KVB_TABLE_HTML, /* a <table> for a page (page.h); only some commands offer it */
    KVB_TABLE_FORMATS
} kvb_table_format;

/* Text and Markdown are for people, the other formats for programs. */
bool kvb_table_is_for_people(kvb_table_format format);

/*
 * How tables of text are shown on standard output. columns is the longest line: a wider table leaves columns out and
 * names them. 0 (the usual value) folds lines at KVB_PAGE_COLUMNS where that is enough; SIZE_MAX folds nothing.
 * coloured: words such as "pass" and "fail" have colours.
 */
void kvb_table_view(size_t columns, bool coloured);

/* The escape sequence for a word of a status or a verdict ("pass", "fail", "SLOWER"), on `out`; "" where there is none.
 */
const char *kvb_table_colour(const char *word, const FILE *out);
#define KVB_COLOUR_END "\033[0m"

/*
 * Columns are padded in text and Markdown. Cells are quoted as each format requires. JSON is an array of objects whose
 * keys are the headings; in right-aligned columns, cells that are JSON numbers are written as numbers. Bytes that are
 * not UTF-8 are shown as '?'.
 */
typedef struct kvb_table kvb_table;

/* headings end with NULL. A heading that begins with '>' is right-aligned; with ">>" it is also left
 * out after other numbers where a terminal is narrow. The '>' is not printed. NULL: no memory. */
kvb_table *kvb_table_new(const char *const *headings);
/* Appends a row with as many strings as there are headings. NULL is an empty cell (null in JSON). 0 or -ENOMEM, which the
 * table keeps until it is printed: later rows do nothing. A table that is NULL: -ENOMEM. */
int kvb_table_row(kvb_table *table, const char *const *cells);
/* The same; a tab of the format ends a cell. Tabs of the texts stay in their cells. */
__attribute__((format(printf, 2, 3))) int kvb_table_put(kvb_table *table, const char *format, ...);
size_t kvb_table_rows(const kvb_table *table); /* how many it has; NULL: 0 */
/* Removes the columns that have no text in any row. */
void kvb_table_drop_empty(kvb_table *table);
/* Keeps lines of text within KVB_PAGE_COLUMNS where it can: a long first cell gets a line of its own, and a long last
 * cell goes on in further lines. The other formats do not change. */
void kvb_table_fold(kvb_table *table);
/* Prints the table, unless a row of it failed. 0, -ENOMEM (the table is NULL, too) or -EIO. */
int kvb_table_print(kvb_table *table, kvb_table_format format, FILE *out);
void kvb_table_free(kvb_table *table);
/* The same, and frees it. */
int kvb_table_end(kvb_table *table, kvb_table_format format, FILE *out);

/* ---- numbers with units -------------------------------------------------------------------------------- */

/* A number in print. As a result it is an argument of printf: kvb_bytes_text(n).text. NaN gives "". */
typedef struct kvb_number {
    char text[32];
} kvb_number;
#define KVB_UNIT_TEXT sizeof(kvb_number)

kvb_number kvb_time_text(double ns);           /* "850 ns", "12.3 us", "1.25 ms", "3.00 s": three digits */
kvb_number kvb_bytes_text(double bytes);       /* "512 B", "1.2 MiB", "24.0 GiB" */
kvb_number kvb_whole_text(long double number); /* "1,234,567": exact for 64 bits, too */
kvb_number kvb_change_text(double ratio);      /* new / base as "+10.0 %"; what is not finite gives "" */

/* ---- characters ---------------------------------------------------------------------------------------- */

/* Length of the valid UTF-8 character at the start of text: 1 to 4 bytes, or 0 if there is none. */
size_t kvb_utf8_bytes(const char *text);

/* Columns that text takes on a terminal: its characters without combining marks. An invalid byte counts as one. */
size_t kvb_utf8_width(const char *text);

/* Replaces each byte that is not valid UTF-8 by '?', in place. File names may be in another encoding, and a text may
 * have been cut inside a character; neither may spoil a JSON file. */
void kvb_utf8_clean(char *text);

/* Writes text for a terminal: control characters, which a file name or a reason may hold, become spaces. */
void kvb_plain_put(const char *text, FILE *out);
void kvb_plain_put_n(const char *text, size_t n, FILE *out); /* the first n bytes */

/* Appends " word" to a command in text [bytes], in quotes if a shell needs them. False: it does not fit; text is then
 * cut. */
bool kvb_shell_add(char *text, size_t bytes, const char *word);

/* How many bytes of valid UTF-8 fit on a line of `width` columns: whole words, at least one. */
size_t kvb_words_that_fit(const char *text, size_t width);

/* Writes a line of valid UTF-8 for a terminal. If it is wider than KVB_PAGE_COLUMNS, it goes on in further lines,
 * indented. */
void kvb_folded_put(const char *text, size_t indent, FILE *out);

/* Writes text as the value of an XML attribute (in double or single quotes) or as the content of an element. What
 * XML 1.0 cannot hold (most control characters, U+FFFE, U+FFFF, bytes that are not UTF-8) becomes '?'. */
void kvb_xml_put(const char *text, FILE *out);

/* A page of HTML in one file that loads nothing else: what stands around its content, and its looks. */

/* Up to and with the heading; title: of the window. Both are plain words. */
void kvb_page_begin(const char *title, const char *heading, FILE *out);
void kvb_page_end(FILE *out);

#endif
