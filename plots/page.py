# SPDX-License-Identifier: Apache-2.0
"""Pieces of the page as strings. They are both HTML and well-formed XML."""
import html
import re
from collections import namedtuple

# A column of a table: its heading, what it means, and cell(row), which gives a Cell or a text.
Column = namedtuple("Column", "heading meaning cell")
# A cell that sorts by `value` and shows `text`, with `spread` below it.
Cell = namedtuple("Cell", "text value spread", defaults=("",))


def escape(text):
    """Escapes any text. What XML cannot hold becomes a question mark."""
    return html.escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", str(text)))


def tag(name, content="", **attributes):
    """<name …>content</name>; content is HTML, attributes are text; class_ is class, data_value data-value."""
    words = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
                    for key, value in attributes.items() if value is not None)
    return f"<{name}{words}>{content}</{name}>"


def paragraph(text, **attributes):
    return tag("p", escape(text), **attributes)


def bullets(texts):
    return tag("ul", "".join(tag("li", escape(text)) for text in texts))


def code(text):
    return tag("pre", tag("code", escape(text)), tabindex="0")


def section(key, title, *parts, is_open=False):
    """A part of the page that its heading folds and unfolds."""
    heading = tag("summary", tag("h2", escape(title)))
    return tag("details", heading + "\n" + "\n".join(parts), id=key, class_="section", open="open" if is_open else None) + "\n"


def cell_html(cell, is_first):
    name, extra = ("th", {"scope": "row"}) if is_first else ("td", {})
    if not isinstance(cell, Cell):
        return tag(name, escape(cell), class_="long" if len(cell) > 40 else None, **extra)
    value = None if cell.value is None else f"{cell.value:.6g}"
    content = escape(cell.text) + (tag("small", escape(cell.spread)) if cell.spread else "")
    return tag(name, content, class_="n", data_value=value, **extra)


def table(key, caption, columns, rows, kind="facts", again=None):
    """Tables of kind "data" can be sorted and filtered (report.js). Columns without content are left out. again(row) is the command
    that runs a row again, for a button in it."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    filled = [i for i in range(len(columns))
              if i == 0 or any((c[i].value is not None) if isinstance(c[i], Cell) else c[i] != "" for c in cells)]
    heads = "".join(tag("th", escape(columns[i].heading), scope="col", title=columns[i].meaning or None) for i in filled)
    body = "\n".join(tag("tr", "".join(cell_html(line[i], i == filled[0]) for i in filled), data_again=again and again(row))
                     for line, row in zip(cells, rows))
    whole = tag("table", tag("caption", escape(caption)) + tag("thead", tag("tr", heads)) + tag("tbody", "\n" + body),
                id=key, class_=kind)
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption) + "\n"


def pairs(key, caption, facts):
    """A table of two columns: facts are (name, text)."""
    columns = [Column("fact", "", lambda fact: fact[0]), Column("value", "", lambda fact: fact[1])]
    return table(key, caption, columns, facts)


def figure(svgs, caption):
    """Panels of one plot side by side."""
    panels = "\n".join(tag("div", svg, class_="panel") for svg in svgs)
    return tag("figure", tag("div", panels, class_="panels") + (tag("figcaption", escape(caption)) if caption else "")) + "\n"


def folded(summary, content):
    return tag("details", tag("summary", escape(summary)) + content) + "\n"
