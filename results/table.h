/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of strings, through which every command prints, and texts for their cells: numbers with units, UTF-8, XML.
 */
#ifndef KVB_TABLE_H
#define KVB_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define KVB_PAGE_COLUMNS 100u /* width of reports for people */

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
 * Sets how tables of text are shown on standard output. columns: the longest line; a wider table leaves columns out and
 * names them. coloured: words such as "pass" and "fail" have colours. columns 0 (default): lines are folded at
 * KVB_PAGE_COLUMNS if that is enough; SIZE_MAX: nothing is folded.
 */
void kvb_table_view(size_t columns, bool coloured);

/* The escape sequence for the word of a status or a verdict ("pass", "fail", "SLOWER") on `out`; "": none. */
const char *kvb_table_colour(const char *word, const FILE *out);
#define KVB_COLOUR_END "\033[0m"

/*
 * Columns are padded in text and Markdown. Cells are quoted as each format requires. JSON is an array of objects whose
 * keys are the headings; in right-aligned columns, cells that are JSON numbers are written as numbers. Bytes that are
 * not UTF-8 are shown as '?'.
 */
typedef struct kvb_table kvb_table;

/* headings end with NULL. '>' begins a right-aligned column; ">>" also keeps it longer than other numbers on a narrow
 * terminal. The '>' is not printed. NULL: no memory. */
kvb_table *kvb_table_new(const char *const *headings);
/* Appends a row with as many strings as there are headings. A NULL string is an empty cell (null in JSON). 0 or
 * -ENOMEM: then the table has failed, and later rows do nothing. table NULL: -ENOMEM. */
int kvb_table_row(kvb_table *table, const char *const *cells);
/* The same from a format: a tab of the format ends a cell. Tabs of inserted texts stay in their cells. */
__attribute__((format(printf, 2, 3))) int kvb_table_put(kvb_table *table, const char *format, ...);
/* Appends one cell, which is empty without text; after the last of a row comes the first of the next one. An error is
 * found when the table is printed. */
__attribute__((format(printf, 2, 3))) void kvb_table_cell(kvb_table *table, const char *format, ...);
size_t kvb_table_rows(const kvb_table *table); /* how many it has; NULL: 0 */
/* Removes the columns that have no text in any row. */
void kvb_table_drop_empty(kvb_table *table);
/* Keeps lines of text within KVB_PAGE_COLUMNS if possible: a long first cell gets a line of its own, a long last cell
 * continues in further lines. Other formats do not change. */
void kvb_table_fold(kvb_table *table);
/* Prints the table. 0; -ENOMEM: a row failed, or the table is NULL; -EIO. */
int kvb_table_print(kvb_table *table, kvb_table_format format, FILE *out);
void kvb_table_free(kvb_table *table);
/* Prints and frees the table. The same returns. */
int kvb_table_end(kvb_table *table, kvb_table_format format, FILE *out);

/* ---- numbers with units -------------------------------------------------------------------------------- */

/* A number as text, by value for printf: kvb_bytes_text(n).text. NaN: "". */
typedef struct kvb_number {
    char text[32];
} kvb_number;
#define KVB_UNIT_TEXT sizeof(kvb_number)

kvb_number kvb_time_text(double ns);           /* "850 ns", "12.3 us", "1.25 ms", "3.00 s": three digits */
kvb_number kvb_bytes_text(double bytes);       /* "512 B", "1.2 MiB", "24.0 GiB" */
kvb_number kvb_whole_text(long double number); /* "1,234,567": exact for 64 bits, too */
kvb_number kvb_change_text(double ratio);      /* new / base as "+10.0 %"; not finite: "" */

/* ---- characters ---------------------------------------------------------------------------------------- */

/* Length of the valid UTF-8 character at the start of text: 1 to 4 bytes, or 0 if there is none. */
size_t kvb_utf8_bytes(const char *text);

/* Columns of text on a terminal: its characters without combining marks. An invalid byte counts as one. */
size_t kvb_utf8_width(const char *text);

/* Replaces each byte that is not valid UTF-8 by '?', in place: a JSON file stays valid even if a file name is in
 * another encoding, or a text was cut inside a character. */
void kvb_utf8_clean(char *text);

/* Writes text for a terminal: control characters, which file names and reasons may hold, become spaces. */
void kvb_plain_put(const char *text, FILE *out);
void kvb_plain_put_n(const char *text, size_t n, FILE *out); /* the first n bytes */

/* Appends " word" to a command in text [bytes], in quotes if a shell needs them. False: the text was cut. */
bool kvb_shell_add(char *text, size_t bytes, const char *word);

/* How many bytes of valid UTF-8 fit on a line of `width` columns: whole words, at least one. */
size_t kvb_words_that_fit(const char *text, size_t width);

/* Writes a line of valid UTF-8 for a terminal. One wider than KVB_PAGE_COLUMNS continues in further, indented lines. */
void kvb_folded_put(const char *text, size_t indent, FILE *out);

/* Writes text as the value of an XML attribute (in double or single quotes) or as the content of an element. Characters
 * that XML 1.0 cannot hold (most control characters, U+FFFE, U+FFFF, bytes that are not UTF-8) become '?'. */
void kvb_xml_put(const char *text, FILE *out);

/* ---- a page of HTML in one file that loads nothing else ------------------------------------------------ */

/* Writes the beginning of a page with styles and heading. title: of the window. Both are plain words. */
void kvb_page_begin(const char *title, const char *heading, FILE *out);
void kvb_page_end(FILE *out);

#endif
