/* SPDX-License-Identifier: Apache-2.0 */
/* Callgrind writes what each process has counted into a log, an unnamed file in memory, when that process ends. */
#include "harness/counters/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/command_line.h"
#include "kernels/cpu.h"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define HAS_VALGRIND 1
#else
#define HAS_VALGRIND                    0
#define RUNNING_ON_VALGRIND             0
#define CALLGRIND_START_INSTRUMENTATION (void)0
#define CALLGRIND_TOGGLE_COLLECT        (void)0
#endif

/* The modelled caches are the same on every machine, so counts from two machines can be compared. */
#define MODEL_OPTIONS "--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64"
#define MODEL_TEXT    "D1 32 KiB 8-way, LL 8 MiB 16-way"
#define LOG           "KVB_COUNT_LOG" /* the descriptor of the log, for the program that runs under Callgrind */
#define FILLER        "KVB_COUNT_FILLER"
#define FRAME         32768u /* bytes of words and environment: a multiple of this */
#define OPTIONS_MOST  16

const char *kvb_count_level(void)
{
    char why[128];
    return kvb_cpu_level_names[kvb_cpu_has(KVB_CPU_AVX2, why, sizeof why) ? KVB_CPU_AVX2 : KVB_CPU_PORTABLE];
}

static int refuse(const char *const *threads)
{
    bool several = false;
    for (; threads && *threads; threads++)
        several = several || strcmp(*threads, "1");
    if (kvb_cpu() > KVB_CPU_AVX2)
        return kvb_complain("run", KVB_EXIT_USAGE,
                            "--count: Valgrind runs no AVX-512, nor AVX-VNNI; --cpu-mask avx2 or portable");
    return several ? kvb_complain("run", KVB_EXIT_USAGE, "--count: only one thread can be counted; no --threads but 1")
                   : 0;
}

/* The log of this program's Callgrind; -1: there is none. */
static int log_of_program(void)
{
    const char *text = getenv(LOG);
    return text && RUNNING_ON_VALGRIND ? atoi(text) : -1;
}

/* Fills up the environment. The stack begins below environment and words, and its address decides which of its lines
 * compete with rows in the modelled caches. */
static void stack_align(const char *program, char **argv)
{
    static char filler[FRAME];
    size_t used = 2 * strlen(program) + strlen(FILLER) + 2 * sizeof(char *) + 4;
    for (char **word = argv; *word; word++)
        used += strlen(*word) + 1 + sizeof *word;
    for (char **word = environ; *word; word++)
        used += strlen(*word) + 1 + sizeof *word;
    memset(filler, '-', FRAME - used % FRAME);
    filler[FRAME - 1 - used % FRAME] = '\0';
    setenv(FILLER, filler, 1);
}

int kvb_count_start(char **argv, const char *const *threads)
{
    size_t n = 0;
    if (refuse(threads))
        return KVB_EXIT_USAGE;
    if (!HAS_VALGRIND)
        return kvb_complain(
            "run", KVB_EXIT_MACHINE,
            "--count: unavailable: built without valgrind; install Debian's package valgrind and build again");
    char program[4096], log_option[32], log_text[16];
    if (log_of_program() >= 0) {
        json_object_seed(1); /* else jansson takes a random seed, which changes the order of frees, and addresses */
        return 0;
    }
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    while (argv[n])
        n++;
    int log = memfd_create("counts", 0), same = log < 0 ? -1 : dup(log); /* one for Callgrind, which closes it */
    char **words = calloc(n + OPTIONS_MOST, sizeof *words);
    if (same >= 0 && words) {
        const char *const options[] = {"valgrind",           "--tool=callgrind",
                                       "--vgdb=no",          "--callgrind-out-file=/dev/null",
                                       "--cache-sim=yes",    MODEL_OPTIONS,
                                       "--instr-atstart=no", "--collect-atstart=no",
                                       log_option,           program};
        const size_t n_options = sizeof options / sizeof *options;
        snprintf(log_option, sizeof log_option, "--log-fd=%d", log);
        snprintf(log_text, sizeof log_text, "%d", same);
        memcpy(words, options, sizeof options);
        memcpy(words + n_options, argv, n * sizeof *words);
        setenv(LOG, log_text, 1);
        setenv("HWLOC_COMPONENTS", "-x86", 0); /* it does not work under Valgrind, and prints an error */
        fcntl(log, F_SETFL, O_APPEND);         /* else children that end together overwrite each other's counts */
        stack_align(program, argv);
        execvp(words[0], words);
    }
    int error = errno;
    close(same);
    close(log);
    free(words);
    return kvb_complain("run", KVB_EXIT_MACHINE, "--count: unavailable: valgrind: %s%s", strerror(error),
                        error == ENOENT ? "; install Debian's package valgrind" : "");
}

void kvb_count_open(void)
{
    CALLGRIND_START_INSTRUMENTATION;
}

void kvb_count_turn(void)
{
    CALLGRIND_TOGGLE_COLLECT;
}

/* The text behind `what` in the log's last line that begins with `start` and contains `what`; NULL: there is none. */
static const char *line_find(const char *log, const char *start, const char *what)
{
    const char *found = NULL;
    for (const char *line = log, *end; (end = strchr(line, '\n')); line = end + 1) {
        const char *at = !strncmp(line, start, strlen(start)) ? strstr(line, what) : NULL;
        found = at && at < end ? at + strlen(what) : found;
    }
    return found;
}

static void log_read(const char *log, pid_t child, kvb_result *r)
{
    enum { IR, DR, DW, I1MR, D1MR, D1MW, ILMR, DLMR, DLMW, EVENTS };
    double n[EVENTS] = {0};
    char start[32], version[32] = "";
    snprintf(start, sizeof start, "==%d== ", (int)child);
    const char *counted = line_find(log, start, "Collected : "), *name = line_find(log, "==", "Using Valgrind-");
    if (name)
        snprintf(version, sizeof version, "%.*s", (int)strcspn(name, " \n"), name);
    for (int i = 0; counted && i < EVENTS; i++) {
        char *end;
        n[i] = strtod(counted, &end);
        counted = end > counted && strchr(" \n", *end) ? end : NULL;
    }
    if (!counted) {
        r->status = KVB_STATUS_FAIL;
        snprintf(r->reason, sizeof r->reason, "Callgrind counted nothing");
        return;
    }
    r->counts.passes = 1;
    snprintf(r->counts.source, sizeof r->counts.source, "callgrind %s, level %s, " MODEL_TEXT, version,
             kvb_cpu_level_names[kvb_cpu()]);
    r->counts.instructions = n[IR];
    r->counts.data_reads = n[DR];
    r->counts.data_writes = n[DW];
    r->counts.l1_misses = n[D1MR] + n[D1MW];
    r->counts.ll_misses = n[DLMR] + n[DLMW];
}

void kvb_count_read(pid_t child, kvb_result *result)
{
    struct stat file;
    int log = log_of_program();
    if (log >= 0 && result->status == KVB_STATUS_CRASH && strstr(result->reason, "SIGILL"))
        strncat(result->reason, "; Valgrind runs no AVX-512", sizeof result->reason - strlen(result->reason) - 1);
    if (log < 0 || result->status != KVB_STATUS_PASS || fstat(log, &file))
        return;
    char *text = calloc(1, (size_t)file.st_size + 1);
    if (text && pread(log, text, (size_t)file.st_size, 0) == file.st_size)
        log_read(text, child, result);
    free(text);
}
