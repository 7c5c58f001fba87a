/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs that are files: runs command lines of the program over them, in this process, and checks the answers. Also has
 * the table of all targets. */
#include "ci/fuzz/fuzz.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/command_line.h"
#include "harness/judge/recorded.h"
#include "workloads/live/weights.h"
#include "workloads/safetensors.h"

enum { WORDS = 256, PATH = 256 };

static char folder[64]; /* of the input and of outputs */

static void folder_remove(void)
{
    char command[PATH];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command))
        perror(folder);
}

/* The folder lies in memory if possible: inputs come by the hundred thousand. */
static void folder_make(void)
{
    if (*folder)
        return;
    snprintf(folder, sizeof folder, "%s/kvb-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder))
        kvb_fuzz_wrong("%s: cannot be made", folder);
    atexit(folder_remove);
    setenv("KVB_PROGRESS", "0", 1);
}

static void input_write(const char *name, const uint8_t *bytes, size_t n, char path[PATH])
{
    snprintf(path, PATH, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file || fwrite(bytes, 1, n, file) != n || fclose(file))
        kvb_fuzz_wrong("%s: cannot be written", path);
}

/* ---- readers that no command calls alone ----------------------------------------------------------------------- */

/* Reads every tensor to its last byte, and as floats in its own shape. */
static int tensors_read(void *options, int argc, char **argv)
{
    char why[512] = "";
    kvb_safetensors *file;
    (void)options, (void)argc;
    if (kvb_safetensors_open(argv[1], &file, why, sizeof why))
        return kvb_complain("tensors", KVB_EXIT_USAGE, "%s", why);
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < file->n; i++) {
        const kvb_tensor *t = &file->tensors[i];
        for (uint64_t b = 0; b < t->bytes; b++)
            sum = (uint8_t)(sum + ((const uint8_t *)t->data)[b]);
        if (kvb_safetensors_find(file, t->name) != t)
            kvb_fuzz_wrong("tensor '%s' is not found by its name", t->name);
        float *floats = malloc(t->bytes * 2 + 1);
        if (kvb_dtype_bytes(t->dtype) > 1)
            kvb_safetensors_read_f32(file, t->name, t->dims, t->n_dims, floats, why, sizeof why);
        free(floats);
    }
    kvb_safetensors_close(file);
    return 0;
}

/* Reads every element of every array, wherever its strides lead. */
static int arrays_read(void *options, int argc, char **argv)
{
    char why[512] = "";
    kvb_tensors *file;
    (void)options, (void)argc;
    if (kvb_tensors_open(argv[1], &file, why, sizeof why))
        return kvb_complain("arrays", KVB_EXIT_USAGE, "%s", why);
    volatile double sum = 0;
    for (uint32_t i = 0; i < file->n; i++) {
        const kvb_tensor *t = &file->list[i];
        uint64_t last = 0;
        for (uint64_t e = 0; e < t->elements; e++)
            sum = sum + kvb_tensor_value(t, e);
        for (uint32_t d = 0; d < t->n_dims && t->elements; d++)
            last += (t->dims[d] - 1) * t->strides[d];
        if (t->elements && last != t->elements - 1)
            kvb_fuzz_wrong("array '%s': its last element lies at %llu", t->name, (unsigned long long)last);
        if (i && strcmp(file->list[i - 1].name, t->name) >= 0)
            kvb_fuzz_wrong("array '%s' is not in the order of names", t->name);
    }
    kvb_tensors_close(file);
    return 0;
}

static int live_config_read(void *options, int argc, char **argv)
{
    char why[512] = "";
    kvb_model_config config;
    (void)options, (void)argc;
    if (kvb_model_config_load(argv[1], &config, why, sizeof why))
        return kvb_complain("live", KVB_EXIT_USAGE, "%s", why);
    return 0;
}

static int weights_read(void *options, int argc, char **argv)
{
    char why[512] = "";
    kvb_weights *weights;
    (void)options, (void)argc;
    if (kvb_weights_load(argv[1], argv[2], &weights, why, sizeof why))
        return kvb_complain("weights", KVB_EXIT_USAGE, "%s", why);
    kvb_weights_close(weights);
    return 0;
}

