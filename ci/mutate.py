#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes one place of the sources at a time, and asks the tests whether they see it: what survives, no test looks at.

    ci/mutate.py build --count 50 --seed 1            a sample
    ci/mutate.py build caches/store.c oracle/*.c      every place of these files: some hours

A mutant is a comparison at its border or turned round, a 1 left out or doubled, operands swapped, "and" for "or", a statement
dropped. It is made in a copy of the tree. What does not compile, warnings aside, is not counted. It is killed by the first that
fails: a test program that links the file and is of its room, or is named after it, includes its header, or is told of below; likewise a script;
a run of several workloads; `kvbench faults` (honest combinations must pass, each fault be caught). Each of these must pass without
it: that is tried before its first verdict, and tells how long it may take. Survivors are told with file and line; some are right to live: they change
what cannot be seen. Exit 0 whatever the score.
"""
import argparse
import glob
import os
import pathlib
import queue
import random
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOMS = {"caches": "caches", "kernels": "kernels", "oracle": "oracle", "harness/replay": "harness", "harness/tuning": "harness", "results": "results",
         "workloads/live": "live", "workloads": "workloads"} # and the folder of its tests
LED_TO = {"kernels/ggml/": ["cli/ggml.t"], "harness/tuning/": ["cli/tune.t"], "kernels/scan/": ["whole/test_scan"],
          "harness/replay/scan": ["cli/hybrids.t", "cli/every_row.t"], "caches/stores/state": ["cli/hybrids.t"],
          "oracle/heirs": ["whole/test_descent"], "oracle/glance": ["whole/test_descent"], "oracle/lane": ["whole/test_descent"]} # by no name
RUN, FAULTS = "a run", "kvbench faults"
JUDGED = ("caches", "kernels", "oracle", "harness") # what `kvbench faults` judges
ALONE = r"(?<![\w.>])(\w+) %s (\w+)\b(?![.\[(]|->)" # operands that are one word
TURNS = [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
         (r" && ", " || "), (r" \|\| ", " && "), (r" \+ 1\b(?!\.)", ""), (r" \+ 1\b(?!\.)", " + 2"), (r" - 1\b(?!\.)", ""),
         (ALONE % "-", r"\2 - \1"), (ALONE % "/", r"\2 / \1"), (r" \+= ", " -= ")]
DROPPED = re.compile(r"^( +)(?!return|break|continue|goto|else|case|default|const |static |struct |uint|int |size_t |float |double |bool |char |kvb_\w+ \w+ =)"
                     r"[\w>.\[\]*()+-]+( [-+*|&]?= .*|\(.*\)|\+\+);$")
NO_CODE = re.compile(r'^\s*(#|//|/?\*|assert|static_assert|snprintf|fprintf|return kvb_\w*(fail|complain))|"')
SMOKE = ["run", "--check", "--jobs", "1", "--no-guard", "--oracle-pairs", "200000", "--pool", "f32", "--pool", "f16"] + [
    word for name in ("agent-fork", "batched-multi-seq", "eagle-tree", "sink-window") for word in ("--workload", name)]


def mutants_of(name):
    """Each change of a file: its name, a line counted from 0, and what becomes of it."""
    lines = (ROOT / name).read_text().split("\n")
    for number, line in enumerate(lines):
        code = line.split("/*")[0].split("//")[0]
        if NO_CODE.search(code) or not line.startswith(" "):
            continue
        changed = [code[:m.start()] + m.expand(new) + code[m.end():] + line[len(code):]
                   for old, new in TURNS for m in re.finditer(old, code)]
        if DROPPED.match(code.rstrip()):
            changed.append(re.match(" *", line)[0] + ";")
        for new in changed:
            if new != line:
                yield name, number, new


def room_of(name):
    return next((tests for room, tests in ROOMS.items() if name.startswith(room + "/")), None)


def give_up(why): # from any thread
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


def symbols(*files): # those of programs may be local: the linker hides what plug-ins do not need
    lines = subprocess.check_output(["nm", "--defined-only", *files], text=True).splitlines() if files else []
    return {line.split()[-1] for line in lines if " kvb_" in line}


class Judges:
    """Which tests look at a file, and how long each takes when all is well."""

    def __init__(self, build, files):
        programs = {str(p.relative_to(ROOT / "ci/tests"))[:-2]: p.read_text() for p in (ROOT / "ci/tests").glob("*/test_*.c")}
        wanted = {name: [t for t, text in programs.items() if t.startswith(f"{room_of(name)}/") or self.names(t, text, name)]
                  for name in files}
        make = ["make", f"-j{os.cpu_count()}", f"BUILD={build}", "programs"]
        if subprocess.call([*make, *sorted({f"{build}/tests/{t}" for tests in wanted.values() for t in tests})], cwd=ROOT,
                           env=dict(os.environ, MAKEFLAGS=""), stdout=subprocess.DEVNULL):
            sys.exit("the tests do not build")
        held = {t: symbols(build / "tests" / t) for t in {t for tests in wanted.values() for t in tests}}
        self.of, self.seconds, self.texts = {}, {}, programs
        for name, tests in wanted.items():
            own = symbols(*glob.glob(f"{build}/{name[:-2]}.o") + glob.glob(f"{build}/{name[:-2]}.*.o"))
            scripts = {f"cli/{self.word(name)}.t"} | {t for t in self.led_to(name) if t.endswith(".t")}
            self.of[name] = ([t for t in tests if held[t] & own] +
                             sorted(t for t in scripts if (ROOT / "ci/tests" / t).is_file()) +
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
        """The likely ones first, then the quick ones."""
        return sorted(self.of[name], key=lambda j: ((RUN, FAULTS).index(j) if j in (RUN, FAULTS) else -1,
                                                    not self.names(j, self.texts.get(j, ""), name), self.seconds.get(j, 5)))


class Copy:
    """A copy of the tree and of what was built, to break."""

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

    def run(self, seconds, *command, tree=None):
        """False: it failed, or took longer."""
        environment = dict(os.environ, MAKEFLAGS="", KVB_DEPS_SKIP="1", KVB_TEST_SECONDS=str(int(seconds)), KVB_TEST_JOBS="1",
                           CMOCKA_TEST_ABORT="1", KVB_WORKLOADS=str(ROOT / "workloads/recorded"), KVB_PROGRESS="0",
                           GIT_CEILING_DIRECTORIES=str(self.build)) # a copy is no part of the repository
        with open(self.log, "w") as log:
            try:
                return subprocess.call(command, cwd=tree or self.tree, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=subprocess.STDOUT, timeout=seconds + 60) == 0
            except subprocess.TimeoutExpired:
                return False

    def make(self, target):
        return self.run(1800, "make", "OPT=-O1", "WARN=", f"BUILD={self.objects}", "FACTS=keep", target)

    def fails(self, judge, seconds, sound=False):
        tree, objects = (ROOT, self.build) if sound else (self.tree, self.objects)
        if judge in (RUN, FAULTS):
            return not self.run(seconds, f"{objects}/kvbench", *(SMOKE if judge == RUN else ["faults"]), tree=tree)
        script = judge.endswith(".t")
        if not sound and not self.make("programs" if script else f"{objects}/tests/{judge}"):
            give_up(f"{judge} does not build: see {self.log}")
        return not self.run(seconds, "ci/test.sh", str(objects), f"ci/tests/{judge}" if script else f"{objects}/tests/{judge}",
                            tree=tree)

    def killer(self, judges, name):
        for judge in judges.in_order(name):
            if judge not in judges.seconds:
                begin = time.time()
                if self.fails(judge, 1800, sound=True):
                    give_up(f"{judge} fails without any change: see {self.log}")
                judges.seconds[judge] = time.time() - begin
            if self.fails(judge, 20 + 5 * judges.seconds[judge]):
                return judge
        return "lives"

    def try_out(self, mutant, judges):
        """"unbuilt", "lives", or what kills it."""
        name, number, new = mutant
        lines = (self.tree / name).read_text().split("\n")
        lines[number] = new
        (self.tree / name).write_text("\n".join(lines))
        try:
            if not self.make(f"{self.objects}/{'plugins/ggml.so' if name.startswith('kernels/ggml/') else 'kvbench'}"):
                return "unbuilt"
            return self.killer(judges, name)
        finally:
            self.restore()

    def restore(self):
        """What is newer than the copy comes from the sound folder again, or goes if it is not there."""
        since = self.stamp.stat().st_mtime_ns
        for copied, sound in (self.tree, ROOT), (self.objects, self.build):
            for path in copied.rglob("*"):
                if path.is_symlink() or not path.is_file() or path.stat().st_mtime_ns <= since:
                    continue
                origin = sound / path.relative_to(copied)
                path.unlink() # never written over: a process that a killed test left may still run it
                if origin.is_file():
                    shutil.copy2(origin, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the sound build, with its tests")
    parser.add_argument("files", nargs="*", help="only these sources; default: all of " + ", ".join(ROOMS))
    parser.add_argument("--count", type=int, default=0, help="a sample of so many mutants; default: all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample; default: %(default)s")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="copies of the tree; default: %(default)s")
    options = parser.parse_intermixed_args()
    files = options.files or sorted({p for room in ROOMS for p in glob.glob(f"{room}/**/*.c", root_dir=ROOT, recursive=True)
                                     if "example-plugin" not in p})
    for name in files:
        if not (ROOT / name).is_file() or not room_of(name):
            sys.exit(f"{name}: expected a source of {', '.join(ROOMS)}")
    mutants = [m for name in files for m in mutants_of(name)]
    random.Random(options.seed).shuffle(mutants)
    places = len(mutants)
    mutants = mutants[:options.count] if options.count else mutants
    build = pathlib.Path(options.build).resolve()
    judges = Judges(build, sorted({m[0] for m in mutants}))
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
            verdict = copy.try_out(mutant, judges)
            with lock:
                said.append((mutant, verdict))
                print(f"{len(said)}/{len(mutants)} {'LIVES' if verdict == 'lives' else verdict}: {name}:{line + 1}: {new.strip()} "
                      f"({time.time() - begin:.0f} s)", flush=True)

    threads = [threading.Thread(target=worker, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    built = [v for _, v in said if v != "unbuilt"]
    print(f"\n{places} places, {len(said)} tried, {len(said) - len(built)} do not build; of {len(built)} "
          f"{len(built) - built.count('lives')} are killed ({100 * (len(built) - built.count('lives')) / max(len(built), 1):.0f} %)")
    for (name, line, new), verdict in sorted(said):
        if verdict == "lives":
            print(f"\n{name}:{line + 1}\n-{(ROOT / name).read_text().split(chr(10))[line]}\n+{new}")
    shutil.rmtree(build / "mutants", ignore_errors=True)
    sys.exit(len(said) < len(mutants))


if __name__ == "__main__":
    main()
