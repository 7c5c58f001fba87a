/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench report: a page, or pictures, from result files. Checks the files and compares two; plots/report.py draws. */
#include <errno.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/command_line.h"
#include "harness/program.h"
#include "results/compare.h"
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

/* Writes what `kvbench compare BASE NEW --format json` prints. Returns an exit code. */
static int comparison_write(const kvb_result_file *base, const kvb_result_file *new, FILE *out)
{
    kvb_thresholds thresholds;
    kvb_comparison *c;
    char why[1024], machine[2][KVB_FINGERPRINT_TEXT];

    kvb_thresholds_init(&thresholds);
    kvb_fingerprint(&base->manifest, machine[0]);
    kvb_fingerprint(&new->manifest, machine[1]);
    const kvb_compare_run runs[] = {{base->results, base->n}, {new->results, new->n}};
    const kvb_compare_options how = {.thresholds = &thresholds,
                                     .runs = {&runs[0], &runs[1]},
                                     .n_runs = {1, 1},
                                     .no_time = strcmp(machine[0], machine[1]) ? "another machine" : NULL};
    int error = kvb_compare(&how, &c, why, sizeof why);
    if (error)
        return kvb_fail(error, why);
    kvb_compare_view view = {.format = KVB_TABLE_JSON};
    error = kvb_comparison_print(c, &view, out);
    kvb_comparison_free(c);
    return error ? kvb_complain("report", KVB_EXIT_MACHINE, "cannot keep the comparison: %s", strerror(-error))
                 : KVB_EXIT_OK;
}

/* Is it a file of `kvbench bench --record-machine`, by its first line? */
static bool is_of_machines(const char *path)
{
    FILE *file = fopen(path, "r");
    json_t *first = file ? json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const char *schema = json_string_value(json_object_get(first, "schema"));
    const bool is = schema && !strncmp(schema, "kvbench.machines/", strlen("kvbench.machines/"));
    json_decref(first);
    if (file)
        fclose(file);
    return is;
}

/* Checks the files. If there are two, writes their comparison. An exit code. */
static int files_check(const report *r, FILE *comparison)
{
    char why[512];
    kvb_result_file *files[2] = {NULL, NULL};
    int code = KVB_EXIT_OK;

    for (size_t i = 0; i < r->files.n && !code; i++) {
        kvb_result_file *file = NULL;
        if (kvb_result_load(r->files.at[i], &file, why, sizeof why))
            code = kvb_refuse("%s", why);
        else if (r->files.n == 2)
            files[i] = file;
        else
            kvb_result_free(file);
    }
    if (!code && r->files.n == 2)
        code = comparison_write(files[0], files[1], comparison);
    for (int i = 0; i < 2; i++)
        if (files[i])
            kvb_result_free(files[i]);
    return code;
}

/* Debian's packages belong to Debian's python3, but another python3 may come first in PATH. */
static const char *python_find(void)
{
    const char *chosen = getenv("KVB_PYTHON");
    return chosen ? chosen : access("/usr/bin/python3", X_OK) ? "python3" : "/usr/bin/python3";
}

/* Runs the script with the comparison as its standard input. If the script lacks something or cannot write, it prints
 * the error itself and exits with 2 or 3. */
static int script_run(const report *r, const char *script, FILE *comparison)
{
    posix_spawn_file_actions_t actions;
    const char *python = python_find();
    const char **argv = calloc(r->files.n + 6, sizeof *argv);
    pid_t child;
    int status;
    if (!argv)
        return kvb_complain("report", KVB_EXIT_MACHINE, "no memory");
    const char *what = is_of_machines(r->files.at[0]) ? "machines" : r->pictures ? "pictures" : "page";
    const char *const first[] = {python, "-B", script, what, r->output};
    memcpy(argv, first, sizeof first);
    memcpy(argv + 5, r->files.at, r->files.n * sizeof *argv);
    rewind(comparison);
    int error = posix_spawn_file_actions_init(&actions);
    if (!error) {
        error = posix_spawn_file_actions_adddup2(&actions, fileno(comparison), STDIN_FILENO);
        error = error ? error : posix_spawnp(&child, python, &actions, NULL, (char *const *)argv, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    free(argv);
    if (error)
        return kvb_complain("report", KVB_EXIT_MACHINE, "%s: %s; the Debian package is python3", python,
                            strerror(error));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return kvb_complain("report", KVB_EXIT_MACHINE, "%s: %s", python, strerror(errno));
    if (WIFEXITED(status) && (WEXITSTATUS(status) == KVB_EXIT_OK || WEXITSTATUS(status) == KVB_EXIT_USAGE ||
                              WEXITSTATUS(status) == KVB_EXIT_MACHINE))
        return WEXITSTATUS(status);
    return kvb_complain("report", KVB_EXIT_MACHINE, "%s ended with %s %d", script,
                        WIFEXITED(status) ? "status" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static int report_make(const report *r, FILE *comparison)
{
    char *folder = r->folder ? strdup(r->folder) : kvb_folder_find("KVB_PLOTS", "share/kvbench/plots", "plots");
    char *script = NULL;
    int code;
    if (!folder || asprintf(&script, "%s/report.py", folder) < 0)
        code = kvb_complain("report", KVB_EXIT_MACHINE, "no memory");
    else if (access(script, R_OK))
        code = kvb_refuse("%s: %s; say where the plots are with --plots FOLDER", script, strerror(errno));
    else
        code = script_run(r, script, comparison);
    free(script);
    free(folder);
    return code;
}

static int report_run(void *typed, int argc, char **argv)
{
    const report *r = typed;
    (void)argc, (void)argv;
    if (!r->files.n)
        return kvb_refuse("name a result file; see --help");
    FILE *comparison = tmpfile();
    if (!comparison)
        return kvb_complain("report", KVB_EXIT_MACHINE, "no temporary file: %s", strerror(errno));
    const bool machines = is_of_machines(r->files.at[0]);
    int code = !machines ? files_check(r, comparison)
               : r->files.n > 1 || r->pictures
                   ? kvb_refuse("%s: records of machines make a page by themselves", r->files.at[0])
                   : KVB_EXIT_OK;
    if (!code)
        code = report_make(r, comparison);
    fclose(comparison);
    return code;
}

const kvb_command kvb_command_report = {
    .name = "report",
    .summary = "HTML page with plots, from result files",
    .run = report_run,
    .bytes = sizeof(report),
    .usual = &(const report){.output = "report"},
    .synopsis = "F.jsonl... [options]",
    .about = "Write FOLDER/index.html: first pictures of kernels and caches, verdict and machine, then tables, and "
             "how to run each result again. Of two files, the first is before and the second after: under the "
             "pictures stands what moved, as `kvbench compare` judges it. Results are compared where they differ "
             "in one thing alone. Of records of machines (bench --record-machine): what each reached, side by "
             "side. One file that needs no network. Needs python3 and gnuplot.\n\n"
             "  kvbench report quick.jsonl\n"
             "  kvbench report before.jsonl after.jsonl -o both\n"
             "  kvbench report quick.jsonl --pictures -o plots\n"
             "  kvbench report results/machines.jsonl",
    .options = options,
    .words = offsetof(report, files),
    .takes_words = true,
};