static const kvb_command tensors = {.name = "tensors", .run = tensors_read},
                         arrays = {.name = "arrays", .run = arrays_read},
                         live = {.name = "live", .run = live_config_read},
                         weights = {.name = "weights", .run = weights_read};
static const kvb_command *const commands[] = {&kvb_command_show,
                                              &kvb_command_size,
                                              &kvb_command_list,
                                              &kvb_command_compare,
                                              &kvb_command_merge,
                                              &kvb_command_record,
                                              &kvb_command_judge,
                                              &tensors,
                                              &live,
                                              &weights,
                                              &arrays,
                                              NULL};

/* ---- running a command ---------------------------------------------------------------------------------------- */

/* The complaint about bad input must be one line that begins with the command's name and has no control characters. */
static void complaint_check(const char *name, const char *said, size_t n)
{
    char begin[64];
    int length = snprintf(begin, sizeof begin, "kvbench %s: ", name);
    if (strncmp(said, begin, (size_t)length) != 0 || said[n - 1] != '\n' || n == (size_t)length + 1)
        kvb_fuzz_wrong("exit 2, but stderr is no line of `%s`: \"%s\"", begin, said);
    for (size_t i = 0; i + 1 < n; i++)
        if ((unsigned char)said[i] < ' ' || said[i] == 0x7f)
            kvb_fuzz_wrong("exit 2, but stderr has character %d: \"%s\"", said[i], said);
}

/* Runs argv [argc]; argv[0] is the command's name. Standard output is discarded. */
static void command_run(int argc, char **argv)
{
    const kvb_command *const *command = commands;
    while (*command && strcmp((*command)->name, argv[0]) != 0)
        command++;
    if (!*command)
        kvb_fuzz_wrong("no command %s", argv[0]);
    FILE *own_out = stdout, *own_err = stderr;
    char *said = NULL;
    size_t n = 0;
    stdout = fopen("/dev/null", "w");
    stderr = open_memstream(&said, &n);
    if (!stdout || !stderr)
        kvb_fuzz_wrong("no memory");
    int code = kvb_command_call(*command, argc, argv);
    fclose(stdout);
    fclose(stderr);
    stdout = own_out;
    stderr = own_err;
    if (code == KVB_EXIT_USAGE)
        complaint_check(argv[0], said, n);
    else if (code != KVB_EXIT_OK &&
             (code != KVB_EXIT_FAILED || (strcmp(argv[0], "compare") && strcmp(argv[0], "judge"))))
        kvb_fuzz_wrong("%s: exit %d: %s", argv[0], code, said);
    free(said);
}

/* Runs a line, with % @ # replaced. */
static void line_run(const char *line, const char *path)
{
    char *argv[WORDS + 1];
    int argc = 0;
    char *copy = strdup(line), *rest = copy;
    for (char *word; (word = strsep(&rest, " ")) && argc < WORDS;) {
        size_t at = strcspn(word, "%@#"); /* the % of 5% stays */
        const char *stands = word[at] == '@'                            ? "ci/fuzz/beside"
                             : word[at] == '#'                          ? folder
                             : word[at] && !(at && word[at - 1] <= '9') ? path
                                                                        : NULL;
        char full[2 * PATH];
        snprintf(full, sizeof full, "%.*s%s%s", (int)at, word, stands ? stands : "", word + at + (stands != NULL));
        argv[argc++] = strdup(full);
    }
    argv[argc] = NULL;
    command_run(argc, argv);
    while (argc > 0)
        free(argv[--argc]);
    free(copy);
}

void kvb_fuzz_files(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n)
{
    char path[PATH];
    folder_make();
    for (const char *const *line = target->lines; *line; line++) {
        input_write(target->file, bytes, n, path);
        line_run(*line, path);
    }
}

/* A word that makes no command write a file, wait for one, or work for long. */
static bool is_harmless(const char *word)
{
    return strncmp(word, "-o", 2) != 0 && strcmp(word, "-") != 0 && !strchr(word, '/') &&
           strncmp(word, "--verify", 8) != 0;
}

