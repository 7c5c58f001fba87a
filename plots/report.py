#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The report of result files: one HTML page, or its plots as pictures. `kvbench report` checks the files and calls it.

    plots/report.py page FOLDER F.jsonl…       writes FOLDER/index.html
    plots/report.py pictures FOLDER F.jsonl…   writes FOLDER/*.png, *.svg and *.pdf
    plots/report.py machines FOLDER M.jsonl    writes FOLDER/index.html, of records of machines

Exit 0, or 3 with one line: a package is missing, or nothing can be written; 2: a line is no record of a machine.
"""
import os
import shutil
import string
import sys
import tempfile

import machines
import sections
from draw import css, draw, inline
from figures import REAL, figures
from page import escape, figure, section, tag
from records import comparison, load
from units import count


def stop(why, status=3):
    print(f"kvbench report: {why}", file=sys.stderr)
    sys.exit(status)


def packages_check():
    if not shutil.which("gnuplot"):
        stop("gnuplot is missing: install the Debian package gnuplot-nox, or run ci/deps.sh report")


def source(name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), encoding="utf-8") as file:
        return file.read()


def leading(plots):
    """The pictures of the first screen: (panel, its caption). Where no memory over a history of real size is known, a second format's kernels."""
    places = [("kernels", 0), ("winners", 0), ("memory", 0), ("kernels", 1)]
    found = [(plots[key].panels[i], plots[key].caption) for key, i in places if key in plots and i < len(plots[key].panels)
             and (key != "memory" or plots[key].panels[i].title.startswith(REAL))]
    return found[:3]


def whole_page(title, parts, style=""):
    return string.Template(source("report.html")).substitute(
        title=escape(title), css=style + source("report.css"), js=source("report.js"), sections="".join(parts))


def page(runs, moved, folder):
    """The page of runs. `folder` is where plots are drawn."""
    plots = {key: plot for key, plot in figures(runs, moved).items() if plot.panels}
    draw(plots.values(), folder, ["svg"])
    lead = leading(plots)
    led = [panel.key for panel, _ in lead]
    rest = {key: [panel for panel in plot.panels if panel.key not in led] for key, plot in plots.items()}
    body = {key: figure([inline(panel, folder) for panel in panels], plots[key].caption) for key, panels in rest.items() if panels}
    parts = [tag("div", "".join(figure([inline(panel, folder)], caption) for panel, caption in lead), id="lead")] if lead else []
    parts += [sections.verdict(runs), sections.changed(runs, moved, body.get("changed", "")), sections.failures(runs)]
    parts += [section(key, plots[key].title, html, is_open=key == "kernels") for key, html in body.items() if key != "changed"]
    parts += [sections.kernels(runs), sections.everything(runs, moved)]
    parts += [tell(runs) for tell in (sections.skipped, sections.machine, sections.reproduce)]
    suites = ", ".join(dict.fromkeys(run.manifest["suite"] for run in runs))
    cpus = ", ".join(dict.fromkeys(run.manifest["cpu_model"] for run in runs))
    return whole_page(f"kvbench: {suites} on {cpus}", parts, css())


def page_write(folder, whole):
    target = os.path.join(folder, "index.html")
    try:
        with open(target + ".tmp", "w", encoding="utf-8") as file:
            file.write(whole)
        os.replace(target + ".tmp", target)
    except OSError:
        if os.path.exists(target + ".tmp"):
            os.unlink(target + ".tmp")
        raise
    print(target)


def runs_write(folder, *paths):
    packages_check()
    with tempfile.TemporaryDirectory() as work:
        page_write(folder, page(load(paths), comparison(paths), work))


def machines_write(folder, path):
    try:
        title, parts = machines.page(path)
    except ValueError as error:
        stop(error, 2)
    page_write(folder, whole_page(title, parts))


def pictures_write(folder, *paths):
    packages_check()
    runs, moved = load(paths), comparison(paths)
    plots = figures(runs, moved).values()
    draw(plots, folder, ["png", "svg", "pdf"])
    print(f"{folder}: {count(sum(len(plot.panels) for plot in plots), 'plot')}, each as PNG, SVG and PDF")


def main(what, folder, *paths):
    try:
        os.makedirs(folder, exist_ok=True)
        {"page": runs_write, "pictures": pictures_write, "machines": machines_write}[what](folder, *paths)
    except OSError as error:
        stop(f"{error.filename or folder}: {error.strerror}")
    except RuntimeError as error:
        stop(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
