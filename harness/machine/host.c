/* SPDX-License-Identifier: Apache-2.0 */
/* Machine and build facts. */
#include "harness/machine/host.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "caches/pools/codec/codec.h"
#include "harness/command_line.h"
#include "harness/counters/counters.h"
#include "harness/program.h"
#include "harness/machine/profile.h"
#include "harness/machine/team.h"
#include "kernels/blas.h"
#include "kernels/cpu.h"
#include "kernels/vector/vector.h"
#include "workloads/files.h"

/* The state of the machine when a run begins: its name, other running programs, its clocks' governor, its caches. */

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

/* The facts that may change from run to run. An unknown fact is empty or NaN, and host->unknown says why. */
static void conditions_describe(const char *root, kvb_host *h)
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

void kvb_cpu_id(const char *root, char text[KVB_CPU_ID_TEXT])
{
    char maker[32], family[16], model[16];
    kvb_proc_value(root, "/proc/cpuinfo", "vendor_id", maker, sizeof maker);
    kvb_proc_value(root, "/proc/cpuinfo", "cpu family", family, sizeof family);
    kvb_proc_value(root, "/proc/cpuinfo", "model", model, sizeof model);
    snprintf(text, KVB_CPU_ID_TEXT, "%s%s%s%s%s", maker, *family ? " " : "", family, *model ? " " : "", model);
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

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* ISA features that matter to kernels, as /proc/cpuinfo spells them. */
static const char *const features_known[] = {
    "sse4_2",      "avx",         "f16c",        "fma",      "avx2",     "avx512f",  "avx512bw", "avx512vl",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_bf16", "amx_int8", "asimd",    "asimdhp",
    "asimddp",     "i8mm",        "bf16",        "sve",      "sve2",     "svei8mm",  "svebf16",  NULL};

/* This machine's features as the system gives them to the program. If it gives none, and for recorded machines: from the
 * file. */
static void features_describe(const char *root, char *out, size_t bytes)
{
    char text[8192] = "";
    if (!*root)
        kvb_cpu_features(text, sizeof text);
    if (!text[0])
        kvb_proc_value(root, "/proc/cpuinfo", "flags", text, sizeof text);
    if (!text[0])
        kvb_proc_value(root, "/proc/cpuinfo", "Features", text, sizeof text);
    out[0] = '\0';
    for (size_t i = 0; features_known[i]; i++)
        if (kvb_names_have(text, features_known[i]))
            kvb_list_add(out, bytes, " ", "%s", features_known[i]);
}

/* AArch64 has numbers in place of a name. Names for CPUs of servers, and for those that qemu emulates. */
static const struct {
    unsigned implementer, part;
    const char *name;
} arm_models[] = {
    {0x41, 0xd08, "Cortex-A72"},  {0x41, 0xd0b, "Cortex-A76"},  {0x41, 0xd0c, "Neoverse N1"},
    {0x41, 0xd40, "Neoverse V1"}, {0x41, 0xd49, "Neoverse N2"}, {0x41, 0xd4f, "Neoverse V2"},
    {0x41, 0xd84, "Neoverse V3"}, {0x41, 0xd8e, "Neoverse N3"}, {0x46, 0x001, "A64FX"},
    {0xc0, 0xac3, "Ampere-1"},
};

static void arm_model_describe(const char *root, char *model, size_t bytes)
{
    char implementer_text[32], part_text[32];
    kvb_proc_value(root, "/proc/cpuinfo", "CPU implementer", implementer_text, sizeof implementer_text);
    kvb_proc_value(root, "/proc/cpuinfo", "CPU part", part_text, sizeof part_text);
    unsigned implementer = (unsigned)strtoul(implementer_text, NULL, 16), part = (unsigned)strtoul(part_text, NULL, 16);
#if defined(__aarch64__)
    if (!*root && getauxval(AT_HWCAP) & HWCAP_CPUID) { /* under an emulator the file is another machine's */
        unsigned long id;
        __asm__("mrs %0, midr_el1" : "=r"(id)); /* the system answers */
        implementer = id >> 24 & 0xff, part = id >> 4 & 0xfff;
        snprintf(part_text, sizeof part_text, "0x%03x", part);
    }
#endif
    for (size_t i = 0; i < sizeof arm_models / sizeof *arm_models; i++)
        if (arm_models[i].implementer == implementer && arm_models[i].part == part) {
            snprintf(model, bytes, "%s", arm_models[i].name);
            return;
        }
    if (*part_text)
        snprintf(model, bytes, "implementer 0x%x, part %s", implementer, part_text);
}

static void openblas_describe(kvb_manifest *m)
{
    const kvb_blas *blas = kvb_blas_open(m->openblas_note, sizeof m->openblas_note);
    if (!blas)
        return;
    snprintf(m->openblas_version, sizeof m->openblas_version, "%s", blas->config());
    snprintf(m->openblas_core, sizeof m->openblas_core, "%s", blas->core());
    m->openblas_threads = (uint32_t)blas->threads();
    const char *better = kvb_blas_better(m->openblas_core, kvb_cpu());
    m->openblas_note[0] = '\0';
    if (better)
        snprintf(m->openblas_note, sizeof m->openblas_note,
                 "OpenBLAS runs as core %s at level %s; the cure is OPENBLAS_CORETYPE=%s", m->openblas_core,
                 kvb_cpu_level_names[kvb_cpu()], better);
}

void kvb_host_describe(const char *root, kvb_manifest *m)
{
    char text[8192];
    struct utsname os;
    snprintf(m->version, sizeof m->version, "%s", kvb_version);
    snprintf(m->commit, sizeof m->commit, "%s", kvb_build_commit);
    snprintf(m->compiler, sizeof m->compiler, "%s", kvb_compiler);
    snprintf(m->flags, sizeof m->flags, "%s", kvb_flags);
    kvb_proc_value(root, "/proc/cpuinfo", "model name", m->cpu_model, sizeof m->cpu_model);
    arm_model_describe(root, m->cpu_model, sizeof m->cpu_model);
    features_describe(root, m->cpu_features, sizeof m->cpu_features);
    snprintf(m->isa, sizeof m->isa, "%s", kvb_cpu_level_names[kvb_cpu()]);
    kvb_proc_value(root, "/proc/meminfo", "MemTotal", text, sizeof text);
    m->memory_bytes = strtoull(text, NULL, 10) * 1024;
    m->cores = kvb_cores();
    m->threads_max = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (!uname(&os))
        snprintf(m->os, sizeof m->os, "%.40s %.60s", os.sysname, os.release);
    openblas_describe(m);
    conditions_describe(root, &m->host);
    time_t now = time(NULL);
    struct tm utc;
    strftime(m->date, sizeof m->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
}

/* Turns a word into a level, and sets the limits. */

int kvb_cpu_mask_set(const char *word, char *why, size_t why_bytes)
{
    char lack[128], known[128] = "";
    for (int level = 0; level < KVB_CPU_LEVELS; level++) {
        const char *name = kvb_cpu_level_names[level];
        if (word ? !strcmp(word, name) : level == KVB_CPU_LEVELS - 1) {
            if (word && !kvb_cpu_has((kvb_cpu_level)level, lack, sizeof lack))
                return kvb_why_set(-ENOTSUP, why, why_bytes, "%s: %s", name, lack);
            kvb_cpu_limit((kvb_cpu_level)level);
            while (kvb_codec_limit(kvb_cpu_level_names[level]) && level > KVB_CPU_PORTABLE)
                level--; /* a level without codecs of its own uses those of the next one below */
            return 0;
        }
        if (kvb_loops_at((kvb_cpu_level)level)) /* of this architecture */
            kvb_list_add(known, sizeof known, ", ", "%s", name);
    }
    return kvb_name_unknown("unknown level", word, known, why, why_bytes);
}

int kvb_cpu_mask_take(const char *command, const char *word)
{
    char why[256];
    const int error = kvb_cpu_mask_set(word, why, sizeof why);
    return error ? kvb_complain(command, error == -ENOTSUP ? KVB_EXIT_MACHINE : KVB_EXIT_USAGE, "--cpu-mask: %s", why)
                 : 0;
}
