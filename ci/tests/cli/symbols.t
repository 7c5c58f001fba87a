#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: every global symbol that was built carries kvb_, no kernel reads the environment, and the check sees what does not keep to it.
. "$(dirname "$0")/lib.sh"

ok "this build" ci/symbols.sh "$BUILD"

echo 'int stray(void); int stray(void) { return 1; }' >"$TMPDIR/stray.c"
gcc -c "$TMPDIR/stray.c" -o "$TMPDIR/stray.o"
ar rc "$TMPDIR/libstray.a" "$TMPDIR/stray.o"
expect_exit 1 "a function without the prefix" ci/symbols.sh "$TMPDIR"
holds "  is named" 'stray\.o: *[0-9a-f]+ T stray$'

mkdir "$TMPDIR/heap"
echo 'void *malloc(unsigned long n) { (void)n; return 0; }' >"$TMPDIR/heap_watch.c"
gcc -fno-builtin -c "$TMPDIR/heap_watch.c" -o "$TMPDIR/heap_watch.o"
ar rc "$TMPDIR/heap/libharness.a" "$TMPDIR/heap_watch.o"
ok "the heap watch may define malloc" ci/symbols.sh "$TMPDIR/heap"
cp "$TMPDIR/heap_watch.o" "$TMPDIR/heap_other.o"
ar rc "$TMPDIR/heap/libharness.a" "$TMPDIR/heap_other.o"
expect_exit 1 "another file may not" ci/symbols.sh "$TMPDIR/heap"

mkdir "$TMPDIR/reads"
echo 'char *getenv(const char *); int kvb_two(void); int kvb_two(void) { return !getenv("TWO"); }' >"$TMPDIR/two.c"
gcc -c "$TMPDIR/two.c" -o "$TMPDIR/two.o"
ar rc "$TMPDIR/reads/libkernels.a" "$TMPDIR/two.o"
expect_exit 1 "a kernel that reads the environment" ci/symbols.sh "$TMPDIR/reads"
holds "  is named, too" 'reads the environment: .*two\.o'

mkdir "$TMPDIR/plugin"
echo 'int kvb_one(void); int kvb_one(void) { return 1; }' >"$TMPDIR/one.c"
gcc -c "$TMPDIR/one.c" -o "$TMPDIR/one.o"
ar rc "$TMPDIR/plugin/libone.a" "$TMPDIR/one.o"
ok "an archive that is clean" ci/symbols.sh "$TMPDIR/plugin"
gcc -shared "$TMPDIR/one.o" -o "$TMPDIR/plugin/one.so"
expect_exit 1 "a plug-in that exports something else" ci/symbols.sh "$TMPDIR/plugin"
mkdir -p "$TMPDIR/circle/harness/tuning"
echo 'int kvb_a(void), kvb_b(void); int kvb_a(void) { return kvb_b(); }' >"$TMPDIR/a.c"
echo 'int kvb_a(void), kvb_b(void); int kvb_b(void) { return kvb_a(); }' >"$TMPDIR/b.c"
gcc -c "$TMPDIR/a.c" -o "$TMPDIR/circle/harness/tuning/measure.o" && gcc -c "$TMPDIR/b.c" -o "$TMPDIR/circle/harness/tuning/use.o"
ar rc "$TMPDIR/circle/libone.a" "$TMPDIR/one.o"
expect_exit 1 "two files that call each other" ci/symbols.sh "$TMPDIR/circle"
holds "  are named" '^harness/tuning/: files that call each other in a circle: .*measure\.o'
expect_exit 1 "a folder without archives" ci/symbols.sh "$TMPDIR/none"
done_testing
