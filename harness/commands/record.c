/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench record: write workloads of the live model, imports and llama.cpp; check that no cache changes the tokens. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/command_line.h"
#include "harness/engine/engine.h"
#include "harness/selection/registry.h"
#include "harness/program.h"
#include "harness/size/cache_model.h"
#include "kernels/kernels.h"
#include "results/table.h"
#include "workloads/import/import.h"
#include "workloads/live/weights.h"
#include "workloads/live/model.h"
#include "workloads/live/live.h"
#include "workloads/trace.h"
#include "workloads/files.h"

#define MAX_SCENARIOS 64u

/* Options of --import as typed; 0 and NULL: not given. */
typedef struct import_words {
    const char *from; /* FORMAT:FILE */
    const char *name;
    uint64_t requests, shrink, sequences;
} import_words;

/* Options of --engine as typed. */
typedef struct engine_words {
    const char *name, *lib, *family, *script, *layers, *heads;
    int kv, flash; /* index of the option's word, or NOT_TYPED */
} engine_words;

enum { NOT_TYPED = -1 };
static const char *const kv_words[] = {"f16", "f32"};

typedef struct settings {
    /* options as typed */
    kvb_words scenario_names, plugins;
    const char *directory, *weights, *config, *save_weights, *cache_name, *kernel_name, *model_name;
    uint64_t seed;
    bool check;
    import_words import;
    engine_words engine;
    /* parsed */
    const kvb_scenario *scenarios[MAX_SCENARIOS + 1]; /* ends with NULL */
    size_t n_scenarios;
    bool long_decode;
    const kvb_cache_type *cache; /* NULL: each scenario's natural one; with --check: all */
    const kvb_kernel *kernel;
    kvb_table_format format;
    kvb_sized_model *model; /* NULL: each scenario's model */
    kvb_model shape;        /* of `model` */
    kvb_registry registry;
} settings;

static const kvb_option options[] = {
    KVB_OPTIONS_OF("the live model"),
    {"--scenario", "NAME", "what to play, repeatable (default: all); a wrong name lists them",
     KVB_WORDS(settings, scenario_names)},
    {"--seed", "N", "of weights, prompts, draft model, seeded values (default: 1)",
     KVB_NUMBER(settings, seed, 0, (uint64_t)1 << 53)},
    {"--weights", "FILE", "a Llama-style safetensors checkpoint instead of seeded weights",
     KVB_TEXT(settings, weights)},
    {"--config", "FILE", "its config.json (default: the one beside it)", KVB_TEXT(settings, config)},
    {"--save-weights", "FILE", "write the weights, with config.json beside them, and stop",
     KVB_TEXT(settings, save_weights)},
    {"--cache", "NAME", "record over this cache (default: the scenario's own); with --check: only this",
     KVB_TEXT(settings, cache_name)},
    {"--kernel", "NAME", "attend with this kernel (default: exact; with --check: reference)",
     KVB_TEXT(settings, kernel_name)},
    {"--model", "MODEL",
     "what has seeded values gets one layer of each kind of this model, and its name: a name of `kvbench size --list`, "
     "or a config.json; the live model stays unchanged. With --engine: F.gguf",
     KVB_TEXT(settings, model_name)},
    {"--plugin", "FILE.so", "load more kernels and caches, repeatable", KVB_WORDS(settings, plugins)},
    {"--check", NULL, "write nothing; play over every cache and compare the tokens", KVB_FLAG(settings, check)},
    KVB_OPTIONS_OF("an import"),
    {"--import", "FORMAT:FILE", "no model: a recorded production workload, mooncake:FILE.jsonl or azure:FILE.csv",
     KVB_TEXT(settings, import.from)},
    {"--name", "NAME", "of the workload that is imported, or an engine's (default: the format's; engine-FAMILY)",
     KVB_TEXT(settings, import.name)},
    {"--requests", "N", "import the first N (default: 100)",
     KVB_NUMBER(settings, import.requests, 1, KVB_IMPORT_MAX_REQUESTS)},
    {"--shrink", "D", "divide imported token counts by D (default: 16)",
     KVB_NUMBER(settings, import.shrink, 1, KVB_IMPORT_MAX_SHRINK)},
    {"--sequences", "S", "most imported sequences alive at once (default: 8)",
     KVB_NUMBER(settings, import.sequences, 1, KVB_TRACE_MAX_SEQS)},
    KVB_OPTIONS_OF("a whole engine"),
    {"--engine", "llama", "record a whole engine: llama.cpp, from its built library", KVB_TEXT(settings, engine.name)},
    {"--lib", "FOLDER|FILE", "its library (default: engines/ggml beside the program, which `make engines` fills)",
     KVB_TEXT(settings, engine.lib)},
    {"--family", "NAME", "a seeded model, as `kvbench engine --list` names it (default: llama; else --model F.gguf)",
     KVB_TEXT(settings, engine.family)},
    {"--script", "CALLS",
     "the history, as in `kvbench engine`; or --scenario: a workload's, or FILE.jsonl (default: a "
     "prompt, a fork, a rollback, a batch)",
     KVB_TEXT(settings, engine.script)},
    {"--kv", "f32|f16", "type of the engine's cache (default: f16)", KVB_CHOICE(settings, engine.kv, "word: f16, f32")},
    {"--flash", "on|off", "the engine's flash attention (default: off)",
     KVB_CHOICE(settings, engine.flash, "word: off, on")},
    {"--layers", "N,…", "layers of the engine's model that are recorded (default: the first, a middle one, the last)",
     KVB_TEXT(settings, engine.layers)},
    {"--heads", "N,…", "KV heads, each with its query heads (default: the first and the last)",
     KVB_TEXT(settings, engine.heads)},
    KVB_OPTIONS_OF("output"),
    {"-o", "DIR", "where workloads go (default: workloads/recorded)", KVB_TEXT(settings, directory)},
    {"--format", "NAME", "table, md, csv or json", KVB_FORMAT(settings, format, "")},
    KVB_OPTIONS_END,
};

