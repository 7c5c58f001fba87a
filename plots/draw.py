# SPDX-License-Identifier: Apache-2.0
"""Draws panels with gnuplot (plots.gp), as SVG for the page or as pictures of their own."""
import os
import re
import subprocess
import tempfile

from page import escape, tag

# For each series: its colour on paper and on a light page, its colour on a dark page, and a gnuplot mark for those who see no colours.
SERIES = [("#0b6fb8", "#58a6ff", 7), ("#c2410c", "#fb923c", 5), ("#15803d", "#4ade80", 9), ("#8b3fb0", "#d79bf5", 13),
          ("#946200", "#eab308", 11), ("#0f766e", "#2dd4bf", 4), ("#be185d", "#f472b6", 6), ("#4b5563", "#a3adb8", 8),
          ("#7a4a2b", "#d6a77f", 10), ("#3f3f9f", "#a5a5ff", 12)]
INK, GRID = "#1b1f24", "#d4d9df"
SIZES = {"small": (460, 340), "square": (460, 500)}  # of panels


def css():
    """The colours as CSS variables, which report.css uses too."""
    light, dark = ("".join(f"--s{i}:{row[side]};" for i, row in enumerate(SERIES)) for side in (0, 1))
    return f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"


def plain(text):
    """Text that is safe in a gnuplot string. gnuplot runs what is in backquotes."""
    text = re.sub(r"[^\w .,:;+=@/()<>×%*-]", "?", str(text))
    return text if len(text) <= 44 else text[:43] + "…"


def quoted(value):
    return str(value) if isinstance(value, (int, float)) else f"'{plain(value)}'"


def block(name, series, types):
    """A datablock with an index for each series, an array of labels, and one of line types: those of `types`, by label, or in order."""
    indexes = ["\n".join("\t".join(f"{x:.9g}" for x in row) for row in rows) for _, rows in series]
    arrays = {"label": [quoted(str(label)) for label, _ in series], "type": [str(types.get(label, i + 1)) for i, (label, _) in enumerate(series)]}
    return [f"${name} << KVB_END", "\n\n\n".join(indexes), "KVB_END", f"{name} = {len(series)}"] + [
        f"array {name}_{array}[{max(1, len(series))}]" + (f" = [{', '.join(values)}]" if series else "")  # gnuplot has no empty arrays
        for array, values in arrays.items()]


def script(panel, kind, output, size):
    lines = ["reset session", f"kind = '{kind}'", f"output = '{output}'", f"width = {size[0]}", f"height = {size[1]}",
             f"ink = '{INK}'", f"grid = '{GRID}'", f"title = {quoted(panel.title)}",
             f"plot = '{panel.source}'"]
    lines += [f"set linetype {i + 1} linecolor rgb '{light}' pointtype {mark} pointsize 0.6 linewidth 1.6"
              for i, (light, _, mark) in enumerate(SERIES)]
    lines += [f"{name} = {quoted(value)}" for name, value in panel.settings.items() if name != "types"]
    for name, series in panel.blocks.items():
        lines += block(name, series, panel.settings.get("types", {}))
    return "\n".join(lines + ["load 'plots.gp'", "set output", ""])


def draw(figures, folder, kinds):
    """Writes folder/KEY.KIND for each panel. OSError or RuntimeError says what went wrong."""
    commands = []
    for figure in figures:
        for panel in figure.panels:
            commands += [script(panel, kind, f"{panel.key}.{kind}", SIZES[figure.size]) for kind in kinds]
    here = os.path.dirname(os.path.abspath(__file__))
    if not commands:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".gp", encoding="utf-8") as whole:  # a file, because gnuplot ends at the first error in it
        whole.write("\n".join(commands))
        whole.flush()
        done = subprocess.run(["gnuplot", "-d", whole.name], cwd=folder, text=True, capture_output=True,
                              env={**os.environ, "GNUPLOT_LIB": here})
    if done.returncode:
        raise RuntimeError(f"gnuplot: {' '.join(done.stderr.split())[-400:] or done.returncode}")


def themed(svg):
    """Replaces the colours of paper by the page's variables."""
    def variable(match):
        colour = "#" + "".join(f"{int(x):02x}" for x in match.groups())
        return names.get(colour, match.group(0))
    names = {light: f"var(--s{i})" for i, (light, _, _) in enumerate(SERIES)} | {INK: "var(--ink)", GRID: "var(--line)"}
    svg = re.sub(r"rgb\(\s*(\d+),\s*(\d+),\s*(\d+)\s*\)", variable, svg)
    svg = svg.replace("color='white'", "color='var(--page)'")  # what gnuplot lays below a mark on a line
    for colour, name in names.items():
        svg = re.sub(colour, name, svg, flags=re.I)
    return svg


def inline(panel, folder):
    """The panel's SVG as part of a page: with unique ids, and with a name and a description for screen readers."""
    with open(os.path.join(folder, f"{panel.key}.svg"), encoding="utf-8") as file:
        svg = file.read()
    box = re.search(r'viewBox="([^"]*)"', svg).group(1)
    body = svg[svg.index(">", svg.index("<svg")) + 1:svg.rindex("</svg>")]
    body = re.sub(r"<(title|desc|metadata)>.*?</\1>\s*", "", body, flags=re.S)
    body = re.sub(r'\b(id=|xlink:href=|href=)(["\'])(#?)', rf"\1\2\3{panel.key}-", body)
    body = re.sub(r"url\((['\"]?)#", rf"url(\1#{panel.key}-", body).replace("xlink:href", "href")
    body = re.sub(r"[ \t]*\n\s*", "\n", themed(body))
    names = tag("title", escape(panel.title), id=f"{panel.key}-title") + tag("desc", escape(panel.description), id=f"{panel.key}-desc")
    most = 1.25 * float(box.split()[2])  # in pixels, so that a small picture is not enlarged
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" style="max-width:{most:.0f}px" role="img" '
            f'aria-labelledby="{panel.key}-title {panel.key}-desc">{names}{body}</svg>')
