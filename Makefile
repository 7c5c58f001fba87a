# SPDX-License-Identifier: Apache-2.0
# kvbench: `make help` lists what can be made.

# ---- settings, each may be given on the command line -------------------------------------------------
CC       ?= gcc
ifeq ($(origin CC),default)
CC       := gcc
endif
BUILD    ?= build
PREFIX   ?= /usr/local
OPT      ?= -O3 -g1 # lines for profilers and traces; variables (-g) take as long as all of the rest
SANITIZE ?=
VERSION  := 0.1.0

# What CC compiles for, and where that machine's libraries lie: CC may be a cross compiler with a --sysroot=folder.
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
ARCH     := $(firstword $(subst -, ,$(MULTIARCH)))
SYSROOT  := $(patsubst --sysroot=%,%,$(filter --sysroot=%,$(CC)))
BLAS     := /usr/lib/$(MULTIARCH)/openblas-pthread
BLAS_INC := $(SYSROOT)/usr/include/$(MULTIARCH)/openblas-pthread

CFLAGS   ?=
WARN     := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Werror
GUESSING := $(if $(findstring clang,$(CC)),,-Wno-format-truncation) # with -O1 gcc does not know how long strings are
# No contraction: one source gives the same numbers under every compiler.
FLAGS    := -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -ffp-contract=off -pthread $(OPT) $(WARN) $(if $(filter -O1,$(OPT)),$(GUESSING)) $(SANITIZE) $(CFLAGS)
INCLUDE  := -I. -isystem $(BLAS_INC)
# Sanitizers are in the program: what they stand in for must be seen from outside.
EXPORTS  := $(if $(SANITIZE),,-Wl,--version-script=harness/exports.map)
LINK     := -pthread -rdynamic $(EXPORTS) $(SANITIZE) $(LDFLAGS)
LIBS     := -Wl,-rpath,$(BLAS) -ljansson -lz -lhwloc -lpapi -lsde -ldl -lm