void kvb_fuzz_words(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n)
{
    char *argv[WORDS + 2] = {(char *)target->lines[0]}, *copy = calloc(n + 1, 1), *rest = copy;
    int argc = 1;
    bool harmless = true;
    if (!copy)
        kvb_fuzz_wrong("no memory");
    memcpy(copy, bytes, n);
    folder_make();
    for (char *word; (word = strsep(&rest, "\n")) && argc <= WORDS;) {
        harmless = harmless && is_harmless(word);
        if (*word)
            argv[argc++] = word;
    }
    if (harmless)
        command_run(argc, argv);
    free(copy);
}

/* ---- the targets. In a line % is the input's file, @ the folder of the files beside it, # a folder for output ------ */

#define LINES(...)                                                                                                     \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

const kvb_fuzz_target kvb_fuzz_targets[] = {
    {"trace", kvb_fuzz_files, "in.jsonl", LINES("show %", "show % --format json", "judge %"), 1},
    {"safetensors", kvb_fuzz_files, "in.safetensors",
     LINES("tensors %", "arrays %", "weights % @/live.json",
           "size Llama-3.1-8B --context 1k --engine ideal --weights %"),
     0},
    {"npy", kvb_fuzz_files, "in.npy", LINES("arrays %"), 0},
    {"npz", kvb_fuzz_files, "in.npz", LINES("arrays %"), 0},
    {"judge", kvb_fuzz_files, "in.safetensors",
     LINES("judge % --say arithmetic=f32", "judge % --say layout=pages -o #/judged.jsonl",
           "judge % --say recurrence=mamba1 --say layout=bds --say scale=1 --say arithmetic=chunk64-f16"),
     0},
    {"safetensors-index", kvb_fuzz_files, "in.safetensors.index.json",
     LINES("size Llama-3.1-8B --context 1k --engine ideal --weights %"), 1},
    {"gguf", kvb_fuzz_files, "in.gguf",
     LINES("size Llama-3.1-8B --context 1k --engine ideal --weights %", "size % --context 1k --explain"), 0},
    {"engine-log", kvb_fuzz_files, "in.log", LINES("size Llama-3.1-8B --log %", "size Qwen3.5-9B --log % --format csv"),
     0},
    {"config", kvb_fuzz_files, "config.json",
     LINES("size % --context 4k --explain",
           "size % --format html --context 1k --budget 80GiB --margin 5% --engine ideal,llama.cpp,vllm",
           "size % --format json --kv q8_0:a4g64,fp8_ds_mla --sequences 3 --tp 2 --pp 3 --spec-depth 2 --mtp"),
     1},
    {"live-config", kvb_fuzz_files, "in.json", LINES("live %"), 1},
    {"result", kvb_fuzz_files, "in.jsonl",
     LINES("show % --all --counters", "show % --format md", "show % --format csv --counters", "show % --format json",
           "show % --format junit", "show % --format benchmark", "compare % @/result.jsonl --across-machines --all",
           "compare @/result.jsonl % --format json", "compare --history @/result.jsonl % @/later.jsonl"),
     1},
    {"shard", kvb_fuzz_files, "in.jsonl", LINES("merge % @/shard.jsonl -o #/merged.jsonl", "show %"), 1},
    {"thresholds", kvb_fuzz_files, "in.json",
     LINES("compare @/result.jsonl @/later.jsonl --subset --thresholds %",
           "compare --history @/result.jsonl @/later.jsonl --thresholds %"),
     1},
    {"tuning", kvb_fuzz_files, "in.json", LINES("list kernels --tuning %"), 1},
    {"mooncake", kvb_fuzz_files, "in.jsonl", LINES("record --import mooncake:% -o # --name a"), 1},
    {"azure", kvb_fuzz_files, "in.csv", LINES("record --import azure:% -o # --name a --shrink 3 --sequences 3"), 0},
    {"size", kvb_fuzz_words, NULL, LINES("size"), 0},
    {"verbs", kvb_fuzz_verbs, NULL, NULL, 0},
    {"saved", kvb_fuzz_saved, NULL, NULL, 0},
    {0},
};

const kvb_fuzz_target *kvb_fuzz_find(const char *name)
{
    for (const kvb_fuzz_target *target = kvb_fuzz_targets; target->name; target++)
        if (!strcmp(target->name, name))
            return target;
    return NULL;
}

void kvb_fuzz_wrong(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    dprintf(2, "wrong: %s\n", text);
    abort();
}
