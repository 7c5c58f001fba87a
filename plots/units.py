# SPDX-License-Identifier: Apache-2.0
"""Numbers as people read them: three digits and a unit."""

STEPS = {
    "ns": [(1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")],
    "bytes": [(1, "B"), (1024, "KiB"), (1024**2, "MiB"), (1024**3, "GiB")],
    "share": [(0.01, "%")],
    "GB/s": [(1, "GB/s")],
    "GFLOP/s": [(1, "GFLOP/s")],
    "Gop/s": [(1, "Gop/s")],
    "bits": [(1, "bits")],
    "times": [(1, "×")],
    "": [(1, "")],
}
INFINITY = 1e308  # stands for infinity in result files


def digits(x):
    """Three significant digits, never 1e+03."""
    if x == 0:
        return "0"
    if abs(x) >= INFINITY:
        return "∞" if x > 0 else "−∞"
    size = int(f"{x:.2e}".partition("e")[2])  # of what it is rounded to: 99.96 is 100
    if size < -4 or size > 8:
        return f"{x:.2e}"
    return f"{x:.{max(0, 2 - size)}f}"


def step_of(x, unit):
    """The unit in which a number is shown: (size, name)."""
    fitting = [step for step in STEPS[unit] if abs(x) >= step[0] * 0.9995]
    return fitting[-1] if fitting else STEPS[unit][0]


def number(x, unit=""):
    """"12.3 µs", or a dash for None."""
    if x is None:
        return "–"
    size, name = step_of(x, unit)
    return f"{digits(x / size)} {name}".rstrip()


def interval(low, high, unit=""):
    """"11.9–12.8 µs": both ends in the unit of the higher one."""
    if low is None or high is None:
        return ""
    size, name = step_of(high, unit)
    return f"{digits(low / size)}–{digits(high / size)} {name}".rstrip()


def change(ratio):
    """"+12.3 %", of new over base. Far beyond what is measured it is only said to be more."""
    if ratio is None:
        return "–"
    if ratio > 100:
        return "more than 100 ×"
    percent = 100 * (ratio - 1)
    return "0 %" if abs(percent) < 0.005 else f"{'+' if percent > 0 else '−'}{digits(abs(percent))} %"


def count(n, noun, plural=None):
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"
