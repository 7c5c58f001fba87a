#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the read bandwidth from DRAM agrees within 10 % with likwid-bench's, where that is installed.
. "$(dirname "$0")/lib.sh"

command -v likwid-bench >/dev/null || skip_all "likwid-bench is not installed (Debian package likwid)"
grep -qw avx512f /proc/cpuinfo || skip_all "the CPU has no AVX-512: another load kernel of likwid-bench would be meant"
[ "$sanitized" ] && skip_all "a sanitizer slows down one side"

# GB/s of one thread: 0 where it cannot be had. Huge pages for likwid-bench's heap as well.
ours() {
    "$KVBENCH" machine --quick --threads 1 --format csv | awk -F, '$1 == "read" && $2 == "DRAM" { print $4, $6 }'
}
theirs() { # bytes
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 timeout 60 likwid-bench -t load_avx512 -w "N:$(($1 / 1000000))MB:1" 2>/dev/null |
        awk '$1 == "MByte/s:" { print $2 / 1000 }'
}

for attempt in 1 2 3 4 5; do # in turns: the machine has other work, too
    read -r bytes mine <<<"$(ours)"
    other=$(theirs "$bytes")
    echo "# attempt $attempt: kvbench $mine GB/s, likwid-bench ${other:-nothing} GB/s"
    [ -n "$other" ] || skip_all "likwid-bench does not run here"
    if awk -v a="$mine" -v b="$other" 'BEGIN { exit !(a / b > 0.9 && a / b < 1.1) }'; then
        good=0
        break
    fi
done
: >"$out"
report ${good-1} "read bandwidth from DRAM agrees within 10 %"
done_testing
