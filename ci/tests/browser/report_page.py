#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`report_page.py INDEX.html [COMMAND_FILE [TEXT]]`: uses a report's page in headless Chromium as people do. Prints what is wrong; exit
1 if anything is. The page's command for a row is written to COMMAND_FILE; without one the page is looked at, and nothing is clicked.
The page must show TEXT unchanged."""
import itertools
import pathlib
import sys

from chromium import Browser

FUNCTIONS = """
const rowsOf = () => [...document.querySelectorAll("#combinations tbody tr")].filter((row) => row.getClientRects().length > 0);
const columnOf = (name) => [...document.querySelectorAll("#combinations thead th")].findIndex((head) =>
    head.querySelector("button").textContent === name);
const cellsOf = (name, column = columnOf(name)) => rowsOf().map((row) => row.cells[column]);
const valuesOf = (name) => cellsOf(name).map((cell) => Number(cell.dataset.value));
const textsOf = (name) => cellsOf(name).map((cell) => cell.textContent);
const headOf = (name) => `#combinations thead th:nth-child(${columnOf(name) + 1})`;
/* WCAG 2: relative luminance, and the contrast of an element's colour with the page's. */
const light = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map((x) => x / 255).map((x) =>
    x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4).reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (element, what) => {
    const [a, b] = [light(getComputedStyle(element)[what]), light(getComputedStyle(document.body).backgroundColor)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
};
"""


class Page:
    def __init__(self, browser, path):
        self.browser, self.path, self.wrong = browser, path, []

    def open(self, width, dark):
        """Opens the page, checks its first screen, then unfolds everything."""
        self.browser.open(self.path, width, dark=dark)
        if width >= 1400:
            low = self.js("""[...document.querySelectorAll("#lead svg, #verdict")].filter((e) => e.getBoundingClientRect().bottom > innerHeight)
                .map((e) => e.textContent.slice(0, 40))""")
            self.check("the first screen lacks a picture or the verdict", not low, low)
        self.js("""document.querySelectorAll("details").forEach((e) => { e.open = true; })""")

    def js(self, expression):
        return self.browser.run(f"(() => {{ {FUNCTIONS} return {expression}; }})()")

    def check(self, name, good, seen=""):
        if not good:
            self.wrong.append(name)
            print(f"wrong: {name} {seen}")


def looks(page):
    """On a screen and on a phone, light and dark: all text fits and is readable. What fits does not depend on colours, nor contrast
    on the width, so two of the four combinations are enough."""
    for width, dark in ((1400, False), (400, True)):
        page.open(width, dark)
        name = f"at {width} pixels, {'dark' if dark else 'light'}:"
        page.check(f"{name} the page scrolls sideways", page.js("document.documentElement.scrollWidth <= innerWidth"))
        dim = page.js("""[...document.querySelectorAll("body, p, a, small, caption, figcaption, h1, h2, th, .again, .verdict")]
            .filter((e) => contrast(e, "color") < 4.5).map((e) => e.outerHTML.slice(0, 80))""")
        page.check(f"{name} text is hard to read", not dim, dim)
        dim = page.js("""[...document.querySelectorAll("svg text")].filter((e) => contrast(e, "fill") < 4.5).map((e) => e.textContent)""")
        page.check(f"{name} text of plots is hard to read", not dim, dim)
        # not smaller than the smallest print of a newspaper
        tiny = page.js("""[...document.querySelectorAll("svg")].filter((svg) => svg.getBoundingClientRect().width > 0).flatMap((svg) =>
            [...svg.querySelectorAll("text")].filter((e) => e.textContent.trim() !== "" && parseFloat(getComputedStyle(e).fontSize) *
            svg.getBoundingClientRect().width / svg.viewBox.baseVal.width < 7.5).map((e) => e.textContent))""")
        page.check(f"{name} text of plots is tiny", not tiny, tiny)
        # a plot must show data: marks in a colour of the series
        empty = page.js("""[...document.querySelectorAll("svg")].filter((svg) => !(svg.getBoundingClientRect().width > 100 &&
            svg.getBoundingClientRect().height > 50 && svg.getBBox().width > 50 && /var\\(--s[0-9]/.test(svg.innerHTML)))
            .map((svg) => svg.textContent.slice(0, 40))""")
        page.check(f"{name} plots are empty", not empty, empty)


def is_accessible(page):
    page.check("a plot has no name", page.js("""[...document.querySelectorAll("svg")].every((svg) => svg.getAttribute("role") === "img" &&
        svg.getAttribute("aria-labelledby").split(" ").every((id) => document.getElementById(id).textContent.length > 3))"""))
    page.check("a table has no caption or a heading no scope", page.js("""[...document.querySelectorAll("table")].every((table) =>
        table.caption.textContent.length > 3 && [...table.querySelectorAll("th")].every((th) => th.hasAttribute("scope")))"""))
    page.check("a field has no label", page.js("""[...document.querySelectorAll("input, select")].every((field) =>
        field.getAttribute("aria-label"))"""))
    twice = page.js("""[...document.querySelectorAll("[id]")].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i)""")
    page.check("an id is there twice", not twice, twice)


def shows_all(page):
    """The page shows the first of many rows; all rows after a click."""
    whole = page.js("""document.querySelectorAll("#combinations tbody tr").length""")
    few = page.js("rowsOf().length")
    page.check("too many rows at first, or too few", few == min(whole, 200), (few, whole))
    if few < whole:
        page.browser.click("#all .found button")
        page.check("not all rows when asked", page.js("rowsOf().length") == whole)


def sorts(page):
    for column, direction in itertools.product(("p99", "bits"), (1, -1)):
        selector = page.js(f"headOf({column!r})")
        page.browser.click(f"{selector} button")
        values = page.js(f"valuesOf({column!r})")
        page.check(f"a click on {column} does not sort", values == sorted(values, reverse=direction < 0) and len(set(values)) > 2, values)
        word = page.js(f"document.querySelector({selector!r}).getAttribute('aria-sort')")
        page.check("aria-sort does not tell", word == ("ascending" if direction > 0 else "descending"), word)
    page.js(f"""document.querySelector(headOf("kernel") + " button").focus()""")
    page.browser.key("Enter")
    kernels = page.js("""textsOf("kernel")""")
    page.check("Enter on a heading does not sort", kernels == sorted(kernels), kernels)
    page.check("another column is still marked as sorted", page.js("""document.querySelectorAll("#combinations [aria-sort]").length""") == 1)


def filters(page):
    before = page.js("rowsOf().length")
    every = sorted(page.js("""valuesOf("p99")"""))  # not medians, which are missing if too noisy
    limit = every[before // 2] / 1000 * 1000  # the page's own conversion, which may round
    field = page.js("""headOf("p99") + " input" """).strip()
    page.browser.type(field, f"< {every[before // 2] / 1000} us")
    values = page.js("""valuesOf("p99")""")
    page.check("a filter of numbers", 0 < len(values) < before and sorted(values) == [x for x in every if x < limit], (limit, values))
    told = page.js("""document.querySelector("#combinations").closest(".scroll").previousElementSibling.firstChild.textContent.trim()""")
    page.check("the number of rows is not told", told == f"{len(values)} of {before} rows", told)
    page.js(f"""(() => {{ const e = document.querySelector({field!r}); e.value = ""; e.dispatchEvent(new Event("input")); }})()""")
    page.check("an emptied filter shows all", page.js("rowsOf().length") == before)
    page.js("""(() => { const e = document.querySelector(headOf("kernel") + " select"); e.value = "flash";
        e.dispatchEvent(new Event("input")); })()""")
    kernels = page.js("""textsOf("kernel")""")
    page.check("a choice", 0 < len(kernels) < before and set(kernels) == {"flash"}, kernels)


def repeats(page, command_file):
    page.browser.click("#combinations tbody tr:not([hidden]) .again")
    command = page.js("""document.querySelector("#command").textContent""")
    page.check("no command", command.startswith("kvbench run ") and " --workload " in command, command)
    with open(command_file, "w", encoding="utf-8") as file:
        file.write(command)
    page.browser.key("Escape")
    page.check("Escape leaves the command", page.js("""document.querySelector("#command").textContent""") == "")


def is_alone(page):
    """No errors, no messages, and no request to the network."""
    for event in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
        page.check(event, not page.browser.seen(event), page.browser.seen(event))
    asked = {event["request"]["url"] for event in page.browser.seen("Network.requestWillBeSent")}
    page.check("it asks for more than itself", asked == {pathlib.Path(page.path).absolute().as_uri()}, asked)
    far = page.js("""[...document.querySelectorAll("[src], [href]")].map((e) => e.getAttribute("src") ?? e.getAttribute("href"))
        .filter((url) => !url.startsWith("#"))""")
    page.check("it points outside", not far, far)


def main(path, command_file=None, text=None):
    browser = Browser()
    page = Page(browser, path)
    try:
        looks(page)
        page.open(1280, False)
        is_accessible(page)
        if text is not None:
            page.check("a name is not shown as it is", text in page.js("""textsOf("workload")""") or
                       "copy" + text in page.js("""textsOf("workload")"""))
            page.check("a name became markup", page.js("""document.querySelector("#evil")""") is None)
        if command_file is not None:
            shows_all(page)
            sorts(page)
            filters(page)
            repeats(page, command_file)
        is_alone(page)
    finally:
        browser.close()
    sys.exit(bool(page.wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
