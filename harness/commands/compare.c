/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench compare: base against new, the regression gate. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command.h"
#include "harness/commands/compare_duel.h"
#include "harness/commands/compare_history.h"
#include "harness/options.h"
#include "results/baseline.h"
#include "results/compare.h"
#include "results/fingerprint.h"

typedef struct compare {
    kvb_words files;
    const char *thresholds_path, *format_name, *against, *folder, *save;
    bool history, force, strict, all, subset, across_machines;
    kvb_duel_words duel;
    kvb_thresholds thresholds;
    kvb_table_format format;
} compare;

static const kvb_option options[] = {
    {"--thresholds", "F.json", "what is allowed, by pattern; without: 5 % of time, no more memory or bytes",
     KVB_TEXT(compare, thresholds_path)},
    {"--strict", NULL, "undecided is a failure", KVB_FLAG(compare, strict)},
    {"--subset", NULL, "NEW may lack combinations that BASE has", KVB_FLAG(compare, subset)},
    {"--across-machines", NULL, "compare times though the machines differ", KVB_FLAG(compare, across_machines)},
    {"--all", NULL, "show what is the same too", KVB_FLAG(compare, all)},
    {"--format", "FORMAT", "table, md (for a pull request), csv or json", KVB_TEXT(compare, format_name)},
    {"--against", "NAME", "compare NEW with this machine's baseline NAME", KVB_TEXT(compare, against)},
    {"--save", "NAME", "keep a file as the baseline NAME of its machine", KVB_TEXT(compare, save)},
    {"--force", NULL, "with --save: replace the baseline", KVB_FLAG(compare, force)},
    {"--history", NULL, "where did times change level? over FILEs, or all baselines of this machine",
     KVB_FLAG(compare, history)},
    {"--baselines", "FOLDER", "where baselines are, a folder for each machine (results/baselines)",
     KVB_TEXT(compare, folder)},
    KVB_DUEL_OPTIONS(compare, duel.),
    KVB_OPTIONS_END,
};

static const kvb_usage usage = {
    .command = "compare",
    .synopsis = "BASE.jsonl NEW.jsonl [options]",
    .about =
        "Two runs against each other, combination by combination. Exit 1 when something got worse.\n\n"
        "  kvbench compare base.jsonl new.jsonl\n"
        "  kvbench compare base.jsonl new.jsonl --thresholds ci/thresholds.json --format md >>$GITHUB_STEP_SUMMARY\n"
        "  kvbench compare --save main base.jsonl; kvbench compare --against main new.jsonl\n"
        "  kvbench compare --history\n"
        "  kvbench compare --base-plugin old/mine.so --new-plugin new/mine.so --workload 'plain-*' --threads 2\n"
        "  kvbench compare --base-program old/kvbench --new-program build/kvbench --kernel flash --pool f16\n\n"
        "Time is SAME when the whole interval of its change lies within the threshold, SLOWER or FASTER when the\n"
        "interval leaves out no change and the estimate reaches the threshold, else UNDECIDED with the reason. The\n"
        "intervals hold together for all combinations (99 %), and are never narrower than the runs' own null\n"
        "comparisons. Each kernel and cache is judged over all its combinations too. Memory, bytes read and rho are\n"
        "compared exactly. New failures (BROKEN) and vanished combinations (GONE) are regressions.\n\n"
        "Two plug-ins or two programs are run here, in turns, so that what else the machine does cancels, and the "
        "base\n"
        "once more against itself: what that differs by is the smallest difference that is told. Best on a noisy "
        "machine.",
    .options = options,
    .words = offsetof(compare, files),
    .takes_words = true,
};

/* A file and the words it is told by. */
typedef struct side {
    kvb_result_file *file;
    char name[1200];
} side;

static int side_open(side *s, const char *path)
{
    char why[512];

    if (kvb_result_load(path, &s->file, why, sizeof why))
        return kvb_complain("compare", KVB_EXIT_USAGE, "%s", why);
    snprintf(s->name, sizeof s->name, "%s (%s, commit %s)", path, s->file->manifest.date, s->file->manifest.commit);
    return KVB_EXIT_OK;
}

static int baseline_open(const compare *o, side *base, const kvb_manifest *manifest)
{
    char why[512], *path;
    int code;

    if (kvb_baseline_path(o->folder, manifest, o->against, &path, why, sizeof why))
        return kvb_complain("compare", KVB_EXIT_USAGE, "%s", why);
    code = side_open(base, path);
    free(path);
    return code;
}

/* Compares and prints; the view is filled up. The exit code. */
static int judge(const compare *o, const kvb_result *base, size_t n_base, const kvb_result *new, size_t n_new,
                 const kvb_compare_options *how, kvb_compare_view *view)
{
    kvb_comparison *c;
    char why[1024];
    int error = kvb_compare(base, n_base, new, n_new, how, &c, why, sizeof why);

    if (error)
        return kvb_complain("compare", error == -EINVAL ? KVB_EXIT_USAGE : KVB_EXIT_MACHINE, "%s", why);
    view->format = o->format;
    view->all = o->all;
    view->strict = o->strict;
    int code = kvb_comparison_print(c, view, stdout)
                   ? kvb_complain("compare", KVB_EXIT_MACHINE, "cannot write to standard output")
               : kvb_comparison_failed(c, o->strict) ? KVB_EXIT_FAILED
                                                     : KVB_EXIT_OK;
    kvb_comparison_free(c);
    return code;
}

