/* SPDX-License-Identifier: Apache-2.0 */
/* Joins words, quoted for a shell. */
#include "harness/selection/replay_command.h"
#include "harness/selection/faces.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Options of `kvbench run` that choose combinations, or say where results go. */
static const char *const left_out[] = {
    "--suite",   "--pairs",     "--product",    "--jobs",         "--workload", "--cache",    "--pool",
    "--kernel",  "--best-from", "--values",     "--threads",      "--growth",   "-o",         "--junit",
    "--resume",  "--shard",     "--format",     "--all",          "--only",     "--dump",     "--gdb",
    "--machine", "--timeline",  "--no-machine", "--wide",         "--color",    "--counters", "--no-witness",
    "--call",    "--calls",     "--random",     "--require-axes", NULL,
};

void kvb_replay_begin(const kvb_usage *usage, int argc, char **argv, const kvb_suite_part *part, bool untimed,
                      char *text, size_t bytes)
{
    const kvb_suite_part *usual = &kvb_suite_find("default")->parts[0]; /* what counts where no suite is named */
    char number[64];
    text[0] = '\0';
    bool fits = kvb_shell_add(text, bytes, program_invocation_name) && kvb_shell_add(text, bytes, "run") &&
                kvb_command_without(usage, left_out, argc, argv, text, bytes);
    const struct {
        const char *knob;
        uint64_t here, usual;
    } numbers[] = {{"oracle-pairs", part->oracle_pairs, usual->oracle_pairs},
                   {"sample-ms", part->sample_ms, untimed ? part->sample_ms : usual->sample_ms}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && fits; i++) {
        snprintf(number, sizeof number, "%s=%" PRIu64, numbers[i].knob, numbers[i].here);
        if (numbers[i].here != numbers[i].usual && !strstr(text, numbers[i].knob))
            fits = kvb_shell_add(text, bytes, "--set") && kvb_shell_add(text, bytes, number);
    }
    if (!fits)
        text[0] = '\0';
}

void kvb_replay_command(const char *begin, const kvb_selection *s, size_t i, kvb_result *r)
{
    const kvb_spot at = kvb_spot_of(s, i);
    const kvb_workload *w = &s->workloads[at.workload];
    const char *values = s->values[at.values];
    bool is_glob = strpbrk(w->name, "*?[\\") != NULL; /* as a name it would be no longer itself */
    char pools[KVB_KEY_PART], threads[16], growth[64];
    kvb_key_pools(r, pools);
    snprintf(threads, sizeof threads, "%u", r->threads);
    snprintf(growth, sizeof growth, "growth=%s", r->growth);
    const char *const words[][2] = {
        {"--workload", w->is_file || is_glob ? w->path : w->name},
        {"--values", values},
        {"--cache", r->cache},
        {"--pool", pools},
        {"--kernel", r->kernel},
        {"--threads", threads},
        {"--set", s->growths[at.growth] ? growth : NULL},
        {"--set", kvb_is_witness(s->kernels[at.kernel]) ? NULL : "no-witness"}, /* is not beside it */
    };
    bool fits = *begin != '\0';
    snprintf(r->replay, sizeof r->replay, "%s", begin + (*begin == ' '));
    for (size_t n = 0; n < sizeof words / sizeof *words && fits; n++)
        if (words[n][1])
            fits = kvb_shell_add(r->replay, sizeof r->replay, words[n][0]) &&
                   (!*words[n][1] || kvb_shell_add(r->replay, sizeof r->replay, words[n][1]));
    if (fits)
        kvb_setting_words(kvb_choice_of(s, i), true, r->replay, sizeof r->replay);
    if (!fits)
        r->replay[0] = '\0';
}