static int scenario_unknown(const char *name)
{
    char known[1024] = "";
    for (const kvb_scenario *const *s = kvb_scenarios; *s; s++)
        kvb_list_add(known, sizeof known, ", ", "%s", (*s)->name);
    kvb_list_add(known, sizeof known, ", ", KVB_LONG_DECODE);
    return kvb_unknown("record", "no scenario", name, known);
}

static int part_unknown(const settings *s, kvb_registry_kind sort, const char *name)
{
    char known[512], what[32];
    snprintf(what, sizeof what, "no %s", kvb_registry_kind_names[sort]);
    kvb_registry_names(&s->registry, sort, false, known, sizeof known);
    if (sort == KVB_KERNELS)
        kvb_list_add(known, sizeof known, ", ", "exact");
    return kvb_unknown("record", what, name, known);
}

/* Finds the kernel by its name. Returns an exit code. */
static int kernel_find(settings *s, const char *name)
{
    char why[256] = "";
    if (!strcmp(name, kvb_live_kernel_exact.name)) {
        s->kernel = &kvb_live_kernel_exact;
        return KVB_EXIT_OK;
    }
    s->kernel = kvb_registry_find(&s->registry, KVB_KERNELS, name);
    if (!s->kernel)
        return part_unknown(s, KVB_KERNELS, name);
    if (!s->kernel->attend || s->kernel->flags & KVB_KERNEL_WITNESS)
        return kvb_refuse("kernel '%s' does not compute attention", name);
    if (s->kernel->available && !s->kernel->available(why, sizeof why))
        return kvb_complain("record", KVB_EXIT_MACHINE, "kernel '%s': %s", name, why);
    return KVB_EXIT_OK;
}

