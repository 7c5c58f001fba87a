#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes one place of the sources at a time, and asks the tests whether they see it: what survives, no test looks at.

    ci/mutate.py build --count 50 --seed 1            a sample
    ci/mutate.py build caches/store.c oracle          every place of these files and folders: some hours
    ci/mutate.py build --tests oracle                 judged by test programs alone: some seconds for each mutant

A mutant is a comparison at its border or reversed, a 1 left out or doubled, operands swapped, plus for minus, times for
divided by, "and" for "or", the larger for the smaller, a condition negated, another value returned, a statement dropped. It is made
in a copy of the tree. Mutants that do not compile (warnings aside), that compile to the same code, or that ci/mutants-alike.txt lists
with a reason, are not counted. Judges are tried in turn, and the first that fails kills the mutant: test programs that link the file
and lie in its folder of tests, have its name, include its header, or are listed below; scripts with the name of the file or its
folder; a run of several workloads; `kvbench faults` (honest combinations must pass, each fault be caught). A judge must pass without
the mutant: this is tried before its first verdict, and sets its time limit. Survivors are listed with file and line.
Exit 0, whatever the score.
"""
import argparse
import collections
import functools
import glob
import math
import os
import pathlib
import queue
import random
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOMS = {"caches": "caches", "kernels": "kernels", "oracle": "oracle", "harness": "harness", "results": "results",
         "workloads/live": "live", "workloads": "workloads"} # folder of sources: folder of its tests
LED_TO = {"workloads/history": ["cli/forms.t"], "kernels/ggml/": ["cli/ggml.t"], "kernels/onnx/": ["cli/ggml.t"], "harness/tuning/": ["cli/tune.t"], "kernels/scan": ["whole/test_scan"],
          "harness/selection/": ["cli/list.t", "cli/settings.t"], "harness/counters/": ["cli/count.t"], "harness/matrix/": ["cli/isolation.t"],
         "harness/commands/merge": ["cli/shard.t"], "results/": ["cli/compare.t", "cli/export.t"],
         "harness/replay/scan": ["cli/hybrids.t", "cli/every_row.t"], "caches/stores/state": ["cli/hybrids.t"],
          "oracle/descent": ["whole/test_descent"], "oracle/recurrence": ["whole/test_descent"]} # tests that no name leads to
RUN, FAULTS = "a run", "kvbench faults"
ALIKE = ROOT / "ci/mutants-alike.txt" # for each mutant its file, the line before and after, and why no test can see it
JUDGED = ("caches", "kernels", "oracle", "harness") # folders of tests whose sources `kvbench faults` judges
ALONE = r"(?<![\w.>])(\w+) %s (\w+)\b(?![.\[(]|->)" # operands that are one word
TURNS = [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
         (r" && ", " || "), (r" \|\| ", " && "), (r" \+ 1\b(?!\.)", ""), (r" \+ 1\b(?!\.)", " + 2"), (r" - 1\b(?!\.)", ""),
         (ALONE % "-", r"\2 - \1"), (ALONE % "/", r"\2 / \1"), (r" \+= ", " -= "), (r" \+ (?!1\b)", " - "), (r" - (?!1\b)", " + "),
         (r" \* ", " / "), (r" / ", " * "), (r"\bfmin\(", "fmax("), (r"\bfmax\(", "fmin("),
         (r"\bif \((.*)\)( \{)?\s*$", r"if (!(\1))\2"), (r"\breturn true;", "return false;"), (r"\breturn false;", "return true;"),
         (r"\breturn 0;", "return 1;"), (r"\breturn (?!true|false|0)(\w+);", r"return \1 + 1;")]
# A dropped free() is not tried: only `make asan` finds leaks.
DROPPED = re.compile(r"^( +)(?!free\(|return|break|continue|goto|else|case|default|const |static |struct |uint|int |size_t |float |double |bool |char |kvb_\w+ \w+ =)"
                     r"[\w>.\[\]*()+-]+( [-+*|&]?= .*|\(.*\)|\+\+);$")
NO_CODE = re.compile(r'^\s*(#|//|/?\*|assert|static_assert|snprintf|fprintf|return kvb_\w*(fail|complain))|"')
SMOKE = ["run", "--check", "--jobs", "1", "--set", "no-guard", "--set", "oracle-pairs=200000", "--pool", "f32", "--pool", "f16"] + [
    word for name in ("agent-fork", "batched-multi-seq", "eagle-tree", "sink-window") for word in ("--workload", name)]


@functools.cache
def lines_of(name):
    return (ROOT / name).read_text().split("\n")


def mutants_of(name):
    """Each mutant of a file: its name, the number of a line from 0, and the new line."""
    for number, line in enumerate(lines_of(name)):
        code = line.split("/*")[0].split("//")[0]
        if NO_CODE.search(code) or not line.startswith(" "):
            continue
        changed = [code[:m.start()] + m.expand(new) + code[m.end():] + line[len(code):]
                   for old, new in TURNS for m in re.finditer(old, code)]
        if DROPPED.match(code.rstrip()):
            changed.append(re.match(" *", line)[0] + ";")
        for new in changed:
            if new not in (line, *changed[:changed.index(new)]) and not ("alloc(" in code and " + 2" in new): # more room changes nothing
                yield name, number, new


def alike():
    """{(file, line before, line after): reason}"""
    found = {}
    for block in ALIKE.read_text().split("\n\n"):
        lines = block.strip("\n").split("\n")
        if lines[0].endswith(".c"):
            found[lines[0], lines[1][1:].strip(), lines[2][1:].strip()] = " ".join(lines[3:])
    return found


def place_of(mutant):
    """The mutant as a key of alike()."""
    name, number, new = mutant
    return name, lines_of(name)[number].strip(), new.strip()


def room_of(name):
    return next((tests for room, tests in ROOMS.items() if name.startswith(room + "/")), None)


def give_up(why): # from any thread
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


def symbols(*files): # symbols of programs may be local: the linker hides those that plug-ins do not need
    lines = subprocess.check_output(["nm", "--defined-only", *files], text=True).splitlines() if files else []
    return {line.split()[-1] for line in lines if " kvb_" in line}


class Judges:
    """The judges of each file, and how long each takes without a mutant."""

    def __init__(self, build, files, tests_alone, limit):
        programs = {str(p.relative_to(ROOT / "ci/tests"))[:-2]: p.read_text() for p in (ROOT / "ci/tests").glob("*/test_*.c")}
        wanted = {name: [t for t, text in programs.items() if t.startswith(f"{room_of(name)}/") or self.names(t, text, name)]
                  for name in files}
        make = ["make", f"-j{os.cpu_count()}", f"BUILD={build}", "programs"]
        if subprocess.call([*make, *sorted({f"{build}/tests/{t}" for tests in wanted.values() for t in tests})], cwd=ROOT,
                           env=dict(os.environ, MAKEFLAGS=""), stdout=subprocess.DEVNULL):
            sys.exit("the tests do not build")
        self.tests_alone, self.limit, self.kills = tests_alone, limit, collections.Counter()
        held = {t: symbols(build / "tests" / t) for t in {t for tests in wanted.values() for t in tests}}
        self.of, self.seconds, self.texts = {}, {}, programs
        for name, tests in wanted.items():
            own = symbols(*glob.glob(f"{build}/{name[:-2]}.o") + glob.glob(f"{build}/{name[:-2]}.*.o"))
            scripts = {f"cli/{self.word(name)}.t", f"cli/{pathlib.Path(name).parent.name}.t"} | {t for t in self.led_to(name) if t.endswith(".t")}
            self.of[name] = [t for t in tests if held[t] & own]
            if not tests_alone:
                self.of[name] += (sorted(t for t in scripts if (ROOT / "ci/tests" / t).is_file()) +
                                  [RUN] + ([FAULTS] if room_of(name) in JUDGED else []))

    @staticmethod
    def word(name):
        return pathlib.Path(name).stem.split("_")[0]

    @staticmethod
    def led_to(name):
        return [test for start, tests in LED_TO.items() if name.startswith(start) for test in tests]

    def names(self, test, text, name):
        return test in self.led_to(name) or f'"{name[:-2]}.h"' in text or self.word(name) in pathlib.Path(test).name.split("_")

    def in_order(self, name):
        """Likely judges first, then those that have killed most, then the quickest."""
        return sorted(self.of[name], key=lambda j: ((RUN, FAULTS).index(j) if j in (RUN, FAULTS) else -1,
                                                    not self.names(j, self.texts.get(j, ""), name), -self.kills[j],
                                                    self.seconds.get(j, 5)))


class Copy:
    """A copy of the tree and of the build, for mutants."""

    def __init__(self, build, number):
        self.build, place = build, build / "mutants" / str(number)
        self.tree, self.objects, self.log, self.stamp = place / "tree", place / "objects", place / "log", place / "stamp"
        shutil.rmtree(place, ignore_errors=True)
        for name in subprocess.check_output(["ci/files.sh"], cwd=ROOT, text=True).splitlines():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.tree / name) # times are kept, so that make finds nothing stale
        shutil.copytree(build, self.objects, ignore=lambda folder, names:
                        {"mutants", "asan", "tsan", "fuzz", "coverage"} & set(names) if folder == str(build) else ())
        self.stamp.touch()
        self.sound = {} # object code of files without mutants, compiled the same way

    def run(self, seconds, *command, tree=None):
        """False: the command failed, or took longer."""
        environment = dict(os.environ, MAKEFLAGS="", KVB_DEPS_SKIP="1", KVB_TEST_SECONDS=str(math.ceil(seconds)), KVB_TEST_JOBS="1",
                           CMOCKA_TEST_ABORT="1", KVB_WORKLOADS=str(ROOT / "workloads/recorded"), KVB_PROGRESS="0",
                           GIT_CEILING_DIRECTORIES=str(self.build)) # a copy is no part of the repository
        with open(self.log, "w") as log:
            try:
                return subprocess.call(command, cwd=tree or self.tree, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=subprocess.STDOUT, timeout=seconds + 60) == 0
            except subprocess.TimeoutExpired:
                return False

    def make(self, *targets):
        return self.run(1800, "make", "OPT=-O1", "WARN=", f"BUILD={self.objects}", "FACTS=keep", *targets)

    def code(self, name):
        """The object code of a file."""
        stem = self.objects / name[:-2]
        return [p.read_bytes() for p in sorted(stem.parent.glob(f"{stem.name}.*o")) if p.suffix == ".o"]

    def fails(self, judge, seconds, sound=False):
        tree, objects = (ROOT, self.build) if sound else (self.tree, self.objects)
        if judge in (RUN, FAULTS):
            return not self.run(seconds, f"{objects}/kvbench", *(SMOKE if judge == RUN else ["faults"]), tree=tree)
        script = judge.endswith(".t")
        if script and not sound and not self.make("programs"):
            give_up(f"programs do not build: see {self.log}")
        return not self.run(seconds, "ci/test.sh", str(objects), f"ci/tests/{judge}" if script else f"{objects}/tests/{judge}",
                            tree=tree)

    def killer(self, judges, name):
        linked, order = 0, [j for j in judges.in_order(name) if judges.seconds.get(j, 0) <= judges.limit]
        for number, judge in enumerate(order):
            if number == linked: # one program, then two, four, … at a time
                linked += number + 1
                programs = [j for j in order[number:linked] if j in judges.texts]
                if programs and not self.make(*(f"{self.objects}/tests/{j}" for j in programs)):
                    give_up(f"{judge} does not build: see {self.log}")
            if judge not in judges.seconds:
                begin = time.time()
                failed = self.fails(judge, min(judges.limit, 1800), sound=True)
                judges.seconds[judge] = time.time() - begin
                if failed and judges.seconds[judge] < judges.limit:
                    give_up(f"{judge} fails without any change: see {self.log}")
            if judges.seconds[judge] > judges.limit:
                continue
            if self.fails(judge, 20 + 5 * judges.seconds[judge]):
                judges.kills[judge] += 1
                return judge
        return "lives"

    def try_out(self, mutant, judges):
        """"unbuilt", "alike", "lives", or the judge that kills it."""
        name, number, new = mutant
        archive = f"{self.objects}/lib{'live' if name.startswith('workloads/live/') else name.split('/')[0]}.a"
        plugin = re.match("kernels/(ggml|onnx)/", name)
        built = f"{self.objects}/plugins/{plugin[1]}.so" if plugin else archive
        if name not in self.sound:
            if not self.make("-W", name, built):
                give_up(f"{name} does not build: see {self.log}")
            self.sound[name] = self.code(name)
        lines = (self.tree / name).read_text().split("\n")
        lines[number] = new
        (self.tree / name).write_text("\n".join(lines))
        try:
            if not self.make(built):
                return "unbuilt"
            if self.code(name) == self.sound[name]:
                return "alike"
            if not judges.tests_alone and not self.make(f"{self.objects}/kvbench"):
                return "unbuilt"
            return self.killer(judges, name)
        finally:
            self.restore()

    def restore(self):
        """Replaces files that are newer than the copy by the sound ones, or removes them if there is none."""
        since = self.stamp.stat().st_mtime_ns
        for copied, sound in (self.tree, ROOT), (self.objects, self.build):
            for path in copied.rglob("*"):
                if path.is_symlink() or not path.is_file() or path.stat().st_mtime_ns <= since:
                    continue
                origin = sound / path.relative_to(copied)
                path.unlink() # never written over: a process that a killed test left may still run it
                if origin.is_file():
                    shutil.copy2(origin, path)


class Score:
    """Numbers of mutants: tried, not built, alike, and, of the others, killed."""

    def __init__(self, verdicts):
        verdicts = list(verdicts)
        self.tried, self.unbuilt, self.alike = len(verdicts), verdicts.count("unbuilt"), verdicts.count("alike")
        self.counted = self.tried - self.unbuilt - self.alike
        self.killed = self.counted - verdicts.count("lives")
        self.percent = f"{100 * self.killed // max(self.counted, 1)} %" if self.counted else ""


def table_of(options, places, said, reasons):
    commit = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
    tried, judged = Score(v for _, v in said), "test programs alone" if options.tests else "tests, a run and `kvbench faults`"
    judged += f", none that takes more than {options.seconds:g} s" if options.seconds < math.inf else ""
    about = (f"Written by `ci/mutate.py --table`: commit {commit}, {time.strftime('%Y-%m-%d')}. {tried.tried} of the {places} mutants of "
             f"these files (seed {options.seed}), each judged by {judged}. *Counted* are those that build and change something: "
             f"**{tried.killed} of {tried.counted} are killed, {tried.percent}**. {tried.unbuilt} do not build; {tried.alike} change "
             "nothing: they compile to the same code, or are listed below.")
    text = [f"""# What the tests see

