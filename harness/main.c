/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench: the command table. */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/program.h"
#include "kernels/blas.h"
#include "workloads/files.h"

static const kvb_command *const commands[] = {
    &kvb_command_run,    &kvb_command_check,   &kvb_command_judge,  &kvb_command_bench,
    &kvb_command_list,   &kvb_command_show,    &kvb_command_record, &kvb_command_machine,
    &kvb_command_tune,   &kvb_command_compare, &kvb_command_merge,  &kvb_command_size,
    &kvb_command_report, &kvb_command_faults,  &kvb_command_engine, NULL,
};

static void help_print(FILE *out)
{
    fprintf(out,
            "kvbench %s: replay LLM inference workloads through KV caches, storage pools and attention kernels,\n"
            "prove each combination against a double-precision oracle, and measure what it costs.\n\n"
            "usage: kvbench COMMAND [options]      (kvbench COMMAND --help teaches each)\n\n",
            kvb_version);
    for (size_t i = 0; commands[i]; i++)
        fprintf(out, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\nfirst steps:\n"
                 "  kvbench run --suite quick        every cache, pool and kernel over the recorded workloads\n"
                 "  kvbench check mine.so            is my kernel, cache or pool right?\n"
                 "  kvbench bench                    how fast kernels are here, beside the machine's limit\n"
                 "  kvbench list                     what there is to combine\n"
                 "  kvbench show eagle-tree          what a workload holds\n"
                 "  kvbench size Llama-3.1-8B        what memory a model's context takes\n");
}

static int program(int argc, char **argv)
{
    setlocale(LC_CTYPE, "C.UTF-8"); /* widths of table cells; numbers stay as in C */
    signal(SIGPIPE, SIG_IGN);       /* a closed pipe and a file size limit are reported as write errors */
    signal(SIGXFSZ, SIG_IGN);
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* else it starts a thread for each core when it is loaded */
    if (getenv("OPENBLAS_CORETYPE"))
        kvb_blas_core(KVB_BLAS_KEEP);
    if (argc < 2) {
        help_print(stderr);
        return KVB_EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help_print(stdout);
        return KVB_EXIT_OK;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("kvbench %s (%s, %s)\n", kvb_version, kvb_build_commit, kvb_compiler);
        return KVB_EXIT_OK;
    }
    for (size_t i = 0; commands[i]; i++)
        if (!strcmp(argv[1], commands[i]->name))
            return kvb_command_call(commands[i], argc - 1, argv + 1);
    char why[512], known[256] = "";
    for (size_t i = 0; commands[i]; i++)
        kvb_list_add(known, sizeof known, " ", "%s", commands[i]->name);
    kvb_name_unknown("kvbench: unknown command", argv[1], known, why, sizeof why);
    fprintf(stderr, "%s\n", why);
    return KVB_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    return kvb_output_end(argc > 1 ? argv[1] : "", program(argc, argv));
}
