#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The report of result files: one HTML page, or its plots as pictures. `kvbench report` checks the files and calls it.

    plots/report.py page FOLDER F.jsonl…       writes FOLDER/index.html
    plots/report.py pictures FOLDER F.jsonl…   writes FOLDER/*.png, *.svg and *.pdf

Exit 0, or 3 with one line: a package is missing, or nothing can be written.
"""
import importlib.util
import os
import shutil
import string
import sys
import tempfile

import sections
from draw import css, draw, inline
from figures import figures
from page import bullets, escape, figure, paragraph, section, tag
from records import comparison, load
from units import count


def stop(why):
    print(f"kvbench report: {why}", file=sys.stderr)
    sys.exit(3)


def packages_check():
    for is_there, what, package in ((shutil.which("gnuplot"), "gnuplot", "gnuplot-nox"),
                                    (importlib.util.find_spec("matplotlib"), "matplotlib", "python3-matplotlib")):
        if not is_there:
            stop(f"{what} is missing: install the Debian package {package}, or run ci/deps.sh report")


def source(name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), encoding="utf-8") as file:
        return file.read()


def plot_body(chosen, folder):
    body = figure([inline(panel, folder) for panel in chosen.panels], chosen.caption) if chosen.panels else ""
    return body + (bullets(chosen.words) if chosen.words else "") or paragraph(f"Unavailable: {chosen.absent}")


def page(runs, moved, folder):
    """The whole page. `folder` is where plots are drawn."""
    plots = figures(runs, moved)
    draw(plots.values(), folder, ["svg"])
    body = {key: plot_body(chosen, folder) for key, chosen in plots.items()}
    parts = [("verdict", sections.verdict(runs))]
    parts += [("changed", sections.changed(runs, moved, body["changed"]))] if moved else []
    parts += [("machine", sections.machine(runs)), ("fastest", sections.winners(runs))]
    others = sections.beside(runs)
    parts += [("beside", others)] if others else []
    parts += [(key, section(key, plots[key].title, body[key])) for key in plots if key != "changed"]
    parts += [("kinds", sections.kinds(runs)), ("counters", sections.counters(runs)), ("slow", sections.slow(runs)), ("all", sections.everything(runs, moved)), ("skipped", sections.skipped(runs)),
              ("reproduce", sections.reproduce(runs))]
    names = {"verdict": "Verdict", "changed": "Before and after", "machine": "Machine", "fastest": "Fastest", "beside": "Beside others", "roofline": "Roofline", "growth": "Kernels and context",
             "context": "Formats and context", "threads": "Threads", "spread": "Distribution",
             "heat": "Heat map", "memory": "Memory", "formats": "Formats",
             "kinds": "Kinds of steps", "counters": "Counters", "slow": "Slowest", "all": "All", "skipped": "Skipped",
             "reproduce": "Reproduce"}
    links = "".join(tag("li", tag("a", names[key], href=f"#{key}")) for key, _ in parts)
    suites = ", ".join(dict.fromkeys(run.manifest["suite"] for run in runs))
    machines = ", ".join(dict.fromkeys(run.manifest["cpu_model"] for run in runs))
    return string.Template(source("report.html")).substitute(
        title=escape(f"kvbench: {suites} on {machines}"),
        subtitle=escape("; ".join(f"{run.label}: {count(len(run.records), 'combination')}, {run.manifest['date']}, commit "
                                  f"{run.manifest['commit']}" for run in runs)),
        links=links, css=css() + source("report.css"), js=source("report.js"), sections="".join(html for _, html in parts))


def page_write(runs, moved, folder):
    with tempfile.TemporaryDirectory() as work:
        whole = page(runs, moved, work)
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


def pictures_write(runs, moved, folder):
    plots = figures(runs, moved).values()
    draw(plots, folder, ["png", "svg", "pdf"])
    print(f"{folder}: {count(sum(len(plot.panels) for plot in plots), 'plot')}, each as PNG, SVG and PDF")


def main(what, folder, *paths):
    packages_check()
    try:
        os.makedirs(folder, exist_ok=True)
        {"page": page_write, "pictures": pictures_write}[what](load(paths), comparison(paths), folder)
    except OSError as error:
        stop(f"{error.filename or folder}: {error.strerror}")
    except RuntimeError as error:
        stop(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
