/* SPDX-License-Identifier: Apache-2.0 */
/* Shards, and resuming an earlier run. */
#include "harness/selection/partial_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "results/result.h"
#include "workloads/files.h"

int kvb_shard_parse(const char *text, kvb_shard *shard, char *why, size_t why_bytes)
{
    uint64_t index = 1, of = 1;
    char words[2][16] = {"", ""}, unused[128], end;
    bool good = !text || !text[0];

    if (!good)
        good = sscanf(text, "%15[0-9]/%15[0-9]%c", words[0], words[1], &end) == 2 &&
               !kvb_number_parse(words[1], 1, KVB_SHARDS, &of, unused, sizeof unused) &&
               !kvb_number_parse(words[0], 1, of, &index, unused, sizeof unused);
    *shard = (kvb_shard){.index = good ? (uint32_t)index - 1 : 0, .of = good ? (uint32_t)of : 1};
    if (!good)
        snprintf(why, why_bytes, "'%s' is no shard: expected I/N with N of 1 to %u and I of 1 to N, as 2/3", text,
                 KVB_SHARDS);
    return good ? 0 : -EINVAL;
}

bool kvb_shard_has(kvb_shard shard, size_t number)
{
    return number % shard.of == shard.index;
}

size_t kvb_shard_count(kvb_shard shard, size_t total)
{
    return (total + shard.of - 1 - shard.index) / shard.of;
}

/* ---- resuming ---- */

/* Index of the first word that differs between a and b. */
static size_t words_same(const char *a, const char *b)
{
    size_t same = 0;

    for (size_t i = 0; a[i] == b[i] && a[i]; i++)
        if (a[i] == ' ')
            same = i + 1;
    return same;
}

/* 0 if a run with manifest `now` can continue the file with manifest `before`; else -EINVAL with why. */
static int manifest_check(const char *path, const kvb_manifest *before, const kvb_manifest *now, char *why,
                          size_t why_bytes)
{
    static const char *const shard[] = {"shard", NULL};
    const char *const *const lists[] = {kvb_program_keys, kvb_machine_keys, shard};
    char there[sizeof now->command], here[sizeof now->command];
    const char *key = NULL;
    size_t same = 0;

    for (size_t i = 0; i < sizeof lists / sizeof *lists && !key; i++)
        key = kvb_manifest_difference(before, now, lists[i], there, here, sizeof here);
    if (!key) {
        kvb_command_essence(before->command, there);
        kvb_command_essence(now->command, here);
        if (strcmp(there, here) != 0) {
            key = "command";
            same = words_same(there, here);
        } else if (strlen(now->command) + 1 == sizeof now->command) {
            key = "command, longer than a file keeps";
        }
    }
    if (!key)
        return 0;
    return kvb_why_set(-EINVAL, why, why_bytes, "%s: cannot be resumed: %s: %s%s there, %s%s now", path, key,
                       same ? "… " : "", there + same, same ? "… " : "", here + same);
}

/* -EINVAL with why if an input file was changed after the run began. Dates compare as text. */
static int inputs_check(const char *path, const char *began, const kvb_words *inputs, size_t n, char *why,
                        size_t why_bytes)
{
    char changed[sizeof(((kvb_manifest *)0)->date)];
    struct stat file;
    struct tm utc;

    for (size_t i = 0; i < n; i++)
        for (size_t w = 0; w < inputs[i].n; w++) {
            if (stat(inputs[i].at[w], &file) != 0 || !gmtime_r(&file.st_mtime, &utc))
                continue;
            strftime(changed, sizeof changed, "%Y-%m-%dT%H:%M:%SZ", &utc);
            if (strcmp(changed, began) <= 0)
                continue;
            return kvb_why_set(-EINVAL, why, why_bytes,
                               "%s: cannot be resumed: %s was changed at %s, after that run began (%s)", path,
                               inputs[i].at[w], changed, began);
        }
    return 0;
}

int kvb_resume_open(const char *path, const kvb_manifest *manifest, const kvb_words *inputs, size_t n,
                    kvb_result_file **kept, kvb_result_writer **writer, char *why, size_t why_bytes)
{
    char unused[8];
    struct stat target;
    int error = kvb_result_resume(path, writer, kept, why, why_bytes);

    if (!error && (*kept)->n == 0) { /* nothing is finished: begin anew */
        kvb_result_discard(*writer);
        kvb_result_free(*kept);
        *writer = NULL;
        *kept = NULL;
        error = -ENOENT;
    }
    if (error == -ENOENT)
        error = stat(path, &target) == 0 ? kvb_result_load(path, kept, why, why_bytes) : 0;
    if (error || !*kept)
        return error;
    error = manifest_check(path, &(*kept)->manifest, manifest, why, why_bytes);
    if (!error)
        error = inputs_check(path, (*kept)->manifest.date, inputs, n, why, why_bytes);
    if (error) {
        if (*writer)
            kvb_result_close(*writer, false, unused, sizeof unused);
        kvb_result_free(*kept);
        *writer = NULL;
        *kept = NULL;
    }
    return error;
}

int kvb_resume_has(const kvb_result_file *kept, size_t n, const kvb_result *names, char *why, size_t why_bytes)
{
    if (!kept || n >= kept->n)
        return 0;
    if (kvb_key_order(&kept->results[n], names) == 0)
        return 1;
    return kvb_why_set(-EINVAL, why, why_bytes, "--resume: combination %zu is %s in the file, %s now", n + 1,
                       kvb_key_name(&kept->results[n]).text, kvb_key_name(names).text);
}