/* Finds the parts of these names. An exit code. */
static int settings_resolve(settings *s)
{
    char why[320];
    if (kvb_registry_load_all(&s->registry, &s->plugins, why, sizeof why))
        return kvb_refuse("%s", why);
    s->long_decode = s->scenario_names.n == 0;
    for (const kvb_scenario *const *all = kvb_scenarios; s->scenario_names.n == 0 && *all; all++)
        s->scenarios[s->n_scenarios++] = *all;
    for (size_t i = 0; i < s->scenario_names.n; i++) {
        const kvb_scenario *scenario = kvb_scenario_find(s->scenario_names.at[i]);
        if (scenario)
            s->scenarios[s->n_scenarios++] = scenario;
        else if (!strcmp(s->scenario_names.at[i], KVB_LONG_DECODE))
            s->long_decode = true;
        else
            return scenario_unknown(s->scenario_names.at[i]);
    }
    if (s->check && s->n_scenarios == 0)
        return kvb_refuse("--check: %s is synthetic, no model plays it", KVB_LONG_DECODE);
    if (s->cache_name && !(s->cache = kvb_registry_find(&s->registry, KVB_CACHES, s->cache_name)))
        return part_unknown(s, KVB_CACHES, s->cache_name);
    if (s->model_name && (s->check || s->save_weights))
        return kvb_refuse("--model shapes what is written: it does not go with %s",
                          s->check ? "--check" : "--save-weights");
    if (s->model_name && kvb_size_shape(s->model_name, &s->model, &s->shape, why, sizeof why))
        return kvb_refuse("--model: %s", why);
    if (s->config && !s->weights)
        return kvb_refuse("--config needs --weights");
    const char *kernel = s->check ? "reference" : kvb_live_kernel_exact.name;
    return kernel_find(s, s->kernel_name ? s->kernel_name : kernel);
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

/* Tokens of a pass of a speculative scenario; "-": it is none. */
static void per_pass_text(const kvb_live_outcome *outcome, char text[24])
{
    snprintf(text, 24, outcome->rounds ? "%.2f" : "-", (double)outcome->spoken / outcome->rounds);
}

/* Reads DIRECTORY/NAME.jsonl back. An exit code. */
static int written_load(const settings *s, const char *name, char path[PATH_MAX], kvb_trace **trace)
{
    char why[512];
    snprintf(path, PATH_MAX, "%s/%s.jsonl", s->directory, name);
    return kvb_trace_load(path, 0, trace, why, sizeof why)
               ? kvb_complain("record", KVB_EXIT_FAILED, "what was written does not read back: %s", why)
               : KVB_EXIT_OK;
}

/* Makes the folder -o, if it is not there. An exit code. */
static int directory_make(const settings *s)
{
    return mkdir(s->directory, 0777) && errno != EEXIST ? kvb_refuse("%s: %s", s->directory, strerror(errno))
                                                        : KVB_EXIT_OK;
}

/* Plays a scenario, writes it, reads it back, adds its row. An exit code. */
static int record_scenario(const settings *s, const kvb_scenario *scenario, const kvb_live_options *live,
                           kvb_table *table)
{
    char why[320], path[PATH_MAX], per_pass[24];
    kvb_live_outcome outcome;
    kvb_trace *trace = NULL;
    int exit_code = kvb_live_record(scenario, live, s->directory, &outcome, why, sizeof why)
                        ? kvb_refuse("%s", why)
                        : written_load(s, scenario->name, path, &trace);
    if (exit_code)
        goto out;
    per_pass_text(&outcome, per_pass);
    kvb_table_put(table, "%s\t%s\t%" PRIu64 "\t%" PRIu64 "\t%u\t%zu\t%s\t%s", scenario->name, live->cache->name,
                  (uint64_t)trace->needs.events, (uint64_t)trace->needs.tokens, trace->needs.cells, outcome.n, per_pass,
                  path);
out:
    kvb_trace_free(trace);
    kvb_live_outcome_free(&outcome);
    return exit_code;
}

static int record_all(const settings *s, kvb_live_options *live)
{
    static const char *const headings[] = {"workload",         "cache", ">events", ">tokens", ">cells", ">generated",
                                           ">tokens per pass", "file",  NULL};
    char why[320];
    int exit_code = directory_make(s);
    if (exit_code)
        return exit_code;
    kvb_table *table = kvb_table_new(headings);
    kvb_progress_start("record", s->n_scenarios);
    for (size_t i = 0; exit_code == KVB_EXIT_OK && i < s->n_scenarios; i++) {
        const kvb_scenario *scenario = s->scenarios[i];
        kvb_progress_now("playing %s", scenario->name);
        live->cache = s->cache ? s->cache : kvb_registry_find(&s->registry, KVB_CACHES, scenario->cache);
        exit_code = record_scenario(s, scenario, live, table);
        kvb_progress_step(true);
    }
    if (exit_code == KVB_EXIT_OK && s->long_decode && kvb_live_write_long_decode(live, s->directory, why, sizeof why))
        exit_code = kvb_refuse("%s", why);
    kvb_progress_end();
    if (exit_code == KVB_EXIT_OK && s->n_scenarios)
        exit_code = kvb_printed("record", kvb_table_print(table, s->format, stdout));
    kvb_table_free(table);
    return exit_code;
}

/* ---- --check ----------------------------------------------------------------------------------------------------- */

/*
 * No cache may change the live model's tokens. Every scenario is played over every cache that can play it, with f32
 * pools. Its tokens must be those of cache recompute, which keeps nothing. Tokens of speculative decoding must be those
 * of plain greedy decoding.
 */
static bool equal(const kvb_live_outcome *a, const kvb_live_outcome *b)
{
    return a->n == b->n && (a->n == 0 || !memcmp(a->tokens, b->tokens, a->n * sizeof *a->tokens));
}

/* Adds the row of a scenario and cache. Are all tokens equal? greedy NULL: the scenario is not speculative. */
static bool check_row_add(kvb_table *table, const kvb_scenario *scenario, const kvb_cache_type *cache,
                          const kvb_live_outcome *said, const kvb_live_outcome *truth, const kvb_live_outcome *greedy,
                          const char *failure, const char *note)
{
    char per_pass[24];
    bool same = !failure && equal(said, truth), as_greedy = !failure && (!greedy || equal(said, greedy));
    per_pass_text(said, per_pass);
    kvb_table_put(table, "%s\t%s\t%zu\t%s\t%s\t%s\t%s", scenario->name, cache->name, said->n, same ? "yes" : "NO",
                  !greedy     ? "-"
                  : as_greedy ? "yes"
                              : "NO",
                  per_pass,
                  failure ? failure
                  : note  ? note
                          : "");
    return same && as_greedy;
}

/* caches: that may play it, ends with NULL. Returns how many rows differ. */
static int scenario_check(const kvb_live_options *live, const kvb_cache_type *const *caches,
                          const kvb_scenario *scenario, kvb_table *table)
{
    char why[256];
    /* The truth is a cache that keeps nothing; for scenarios that it cannot play, one that shares nothing. */
    static const struct {
        const kvb_cache_type *cache;
        const char *note;
    } plain[] = {{&kvb_cache_recompute, NULL},
                 {&kvb_cache_slab, "compared with slab: recompute has no rows to move"},
                 {&kvb_cache_seq, "compared with seq: no other can play it"}};
    size_t p = 0;
    while (p + 1 < sizeof plain / sizeof *plain && !kvb_scenario_fits(scenario, plain[p].cache))
        p++;
    const kvb_cache_type *plainest = plain[p].cache;
    const char *note = plain[p].note;
    kvb_live_options play = *live;
    play.cache = plainest;
    kvb_live_outcome truth, greedy = {0};
    int wrong = 0, err = kvb_live_play(scenario, &play, &truth, why, sizeof why);
    if (!err && scenario->greedy) {
        play.n_greedy = (uint32_t)truth.n;
        err = kvb_live_play(scenario->greedy, &play, &greedy, why, sizeof why);
    }
    const kvb_live_outcome *also = scenario->greedy ? &greedy : NULL;
    if (err)
        wrong = !check_row_add(table, scenario, plainest, &truth, &truth, also, why, NULL);
    for (const kvb_cache_type *const *cache = caches; !err && *cache; cache++) {
        if (!kvb_scenario_fits(scenario, *cache))
            continue;
        kvb_live_outcome said;
        play.cache = *cache;
        int failed = kvb_live_play(scenario, &play, &said, why, sizeof why);
        wrong += !check_row_add(table, scenario, *cache, &said, &truth, also, failed ? why : NULL, note);
        kvb_live_outcome_free(&said);
    }
    kvb_live_outcome_free(&greedy);
    kvb_live_outcome_free(&truth);
    return wrong;
}

/* Prints a row for each scenario and each cache that can play it. */
static int check_all(const settings *s, const kvb_live_options *live)
{
    static const char *const headings[] = {
        "scenario", "cache", ">tokens", "equal to recompute", "equal to greedy", ">tokens per pass", "reason", NULL};
    const kvb_cache_type *caches[KVB_REGISTRY_MAX + 1] = {s->cache};
    for (size_t i = 0; !s->cache && i < s->registry.n[KVB_CACHES]; i++)
        caches[i] = s->registry.at[KVB_CACHES][i].definition;
    bool any = false;
    for (size_t i = 0; i < s->n_scenarios; i++)
        for (const kvb_cache_type *const *cache = caches; *cache; cache++)
            any = any || kvb_scenario_fits(s->scenarios[i], *cache);
    if (!any)
        return kvb_refuse("--check: %s can do none of the scenarios", s->cache_name);
    int wrong = 0;
    kvb_table *table = kvb_table_new(headings);
    for (const kvb_scenario *const *scenario = s->scenarios; *scenario; scenario++)
        wrong += scenario_check(live, caches, *scenario, table);
    const int code = kvb_printed("record", kvb_table_end(table, s->format, stdout));
    return code    ? code
           : wrong ? kvb_complain("record", KVB_EXIT_FAILED, "%d of the rows above differ", wrong)
                   : KVB_EXIT_OK;
}

/* ---- --import ---------------------------------------------------------------------------------------------------- */

enum { DEFAULT_REQUESTS = 100, DEFAULT_SHRINK = 16, DEFAULT_SEQUENCES = 8, MAX_NAME = 100 };

static bool import_asked(const import_words *import)
{
    return import->from || import->name || import->requests || import->shrink || import->sequences;
}

/* Is it good as a file's name and as a word of a command line? */
static bool name_good(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return *name != '.' && *name != '-' && strlen(name) <= MAX_NAME && name[strspn(name, letters)] == 0;
}

static int name_complain(void)
{
    return kvb_refuse(
        "--name: expected at most %d letters, digits, '-', '_' or '.', beginning with neither '-' nor '.'", MAX_NAME);
}

/* Writes NAME.jsonl and prints its row. An exit code. */
static int import_run(const settings *s)
{
    static const char *const headings[] = {"workload", ">requests", ">events", ">tokens", ">prompt",
                                           ">shared",  ">cells",    "file",    NULL};
    const import_words *import = &s->import;
    char why[512], path[PATH_MAX];
    kvb_import_requests requests = {0};
    kvb_import_outcome outcome;
    kvb_trace *trace = NULL;
    kvb_import_options how = {
        .requests = import->requests ? (uint32_t)import->requests : DEFAULT_REQUESTS,
        .shrink = import->shrink ? (uint32_t)import->shrink : DEFAULT_SHRINK,
        .sequences = import->sequences ? (uint32_t)import->sequences : DEFAULT_SEQUENCES,
        .seed = s->seed,
    };
    const char *file;
    if (!import->from)
        return kvb_refuse("--name, --requests, --shrink and --sequences need --import");
    if (s->scenario_names.n || s->plugins.n || s->weights || s->config || s->save_weights || s->cache_name ||
        s->kernel_name || s->model_name || s->check)
        return kvb_refuse("--import plays no model: leave out --scenario, --check, --cache, --kernel, --model, "
                          "--plugin, --weights, --config and --save-weights");
    if (!s->directory)
        return kvb_refuse("--import needs -o DIR");
    if (kvb_import_choose(import->from, &how.format, &file, why, sizeof why))
        return kvb_refuse("--import: %s", why);
    const char *name = import->name ? import->name : how.format->name;
    if (!name_good(name))
        return name_complain();
    if ((size_t)snprintf(path, sizeof path, "%s/%s.jsonl", s->directory, name) >= sizeof path)
        return kvb_refuse("%s: %s", s->directory, strerror(ENAMETOOLONG));

    kvb_progress_start("record", 0);
    kvb_progress_now("importing %s", file);
    int err = kvb_import_read(file, &how, &requests, why, sizeof why);
    int code = err ? KVB_EXIT_OK : directory_make(s);
    if (!err && !code)
        err = kvb_import_write(&requests, &how, name, path, &outcome, why, sizeof why);
    if (err)
        code = kvb_complain("record", err == -ENOMEM ? KVB_EXIT_MACHINE : KVB_EXIT_USAGE, "%s", why);
    code = code ? code : written_load(s, name, path, &trace);
    kvb_progress_end();
    if (!code) {
        const kvb_trace_needs *needs = &trace->needs;
        kvb_table *table = kvb_table_new(headings);
        kvb_table_put(table, "%s\t%zu\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%s", name,
                      requests.n, (uint64_t)needs->events, (uint64_t)needs->tokens, (uint64_t)outcome.prompt_tokens,
                      (uint64_t)outcome.shared_tokens, (uint64_t)needs->cells, path);
        code = kvb_printed("record", kvb_table_end(table, s->format, stdout));
    }
    kvb_trace_free(trace);
    kvb_import_requests_free(&requests);
    return code;
}

/* ---- --engine ---------------------------------------------------------------------------------------------------- */

#define ENGINE_HISTORY "d 0 24; cp 0 1; d 0 4 1 5; rm 1 26 end; d 1 2; d 0 1 1 1; d 0 1 1 1"

static bool engine_asked(const engine_words *e)
{
    return e->name || e->lib || e->family || e->script || e->layers || e->heads || e->kv != NOT_TYPED ||
           e->flash != NOT_TYPED;
}

/* The model that the engine loads. */
typedef struct engine_model {
    char path[4096], words[100], name[40]; /* name: default name of the workload */
    const char *family;                    /* "": the user's model */
    int fd;                                /* of a seeded model; else -1 */
} engine_model;

/* Opens the model. -1, or an exit code after the error was printed. */
static int model_open(const settings *s, engine_model *m)
{
    const char *family = s->engine.family ? s->engine.family : "llama", *slash;
    char known[256] = "";
    *m = (engine_model){.family = "", .name = "engine-model", .fd = -1};
    if (s->model_name) {
        slash = strrchr(s->model_name, '/');
        snprintf(m->path, sizeof m->path, "%s", s->model_name);
        snprintf(m->words, sizeof m->words, "%s", slash ? slash + 1 : s->model_name);
        return -1;
    }
    const kvb_gguf_family *f = kvb_gguf_families;
    for (; f->name && strcmp(f->name, family); f++)
        kvb_list_add(known, sizeof known, ", ", "%s", f->name);
    if (!f->name)
        return kvb_unknown("record", "--family: no family", family, known);
    m->fd = kvb_gguf_write(f, s->seed);
    if (m->fd < 0)
        return kvb_complain("record", KVB_EXIT_MACHINE, "a model cannot be written: %s", strerror(-m->fd));
    m->family = f->name;
    snprintf(m->path, sizeof m->path, "/proc/self/fd/%d", m->fd);
    snprintf(m->words, sizeof m->words, "seeded model %s", f->name);
    snprintf(m->name, sizeof m->name, "engine-%s", f->name);
    return -1;
}

/* Reads the options of a recording, except the model. -1, or an exit code after the error was printed. */
static int engine_read(settings *s, kvb_engine_history *history)
{
    engine_words *e = &s->engine;
    char why[512];
    if (!e->name || strcmp(e->name, "llama") != 0)
        return e->name ? kvb_unknown("record", "--engine: no engine", e->name, "llama")
                       : kvb_refuse("--lib, --family, --script, --kv, --flash, --layers and "
                                    "--heads need --engine llama");
    if (s->import.from || s->import.requests || s->import.shrink || s->import.sequences || s->plugins.n || s->weights ||
        s->config || s->save_weights || s->cache_name || s->kernel_name || s->check)
        return kvb_refuse("--engine plays no model of this program: leave out --check, --cache, --kernel, --plugin, "
                          "--weights, --config, --save-weights and --import");
    if (!s->directory)
        return kvb_refuse("--engine needs -o DIR");
    if ((e->family && s->model_name) || (e->script && s->scenario_names.n) || s->scenario_names.n > 1)
        return kvb_refuse("--engine plays one history, by one model: %s",
                          e->family && s->model_name ? "--family or --model" : "--script or one --scenario");
    if (s->scenario_names.n)
        return kvb_engine_history_find("record", s->scenario_names.at[0], history);
    if (kvb_engine_history_parse(e->script ? e->script : ENGINE_HISTORY, history, why, sizeof why))
        return kvb_refuse("--script: %s", why);
    return -1;
}

static int engine_row_print(const settings *s, const kvb_engine_recording *r)
{
    static const char *const headings[] = {"workload", "model", "layers", ">events", ">tokens", "file", NULL};
    char path[PATH_MAX];
    kvb_trace *trace;
    const int code = written_load(s, r->name, path, &trace);
    if (code)
        return code;
    kvb_table *table = kvb_table_new(headings);
    kvb_table_put(table, "%s\t%s\t%s\t%" PRIu64 "\t%" PRIu64 "\t%s", r->name, r->model, r->layers_taken,
                  (uint64_t)trace->needs.events, (uint64_t)trace->needs.tokens, path);
    kvb_trace_free(trace);
    return kvb_printed("record", kvb_table_end(table, s->format, stdout));
}

/* Records the history. r lies in shared memory. An exit code. */
static int engine_play(settings *s, kvb_engine_recording *r, kvb_engine_history *history)
{
    const engine_words *e = &s->engine;
    engine_model m = {.fd = -1};
    int code = engine_read(s, history);
    if (code < 0 && s->import.name && !name_good(s->import.name))
        code = name_complain();
    code = code < 0 ? model_open(s, &m) : code;
    if (code < 0 && !(code = directory_make(s))) {
        *r = (kvb_engine_recording){.config = {.lib = e->lib ? e->lib : KVB_ENGINE_LIB,
                                               .model = m.path,
                                               .family = m.family,
                                               .kv = kv_words[e->kv == 1],
                                               .flash = e->flash == 1,
                                               .cells = KVB_SHADOW_TOKENS,
                                               .seqs = kvb_engine_history_seqs(history)},
                                    .history = history,
                                    .model = m.words,
                                    .layers = e->layers,
                                    .heads = e->heads,
                                    .directory = s->directory,
                                    .name = s->import.name ? s->import.name : m.name};
        const int error = kvb_engine_record(r);
        if (error)
            code = kvb_complain("record", KVB_EXIT_MACHINE, "no child process: %s", strerror(-error));
        else if (r->error)
            code = kvb_fail(r->error, r->why);
        else
            code = engine_row_print(s, r);
    }
    if (m.fd >= 0)
        close(m.fd);
    return code;
}

static int engine_record(settings *s)
{
    kvb_engine_history *history = calloc(1, sizeof *history);
    kvb_engine_recording *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int code = history && r != MAP_FAILED ? engine_play(s, r, history)
                                                : kvb_complain("record", KVB_EXIT_MACHINE, "%s", strerror(ENOMEM));
    if (r != MAP_FAILED)
        munmap(r, sizeof *r);
    free(history);
    return code;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Makes the weights from the checkpoint or the seed. An exit code. */
static int weights_open(const settings *s, kvb_weights **weights)
{
    char why[320];
    int err = s->weights ? kvb_weights_load(s->weights, s->config, weights, why, sizeof why)
                         : kvb_weights_open(&kvb_model_config_default, weights, why, sizeof why);
    if (err)
        return kvb_refuse("%s", why);
    if (!s->weights)
        kvb_weights_seed(*weights, s->seed);
    return KVB_EXIT_OK;
}

static int record_run(void *typed, int argc, char **argv)
{
    settings *s = typed;
    kvb_weights *weights = NULL;
    char why[320];
    (void)argc, (void)argv;
    kvb_registry_init(&s->registry);
    if (engine_asked(&s->engine))
        return engine_record(s);
    if (import_asked(&s->import))
        return import_run(s);
    if (!s->directory)
        s->directory = "workloads/recorded";
    int exit_code = settings_resolve(s);
    if (exit_code == KVB_EXIT_OK)
        exit_code = weights_open(s, &weights);
    if (exit_code != KVB_EXIT_OK)
        goto out;
    kvb_live_options live = {.weights = s->weights ? weights : NULL,
                             .seed = s->seed,
                             .pool = kvb_registry_find(&s->registry, KVB_POOLS, "f32"),
                             .kernel = s->kernel,
                             .twin = s->model ? &s->shape : NULL,
                             .twin_name = kvb_size_label(s->model),
                             .scan = &kvb_kernel_scan_reference};
    if (!s->save_weights)
        exit_code = s->check ? check_all(s, &live) : record_all(s, &live);
    else if (kvb_weights_save(weights, s->save_weights, why, sizeof why))
        exit_code = kvb_refuse("%s", why);
out:
    kvb_weights_close(weights);
    kvb_sized_model_free(s->model);
    return exit_code;
}

const kvb_command kvb_command_record = {
    .name = "record",
    .summary = "write workloads: of the live model, of imports, of llama.cpp; or check caches by what the model says",
    .run = record_run,
    .bytes = sizeof(settings),
    .usual = &(const settings){.seed = 1, .engine = {.kv = NOT_TYPED, .flash = NOT_TYPED}},
    .synopsis = "[options]",
    .about =
        "Play scenarios with a small live transformer and write each as a workload: NAME.jsonl (events), "
        "NAME.safetensors (every q, K and V row) and NAME-8x128.jsonl: the same events, with seeded values of 8 KV "
        "heads of 128 (of another shape: NAME-KVHEADSxDIM, such as the second, cheaper twins of plain-decode and "
        "batched-multi-seq; with --model: NAME-MODEL). A recording is the same "
        "whatever cache it was made over: the kernel `exact` sums in double, so that the order of cells leaves no "
        "mark.\n\n"
        "--import writes a workload from a request trace instead (events only, seeded values, 8 KV heads of "
        "128): lengths, order of arrival and shared prefixes (mooncake) are real, lengths divided by "
        "--shrink; at most --sequences are alive, each request enters as one leaves, and all decode in "
        "lockstep.\n\n"
        "--engine writes inputs and outputs of another engine's attention: q, K and V after rope, outputs "
        "before the output projection, of some layers and heads. Layers are renumbered from 0 on; those of "
        "one shape are a group. `kvbench run` replays such a workload; `kvbench judge NAME.jsonl` judges the "
        "engine's outputs.\n\n"
        "  kvbench record                                the suite that ships, into workloads/recorded\n"
        "  kvbench record --scenario agent-fork -o /tmp  one workload\n"
        "  kvbench record --check                        do all caches let the model say the same?\n"
        "  kvbench record --weights model.safetensors -o mine\n"
        "  kvbench record --scenario agent-fork --model Llama-3.1-8B -o mine\n"
        "  kvbench record --import mooncake:conversation_trace.jsonl --requests 60 -o mine\n"
        "  kvbench record --engine llama --model F.gguf -o mine && kvbench judge mine/engine-model.jsonl",
    .options = options,
};
