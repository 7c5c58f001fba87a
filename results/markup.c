/* SPDX-License-Identifier: Apache-2.0 */
/* Characters of XML 1.0 (fifth edition, production 2) and the five that mean something. */
#include "results/markup.h"

#include <string.h>

#include "results/text.h"

/* What stands for a byte; NULL: itself. White space as a reference: a parser makes spaces of it in an attribute. */
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