/* Both files are there. */
static int gate(const compare *o, const side *base, const side *new, const char *command)
{
    char texts[KVB_NOTES][KVB_NOTE_TEXT], machine[2][KVB_FINGERPRINT_TEXT];
    const char *notes[KVB_NOTES + 1] = {0};
    size_t n = kvb_manifest_notes(&base->file->manifest, &new->file->manifest, texts);

    for (size_t i = 0; i < n; i++)
        notes[i] = texts[i];
    kvb_fingerprint(&base->file->manifest, machine[0]);
    kvb_fingerprint(&new->file->manifest, machine[1]);
    bool moved = strcmp(machine[0], machine[1]) != 0;
    kvb_compare_options how = {.thresholds = &o->thresholds,
                               .subset = o->subset,
                               .no_time = moved && !o->across_machines ? "another machine (--across-machines)" : NULL};
    kvb_compare_view view = {.base = base->name, .new = new->name, .notes = notes, .command = command};
    return judge(o, base->file->results, base->file->n, new->file->results, new->file->n, &how, &view);
}

/* Two builds are run, then judged. */
static int builds_compare(const compare *o, const char *command)
{
    static const char *const notes[] = {NULL};
    kvb_results base = {.n = 0}, new = {.n = 0};
    const char *const *names = o->duel.plugin[0] ? o->duel.plugin : o->duel.program;
    kvb_compare_options how = {.thresholds = &o->thresholds, .subset = o->subset, .paired = true};
    kvb_compare_view view = {
        .base = names[KVB_DUEL_BASE], .new = names[KVB_DUEL_NEW], .notes = notes, .command = command};
    int code = kvb_duel_run(&o->duel, &base, &new);

    if (code < 0)
        code = judge(o, base.at, base.n, new.at, new.n, &how, &view);
    free(base.at);
    free(new.at);
    return code;
}

static int files_compare(const compare *o, const char *command)
{
    side base = {0}, new = {0};
    int code = KVB_EXIT_USAGE;

    if (o->files.n != (o->against ? 1 : 2))
        kvb_complain("compare", code,
                     o->against ? "--against NAME takes one file, NEW.jsonl"
                                : "name two files, BASE.jsonl and NEW.jsonl; see --help");
    else
        code = side_open(&new, o->files.at[o->files.n - 1]);
    if (!code)
        code = o->against ? baseline_open(o, &base, &new.file->manifest) : side_open(&base, o->files.at[0]);
    if (!code)
        code = gate(o, &base, &new, command);
    if (base.file)
        kvb_result_free(base.file);
    if (new.file)
        kvb_result_free(new.file);
    return code;
}

static int compare_do(compare *o, const char *command)
{
    char why[1024];

    if (!kvb_table_format_parse(o->format_name, &o->format))
        return kvb_complain("compare", KVB_EXIT_USAGE, "--format: unknown format '%s'; known: table, md, csv, json",
                            o->format_name);
    if (o->thresholds_path && kvb_thresholds_load(o->thresholds_path, &o->thresholds, why, sizeof why))
        return kvb_complain("compare", KVB_EXIT_USAGE, "%s", why);
    if (!!o->save + o->history + !!o->against + kvb_duel_is_asked(&o->duel) > 1)
        return kvb_complain("compare", KVB_EXIT_USAGE,
                            "--save, --against, --history and two builds to run exclude each other");
    if (kvb_duel_is_asked(&o->duel) && o->files.n)
        return kvb_complain("compare", KVB_EXIT_USAGE, "two builds are run here: no file like '%s' is read",
                            o->files.at[0]);
    if (kvb_duel_is_asked(&o->duel))
        return builds_compare(o, command);
    if (o->save && o->files.n != 1)
        return kvb_complain("compare", KVB_EXIT_USAGE, "--save NAME takes one file");
    if (o->save)
        return kvb_compare_save(o->folder, o->save, o->files.at[0], o->force);
    if (o->history)
        return kvb_compare_history(o->folder, o->files.at, o->files.n, &o->thresholds, o->across_machines, o->format);
    return files_compare(o, command);
}

/* As typed, for whoever wants to see the same. */
static void command_text(int argc, char **argv, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "kvbench");

    for (int i = 0; i < argc && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, " %s", argv[i]);
}

static int compare_main(int argc, char **argv)
{
    compare o = {.format_name = "table", .folder = "results/baselines"};
    char command[1024];

    kvb_thresholds_init(&o.thresholds);
    command_text(argc, argv, command, sizeof command);
    int code = kvb_options_parse(&usage, &o, argc, argv);
    if (code < 0)
        code = compare_do(&o, command);
    kvb_words_free(&o.files);
    kvb_duel_words_free(&o.duel);
    return code;
}

const kvb_command kvb_command_compare = {
    .name = "compare",
    .summary = "base against new: what got slower, larger, broken",
    .run = compare_main,
};
