# SPDX-License-Identifier: Apache-2.0
"""Draws panels with gnuplot (plots.gp), and heat maps with matplotlib, as SVG for the page or as pictures of their own."""
import os
import re
import subprocess
import tempfile

from page import escape, tag
from units import digits

# For each series: its colour on paper and on a light page, its colour on a dark page, and a gnuplot mark for those who see no colours.
SERIES = [("#0b6fb8", "#58a6ff", 7), ("#c2410c", "#fb923c", 5), ("#15803d", "#4ade80", 9), ("#8b3fb0", "#d79bf5", 13),
          ("#946200", "#eab308", 11), ("#0f766e", "#2dd4bf", 4), ("#be185d", "#f472b6", 6), ("#4b5563", "#a3adb8", 8),
          ("#7a4a2b", "#d6a77f", 10), ("#3f3f9f", "#a5a5ff", 12)]
INK, GRID = "#1b1f24", "#d4d9df"
WORST = 30.0  # times the fastest at which the heat map's colours end
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
    lines += [f"{name} = {quoted(value)}" for name, value in panel.settings.items() if name not in ("types", "tips")]
    for name, series in panel.blocks.items():
        lines += block(name, series, panel.settings.get("types", {}))
    return "\n".join(lines + ["load 'plots.gp'", "set output", ""])


def luminance(colour):
    """The relative luminance of WCAG 2, from which contrast is computed."""
    parts = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in colour[:3]]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def heat_draw(panel, outputs):
    """The heat map: colour and number in each cell, by matplotlib, which places text in cells better than gnuplot does."""
    import matplotlib  # takes half a second: only where there is a heat map
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm
    rows, columns, values = panel.settings["rows"], panel.settings["columns"], panel.blocks["values"]
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": panel.key, "font.size": 9, "text.color": INK,
                                "font.family": "DejaVu Sans", "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK})
    # In inches at 72 points: 17 points a row, 46 a column, beside and above them room for their names.
    left, top = 5.3 * min(panel.settings["longest"], 44) + 12, 3.4 * max(len(plain(c)) for c in columns) + 32
    wide, high = left + 46 * len(columns) + 26, top + 17 * len(rows) + 6
    picture = plt.figure(figsize=(wide / 72, high / 72))
    axes = picture.add_axes([left / wide, 6 / high, 46 * len(columns) / wide, 17 * len(rows) / high])
    colours, scale = plt.get_cmap("viridis_r"), LogNorm(1, WORST, clip=True)
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            if value is None:
                continue
            fill = colours(scale(value))
            axes.add_patch(plt.Rectangle((x + 0.02, y + 0.04), 0.96, 0.92, facecolor=fill, linewidth=0))
            axes.text(x + 0.5, y + 0.53, digits(value) if value < 100 else f"{value:.0f}", ha="center", va="center",
                      color="#000000" if luminance(fill) > 0.179 else "#ffffff", fontsize=8.5)
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(rows), 0)
    axes.set_xticks([x + 0.5 for x in range(len(columns))], map(plain, columns), rotation=35, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks([y + 0.5 for y in range(len(rows))], map(plain, rows))
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    picture.text(6 / wide, 1 - 14 / high, plain(panel.title), fontsize=11, fontweight="bold")
    for output in outputs:
        # Transparent, and without a date: the same records give the same bytes.
        picture.savefig(output, transparent=output.endswith(".svg"), dpi=150,
                        metadata={} if output.endswith(".png") else {"Date": None} if output.endswith(".svg") else {"CreationDate": None})
    plt.close(picture)


def draw(figures, folder, kinds):
    """Writes folder/KEY.KIND for each panel. OSError or RuntimeError says what went wrong."""
    commands = []
    for figure in figures:
        for panel in figure.panels:
            if panel.source == "heat":
                heat_draw(panel, [os.path.join(folder, f"{panel.key}.{kind}") for kind in kinds])
                continue
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
    # What gnuplot gave to a script of its own becomes a title, which browsers show.
    body = re.sub(r"""<g onmousemove="[^"]*'tip(\d+)'\)"[^>]*>""", lambda match: '<g class="tip">' + tag(
        "title", escape(panel.settings["tips"][int(match.group(1))])), body)
    body = re.sub(r'\b(id=|xlink:href=|href=)(["\'])(#?)', rf"\1\2\3{panel.key}-", body)
    body = re.sub(r"url\((['\"]?)#", rf"url(\1#{panel.key}-", body).replace("xlink:href", "href")
    body = re.sub(r"[ \t]*\n\s*", "\n", themed(body))
    names = tag("title", escape(panel.title), id=f"{panel.key}-title") + tag("desc", escape(panel.description), id=f"{panel.key}-desc")
    most = 1.25 * float(box.split()[2])  # in pixels, so that a small picture is not enlarged
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" style="max-width:{most:.0f}px" role="img" '
            f'aria-labelledby="{panel.key}-title {panel.key}-desc">{names}{body}</svg>')
