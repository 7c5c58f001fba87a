#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults, to show that tests can fail.

ci/faults/*.faults hold faults, a block of lines each, with an empty line between them:

    cells-one-short  caches/test_rules  slow  needs=avx512_fp16  -O2
    a step may take one cell more than there are
    caches/store.c
    -    return used < capacity ? capacity - used : 0;
    +    return used <= capacity ? capacity - used + 1 : 0;

name, and the test that must fail: a test program, or a script (cli/layering.t); optional: that it takes its time, a flag of
/proc/cpuinfo without which the fault is skipped, how the faulty source is compiled (-O1 unless told). Then what it shows; the
file; and a change of its lines: "-" lines go, "+" lines come, " " lines stay (an empty line that stays is one space). The
lines that go or stay are neighbours and must occur once in the file. Lines of a fault file that begin with # are comments.
A block that is none of this ends the program with 2.

For each fault the one test that it names is built and run in a copy of the tree, one copy a core. A fault costs the
sources that it touches, compiled anew, a link, and a test that stops where it first fails; then the copy is made sound again.
A fault that does not apply or does not build, a test that is not there or fails without the fault: each is an error, never a
catch. TAP on stdout.
"""
import argparse
import collections
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
Fault = collections.namedtuple("Fault", "name test slow needs opt shows file old new")


def refuse(why):
    print(why, file=sys.stderr)
    sys.exit(2)


def fault_read(block, where):
    """One block of lines as a Fault."""
    try:
        (name, test, *options), shows, path = block[0].split(), block[1].strip(), block[2].strip()
        change = block[3:]
        old, new = [line[1:] for line in change if line[0] != "+"], [line[1:] for line in change if line[0] != "-"]
        known = all(o == "slow" or o.startswith(("needs=", "-O")) for o in options)
        if not known or not old or old == new or any(line[0] not in "-+ " for line in change):
            raise ValueError
    except (ValueError, IndexError):
        refuse(f"{where}: expected a fault (see the head of ci/faults/run.py): {block[0]}")
    needs = next((o[6:] for o in options if o.startswith("needs=")), "")
    opt = next((o for o in options if o.startswith("-O")), "-O1")
    return Fault(name, test, "slow" in options, needs, opt, shows, path, old, new)


def faults_read(folder):
    faults = []
    for path in sorted(folder.glob("*.faults")):
        block = []
        for number, line in enumerate(path.read_text().splitlines() + [""], 1):
            if line.startswith("#"):
                continue
            if line:
                block.append(line)
            elif block:
                faults.append(fault_read(block, f"{path}:{number - len(block)}"))
                block = []
    twice = [n for n, times in collections.Counter(f.name for f in faults).items() if times > 1]
    if twice:
        refuse(f"{folder}: more than one fault has the name {twice[0]}")
    return faults


def fault_apply(fault, tree):
    """Changes the file; None, or why it cannot be."""
    path = tree / fault.file
    lines = path.read_text().split("\n") if path.is_file() else []
    places = [i for i in range(len(lines)) if lines[i:i + len(fault.old)] == fault.old]
    if len(places) != 1:
        return f"its lines occur {len(places)} times in {fault.file}, expected once"
    lines[places[0]:places[0] + len(fault.old)] = fault.new
    path.write_text("\n".join(lines))
    return None


class Copy:
    """A copy of the tree and of what was built, to break."""

    def __init__(self, build, number):
        self.build, self.place = build, build / "faults" / str(number)
        self.tree, self.objects, self.log = self.place / "tree", self.place / "objects", self.place / "log"
        shutil.rmtree(self.place, ignore_errors=True)
        self.objects.mkdir(parents=True)
        for name in subprocess.check_output(["ci/files.sh"], cwd=ROOT, text=True).splitlines():
            target = self.tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target) # times are kept, so that make finds nothing stale
        # Test programs are left out: test_take() copies those that it is about.
        shutil.copytree(build, self.objects, dirs_exist_ok=True, ignore=lambda folder, names:
                        {"tests", "faults", "asan", "tsan"} & set(names) if folder == str(build) else ())
        if (ROOT.parent / "shared").is_dir(): # some tests look for it, and skip without it
            (self.place / "shared").symlink_to(ROOT.parent / "shared")
        self.stamp = self.place / "stamp"
        self.stamp.touch()

    def target(self, test):
        """What make is asked for, to have a test: the program, or for a script what scripts run."""
        return "programs" if test.startswith("cli/") else f"{self.objects}/tests/{test}"

    def test_take(self, test):
        """A program as the sound build has it, which need not be linked here before it is faulty."""
        program = self.build / "tests" / test
        if program.is_file():
            (self.objects / "tests" / test).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(program, self.objects / "tests" / test)

    def test_try(self, test, opt):
        """A test built and run: "pass", "fail", "unbuilt" or "ended" (by a signal from outside: that says nothing)."""
        path = f"ci/tests/{test}" if test.startswith("cli/") else f"{self.objects}/tests/{test}"
        environment = dict(os.environ, MAKEFLAGS="", KVB_DEPS_SKIP="1", KVB_TEST_SECONDS="60", KVB_TEST_JOBS="1",
                           CMOCKA_TEST_ABORT="1", GIT_CEILING_DIRECTORIES=str(self.build)) # a copy is no part of the repository
        with open(self.log, "w") as log:
            def run(*command):
                return subprocess.call(command, cwd=self.tree, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=subprocess.STDOUT)
            if run("make", f"OPT={opt}", f"BUILD={self.objects}", "FACTS=keep", self.target(test)):
                return "unbuilt"
            status = run("ci/test.sh", str(self.objects), path)
            return "pass" if status == 0 else "fail" if status > 0 else "ended"

    def restore(self):
        """What is newer than the copy comes from the sound folder again, or goes if it is not there."""
        since = self.stamp.stat().st_mtime_ns
        for copied, sound in (self.tree, ROOT), (self.objects, self.build):
            for path in copied.rglob("*"):
                if path.is_symlink() or not path.is_file() or path.stat().st_mtime_ns <= since:
                    continue
                origin = sound / path.relative_to(copied)
                path.unlink() # never written over: a process that a failed test left may still run it
                if origin.is_file():
                    shutil.copy2(origin, path)

    def fault_try(self, fault):
        """None when it is caught, or why not."""
        why = fault_apply(fault, self.tree)
        if not why:
            why = {"pass": f"{fault.test} does not see it", "unbuilt": "the faulty source does not build",
                   "ended": f"{fault.test} was ended by a signal", "fail": None}[self.test_try(fault.test, fault.opt)]
        self.restore()
        return why


def worker(build, number, tests, faults, verdict):
    copy = Copy(build, number)
    while True:
        try:
            test = tests.get_nowait()
        except queue.Empty:
            return
        copy.test_take(test)
        sound = copy.test_try(test, "-O1") == "pass"
        for fault in faults:
            if fault.test == test:
                why = copy.fault_try(fault) if sound else f"{test} is not there, does not build, or fails without the fault"
                tail = copy.log.read_text(errors="replace").splitlines()[-20:] if why else []
                verdict(fault, why, tail)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the first fault of each test, without slow ones")
    parser.add_argument("build", nargs="?", default="build", help="the sound build; what the tests need of it is made first")
    parser.add_argument("name", nargs="*", help="only these faults")
    options = parser.parse_args()
    build, flags = pathlib.Path(options.build).resolve(), pathlib.Path("/proc/cpuinfo").read_text().split()
    every = faults_read(ROOT / "ci/faults")
    chosen = [f for f in every if not options.name or f.name in options.name]
    for name in set(options.name) - {f.name for f in chosen}:
        refuse(f"there is no fault {name}")
    if options.quick:
        first = {}
        for fault in chosen:
            if not fault.slow and (not fault.needs or fault.needs in flags):
                first.setdefault(fault.test, fault)
        chosen = list(first.values())
    planted = [f for f in chosen if not f.needs or f.needs in flags]

    shutil.rmtree(build / "faults", ignore_errors=True)
    workers = os.cpu_count() or 1
    targets = {"programs" if f.test.startswith("cli/") else f"{options.build}/tests/{f.test}" for f in planted}
    subprocess.call(["make", "-k", f"-j{workers}", f"BUILD={options.build}", *sorted(targets)], cwd=ROOT,
                    env=dict(os.environ, MAKEFLAGS=""), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(f"1..{len(chosen)}")
    lock, told, caught = threading.Lock(), [], []

    def verdict(fault, why, tail=()): # as they come: all of them take long
        with lock:
            told.append(fault)
            skip = fault not in planted
            if not why and not skip:
                caught.append(fault)
            line = f"{fault.name} # SKIP {why}" if skip else f"{fault.name}: {why or fault.shows}"
            print("\n# ".join([f"{'not ' if why and not skip else ''}ok {len(told)} - {line}", *tail]), flush=True)

    tests = queue.SimpleQueue()
    for test in sorted({f.test for f in planted}, reverse=True): # those of whole/ take the longest: not at the end
        tests.put(test)
    threads = [threading.Thread(target=worker, args=(build, k, tests, planted, verdict)) for k in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for fault in (f for f in chosen if f not in told):
        verdict(fault, "its worker ended before it" if fault in planted else f"the CPU has no {fault.needs}")
    left = f"; {len(every) - len(chosen)} left to make faults" if options.quick else ""
    elsewhere = f"; {len(chosen) - len(planted)} need another CPU" if len(chosen) > len(planted) else ""
    print(f"# faults: {len(planted)} planted, {len(caught)} caught{left}{elsewhere}")
    sys.exit(len(caught) < len(planted))


if __name__ == "__main__":
    main()