{textwrap.fill(about, 130)}

| file | tried | counted | killed | |
|---|---:|---:|---:|---:|"""]
    for name in sorted({m[0] for m, _ in said}):
        score = Score(v for m, v in said if m[0] == name)
        text.append(f"| {name} | {score.tried} | {score.counted} | {score.killed} | {score.percent} |")

    def listed(title, mutants):
        text.append(f"\n## {title}\n")
        for name, old, new, why in mutants:
            text.append(f"`{name}`{why}\n```diff\n-{old}\n+{new}\n```")
    listed("What lives", [(*place_of(m), f":{m[1] + 1}") for m, v in sorted(said) if v == "lives"])
    listed("What changes nothing", [(*place, f": {why}") for place, why in sorted(reasons.items())])
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the sound build, with its tests")
    parser.add_argument("files", nargs="*", help="only these sources and folders; default: " + " ".join(ROOMS))
    parser.add_argument("--count", type=int, default=0, help="a sample of so many mutants; default: all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample; default: %(default)s")
    parser.add_argument("--tests", action="store_true", help="no scripts, run and faults: what no test program sees, lives")
    parser.add_argument("--seconds", type=float, default=math.inf, help="judges that take longer are left out")
    parser.add_argument("--table", type=pathlib.Path, help="a file for the score, as Markdown: results/mutation.md")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="copies of the tree; default: %(default)s")
    options = parser.parse_intermixed_args()
    files = sorted({p for given in options.files or ROOMS
                    for p in ([given] if given.endswith(".c") else glob.glob(f"{given}/**/*.c", root_dir=ROOT, recursive=True))
                    if "example-plugin" not in p and p != "harness/main.c"})
    for name in files:
        if not (ROOT / name).is_file() or not room_of(name):
            sys.exit(f"{name}: expected a source of {', '.join(ROOMS)}")
    mutants = [m for name in files for m in mutants_of(name)]
    reasons, known = alike(), {place_of(m) for m in mutants}
    for name, old, new in reasons:
        if name in files and (name, old, new) not in known:
            sys.exit(f"{ALIKE.name}: {name} has no such mutant any more: {old}")
    random.Random(options.seed).shuffle(mutants)
    places = len(mutants)
    mutants = mutants[:options.count] if options.count else mutants
    build = pathlib.Path(options.build).resolve()
    judges = Judges(build, sorted({m[0] for m in mutants}), options.tests, options.seconds)
    copies = [Copy(build, k) for k in range(max(1, min(options.jobs, len(mutants))))]
    todo, lock, said = queue.SimpleQueue(), threading.Lock(), []
    for mutant in mutants:
        todo.put(mutant)

    def worker(copy):
        while True:
            try:
                mutant = todo.get_nowait()
            except queue.Empty:
                return
            begin, (name, line, new) = time.time(), mutant
            verdict = "alike" if place_of(mutant) in reasons else copy.try_out(mutant, judges)
            with lock:
                said.append((mutant, verdict))
                print(f"{len(said)}/{len(mutants)} {'LIVES' if verdict == 'lives' else verdict}: {name}:{line + 1}: {new.strip()} "
                      f"({time.time() - begin:.0f} s)", flush=True)

    threads = [threading.Thread(target=worker, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    score = Score(v for _, v in said)
    print(f"\n{places} places, {score.tried} tried, {score.unbuilt} do not build, {score.alike} change nothing; of {score.counted} "
          f"{score.killed} are killed ({score.percent})")
    for (name, line, new), verdict in sorted(said):
        if verdict == "lives":
            print(f"\n{name}:{line + 1}\n-{lines_of(name)[line]}\n+{new}")
    if options.table:
        options.table.write_text(table_of(options, places, said, reasons))
    shutil.rmtree(build / "mutants", ignore_errors=True)
    sys.exit(len(said) < len(mutants))


if __name__ == "__main__":
    main()
