/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench report: a page, or pictures, from result files. Checks the files; plots/report.py does the rest. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/command_line.h"
#include "harness/installation.h"
#include "results/result.h"

extern char **environ;

typedef struct report {
    kvb_words files;
    const char *output, *folder;
    bool pictures;
} report;

static const kvb_option options[] = {
    {"-o", "FOLDER", "where to write; default: report", KVB_TEXT(report, output)},
    {"--pictures", NULL, "write the plots as PNG, SVG and PDF instead of the page", KVB_FLAG(report, pictures)},
    {"--plots", "FOLDER", "where the plots' sources are", KVB_TEXT(report, folder)},
    KVB_OPTIONS_END,
};

static const kvb_usage usage = {
    .command = "report",
    .synopsis = "F.jsonl... [options]",
    .about =
        "Write FOLDER/index.html: verdict, machine, what is fastest and slowest, plots, every combination, and how\n"
        "to run each again. One file that needs no network. Needs python3, gnuplot and matplotlib.\n\n"
        "  kvbench report quick.jsonl\n"
        "  kvbench report before.jsonl after.jsonl -o both\n"
        "  kvbench report quick.jsonl --pictures -o plots",
    .options = options,
    .words = offsetof(report, files),
    .takes_words = true,
};

static int files_check(const report *r)
{
    char why[512];
    for (size_t i = 0; i < r->files.n; i++) {
        kvb_result_file *file;
        if (kvb_result_load(r->files.at[i], &file, why, sizeof why))
            return kvb_complain("report", KVB_EXIT_USAGE, "%s", why);
        kvb_result_free(file);
    }
    return KVB_EXIT_OK;
}

/* Debian's packages belong to its own python3. Another python3 may come first in PATH. */
static const char *python_find(void)
{
    const char *chosen = getenv("KVB_PYTHON");
    return chosen ? chosen : access("/usr/bin/python3", X_OK) ? "python3" : "/usr/bin/python3";
}

/* If the script lacks something or cannot write, it says so itself and exits with 3. */
static int script_run(const report *r, const char *script)
{
    const char *python = python_find();
    const char **argv = calloc(r->files.n + 6, sizeof *argv);
    pid_t child;
    int status;
    if (!argv)
        return kvb_complain("report", KVB_EXIT_MACHINE, "no memory");
    const char *const first[] = {python, "-B", script, r->pictures ? "pictures" : "page", r->output};
    memcpy(argv, first, sizeof first);
    memcpy(argv + 5, r->files.at, r->files.n * sizeof *argv);
    int error = posix_spawnp(&child, python, NULL, NULL, (char *const *)argv, environ);
    free(argv);
    if (error)
        return kvb_complain("report", KVB_EXIT_MACHINE, "%s: %s; the Debian package is python3", python,
                            strerror(error));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return kvb_complain("report", KVB_EXIT_MACHINE, "%s: %s", python, strerror(errno));
    if (WIFEXITED(status) && (WEXITSTATUS(status) == KVB_EXIT_OK || WEXITSTATUS(status) == KVB_EXIT_MACHINE))
        return WEXITSTATUS(status);
    return kvb_complain("report", KVB_EXIT_MACHINE, "%s ended with %s %d", script,
                        WIFEXITED(status) ? "status" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static int report_make(const report *r)
{
    char *folder = r->folder ? strdup(r->folder) : kvb_folder_find("KVB_PLOTS", "share/kvbench/plots", "plots");
    char *script = NULL;
    int code;
    if (!folder || asprintf(&script, "%s/report.py", folder) < 0)
        code = kvb_complain("report", KVB_EXIT_MACHINE, "no memory");
    else if (access(script, R_OK))
        code = kvb_complain("report", KVB_EXIT_USAGE, "%s: %s; say where the plots are with --plots FOLDER", script,
                            strerror(errno));
    else
        code = script_run(r, script);
    free(script);
    free(folder);
    return code;
}

static int report_main(int argc, char **argv)
{
    report r = {.output = "report"};
    int code = kvb_options_parse(&usage, &r, argc, argv);
    if (code < 0)
        code = r.files.n ? files_check(&r) : kvb_complain("report", KVB_EXIT_USAGE, "name a result file; see --help");
    else
        goto out;
    if (!code)
        code = report_make(&r);
out:
    kvb_words_free(&r.files);
    return code;
}

const kvb_command kvb_command_report = {
    .name = "report",
    .summary = "HTML page with plots, from result files",
    .run = report_main,
};
