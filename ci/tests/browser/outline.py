#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints an outline of the page on standard input, which must be well-formed XML: headings, tables with their columns, plots."""
import sys
import xml.etree.ElementTree as tree

HTML = "{http://www.w3.org/1999/xhtml}"


def text(element):
    return " ".join("".join(element.itertext()).split())


for element in tree.parse(sys.stdin).iter():
    name = element.tag.replace(HTML, "")
    if name == "h2":
        print(f"# {text(element)}")
    elif name == "table":
        print(f"table: {text(element.find(HTML + 'caption'))}")
        print("    " + " | ".join(text(head) for head in element.find(HTML + "thead").iter(HTML + "th")))
    elif name == "figure":
        names = [text(title) for svg in element.iter() if svg.tag.endswith("}svg") for title in svg if title.tag.endswith("}title")]
        print(f"plot: {'; '.join(names)}")
    elif name == "summary" and element.find(HTML + "h2") is None:
        print(f"folded: {text(element)}")
