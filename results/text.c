/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as RFC 3629 has it (no surrogates, no overlong forms), and numbers with units. */
#include "results/text.h"

#include <math.h>
#include <stdint.h>

/* The code point that text begins with, and its length; length 0 when it is not valid. */
static uint32_t utf8_decode(const char *text, size_t *bytes)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000}; /* below: an overlong form */
    const unsigned char *s = (const unsigned char *)text;
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    uint32_t c = n < 2 ? s[0] : s[0] & (0x7fu >> n);

    *bytes = 0;
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) /* the end of the text is refused here too */
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

        width += !(c >= 0x300 && c <= 0x36f); /* combining marks stand on the character before */
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

void kvb_plain_put(const char *text, FILE *out)
{
    for (; *text; text++)
        putc((unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text, out);
}

/* Digits behind the point that leave three digits in all. */
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
