/* SPDX-License-Identifier: Apache-2.0 */
#include "results/page.h"

static const char before_title[] = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>";
static const char looks[] =
    "</title>\n<style>\n"
    ":root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --page: #fff; --box: #f5f7f9; --line: "
    "#d4d9df;\n"
    "  --s0: #0b6fb8; --s1: #c2410c; --s2: #15803d; --s3: #8b3fb0; --s4: #946200; --s5: #0f766e; }\n"
    "@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #a3adb8; --page: #14181d; --box: #1d232a;\n"
    "  --line: #3a424c; --s0: #58a6ff; --s1: #fb923c; --s2: #4ade80; --s3: #d79bf5; --s4: #eab308; --s5: #2dd4bf; } }\n"
    "body { margin: 0 auto; max-width: 90rem; padding: 1rem; background: var(--page); color: var(--ink);\n"
    "  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }\n"
    "h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; border-top: 1px solid var(--line); padding-top: 1rem; }\n"
    "figure { margin: 0; max-width: 36rem; } figcaption { color: var(--soft); font-size: 0.9rem; }\n"
    "svg { display: block; width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: var(--ink); "
    "}\n"
    "svg .grid { stroke: var(--line); } svg .budget { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 2 3; }\n"
    "svg .line { fill: none; }\n"
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
