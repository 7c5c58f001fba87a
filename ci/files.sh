#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the files of the project, one a line, from its root: those that git tracks or would track; without git,
# all files except build trees. Arguments are path patterns as for git ('*.c').
set -euo pipefail
cd "$(dirname "$0")/.."

if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard -- "$@"
else
    find . -name .git -prune -o -path ./build -prune -o -type f -print | sed 's|^\./||' | while IFS= read -r file; do
        if [ $# -eq 0 ]; then
            echo "$file"
        fi
        for pattern in "$@"; do
            # shellcheck disable=SC2053 # the pattern is meant as one
            [[ $file == $pattern ]] && echo "$file"
        done
    done
fi | sort | while IFS= read -r file; do
    if [ -f "$file" ]; then # git still lists a file that was just deleted
        echo "$file"
    fi
done
