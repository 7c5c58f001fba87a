#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: what the READMEs tell a reader to type works for a stranger: an installed program and its headers, another folder, none of
# the repository's paths. Every command line of README.md is walked, kernel author first, unless a rule below leaves it out or makes
# it shorter; so a new line cannot be forgotten. README's kernel is built from installed headers and is right; what README prints is
# what is printed; the traces written by hand replay, also over numbers that
# numpy wrote.
. "$(dirname "$0")/lib.sh"

# Rules: a part of a line | a sed script that makes it shorter, or "-": left out | why. A line without a rule is walked as it is.
# A rule that no line needs fails.
mapfile -t rules <<'END_OF_RULES'
make run |-| the default suite takes minutes; run.t runs a part of it as `make run` does
make check |-| it is what runs this
bench --model |s|$| --seconds 0.01 --kv f16 --kernel flash|;s|1k,32k|1k|| likewise
bench --plugin |s|$| --seconds 0.01 --context 64 --kv f32 --kernel flash| | likewise
check mine.so |s|$| -o right.jsonl|| for what is looked at below
make install |s|^make install|make -s -o all -C "$TREE" install BUILD="$BUILD"|| from the clone, where all is built
tune --quick |s|--quick|--seconds 1|| ten seconds are for a person
run --check --suite quick # |s|$| --workload plain-decode --cache seq --pool f16| | the suite takes half a minute
--junit F.xml |s|$| --suite quick --workload agent-fork --pool f16| | so would all workloads
run --count |s|agent-fork|plain-decode|;s|$| --cache contiguous --pool f16 --kernel flash --set no-machine| | Valgrind is slow; without it there is nothing to walk
run --workload agent-fork |s|$| --set sample-ms=5 --pool f16 --pool q8_0| | a few passes are enough here
--base-plugin old.so |s|$| --workload plain-decode --cache seq --pool f32 --kernel mine --set sample-ms=20| | likewise
END_OF_RULES

[ "$sanitized" ] && rules=("${rules[@]/#run --count |*/run --count |-| Valgrind runs no program that has a sanitizer in it}")

python3 - README.md >"$TMPDIR/lines" <<'EOF' || exit 1
# Prints "SECTION<tab>LINE" for each command line of README.md, the kernel author's section first. A block is of commands where a
# line begins with one; then all of them must.
import re, sys
sections, section, block = {}, "", None
for line in open(sys.argv[1]).read().splitlines():
    if block is None and line.startswith("## "):
        section = line[3:]
    if line.startswith("```"):
        if block is not None and line == "```":
            commands = [bool(re.match(r"(make|cc|kvbench|build/kvbench|[a-z]+=)\b(?!:)", l)) for l in block[1]]
            if block[0] != "c" and any(commands):
                assert all(commands), f"commands and other lines in one block: {block[1]}"
                sections.setdefault(section, []).extend(block[1])
            block = None
        else:
            block = (line[3:], [])
    elif block is not None and line:
        block[1].append(line)
assert block is None
for section in sorted(sections, key=lambda s: "kernel in seventeen lines" not in s):
    for line in sections[section]:
        print(section.split(":")[0], line, sep="\t")
EOF

TREE=$PWD home=$TMPDIR/home work=$TMPDIR/work
mkdir "$home" "$work"
cc=$(command -v gcc) && mkdir "$home/bin" && ln -s "$cc" "$home/bin/cc" # whatever `cc` is, it is this compiler
stranger=(env -i -C "$work" HOME="$home" TMPDIR="$TMPDIR" PATH="$home/bin:$home/kvbench/bin:/usr/bin:/bin")
for name in ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS LSAN_OPTIONS; do # of a build under a sanitizer
    [ -z "${!name-}" ] || stranger+=("$name=${!name}")
done
export TREE BUILD

