#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that kvbench needs, if they are missing.
#
#   ci/deps.sh [build|report|check|arm]   build: for `make run`; report: for the report; check: for `make check`, all but
#                                     those of arm (the default); arm: for `make arm`
#   ci/deps.sh --list [build|report|check|arm]   print the packages, one a line
#
# If nothing is missing, prints nothing and needs no rights. Exit 3, with the packages and the command that installs
# them, if it cannot install them: not root, not Debian, no network. KVB_DEPS_SKIP=1 trusts the machine;
# KVB_DEPS_EXTRA names further packages.
set -euo pipefail

build_packages=(gcc libc6-dev make libopenblas-pthread-dev libhwloc-dev libjansson-dev zlib1g-dev libpapi-dev)
report_packages=(python3 python3-numpy gnuplot-nox) # numpy: difference.py of a dump
check_packages=(git perl libcmocka-dev clang libclang-rt-dev clang-format cppcheck shellcheck) # perl brings prove
# Readers of exported files, and of the CI templates.
check_packages+=(libxml2-utils libbenchmark-tools python3-scipy python3-pandas python3-yaml python3-jsonschema)
check_packages+=(valgrind) # counts instructions
check_packages+=(chromium-headless-shell) # reads the report
arm_packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user make perl python3) # libraries: ci/sysroot.sh

list=no
if [ "${1-}" = --list ]; then
    list=yes
    shift
fi
case ${1-check} in
build) packages=("${build_packages[@]}") ;;
report) packages=("${report_packages[@]}") ;;
check) packages=("${build_packages[@]}" "${report_packages[@]}" "${check_packages[@]}") ;;
arm) packages=("${arm_packages[@]}") ;;
*)
    echo "ci/deps.sh: \"$1\" is not known: build, report, check or arm" >&2
    exit 2
    ;;
esac
read -ra extra <<<"${KVB_DEPS_EXTRA-}"
packages+=("${extra[@]}")

if [ $list = yes ]; then
    printf '%s\n' "${packages[@]}"
    exit 0
fi
if [ -n "${KVB_DEPS_SKIP-}" ]; then
    exit 0
fi

cannot() { # why, packages…
    {
        echo "kvbench needs Debian packages that it cannot install here: $1."
        shift
        echo "packages: $*"
        echo "run:      apt-get update && apt-get install -y --no-install-recommends $*"
        echo "(On another distribution, install what these hold and set KVB_DEPS_SKIP=1.)"
    } >&2
    exit 3
}

if ! command -v dpkg-query >/dev/null; then
    cannot "this is not Debian" "${packages[@]}"
fi
installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' "${packages[@]}" 2>/dev/null || true)"
missing=()
for package in "${packages[@]}"; do
    if [[ $installed != *" installed:$package "* ]]; then
        missing+=("$package")
    fi
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

if ! command -v apt-get >/dev/null; then
    cannot "there is no apt-get" "${missing[@]}"
fi
if [ "$(id -u)" -ne 0 ]; then
    cannot "this is not root" "${missing[@]}"
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
if ! apt-get update -q || ! apt-get install -q -y --no-install-recommends "${missing[@]}"; then
    cannot "apt-get failed" "${missing[@]}"
fi
