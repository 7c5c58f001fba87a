/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench engine: judges histories of a whole engine's calls, call by call. */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/command_line.h"
#include "harness/engine/engine.h"
#include "harness/program.h"
#include "workloads/files.h"

typedef struct options {
    const char *engine, *lib, *model, *families, *kv, *flash, *cache, *layout, *fault, *traces;
    kvb_words scripts, workloads;
    uint64_t random, seed, cells, seconds;
    bool known, list;
    enum { WORDS, JSON } format;
} options;

static const kvb_option option_table[] = {
    KVB_OPTIONS_OF("what"),
    {"--engine", "NAME", "llama (usual), live: this program's own, or a plug-in, ./mine.so", KVB_TEXT(options, engine)},
    {"--lib", "FOLDER|FILE", "llama's library; usual: engines/ggml beside the program, which `make engines` fills",
     KVB_TEXT(options, lib)},
    {"--family", "NAME,…", "seeded models (--list; usual: llama)", KVB_TEXT(options, families)},
    {"--model", "FILE.gguf", "in their place a model of yours", KVB_TEXT(options, model)},
    {"--kv", "NAME,…", "types of the cache: f32 f16 q8_0 q4_0 (usual: f32)", KVB_TEXT(options, kv)},
    {"--flash", "on|off|both", "flash attention (usual: off)", KVB_TEXT(options, flash)},
    {"--cache", "unified|split|both", "one cache for all sequences, or one for each (usual: unified)",
     KVB_TEXT(options, cache)},
    {"--cells", "N", "tokens that a cache holds, a multiple of 256 (usual: 256; for windows and workloads 1024)",
     KVB_NUMBER(options, cells, 256, KVB_SHADOW_TOKENS)},
    KVB_OPTIONS_OF("which histories"),
    {"--script", "CALLS", "this one (repeatable)", KVB_WORDS(options, scripts)},
    {"--workload", "NAME", "a recorded one, or a trace's FILE.jsonl (repeatable; `kvbench list workloads`)",
     KVB_WORDS(options, workloads)},
    {"--random", "N", "so many at random; a wrong one is shrunk", KVB_NUMBER(options, random, 0, 1u << 24)},
    {"--seed", "N", "of the first of them; the next has the next seed (usual: 1)",
     KVB_NUMBER(options, seed, 1, UINT32_MAX)},
    {"--known", NULL, "those of known differences: still there, or gone?", KVB_FLAG(options, known)},
    {"--traces", "DIR", "write each wrong history, shrunk, as a trace, which `kvbench run` replays over our caches",
     KVB_TEXT(options, traces)},
    {"--list", NULL, "list engines, families, known differences and faults", KVB_FLAG(options, list)},
    KVB_OPTIONS_OF("how"),
    {"--layout", "NAME=OFFSET,…", "where llama's parameters lie, if they are not found", KVB_TEXT(options, layout)},
    {"--fault", "NAME", "plant this between the judge and the engine", KVB_TEXT(options, fault)},
    {"--seconds", "N", "for a history; then it hangs (usual: 20)", KVB_NUMBER(options, seconds, 1, 3600)},
    {"--format", "FORMAT", "table (in words) or json: a line for each row",
     KVB_CHOICE(options, format, "format: table, json")},
    KVB_OPTIONS_END,
};

static const kvb_engine *const engines[] = {&kvb_engine_llama, &kvb_engine_live, NULL};

/* Prints known differences as JSON, for a script that makes a table of them. */
static void known_json(void)
{
    json_t *rows = json_array();
    for (const kvb_engine_known *k = kvb_engine_known_rows; k->name; k++)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "name", k->name, "script", k->script,
                                              "class", k->class, "reference", k->reference, "advice", k->advice, "kind",
                                              kvb_engine_kind_names[k->kind]));
    json_dumpf(rows, stdout, JSON_COMPACT);
    puts("");
    json_decref(rows);
}