# ---- folders -------------------------------------------------------------------------------------------
# One archive a folder, listed so that each needs only those after it (the layering of DESIGN.md).
FOLDERS  := harness results live oracle workloads caches kernels
SRC_live      := $(wildcard workloads/live/*.c)
SRC_workloads := $(wildcard workloads/*.c workloads/import/*.c)
SRC_caches    := $(wildcard caches/*.c caches/*/*.c caches/*/*/*.c)
SRC_bf16      := $(wildcard kernels/vector/bf16_*.c) # compiled for levels with such products alone
SRC_f16       := $(wildcard kernels/vector/f16_*.c)
SRC_floats    := $(patsubst %,kernels/vector/%.c,plain_dots plain_sums plain_beside packed weights hadamard scan_chunk scan_steps)
SRC_int8      := $(patsubst %,kernels/vector/%.c,int8_pack int8_products table)
SRC_amx       := $(wildcard kernels/vector/amx_*.c) $(patsubst %,kernels/vector/%.c,int8_products table)
SRC_rows      := $(filter-out $(SRC_bf16) $(SRC_f16) $(SRC_amx) $(SRC_floats) $(SRC_int8),$(wildcard kernels/vector/*.c))
SRC_codec     := caches/pools/codec/isa.c
SRC_products  := oracle/products.c
LEVELLED      := int8 rows floats bf16 f16 amx codec products # SRC_x is compiled for each of ISAS_x: see below
ISAS_int8     := portable
ISAS_rows     := portable
ISAS_floats   := portable
ISAS_codec    := portable
ISAS_products := portable
ifeq ($(ARCH),x86_64)
ISAS_codec    += avx2 avx512
ISAS_products += avx2 avx512
ISAS_floats   += avx2 avx512
ISAS_rows     += avx2 avx512 avx512vnni
ISAS_int8     += avx2 avxvnni avx512 avx512vnni
ISAS_bf16     := avx512bf16
ISAS_f16      := avx512fp16
ISAS_amx      := amx emulated # tiles in plain C, which tests alone use
else ifeq ($(ARCH),aarch64)
ISAS_bf16     := neonbf16 sve128bf16 sve256bf16 sve512bf16 # and I8MM, so that the other loops are theirs, too
ISAS_floats   += neon sve128 sve256 sve512
ISAS_rows     += neon neondot sve128 sve256 sve512 $(ISAS_bf16)
ISAS_int8     := $(ISAS_rows)
endif
SRC_kernels   := $(wildcard kernels/*.c kernels/flash/*.c) $(SRC_bf16) $(SRC_f16) $(SRC_amx) $(SRC_floats) $(SRC_rows) $(SRC_int8)
SRC_oracle    := $(wildcard oracle/*.c)
SRC_results   := $(wildcard results/*.c results/*/*.c)
SRC_harness   := $(filter-out harness/main.c,$(wildcard harness/*.c harness/*/*.c))
ARCHIVES := $(FOLDERS:%=$(BUILD)/lib%.a)

# Tests: ci/tests/<folder>/test_*.c links what the folder may use; `whole` tests link everything.
TESTS      := $(patsubst ci/tests/%.c,$(BUILD)/tests/%,$(wildcard ci/tests/*/test_*.c))
LONG_TESTS := $(patsubst %,ci/tests/cli/%.t,run isa likwid machine measure planted stranger ggml) # begun first: others fit in beside them
CLI_TESTS  := $(filter-out $(LONG_TESTS),$(wildcard ci/tests/cli/*.t))
PLUGINS    := $(patsubst %,$(BUILD)/example-plugin/%.so,online running pages lin12)
OWN        := $(BUILD)/plugins/ggml.so $(BUILD)/plugins/onnx.so # plug-ins of ours, which call the engines of others
NEED_kernels   := kernels
NEED_caches    := caches kernels
NEED_workloads := workloads kernels
NEED_live      := live workloads caches kernels
NEED_oracle    := oracle workloads
NEED_results   := results workloads
NEED_harness   := $(FOLDERS)
NEED_whole     := $(FOLDERS)

ALL_C := $(filter-out build/%,$(wildcard *.c */*.c */*/*.c */*/*/*.c))
ALL_H := $(filter-out build/%,$(wildcard */*.h */*/*.h */*/*/*.h))

# One line for each thing made; V=1: the whole commands.
say = $(if $(V),,@echo "$1")
Q  := $(if $(V),,@)

# All cores, unless the caller chose a -j.
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

.PHONY: table-mutation arm check-arm levelled help program all run run-all report plots engines plugins check check-random test table-formats table-growth table-levels table-sharing table-sizing table-power mutate asan tsan clang format lint layering install clean deps workloads programs bench-kernels fuzz coverage table-power-of-check table-recurrence table-engines table-engine-histories table-judge table-gpu table-machines FORCE
.DELETE_ON_ERROR:
.SECONDARY:

program: ## what `make` alone does: build/kvbench, on all cores
	+@$(SUBMAKE) all

all: $(BUILD)/kvbench ## build the program

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

deps: ## install the Debian packages that are missing
	@ci/deps.sh check

run: ## install, build, judge the quick suite and measure: what is right here, and how fast
	@ci/deps.sh build
	+@$(SUBMAKE) all
	$(BUILD)/kvbench run --suite quick -o $(BUILD)/run.jsonl

run-all: ## the same over the default suite
	@ci/deps.sh build
	+@$(SUBMAKE) all
	$(BUILD)/kvbench run --suite default -o $(BUILD)/run.jsonl

report: $(BUILD)/run.jsonl all ## the page of the last `make run`: build/report/index.html
	@ci/deps.sh report
	$(BUILD)/kvbench report $< -o $(BUILD)/report --plots plots

plots: $(BUILD)/run.jsonl all ## its plots, those of formats and of caching, as PNG, SVG and PDF: build/pictures
	@ci/deps.sh report
	$(BUILD)/kvbench bench --formats --seconds 0.2 -o $(BUILD)/formats.jsonl
	$(BUILD)/kvbench bench --caches -o $(BUILD)/caches.jsonl >/dev/null
	for f in formats caches run; do $(BUILD)/kvbench report $(BUILD)/$$f.jsonl -o $(BUILD)/pictures --plots plots --pictures || exit; done

$(BUILD)/run.jsonl:
	@echo "$@ is not there: \`make run\` writes it" >&2; exit 2

engines: ## install the engines of others: build/engines (npm; without it, tests of them are skipped)
	@ci/engines.sh $(BUILD)/engines

plugins: $(OWN) ## build the plug-ins that call them: build/plugins

check: deps ## install, build, and run every test
	+@ci/engines.sh $(BUILD)/engines & $(SUBMAKE) -Otarget lint clang; well=$$?; wait; exit $$well
	+@$(SUBMAKE) test

# What scripts among the tests run.
programs: all $(PLUGINS) $(OWN) $(BUILD)/check-random # and $(EMULATED)

# A test whose source is gone is not in $(TESTS): what an old build left is never run.
test: programs $(TESTS) ## build and run every test; TESTS="build/tests/oracle/test_bound" runs one
	@ci/test.sh $(BUILD) $(LONG_TESTS) $(TESTS) $(CLI_TESTS)

asan: ## run every test under AddressSanitizer and UndefinedBehaviorSanitizer
	+@$(SUBMAKE) test BUILD=$(BUILD)/asan OPT="-O1 -g1 -fno-omit-frame-pointer" \
		SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all"

tsan: ## run every test under ThreadSanitizer
	+@$(SUBMAKE) test BUILD=$(BUILD)/tsan OPT="-O1 -g1 -fno-omit-frame-pointer" SANITIZE="-fsanitize=thread"

coverage: ## which lines of caches, kernels and oracle the tests run: 95 % at least, each of the others explained
	+@$(SUBMAKE) $(BUILD)/coverage/tests-ran BUILD=$(BUILD)/coverage OPT=-O1 SANITIZE="--coverage -fprofile-update=atomic"
	@ci/coverage.py $(BUILD)/coverage

# By test programs alone: scripts run the same code in children that end without leaving their counts. The slowest begin first;
# left out is what takes long and runs no line that the others do not.
COVERING := $(patsubst %,$(BUILD)/tests/%,whole/test_load oracle/test_bound kernels/test_loops kernels/test_attend \
	whole/test_scan whole/test_codes whole/test_descent whole/test_random $(filter-out \
	kernels/test_attend \
	oracle/test_bound kernels/test_loops,\
	$(patsubst ci/tests/%.c,%,$(wildcard $(foreach f,kernels caches oracle,ci/tests/$f/test_*.c)))))
$(BUILD)/tests-ran: $(COVERING) FORCE
	@find $(BUILD) -name '*.gcda' -delete
	@KVB_TEST_SECONDS=3600 ci/test.sh $(BUILD) $(COVERING)

fuzz: ## look for inputs that are answered wrongly, T=60 seconds for each target; TARGET=verbs alone
	@ci/deps.sh check
	+@$(SUBMAKE) $(BUILD)/fuzz/fuzzer BUILD=$(BUILD)/fuzz FUZZING=1 CC=clang OPT="-O1 -g1 -fno-omit-frame-pointer" \
		SANITIZE="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all"
	@ci/fuzz/fuzz.sh $(BUILD)/fuzz $(or $(T),60) $(TARGET)

check-random: $(BUILD)/check-random ## N=1000 random histories of calls for each cache, from SEED=1 on; what goes wrong is shrunk to a trace; CACHE=paged alone, PLUGIN=./mine.so the caches of a plug-in
	@$< $(or $(N),1000) $(or $(SEED),1) "$(CACHE)" random.jsonl "$(PLUGIN)"

mutate: all ## change one place of the sources at a time: what survives, no test looks at; N=40 SEED=1 a sample, FOLDER=oracle one folder, FILE=caches/store.c one file
	@ci/mutate.py $(BUILD) $(if $(N),--count $(N)) $(if $(SEED),--seed $(SEED)) $(FOLDER) $(FILE)

table-mutation: all ## which changes of caches and oracle the test programs see: results/mutation.md (an hour); N=300 SEED=1
	ci/mutate.py $(BUILD) --tests --seconds 6 --count $(or $(N),300) --seed $(or $(SEED),1) --table results/mutation.md \
		$(wildcard oracle/*.c caches/*.c caches/bookkeeping/*.c caches/stores/*.c caches/pools/*.c)

bench-kernels: all ## what fraction of the machine's limit each kernel reaches; BENCH="--work 'decode-*'"
	@$(BUILD)/kvbench bench --targets $(BENCH)

lint: ## format, layering, headers, scripts, cppcheck: all that needs no build
	@ci/lint.sh

# The sources of kernels/vector once more at each level above portable: the intrinsics are theirs.
clang_isa = printf '%s\n' $(SRC_$1) | xargs -P $$(nproc) -n 4 \
	clang $(FLAGS) $(ISA_$2) -DKVB_ISA=$2 $(INCLUDE) -fsyntax-only

clang: $(BUILD)/version-facts.h ## read every source with clang, warnings as errors
	@printf '%s\n' $(ALL_C) | xargs -P $$(nproc) -n 16 clang $(FLAGS) $(INCLUDE) -I$(BUILD) -Ikernels -fsyntax-only
	@$(foreach s,$(LEVELLED),$(foreach i,$(filter-out portable,$(ISAS_$s)),$(call clang_isa,$s,$i) &&)) echo "clang: all well"

# Another architecture: its build lies in a folder of its own, beside Debian's libraries for it.
ARM := BUILD=$(BUILD)/arm CC="aarch64-linux-gnu-gcc --sysroot=$(abspath $(BUILD))/arm/sysroot"
$(BUILD)/arm/sysroot/complete: ci/sysroot.sh
	@ci/deps.sh arm
	@ci/sysroot.sh $(@D)

arm: $(BUILD)/arm/sysroot/complete ## cross-build for AArch64, with Debian's compiler and arm64 libraries: build/arm/kvbench
	+@$(SUBMAKE) all $(ARM)

check-arm: $(BUILD)/arm/sysroot/complete all ## test that build under qemu, at each level and vector length; CPU=a64fx alone (an hour and more)
	+@$(SUBMAKE) all $(ARM_TESTS:%=$(BUILD)/arm/tests/%) $(ARM)
	@ci/check_arm.sh $(BUILD) "$(CPU)" $(ARM_TESTS)

# Tests of what depends on the architecture, the longest first.
ARM_TESTS := whole/test_scan kernels/test_attend whole/test_load kernels/test_loops whole/test_codes \
	kernels/test_weights harness/test_cpu_mask

layering: ## who includes whom, against DESIGN.md
	@ci/layering.sh

format: ## format all C sources in place
	clang-format -i $(ALL_C) $(ALL_H)

# What a plug-in includes: view.h, attend.h and scan.h for kernels; the others, by their paths here, for caches, pools and engines.
OF_KERNELS := kernels/view.h kernels/attend.h kernels/scan.h
CONTRACTS  := $(OF_KERNELS) kernels/model.h $(wildcard caches/bookkeeping/*.h) caches/pools/pool.h caches/pools/growth.h caches/allocator.h \
	caches/plugin.h caches/store.h caches/cache.h harness/engine/adapter.h

define put_contracts
	$(foreach h,$(CONTRACTS),install -D -m 644 $h "$1/$h" &&) install -m 644 $(OF_KERNELS) "$1"
endef

install: all ## install under PREFIX (default /usr/local): program, contract headers, workloads, plots
	install -D $(BUILD)/kvbench "$(DESTDIR)$(PREFIX)/bin/kvbench"
	$(call put_contracts,$(DESTDIR)$(PREFIX)/include/kvbench)
	install -d "$(DESTDIR)$(PREFIX)/share/kvbench/workloads"
	install -m 644 workloads/recorded/* "$(DESTDIR)$(PREFIX)/share/kvbench/workloads/"
	install -d "$(DESTDIR)$(PREFIX)/share/kvbench/plots"
	install -m 644 $(wildcard plots/*.*) "$(DESTDIR)$(PREFIX)/share/kvbench/plots/"

# Where the real GPT-2 rows are, if anywhere: their column is left out otherwise.
GPT2_KV := ../shared/data/gpt2_kv/gpt2_kv_12L12H6T64D.f32

table-formats: all ## measure what storage formats cost in accuracy: results/formats.md
	results/tables.py formats --kvbench $(BUILD)/kvbench --work $(BUILD)/tables --gpt2 $(GPT2_KV) -o results/formats.md

table-growth: all ## measure what growth policies cost in time and memory: results/growth.md
	results/tables.py growth --kvbench $(BUILD)/kvbench --work $(BUILD)/tables -o results/growth.md

table-levels: all ## the full suite at each level of instruction sets: results/levels.md (hours; begun again, it goes on)
	results/tables.py levels --kvbench $(BUILD)/kvbench --work $(BUILD)/tables -o results/levels.md

table-sharing: all ## what sharing saves and pages of each size waste: results/sharing.md (WORKLOADS=a,b: of these)
	results/tables.py sharing --kvbench $(BUILD)/kvbench --work $(BUILD)/tables -o results/sharing.md $(if $(WORKLOADS),--workloads $(WORKLOADS))

table-sizing: program ## what engines logged beside what `size` predicts: results/sizing.md
	results/tables.py sizing --kvbench $(BUILD)/kvbench --work $(BUILD)/tables -o results/sizing.md

table-power: all ## how often a slowdown is found, by number of runs and by method: results/power.md (a quarter of an hour)
	results/table_power.py --kvbench $(BUILD)/kvbench --work $(BUILD)/tables -o results/power.md

table-judge: all engines plugins ## what judge says of mistakes in files, and which kernels keep their bits: results/judge.md (minutes)
	/usr/bin/python3 results/table_judge.py --kvbench $(BUILD)/kvbench --work $(BUILD)/tables -o results/judge.md

table-machines: ## how near kernels come to the limits of the machines that were met, from results/machines.jsonl: results/machines.md
	results/tables.py machines -o results/machines.md

table-gpu: all ## what judge says of torch's attention on a GPU, by backend: results/gpu.md (needs torch and a GPU)
	python3 results/table_gpu.py --kvbench $(BUILD)/kvbench --work $(BUILD)/tables -o results/gpu.md

table-power-of-check: all $(BUILD)/tests/whole/test_power $(BUILD)/tests/whole/test_filter ## which mistakes and errors the oracle finds, beside other projects' rules: results/power-of-check.md (half an hour)
	results/table_power_of_check.py --program $(BUILD)/tests/whole/test_power --filter-program $(BUILD)/tests/whole/test_filter --kvbench $(BUILD)/kvbench -o results/power-of-check.md

table-engines: all engines plugins ## kernels of others' engines, how exact and how fast beside ours: results/engines.md
	results/table_engines.py --kvbench $(BUILD)/kvbench --work $(BUILD)/tables -o results/engines.md

table-engine-histories: all engines ## what whole engines do with histories of calls, by build: results/engine-histories.md (minutes)
	results/table_engine_histories.py --kvbench $(BUILD)/kvbench --work $(BUILD)/tables -o results/engine-histories.md \
		$(patsubst %,$(BUILD)/engines/%,ggml llama-b10361 llama-b6301)

table-recurrence: $(BUILD)/tests/whole/test_scan_faults ## what the oracle finds in wrong scan kernels, and how far honest ones err: results/recurrence.md
	$< --table >results/recurrence.md

workloads: all ## record the shipped workloads anew, into workloads/recorded
	$(BUILD)/kvbench record

clean: ## remove everything built
	rm -rf $(BUILD)

# ---- rules ---------------------------------------------------------------------------------------------
objects = $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(foreach s,$(LEVELLED),$(SRC_$s)),$(SRC_$1))) \
	$(foreach s,$(LEVELLED),$(foreach i,$(ISAS_$s),$(patsubst %.c,$(BUILD)/%.$i.o,$(filter $(SRC_$s),$(SRC_$1)))))

# Dependencies name $(BUILD), not its value: a copy of a build is a build.
DEPEND = -MMD -MP -MT '$$(BUILD)/$(@:$(BUILD)/%=%)'

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(CC) $(FLAGS) $(ISA) $(PLAIN) $(INCLUDE) $(DEPEND) -c $< -o $@

# What runs once, or waits for a child: half of the compiler's time.
ifeq ($(origin OPT),file)
COLD := results workloads/import harness/commands harness/engine harness/selection harness/size harness/duel harness/faults harness/matrix \
	$(patsubst %,ci/tests/%,harness workloads live caches results whole oracle)
ifeq ($(ARCH),x86_64)
ISA_portable := -O1 -ftree-vectorize $(GUESSING) # nearly no x86 runs it
endif
$(addsuffix /%.o,$(addprefix $(BUILD)/,$(COLD))): PLAIN := -O1 $(GUESSING)
endif

# The sources of kernels/vector are compiled once for each level of kernels/cpu.h that has loops of its own: packed.avx2.o and so on.
ISA_avx2       := -mavx2 -mfma -mf16c
ISA_avxvnni    := $(ISA_avx2) -mavxvnni -DKVB_AVXVNNI
ISA_avx512     := $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ISA_avx512vnni := $(ISA_avx512) -mavx512vnni -mavx512vbmi
ISA_avx512bf16 := $(ISA_avx512vnni) -mavx512bf16
ISA_avx512fp16 := $(ISA_avx512bf16) -mavx512fp16
ISA_amx        := $(ISA_avx512bf16) -mamx-tile -mamx-bf16 -mamx-int8
ISA_emulated   := $(ISA_avx512bf16) -DKVB_TILES_EMULATED
ISA_neon       := -DKVB_NEON
ISA_neondot    := -DKVB_NEON -march=armv8.2-a+dotprod
ISA_neonbf16   := -DKVB_NEON -march=armv8.2-a+dotprod+i8mm+bf16
$(foreach n,128 256 512,$(eval ISA_sve$n := -march=armv8.2-a+sve -msve-vector-bits=$n))
$(foreach n,128 256 512,$(eval ISA_sve$(n)bf16 := -march=armv8.2-a+sve+i8mm+bf16 -msve-vector-bits=$n))
# Levels that add nothing to loops over floats (SRC_floats) take those of another.
$(foreach i,avx512vnni:avx512 neondot:neon neonbf16:neon sve128bf16:sve128 sve256bf16:sve256 sve512bf16:sve512,\
	$(eval FLOATS_$(firstword $(subst :, ,$i)) := -DKVB_FLOATS=$(lastword $(subst :, ,$i))))
FLOATS_avxvnni := -DKVB_FLOATS=avx2 -DKVB_ROWS=avx2 # it adds products of integers alone
FLOATS_amx     := -DKVB_FLOATS=avx512 -DKVB_ROWS=avx512vnni # so does AMX
FLOATS_emulated := $(FLOATS_amx)
define isa
$(BUILD)/%.$1.o: %.c Makefile
	@mkdir -p $$(@D)
	$$(call say,CC $$< for $1)
	$$(Q)$$(CC) $$(FLAGS) $(ISA_$1) $$(PLAIN) -DKVB_ISA=$1 $(FLOATS_$1) $$(INCLUDE) $$(DEPEND) -c $$< -o $$@
endef
$(foreach i,$(sort $(foreach s,$(LEVELLED),$(ISAS_$s))),$(eval $(call isa,$i)))

# For CPUs without AVX-VNNI or AMX: those levels once more, without their instructions, in programs whose CPU is said to have them.
ifeq ($(ARCH),x86_64)
ISA_emulated-avxvnni := $(ISA_avx2) -DKVB_AVXVNNI
FLOATS_emulated-avxvnni := -UKVB_ISA -DKVB_ISA=avxvnni $(FLOATS_avxvnni)
$(eval $(call isa,emulated-avxvnni))
OF_EMULATED := $(patsubst %.c,$(BUILD)/%.emulated-avxvnni.o,kernels/cpu.c kernels/loops.c $(SRC_int8))
EMULATED    := $(patsubst %,$(BUILD)/emulated/%,kvbench test_codes test_attend test_loops test_cpu_mask)
$(EMULATED): $(OF_EMULATED) $(ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LINK $@)
	$(Q)$(CC) $(LINK) $(filter %.o,$^) $(ARCHIVES) $(LIBS) -lcmocka -o $@
$(BUILD)/emulated/kvbench: $(BUILD)/harness/main.o
$(BUILD)/emulated/test_codes: $(BUILD)/ci/tests/whole/test_codes.o
$(BUILD)/emulated/test_attend: $(BUILD)/ci/tests/kernels/test_attend.o
$(BUILD)/emulated/test_loops: $(BUILD)/ci/tests/kernels/test_loops.o
$(BUILD)/emulated/test_cpu_mask: $(BUILD)/ci/tests/harness/test_cpu_mask.o
programs: $(EMULATED)
endif

ifeq ($(ARCH),aarch64)
$(BUILD)/ci/tests/%.o: PLAIN := -fno-tree-loop-vectorize # gcc 12.2 ends with an internal error in kernels/test_loops.c
endif

# No fuzzing target calls the first of these loops, and clang takes minutes to sanitize one. Counting the turns of the others,
# which depend on no input, takes nine tenths of the time.
ifdef FUZZING
$(BUILD)/kernels/vector/%.o: PLAIN := -fno-sanitize=all
$(BUILD)/caches/pools/codec/%.o $(BUILD)/kernels/witness.o $(BUILD)/workloads/prof%.o: PLAIN := -fno-sanitize=fuzzer-no-link
endif

# Sanitizers check each access of unrolled loops, which takes gcc a minute for a file: so they are not unrolled, whatever they ask for.
ifneq ($(findstring -fsanitize,$(SANITIZE)),)
ifndef FUZZING
$(BUILD)/kernels/vector/%.o: PLAIN := -fdisable-tree-cunroll -fdisable-tree-cunrolli
endif
endif

levelled: $(foreach s,$(LEVELLED),$(foreach i,$(ISAS_$s),$(SRC_$s:%.c=$(BUILD)/%.$i.o)))

# Facts about the build, rewritten only when they change; FACTS=keep takes those of a build that was copied.
define VERSION_FACTS
#define KVB_FACT_VERSION "$(VERSION)"
#define KVB_FACT_COMMIT "$(shell git describe --always --abbrev=12 --dirty --exclude '*' 2>/dev/null || echo unknown)"
#define KVB_FACT_FLAGS "$(strip $(OPT) -ffp-contract=off $(SANITIZE) $(CFLAGS))"
endef
$(BUILD)/version-facts.h: $(if $(FACTS),,FORCE)
	$(shell mkdir -p $(@D))$(file >$@.new,$(VERSION_FACTS))
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(BUILD)/harness/program.o: $(BUILD)/version-facts.h
$(BUILD)/harness/program.o: INCLUDE += -I$(BUILD)
FORCE:

$(BUILD)/harness/size/model.o: harness/size/models.jsonl # taken in by the assembler
$(BUILD)/harness/size/sizing_page.o: harness/size/explorer.js

define archive
$(BUILD)/lib$1.a: $(call objects,$1)
	@mkdir -p $$(@D); rm -f $$@
	$$(call say,AR $$@)
	$$(Q)ar rcs $$@ $$^
endef
$(foreach f,$(FOLDERS),$(eval $(call archive,$f)))

$(BUILD)/kvbench: $(BUILD)/harness/main.o $(ARCHIVES) harness/exports.map
	$(call say,LINK $@)
	$(Q)$(CC) $(LINK) $< $(ARCHIVES) $(LIBS) -o $@.new && mv $@.new $@ # never half written: a test may run it now

# The examples, built by their own Makefiles from the headers that `make install` puts in place, as a stranger would.
$(BUILD)/example-plugin/include/attend.h: $(CONTRACTS)
	$(Q)$(call put_contracts,$(@D))
define example
$(BUILD)/example-plugin/$2.so: $1/$2.c $1/Makefile $(BUILD)/example-plugin/include/attend.h
	@rm -f $$@
	$$(call say,PLUG-IN $$@)
	+$$(Q)$(MAKE) $(if $(V),,-s) --no-print-directory -C $$(@D) -f $(CURDIR)/$1/Makefile VPATH=$(CURDIR)/$1 CC='$(CC)' KVB_INCLUDE=include $2.so
endef
$(eval $(call example,kernels/example-plugin,online))
$(eval $(call example,kernels/example-plugin,running))
$(eval $(call example,caches/example-plugin,pages))
$(eval $(call example,caches/example-plugin,lin12))

# Ours.
define own
$(BUILD)/plugins/$1.so: $(wildcard kernels/$1/*.[ch]) kernels/engines.h $(OF_KERNELS)
	@mkdir -p $$(@D)
	$$(call say,PLUG-IN $$@)
	$$(Q)$$(CC) $$(FLAGS) $$(INCLUDE) -shared $$(filter %.c,$$^) -ldl -o $$@
endef
$(foreach p,ggml onnx,$(eval $(call own,$p)))

define test
$(BUILD)/tests/$1/%: $(BUILD)/ci/tests/$1/%.o $(foreach n,$(NEED_$1),$(BUILD)/lib$n.a)
	@mkdir -p $$(@D)
	$$(call say,LINK $$@)
	$$(Q)$(CC) $$(LINK) $$< $(foreach n,$(NEED_$1),$(BUILD)/lib$n.a) $(LIBS) -lcmocka -o $$@
endef
$(foreach f,kernels caches workloads live oracle results harness whole,$(eval $(call test,$f)))

# What fuzzing does with an input. libFuzzer is linked in a build of its own, by clang.
PARTS_fuzz     := $(patsubst %,$(BUILD)/ci/fuzz/%.o,files verbs calls rules saved)
PLAYING        := $(patsubst %,$(BUILD)/tests/whole/test_%,fuzz random no_memory)
$(PLAYING): $(PARTS_fuzz)
$(PLAYING): LINK += $(PARTS_fuzz)
$(BUILD)/check-random: $(BUILD)/ci/fuzz/random.o $(PARTS_fuzz) $(ARCHIVES)
	$(call say,LINK $@)
	$(Q)$(CC) $(LINK) $^ $(LIBS) -lcmocka -o $@
$(BUILD)/fuzzer: $(BUILD)/ci/fuzz/fuzzer.o $(PARTS_fuzz) $(ARCHIVES)
	$(call say,LINK $@)
	$(Q)$(CC) $(LINK) -fsanitize=fuzzer $^ $(LIBS) -lcmocka -o $@

# These refuse requests for memory.
$(BUILD)/tests/oracle/test_no_memory: LINK += $(foreach f,malloc calloc realloc mmap,-Wl,--wrap=$f)

# Counts the rows that the reference kernel reads.
$(BUILD)/tests/whole/test_walk_bytes: LINK += -Wl,--wrap=kvb_row_read

-include $(OF_EMULATED:.o=.d) $(patsubst %,$(BUILD)/%,$(patsubst %.c,%.d,$(ALL_C)) $(foreach s,$(LEVELLED),$(foreach i,$(ISAS_$s),$(SRC_$s:%.c=%.$i.d))))
