/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench merge: the shards of one run joined into one file. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/command_line.h"
#include "harness/selection/partial_run.h"
#include "results/result.h"

typedef struct merge {
    kvb_words files;
    const char *output;
    uint32_t of;
    const char *first; /* path of the first file: the others are compared with it */
    const kvb_manifest *manifest;
    /* one for each shard */
    kvb_result_file *shards[KVB_SHARDS];
    const char *paths[KVB_SHARDS];
} merge;

static const kvb_option options[] = {
    {"-o", "F.jsonl", "the file to write", KVB_TEXT(merge, output)},
    KVB_OPTIONS_END,
};

/* The file must belong to the same run as the first one. An exit code. */
static int run_check(const merge *m, const char *path, const kvb_manifest *manifest, uint32_t of)
{
    char first[sizeof manifest->command], now[sizeof manifest->command];
    const char *key = kvb_manifest_difference(m->manifest, manifest, kvb_program_keys, first, now, sizeof first);
    if (!key) {
        kvb_command_essence(m->manifest->command, first);
        kvb_command_essence(manifest->command, now);
        key = strcmp(first, now) ? "command" : NULL;
    }
    if (!key && of != m->of) {
        key = "shard";
        snprintf(first, sizeof first, "%s", m->manifest->shard);
        snprintf(now, sizeof now, "%s", manifest->shard);
    }
    return key ? kvb_refuse("not of one run: %s: %s in %s, %s in %s", key, first, m->first, now, path) : KVB_EXIT_OK;
}

/* Loads a file as the shard that it is. An exit code. */
static int shard_load(merge *m, const char *path)
{
    char why[512];
    kvb_result_file *file;
    kvb_shard shard;
    if (kvb_result_load(path, &file, why, sizeof why))
        return kvb_refuse("%s", why);
    int code = KVB_EXIT_OK;
    if (kvb_shard_parse(file->manifest.shard, &shard, why, sizeof why))
        code = kvb_refuse("%s:1: shard: %s", path, why);
    else if (m->first)
        code = run_check(m, path, &file->manifest, shard.of);
    if (!code && m->shards[shard.index])
        code = kvb_refuse("the same combinations twice: %s is in %s and in %s, which are both %s%s",
                          file->n ? kvb_key_name(&file->results[0]).text : "nothing", m->paths[shard.index], path,
                          shard.of == 1 ? "whole runs" : "shard ", file->manifest.shard);
    else if (!code && shard.of == 1)
        code = kvb_refuse("%s is a whole run: there is nothing to join (`kvbench run --shard I/N` makes shards)", path);
    if (code) {
        kvb_result_free(file);
        return code;
    }
    m->shards[shard.index] = file;
    m->paths[shard.index] = path;
    if (!m->first) {
        m->first = path;
        m->of = shard.of;
        m->manifest = &file->manifest;
    }
    return KVB_EXIT_OK;
}

/* All shards must be there, with the right numbers of combinations. An exit code. */
static int shards_check(const merge *m, size_t *total)
{
    *total = 0;
    for (uint32_t i = 0; i < m->of; i++) {
        if (!m->shards[i])
            return kvb_refuse("shard %u/%u is missing", i + 1, m->of);
        *total += m->shards[i]->n;
    }
    for (uint32_t i = 1; i < m->of; i++) /* equal numbers, or one more in the first shards */
        if (m->shards[i]->n > m->shards[i - 1]->n || m->shards[i]->n + 1 < m->shards[0]->n)
            return kvb_refuse("%s has %zu combinations, %s has %zu: not of one matrix", m->paths[i - 1],
                              m->shards[i - 1]->n, m->paths[i], m->shards[i]->n);
    return KVB_EXIT_OK;
}

static void manifest_join(const merge *m, kvb_manifest *manifest)
{
    *manifest = m->shards[0]->manifest;
    manifest->shard[0] = '\0';
    kvb_command_essence(m->shards[0]->manifest.command, manifest->command);
    for (uint32_t i = 0; i < m->of; i++) {
        const kvb_manifest *from = &m->shards[i]->manifest;
        kvb_joined *joined = &manifest->joined[manifest->n_joined++];
        snprintf(joined->date, sizeof joined->date, "%s", from->date);
        snprintf(joined->cpu_model, sizeof joined->cpu_model, "%s", from->cpu_model);
        snprintf(joined->isa, sizeof joined->isa, "%s", from->isa);
        joined->cores = from->cores;
        kvb_manifest_blend(manifest, from);
    }
}

/* The output must be none of the files to join, as its measurements would be lost. An exit code. */
static int output_check(const merge *m)
{
    struct stat output, input;
    for (uint32_t i = 0; i < m->of && !stat(m->output, &output); i++)
        if (!stat(m->paths[i], &input) && input.st_dev == output.st_dev && input.st_ino == output.st_ino)
            return kvb_refuse("-o %s is one of the files to join", m->output);
    return KVB_EXIT_OK;
}

/* Writes the joined file. An exit code. */
static int shards_write(const merge *m, size_t total)
{
    kvb_result_writer *writer;
    kvb_manifest manifest;
    char why[512];
    manifest_join(m, &manifest);
    if (kvb_result_create(m->output, &manifest, &writer, why, sizeof why))
        return kvb_refuse("%s", why);
    int error = 0;
    for (size_t i = 0; i < total && !error; i++)
        error = kvb_result_write(writer, &m->shards[i % m->of]->results[i / m->of], why, sizeof why);
    if (error)
        kvb_result_discard(writer);
    else
        error = kvb_result_close(writer, true, why, sizeof why);
    if (error)
        return kvb_complain("merge", KVB_EXIT_MACHINE, "%s", why);
    printf("%zu combinations of %u shards in %s\n", total, m->of, m->output);
    return KVB_EXIT_OK;
}

static int merge_run(void *typed, int argc, char **argv)
{
    merge *m = typed;
    size_t total;
    int code = KVB_EXIT_OK;
    (void)argc, (void)argv;
    if (!m->files.n || !m->output)
        code = kvb_refuse("name the files of all shards, and -o F.jsonl; see --help");
    for (size_t i = 0; i < m->files.n && !code; i++)
        code = shard_load(m, m->files.at[i]);
    code = code ? code : shards_check(m, &total);
    code = code ? code : output_check(m);
    if (!code)
        code = shards_write(m, total);
    for (size_t i = 0; i < KVB_SHARDS; i++)
        kvb_result_free(m->shards[i]);
    return code;
}

const kvb_command kvb_command_merge = {
    .name = "merge",
    .summary = "join the shards of one run into one result file",
    .run = merge_run,
    .bytes = sizeof(merge),
    .synopsis = "SHARD.jsonl... -o F.jsonl",
    .about = "Join the shards of one run: all of its N files, in any order. Records come back in the order of the "
             "whole run. Version, commit, build, suite, seed and command must be the same. Shards may come from "
             "different machines: facts of the manifest in which these differ become \"several\", and \"joined\" "
             "says where each shard was run (record i, from 0, belongs to shard i mod N). Whole runs are not joined, "
             "because each combination would be there twice; `kvbench compare` compares two of them.\n\n"
             "  kvbench run --suite full --shard 1/2 -o a.jsonl       # here\n"
             "  kvbench run --suite full --shard 2/2 -o b.jsonl       # there, or later\n"
             "  kvbench merge a.jsonl b.jsonl -o full.jsonl",
    .options = options,
    .words = offsetof(merge, files),
    .takes_words = true,
};