static void list_print(void)
{
    puts("engines\n");
    for (size_t i = 0; engines[i]; i++)
        printf("  %-16s %s; %s\n", engines[i]->name, engines[i]->summary, engines[i]->limits);
    puts("\nfamilies\n");
    for (const kvb_gguf_family *f = kvb_gguf_families; f->name; f++)
        printf("  %-16s %s\n", f->name, f->summary);
    puts("\nfaults\n");
    for (const kvb_engine_fault *f = kvb_engine_faults; f->name; f++)
        printf("  %-16s %s\n", f->name, f->summary);
    puts("\nknown differences\n");
    for (const kvb_engine_known *k = kvb_engine_known_rows; k->name; k++)
        printf("  %s: %s; %s\n      %s%s %s%s%s--script '%s'\n      advice: %s\n", k->name, k->class, k->reference,
               *k->families ? "--family " : "", k->families, *k->caches ? "--cache " : "", k->caches,
               *k->caches ? " " : "", k->script, k->advice);
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

static void row_print(const kvb_engine_row *r, const char *name)
{
    static char text[1 << 16];
    uint64_t calls = 0;
    for (size_t i = 0; i < KVB_ENGINE_VERBS; i++)
        calls += r->made[i];
    printf("%-13s %-7s %-5s flash %-4s", name, r->config.split ? "split" : "unified", r->config.kv,
           r->config.flash ? "on" : "off");
    if (r->error) {
        printf("UNAVAILABLE: %s\n", r->why);
        return;
    }
    printf("%" PRIu64 " wrong of %" PRIu64 " histories, %" PRIu64 " calls; %" PRIu64 " logits judged, %" PRIu64
           " not; worst %.2f of its limit%s%s%s%s%s\n",
           r->wrong, r->histories, calls, r->judged, r->unjudged, r->worst, r->threads ? "; it starts threads" : "",
           *r->printed ? "; it prints " : "", r->printed, *r->without ? "; without our own decoder: " : "", r->without);
    for (uint32_t i = 0; i < r->n_found; i++) {
        const kvb_engine_finding *f = &r->found[i];
        kvb_engine_history_print(&f->history, text, sizeof text);
        printf("  %s: call %u, %s: %s\n", f->known ? f->known->name : "NEW", f->outcome.event + 1,
               kvb_engine_kind_names[f->outcome.kind], f->outcome.what);
        printf("      --script '%s'", text);
        if (f->seed)
            printf("   (%u times, first with --seed %" PRIu64 ")", f->times, f->seed);
        puts("");
    }
    if (r->n_lost)
        printf("  NEW: %u more wrong histories of other kinds\n", r->n_lost);
    for (uint32_t i = 0; i < r->n_vanished; i++)
        printf("  GONE %s: %s\n", r->vanished[i]->name, r->vanished[i]->script);
    for (uint32_t i = 0; i < r->n_back; i++)
        printf("  BACK %s: %s\n", r->back[i]->name, r->back[i]->script);
}

static json_t *names_json(const kvb_engine_known *const *rows, uint32_t n)
{
    json_t *names = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(names, json_string(rows[i]->name));
    return names;
}

/* Prints the same as a line of JSON. */
static void row_json(const kvb_engine_row *r, const char *name)
{
    static char text[1 << 16];
    json_t *found = json_array(), *made = json_array(), *wrong_at = json_array();
    for (uint32_t i = 0; i < r->n_found; i++) {
        const kvb_engine_finding *f = &r->found[i];
        kvb_engine_history_print(&f->history, text, sizeof text);
        json_array_append_new(found, json_pack("{s:s, s:i, s:s, s:s, s:s, s:i, s:I}", "name",
                                               f->known ? f->known->name : "new", "call", (int)f->outcome.event + 1,
                                               "kind", kvb_engine_kind_names[f->outcome.kind], "what", f->outcome.what,
                                               "script", text, "times", (int)f->times, "seed", (json_int_t)f->seed));
    }
    for (size_t i = 0; i < KVB_ENGINE_VERBS; i++) {
        json_array_append_new(made, json_integer((json_int_t)r->made[i]));
        json_array_append_new(wrong_at, json_integer((json_int_t)r->wrong_at[i]));
    }
    json_t *row = json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "build",
        r->facts.build, "family", name, "cache", r->config.split ? "split" : "unified", "kv", r->config.kv, "flash",
        r->config.flash, "unavailable", r->error ? r->why : "", "histories", (json_int_t)r->histories, "wrong",
        (json_int_t)r->wrong, "judged", (json_int_t)r->judged, "unjudged", (json_int_t)r->unjudged, "worst", r->worst,
        "calls", made, "first_wrong", wrong_at, "found", found, "gone", names_json(r->vanished, r->n_vanished), "back",
        names_json(r->back, r->n_back), "right", names_json(r->right, r->n_right));
    if (row) {
        json_dumpf(row, stdout, JSON_COMPACT);
        puts("");
    }
    json_decref(row);
}