# block FILE LANGUAGE PATTERN: the first fenced block of that language in which a line matches.
block() {
    awk -v fence="\`\`\`$2" -v pattern="$3" '
        /^```/ { if (open && wanted && found) { printf "%s", text; exit }
                 open = !open; wanted = open && $0 == fence; found = 0; text = ""; next }
        wanted { text = text $0 "\n"; if ($0 ~ pattern) found = 1 }' "$1"
}

# What a reader has beside README: the kernel that it shows, a model's config.json.
block README.md c KVB_PLUGIN_KERNEL >"$work/mine.c"
cat >"$work/config.json" <<'EOF'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
 "max_position_embeddings": 8192, "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false,
 "torch_dtype": "bfloat16"}
EOF

# What the check of README's kernel printed and recorded.
right_looked_at() {
    holds "  which begins with what it reads" '^kernel   mine: reads f32; any mask; out f32; takes no softcap, sinks$'
    holds "  formats that are staged are one line" '^staged   [0-9]+ other formats, which are judged only through f32$'
    holds "  then the verdict" '^RIGHT    [0-9]+ replays of [0-9]+ histories, [0-9]+ caches, 1 format; [0-9]+ single calls'
    holds "  what it declines" '^declines softcap=30,5 '
    holds "  what its bits depend on" '^same\?    the same bits: batch, threads, (pages, )?alignment, again$'
    holds "  and what comes next" '^next     how fast\?   kvbench bench --plugin (\./)?mine\.so$'
    lacks "  no other format was judged" '"pool_k": "(f16|q8_0)"' "$work/right.jsonl"
    lacks "  no witness is counted" '"kernel": "witness"' "$work/right.jsonl"
    holds "  records are those of a run" '"workload": "agent-fork".*"kernel": "mine".*"status": "pass"' "$work/right.jsonl"
    awk '{ if (length($0) > 80 && !/^(again|next) /) exit 1 }' "$out"
    report $? "  lines but for commands keep to 80 columns"
}

# The kernel once more, its sums as vectors: less time. That README's own line builds it, the line before has shown.
vectorized() {
    ok "  it builds with vectors, too" "${stranger[@]}" cc -std=c11 -O3 -fassociative-math -fno-signed-zeros -fno-trapping-math -fPIC -shared \
        "-I$home/kvbench/include/kvbench" mine.c -o mine.so -lm
}

declare -A used
while IFS=$'\t' read -r section line; do
    line=$(tr -s ' ' <<<"$line")
    command=${line%% #*} rest='' skipped=''
    for i in "${!rules[@]}"; do
        part=${rules[i]%% |*} rest=${rules[i]#* |}
        [[ $line == *"$part"* ]] || continue
        used[$i]=1
        if [ "${rest%%|*}" = - ]; then
            skipped=${rest#*|}
        else
            why=${rest##*| } script=${rest%"| $why"}
            command=$(sed "s/ *$//;$script" <<<"$command")
        fi
        break
    done
    if [ -n "$skipped" ]; then
        tests=$((tests + 1))
        echo "ok $tests - $section: $command # SKIP $skipped"
        continue
    fi
    case $line in # what the line before left in other hands
    *'check mine.so'*) vectorized ;;
    *'compare base.jsonl new.jsonl'*) cp "$work/base.jsonl" "$work/new.jsonl" ;;
    *'--base-plugin old.so'*) cp "$work/mine.so" "$work/old.so" && cp "$work/mine.so" "$work/new.so" ;;
    esac
    command=${command/#build\/kvbench/kvbench}
    if [[ $command == make* ]]; then # in the clone
        ok "$section: $line" env -u MAKEFLAGS -u MFLAGS HOME="$home" bash -c "$command"
    else
        ok "$section: $command" "${stranger[@]}" bash -c "$command"
        lacks "  needs nothing of the repository" "$PWD" # nor says so
    fi
    case $line in
    *"check mine.so"*) right_looked_at ;;
    *--check*--plugin*) holds "  all of it passes" '^[1-9][0-9]* passed, 0 failed, 0 crashed, 0 timed out' ;;
    *"run "*) holds "  what runs passes" '^[1-9][0-9]* passed, 0 failed, 0 crashed, 0 timed out' ;;
    esac
done <"$TMPDIR/lines"
for i in "${!rules[@]}"; do
    [ -n "${used[$i]-}" ]
    report $? "a line of README needs the rule for \"${rules[i]%% |*}\""
done

# "`COMMAND` begins with" a block: it does.
sed -n 's/^`\(kvbench .*\)` begins with$/\1/p' README.md >"$TMPDIR/begins"
ok "README shows what a command begins with" test -s "$TMPDIR/begins"
while read -r command; do
    ok "  $command" "${stranger[@]}" bash -c "$command"
    awk -v line="\`$command\` begins with" '$0 == line { wanted = 1; next } wanted && /^```/ { if (open++) exit; next } open' \
        README.md >"$TMPDIR/shown"
    head -n "$(wc -l <"$TMPDIR/shown")" "$out" >"$TMPDIR/printed"
    ok "  is printed as it is shown" diff "$TMPDIR/shown" "$TMPDIR/printed"
done <"$TMPDIR/begins"

# What other READMEs show: the example plug-in, and traces that are written by hand.
ok "the example plug-in passes" "$KVBENCH" run --check --suite quick --plugin "$BUILD/example-plugin/online.so" \
    --kernel online --pool f32 --workload plain-decode --workload eagle-tree --cache seq --cache paged --cache tree
holds "  all of it" '^[1-9][0-9]* passed, 0 failed, 0 crashed, 0 timed out'
for name in mine groups; do
    block workloads/README.md '' "\"name\":\"$name\"" >"$TMPDIR/$name.jsonl"
    ok "the trace '$name', written by hand, is valid" "$KVBENCH" show "$TMPDIR/$name.jsonl"
    ok "  and replays" "$KVBENCH" run --check --workload "$TMPDIR/$name.jsonl" --pool f16
    holds "  and passes" '^[1-9][0-9]* passed, 0 failed'
done

# Debian's numpy belongs to its own python3
if ! python3 -c 'import numpy' 2>"$err"; then
    report 0 "numpy writes tensors # SKIP no numpy: install the Debian package python3-numpy"
    done_testing
fi
block workloads/README.md '' '"name":"own"' >"$TMPDIR/own.jsonl"
block workloads/README.md python safetensors >"$TMPDIR/own.py"
digest() { # digest NAME: replays it, and prints the hash of what attention gave
    "$KVBENCH" run --check --workload "$TMPDIR/own.jsonl" --cache seq --pool f32 --kernel reference -o "$TMPDIR/$1.jsonl" >&2 &&
        grep -o '"out_digest": "[0-9a-f]*"' "$TMPDIR/$1.jsonl"
}
expect_exit 2 "a trace without its tensors" "$KVBENCH" run --check --workload "$TMPDIR/own.jsonl" --pool f16
one_line "  in one line"
holds "  names them" 'own.safetensors' "$err"
ok "numpy writes tensors" env -C "$TMPDIR" python3 own.py
ok "  that a trace names" "$KVBENCH" show "$TMPDIR/own.jsonl"
ok "  and that replay" "$KVBENCH" run --check --workload "$TMPDIR/own.jsonl" --pool f16
holds "  and pass" '^[1-9][0-9]* passed, 0 failed'
ok "  the numbers count" digest one
cp "$out" "$TMPDIR/digest"
sed -i 's/default_rng(1)/default_rng(2)/' "$TMPDIR/own.py"
ok "other numbers" env -C "$TMPDIR" python3 own.py
ok "  replay too" digest two
ok "  and give another result" test -s "$TMPDIR/digest" -a "$(cat "$out")" != "$(cat "$TMPDIR/digest")"
sed -i 's/^tokens, layers, heads, kv_heads, dim = 40/tokens, layers, heads, kv_heads, dim = 30/' "$TMPDIR/own.py"
ok "too few rows" env -C "$TMPDIR" python3 own.py
expect_exit 2 "  are refused" "$KVBENCH" run --check --workload "$TMPDIR/own.jsonl" --pool f16
holds "  with the tensor and its shape" "own.safetensors: tensor 'q.0'" "$err"
done_testing
