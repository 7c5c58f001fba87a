/* SPDX-License-Identifier: Apache-2.0 */
/* Texts for table cells: UTF-8 as RFC 3629 has it (no surrogates, no overlong forms), XML 1.0 (fifth edition), units.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "results/table.h"

/* ---- characters ---------------------------------------------------------------------------------------- */

/* Returns the code point at the start of text, and its length in *bytes: 0 if it is not valid. */
static uint32_t utf8_decode(const char *text, size_t *bytes)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000}; /* a smaller code point is an overlong form */
    const unsigned char *s = (const unsigned char *)text;
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    uint32_t c = n < 2 ? s[0] : s[0] & (0x7fu >> n);

    *bytes = 0;
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) /* not a continuation byte; the 0 at the end of text is none either */
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

/* Words with control characters are written $'\n', as bash, zsh and ksh read them. */
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

/* Returns what XML needs in place of a character, or NULL if it stands for itself. White space needs a reference too: a
 * parser turns it into spaces inside an attribute. */
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

/* Decimals that make three digits in all. */
static int decimals(double x)
{
    return x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
}

void kvb_time_text(double ns, char text[KVB_UNIT_TEXT])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    double x = ns;
    int unit = 0;

    text[0] = 0;
    if (isnan(ns))
        return;
    while (unit < 3 && x >= 999.5) {
        x /= 1000;
        unit++;
    }
    snprintf(text, KVB_UNIT_TEXT, fabs(x) < 1e9 ? "%.*f %s" : "%.*g %s", unit || x != floor(x) ? decimals(x) : 0, x,
             units[unit]);
}

void kvb_bytes_text(double bytes, char text[KVB_UNIT_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double x = bytes;
    int unit = 0;

    text[0] = 0;
    if (isnan(bytes))
        return;
    while (unit < 5 && x >= 1023.95) {
        x /= 1024;
        unit++;
    }
    snprintf(text, KVB_UNIT_TEXT, fabs(x) < 1e9 ? "%.*f %s" : "%.*g %s", unit ? 1 : 0, x, units[unit]);
}