/* Writes the smallest wrong histories into the folder. An exit code; the error is printed. */
static int row_traces(const kvb_engine_row *r, const char *name, const char *folder)
{
    char path[4096], source[256], why[512];
    int code = KVB_EXIT_OK;
    for (uint32_t i = 0; i < r->n_found && !code; i++) {
        const kvb_engine_finding *f = &r->found[i];
        const int n = snprintf(path, sizeof path, "%s/%s-%s-%s%s-%s-%u.jsonl", folder, name,
                               r->config.split ? "split" : "unified", r->config.kv, r->config.flash ? "-flash" : "",
                               f->known ? f->known->name : "new", i + 1);
        snprintf(source, sizeof source, "%s: call %u, %s: %.100s", r->facts.build, f->outcome.event + 1,
                 kvb_engine_kind_names[f->outcome.kind], f->outcome.what);
        const int error = n < (int)sizeof path
                              ? kvb_engine_history_write(&f->history, &r->facts, path, source, why, sizeof why)
                              : (snprintf(why, sizeof why, "the path is too long"), -EINVAL);
        if (error == -ENOTSUP)
            kvb_complain("engine", 0, "%s: not written, as no trace says it: %s", path, why);
        else if (error)
            code = kvb_complain("engine", KVB_EXIT_USAGE, "--traces: %s", error == -ENOMEM ? "no memory" : why);
    }
    return code;
}

