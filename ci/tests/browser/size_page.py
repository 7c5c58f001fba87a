#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`size_page.py KVBENCH PICTURE SETTINGS MODEL... -- OPTION... [++ SETTINGS MODEL... -- OPTION...]...`: tests the explorer of pages of
sizes in one headless Chromium. Makes each page with its models and options, sets its controls to SETTINGS random settings, and
compares the sizes that it shows with those of the program, to the byte. Prints the differences; exit 1 if there are any."""
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from chromium import Browser

SET = """(values) => { for (const [id, value] of Object.entries(values)) {
    const input = document.getElementById(id); input.value = value; input.dispatchEvent(new Event("input")); } }"""
READ = """[...document.querySelectorAll("#engines tr")].map((row) => ({engine: row.dataset.engine, why: row.dataset.why,
    ...Object.fromEntries([...row.querySelectorAll("td[data-key]")].map((cell) => [cell.dataset.key, cell.dataset.value]))}))"""
UNBOUNDED = 1 << 40
NUMBERS = ("kv", "states", "total", "longest", "most")


def settings_draw(draw, models, formats):
    k = draw.choice(formats if draw.random() < 0.3 else ["f16", "bf16", "bf16", "e4m3", "q8_0", "a4g64"])
    return {"model": draw.choice(models), "context": int(2 ** draw.uniform(0, 21)), "sequences": int(2 ** draw.uniform(0, 9)), "k": k,
            "v": k if draw.random() < 0.9 else draw.choice(formats), "tp": draw.choice([1, 1, 1, 2, 4, 8, 16, 64]),
            "budget": int(2 ** draw.uniform(3, 10))}


def program_says(kvbench, options, s, engines):
    """For each engine: the numbers that the page should show, or None if it should show none."""
    words = [kvbench, "size", s["model"], *options, "--context", str(s["context"]), "--sequences", str(s["sequences"]), "--kv",
             f"{s['k']}:{s['v']}", "--tp", str(s["tp"]), "--engine", ",".join(engines), "--format", "json"]
    if "--gpu" not in options:
        words += ["--budget", f"{s['budget']}GiB"]
    rows = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    said = {}
    for row in rows:
        numbers = None
        if row["kv_bytes"] is not None:
            known = row["total_bytes"] is not None
            limits = [UNBOUNDED if known and row[key] is None else row[key] for key in ("max_context", "max_sequences")]
            numbers = dict(zip(NUMBERS, [row["kv_bytes"], row["state_bytes"], row["total_bytes"], *limits]))
        said[row["engine"]] = numbers
    return said


def page_check(browser, kvbench, picture, count, options):
    """The number of mistakes in the page of these options."""
    models, rest = options[: options.index("--")], options[options.index("--") + 1:]
    page = pathlib.Path(tempfile.mkdtemp()) / "size.html"
    subprocess.run([kvbench, "size", *models, *rest, "--format", "html", "-o", page], check=True)
    wrong, compared, thrown = 0, 0, len(browser.seen("Runtime.exceptionThrown"))
    browser.open(page)
    names = browser.run("[...document.getElementById('model').options].map((o) => o.value)")
    formats = browser.run("[...document.getElementById('k').options].map((o) => o.value)")
    draw = random.Random(1)
    for _ in range(count):
        s = settings_draw(draw, names, formats)
        values = {key: value for key, value in s.items() if key != "budget" or "--gpu" not in rest}
        browser.run(f"({SET})({json.dumps(values)})")
        shown = {row["engine"]: row for row in browser.run(READ)}
        for engine, said in program_says(kvbench, rest, s, list(shown)).items():
            row = shown[engine]
            seen = None if "why" in row else {key: int(row[key]) if key in row else None for key in NUMBERS}
            compared += seen is not None
            if seen != said:
                wrong += 1
                print(f"{engine}, {s}: the page shows {row}, the program says {said}")
    for control, text in (("context", "4x"), ("context", "0"), ("context", ""), ("sequences", "-1"), ("sequences", "1.5"), ("budget", "lots"),
                          ("budget", "-3")):
        before = browser.run(f"document.getElementById({json.dumps(control)}).value")
        browser.run(f"({SET})({json.dumps({control: text})})")
        if browser.run(READ) or "was expected" not in browser.run("document.getElementById('said').textContent"):
            wrong += 1
            print(f"{control} {text!r} is taken as something else")
        browser.run(f"({SET})({json.dumps({control: before})})")
    totals = []
    for text in ("32768", "32k"):
        browser.run(f"({SET})({json.dumps({'context': text})})")
        totals.append([row.get("kv") for row in browser.run(READ)])
    if totals[0] != totals[1] or not totals[0]:
        wrong += 1
        print("32k is not 32768")
    verdicts = browser.run("[...document.querySelectorAll('#engines td[data-key=fits]')].map((cell) => cell.textContent)")
    if not all(re.fullmatch(r"fits|does not fit: .* over|weights\?|", v) for v in verdicts):
        wrong += 1
        print(f"verdicts: {verdicts}")
    broken = [event["exceptionDetails"]["exception"]["description"] for event in browser.seen("Runtime.exceptionThrown")[thrown:]]
    browser.screenshot(picture)
    print(*broken, f"{' '.join(options)}: {count} settings, {compared} sizes compared, {wrong} differ", sep="\n")
    return wrong + len(broken) + (compared < count)


def main():
    kvbench, picture, words = sys.argv[1], sys.argv[2], sys.argv[3:]
    pages = [list(group) for between, group in itertools.groupby(words, lambda word: word == "++") if not between]
    browser = Browser()
    try:
        return 1 if sum([page_check(browser, kvbench, picture, int(count), options) for count, *options in pages]) else 0
    finally:
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
