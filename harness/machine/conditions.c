/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine was like when a run began: its name, who else was at work, what sets its clocks, its caches. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/machine/host.h"
#include "harness/machine/profile.h"
#include "harness/machine/team.h"
#include "harness/progress.h"

void kvb_proc_value(const char *root, const char *path, const char *key, char *value, size_t bytes)
{
    char file[4096], *line = NULL;
    size_t room = 0;
    value[0] = '\0';
    snprintf(file, sizeof file, "%s%s", root, path);
    FILE *in = fopen(file, "r");
    while (in && !value[0] && getline(&line, &room, in) > 0) {
        char *colon = strchr(line, ':');
        size_t n = strlen(key);
        if (!colon || strncmp(line, key, n) || n + strspn(line + n, " \t") != (size_t)(colon - line))
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(value, bytes, "%s", colon);
    }
    free(line);
    if (in)
        fclose(in);
}

/* Keeps why a fact is not known: "governor: the system has no cpufreq; ". */
static void unknown_add(kvb_host *h, const char *fact, const char *why)
{
    size_t used = strlen(h->unknown);
    snprintf(h->unknown + used, sizeof h->unknown - used, "%s%s: %s", used ? "; " : "", fact, why);
}

static void caches_describe(const char *root, kvb_host *h)
{
    for (h->n_caches = 0; h->n_caches < KVB_HOST_CACHES; h->n_caches++) {
        kvb_host_cache *c = &h->caches[h->n_caches];
        char path[128], level[16], size[32], sharing[512], *unit;
        const struct {
            const char *file;
            char *text;
            size_t bytes;
        } files[] = {{"type", c->type, sizeof c->type},
                     {"level", level, sizeof level},
                     {"size", size, sizeof size},
                     {"shared_cpu_map", sharing, sizeof sharing}};
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/%s", h->n_caches, files[i].file);
            if (kvb_line_read(root, path, files[i].text, files[i].bytes)) {
                if (!h->n_caches)
                    unknown_add(h, "caches", "the system does not list them");
                return;
            }
        }
        c->level = (uint32_t)strtoul(level, NULL, 10);
        const uint64_t units = strtoull(size, &unit, 10);
        c->bytes = units << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : 0);
        c->sharing = 0;
        for (const char *p = sharing; *p; p++) /* hexadecimal words between commas */
            c->sharing += *p == ',' ? 0 : (uint32_t)__builtin_popcount((unsigned)strtoul((char[]){*p, '\0'}, NULL, 16));
    }
}

void kvb_conditions_describe(const char *root, kvb_host *h)
{
    static const char unavailable[] = "unavailable: ";
    char text[128];
    *h = (kvb_host){
        .cpus = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN), .load_1m = NAN, .load_5m = NAN, .load_15m = NAN, .mhz = NAN};
    if (gethostname(h->name, sizeof h->name - 1))
        unknown_add(h, "name", strerror(errno));
    kvb_governor_describe(root, text, sizeof text);
    if (strncmp(text, unavailable, sizeof unavailable - 1))
        snprintf(h->governor, sizeof h->governor, "%.60s", text);
    else
        unknown_add(h, "governor", text + sizeof unavailable - 1);
    kvb_hypervisor_describe(root, h->hypervisor, sizeof h->hypervisor);
    int error = kvb_line_read(root, "/proc/loadavg", text, sizeof text);
    if (error || sscanf(text, "%lf %lf %lf", &h->load_1m, &h->load_5m, &h->load_15m) != 3)
        unknown_add(h, "load", error ? strerror(-error) : "/proc/loadavg has another form");
    kvb_proc_value(root, "/proc/cpuinfo", "cpu MHz", text, sizeof text);
    if (*text)
        h->mhz = strtod(text, NULL);
    else
        unknown_add(h, "mhz", "/proc/cpuinfo does not say");
    caches_describe(root, h);
}

bool kvb_is_busy(const kvb_host *h, char *text, size_t bytes)
{
    uint32_t cores = kvb_cores();
    if (!(h->load_1m > 0.5 && h->load_1m > 0.25 * cores))
        return false;
    snprintf(text, bytes,
             "this machine is busy: a load of %.1f over the last minute on %u core%s; times will tell less", h->load_1m,
             cores, cores > 1 ? "s" : "");
    return true;
}

void kvb_busy_note(const kvb_host *host)
{
    char text[256];
    if (kvb_is_busy(host, text, sizeof text))
        kvb_progress_note(text);
}