/* Does the row have a difference that is new, gone or back? */
static bool has_news(const kvb_engine_row *r)
{
    bool news = r->n_vanished || r->n_back || r->n_lost || (*r->without && *r->config.family);
    for (uint32_t i = 0; i < r->n_found; i++)
        news = news || !r->found[i].known;
    return news;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

#define LIST 12

/* Reads words between commas, each of them known. -1: a word is unknown; the error is printed. */
static int list_read(const char *option, const char *text, const char *known, char words[LIST][24])
{
    int n = 0;
    for (const char *at = text; *at; n++) {
        const size_t length = strcspn(at, ",");
        char what[40];
        if (n == LIST || length >= sizeof words[0])
            return kvb_complain("engine", -1, "%s: too many words, or one too long", option);
        snprintf(words[n], sizeof words[0], "%.*s", (int)length, at);
        snprintf(what, sizeof what, "%s: unknown word", option);
        bool found = false;
        for (const char *k = known; *k && !found; k += strcspn(k, ", "), k += strspn(k, ", "))
            found = strcspn(k, ", ") == length && !strncmp(k, at, length);
        if (!found)
            return kvb_unknown("engine", what, words[n], known), -1;
        at += length + (at[length] == ',');
    }
    return n;
}

typedef struct lists {
    char family[LIST][24], kv[LIST][24], flash[LIST][24], cache[LIST][24];
    int families, kvs, flashes, caches;
} lists;

static bool lists_read(const options *o, lists *l)
{
    char names[512] = "";
    for (const kvb_gguf_family *f = kvb_gguf_families; f->name; f++)
        kvb_list_add(names, sizeof names, ", ", "%s", f->name);
    l->families = list_read("--family", o->families, names, l->family);
    l->kvs = list_read("--kv", o->kv, "f32, f16, q8_0, q4_0", l->kv);
    l->flashes = list_read("--flash", strcmp(o->flash, "both") ? o->flash : "off,on", "on, off, both", l->flash);
    l->caches =
        list_read("--cache", strcmp(o->cache, "both") ? o->cache : "unified,split", "unified, split, both", l->cache);
    return l->families > 0 && l->kvs > 0 && l->flashes > 0 && l->caches > 0;
}

typedef struct tally {
    bool opened, news; /* some row was opened, or has news */
} tally;

/* Runs all rows of a family, or of the user's model. An exit code; the error is printed. */
static int family_run(const options *o, const lists *l, const kvb_engine_row *ask, kvb_engine_row *row,
                      const char *family, tally *came)
{
    const kvb_gguf_family *f = kvb_gguf_families;
    char path[4096];
    int fd = -1, code = KVB_EXIT_OK;
    while (f->name && strcmp(f->name, family))
        f++;
    snprintf(path, sizeof path, "%s", o->model ? o->model : "");
    if (f->name && ask->engine == &kvb_engine_llama) {
        fd = kvb_gguf_write(f, 1);
        if (fd < 0)
            return kvb_complain("engine", KVB_EXIT_MACHINE, "a model cannot be written: %s", strerror(-fd));
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    for (int i = 0; i < l->kvs * l->flashes * l->caches && !code && !kvb_stopped; i++) {
        *row = *ask;
        row->config.model = path;
        row->config.family = family;
        row->config.kv = l->kv[i / (l->flashes * l->caches)];
        row->config.flash = !strcmp(l->flash[i / l->caches % l->flashes], "on");
        row->config.split = !strcmp(l->cache[i % l->caches], "split");
        row->config.cells = o->cells ? (uint32_t)o->cells : (f->name && f->window) || o->workloads.n ? 1024 : 256;
        const int error = kvb_engine_row_run(row);
        if (error)
            code = kvb_complain("engine", KVB_EXIT_MACHINE, "no child process: %s", strerror(-error));
        else if (row->error == -EINVAL || row->error == -ENOENT)
            code = kvb_complain("engine", row->error == -EINVAL ? KVB_EXIT_USAGE : KVB_EXIT_MACHINE, "%s", row->why);
        else if (!kvb_stopped)
            (o->format == JSON ? row_json : row_print)(row, o->model ? "model" : family);
        if (!code && o->traces && !kvb_stopped)
            code = row_traces(row, o->model ? "model" : family, o->traces);
        came->opened = came->opened || !row->error;
        came->news = came->news || has_news(row);
        fflush(stdout);
    }
    if (fd >= 0)
        close(fd);
    return code;
}

static const kvb_engine *engine_find(const char *name)
{
    char known[128] = "";
    for (size_t i = 0; engines[i]; i++) {
        if (!strcmp(engines[i]->name, name))
            return engines[i];
        kvb_list_add(known, sizeof known, ", ", "%s", engines[i]->name);
    }
    if (!strchr(name, '/')) {
        kvb_unknown("engine", "--engine: unknown engine", name, known);
        return NULL;
    }
    void *object = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const kvb_engine *found = object ? dlsym(object, "kvb_engine_plugin") : NULL;
    if (found && found->abi == KVB_ENGINE_ABI)
        return found;
    if (found)
        kvb_complain("engine", 0, "%s: has version %u of the contract, not %u", name, found->abi, KVB_ENGINE_ABI);
    else
        kvb_complain("engine", 0, "%s", dlerror());
    return NULL;
}

static int engine_run(void *typed, int argc, char **argv)
{
    const options *o = typed;
    char why[512];
    lists l;
    int code = -1;
    (void)argc, (void)argv;
    if (o->list) {
        (o->format == JSON ? known_json : list_print)();
        return KVB_EXIT_OK;
    }
    static kvb_engine_row ask; /* too large for a stack */
    ask = (kvb_engine_row){
        .engine = engine_find(o->engine),
        .config = {.lib = o->lib ? o->lib : KVB_ENGINE_LIB, .layout = o->layout, .seqs = KVB_ENGINE_USUAL},
        .seed = o->seed,
        .n_random = o->random,
        .known = o->known,
        .seconds = (double)o->seconds};
    if (!ask.engine || !lists_read(o, &l))
        return KVB_EXIT_USAGE;
    if (!o->scripts.n && !o->workloads.n && !o->random && !o->known)
        return kvb_complain("engine", KVB_EXIT_USAGE,
                            "no histories: --random N, --script CALLS, --workload NAME or --known");
    if (o->fault) {
        char names[256] = "";
        for (ask.fault = kvb_engine_faults; ask.fault->name && strcmp(ask.fault->name, o->fault); ask.fault++)
            kvb_list_add(names, sizeof names, ", ", "%s", ask.fault->name);
        if (!ask.fault->name)
            return kvb_unknown("engine", "--fault: unknown fault", o->fault, names);
    }
    kvb_engine_history *scripts = calloc(o->scripts.n + o->workloads.n + 1, sizeof *scripts);
    kvb_engine_row *row = mmap(NULL, sizeof *row, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!scripts || row == MAP_FAILED)
        code = kvb_complain("engine", KVB_EXIT_MACHINE, "%s", strerror(ENOMEM));
    for (size_t i = 0; i < o->scripts.n && code < 0; i++)
        if (kvb_engine_history_parse(o->scripts.at[i], &scripts[i], why, sizeof why))
            code = kvb_complain("engine", KVB_EXIT_USAGE, "--script: %s", why);
    ask.scripts = scripts;
    ask.n_scripts = (uint32_t)o->scripts.n;
    for (size_t i = 0; i < o->workloads.n && code < 0; i++)
        code = kvb_engine_history_find("engine", o->workloads.at[i], &scripts[ask.n_scripts++]);
    for (uint32_t i = 0; i < ask.n_scripts && code < 0; i++) {
        const uint32_t seqs = kvb_engine_history_seqs(&scripts[i]);
        ask.config.seqs = seqs > ask.config.seqs ? seqs : ask.config.seqs;
    }
    if (o->traces && code < 0 && mkdir(o->traces, 0777) && errno != EEXIST)
        code = kvb_complain("engine", KVB_EXIT_USAGE, "--traces: %s: %s", o->traces, strerror(errno));
    kvb_stop_catch();
    tally came = {0};
    for (int i = 0; code <= 0 && i < (o->model ? 1 : l.families) && !kvb_stopped; i++)
        code = family_run(o, &l, &ask, row, o->model ? "" : l.family[i], &came);
    code = code ? code : came.news ? KVB_EXIT_FAILED : came.opened ? KVB_EXIT_OK : KVB_EXIT_MACHINE;
    if (kvb_stopped)
        kvb_stop_die();
    free(scripts);
    return code;
}

const kvb_command kvb_command_engine = {
    .name = "engine",
    .summary = "does a whole engine keep its sequences? histories of calls over llama.cpp, judged call by call",
    .run = engine_run,
    .bytes = sizeof(options),
    .usual = &(const options){.engine = "llama",
                              .families = "llama",
                              .kv = "f32",
                              .flash = "off",
                              .cache = "unified",
                              .seed = 1,
                              .seconds = 20},
    .synopsis = "[options]",
    .about = "Play histories of calls on a whole engine (decode, copy, remove, shift, keep, save, load) and judge "
             "it after each call: what it returns, which positions it says a sequence has, and its logits, which "
             "must be those of a fresh decode of just the tokens that are visible. A wrong history is shrunk to a "
             "few calls.\n\n"
             "  kvbench engine --random 100                               llama.cpp, one layer, f32\n"
             "  kvbench engine --family llama,hybrid --cache both --kv f32,q8_0 --random 50\n"
             "  kvbench engine --script 'd 0 3; rm 0 0 1; add 0 1 end -1; save 0; load 1; d 1 1'\n"
             "  kvbench engine --known --lib OLDER/FOLDER                 what is known to differ, in another build\n"
             "  kvbench engine --engine live --random 100                 this program's own runner and cache\n\n"
             "A script: d SEQ N [SEQ N…] decodes N tokens; cp FROM TO [P0 P1]; rm SEQ [P0 P1]; keep SEQ; add SEQ "
             "P0 P1 DELTA moves positions; save SEQ|all and load SEQ|all. Ranges are P0 to P1 - 1; P1 may be "
             "`end`. With several layers a row holds what its token saw: logits are then those of our own decoder, "
             "in double, over the same weights. Where it does not know the model, sequences are left out in which "
             "a token was removed or moved below one that stays. Exit 1: something differs that is not known, or "
             "what is known is gone.",
    .options = option_table,
};
