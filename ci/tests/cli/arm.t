#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: what is compiled for AArch64 alone is C that its compiler takes without a warning, at each level. `make arm` builds it.
. "$(dirname "$0")/lib.sh"

# The cross compiler brings the C library's headers; libraries are not needed for this.
if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! echo '#include <stdio.h>' | aarch64-linux-gnu-gcc -fsyntax-only -xc - 2>"$err"; then
    skip_all "there is no aarch64-linux-gnu-gcc with a C library: ci/deps.sh arm installs it"
fi
asked() { # words for make
    env -u MAKEFLAGS -u MAKELEVEL make -s BUILD="$TMPDIR/arm" CC=aarch64-linux-gnu-gcc "$@" >"$out" 2>"$err"
}
# Those of which a part is for AArch64 (SRC_int8), or which take most of the vector headers; all have the headers in them.
ok "loops at every level" asked OPT="-O0 -fsyntax-only" SRC_rows=kernels/vector/fp8_in_place.c \
    SRC_floats=kernels/vector/plain_sums.c levelled
ok "  with their headers" grep -q "vec_neon.h" "$TMPDIR/arm/kernels/vector/fp8_in_place.neondot.d"
for level in neon neondot neonbf16 sve128 sve256 sve512 sve128bf16 sve256bf16 sve512bf16; do
    ok "  $level is one" test -s "$TMPDIR/arm/kernels/vector/table.$level.d"
done
ok "what asks for features, and the probes" asked OPT="-O0 -fsyntax-only" "$TMPDIR"/arm/kernels/{cpu,loops}.o \
    "$TMPDIR"/arm/harness/machine/{peak,bandwidth}.o
done_testing
