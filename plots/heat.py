# SPDX-License-Identifier: Apache-2.0
"""The heat map: colour and number in each cell, by matplotlib, which places text in cells better than gnuplot does."""
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import LogNorm, to_rgb

from draw import plain
from text import digits

WORST = 30.0  # times the fastest at which the colours end


def luminance(colour):
    """Of WCAG 2: what contrast is reckoned by."""
    parts = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def draw(panel, outputs, ink):
    rows, columns, values = panel.settings["rows"], panel.settings["columns"], panel.blocks["values"]
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": panel.key, "font.size": 9, "text.color": ink,
                                "font.family": "DejaVu Sans", "axes.edgecolor": ink, "xtick.color": ink, "ytick.color": ink})
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
