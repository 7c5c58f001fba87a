/* SPDX-License-Identifier: Apache-2.0 */
/* Options to examine one call of a replay: --only and --dump. */
#include "harness/replay/pass.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "caches/pools/codec/codec.h"
#include "harness/command_line.h"
#include "harness/replay/replay.h"
#include "kernels/convert.h"
#include "workloads/files.h"
#include "workloads/safetensors.h"

int kvb_only_parse(const char *text, kvb_only *only, char *why, size_t why_bytes)
{
    *only = (kvb_only){text, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    const struct {
        const char *name;
        uint64_t *value;
    } parts[] = {{"event=", &only->event}, {"line=", &only->line}, {"layer=", &only->layer}};
    char list[128], *at = list, *word, unused[128];
    snprintf(list, sizeof list, "%s", text ? text : "");
    while (text && (word = strsep(&at, ","))) {
        bool good = false;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (!strncmp(word, parts[i].name, strlen(parts[i].name)) && *parts[i].value == UINT64_MAX)
                good = !kvb_number_parse(word + strlen(parts[i].name), 0, UINT32_MAX, parts[i].value, unused,
                                         sizeof unused);
        if (!good)
            return kvb_why_set(-EINVAL, why, why_bytes,
                               "expected event=N, line=N, layer=N, each once at most, found '%s'", word);
    }
    return 0;
}

bool kvb_only_has(const kvb_only *o, const kvb_trace *trace, uint32_t event, uint32_t layer)
{
    return !o->text ||
           ((o->event == UINT64_MAX || o->event == event) && (o->layer == UINT64_MAX || o->layer == layer) &&
            (o->line == UINT64_MAX || o->line == trace->events[event].line));
}

bool kvb_only_fits(const kvb_only *only, const kvb_trace *trace, char *why, size_t why_bytes)
{
    for (uint32_t i = 0; i < trace->n_events; i++)
        for (uint32_t layer = 0; layer < trace->header.model.n_layers; layer++)
            if (trace->events[i].kind <= KVB_EVENT_PROPOSE && trace->events[i].kind != KVB_EVENT_FILL &&
                kvb_only_has(only, trace, i, layer))
                return true;
    return kvb_why_set(false, why, why_bytes,
                       "%s: --only %s: there is no such call: a step, prefill or propose, and a layer below %u",
                       trace->path, only->text, trace->header.model.n_layers);
}

__attribute__((noinline)) void kvb_only_stop(void)
{
    __asm__ volatile("");
}

#define MOST_TENSORS 16

static const char script[] = "import json, os, numpy as np\n"
                             "os.chdir(os.path.dirname(os.path.abspath(__file__)))\n"
                             "raw = open('call.safetensors', 'rb').read()\n"
                             "begin = 8 + int.from_bytes(raw[:8], 'little')\n"
                             "types = {'F32': 'f4', 'F64': 'f8', 'I64': 'i8', 'U8': 'u1', 'BOOL': '?'}\n"
                             "call = {name: np.frombuffer(raw[begin + t['data_offsets'][0]:begin + "
                             "t['data_offsets'][1]], types[t['dtype']]).reshape(t['shape'])\n"
                             "        for name, t in json.loads(raw[8:begin]).items() if name != '__metadata__'}\n"
                             "np.savez('call.npz', **call)\n"
                             "rho = np.where(np.isnan(call['exact']), 0, np.nan_to_num(abs(call['out'] - "
                             "call['exact']) / call['bound'], nan=np.inf))\n"
                             "at = np.unravel_index(rho.argmax(), rho.shape)\n"
                             "row = 'token' if 'from' in call else 'query'\n"
                             "print('%s %d, head %d, channel %d: got %.9g, exact %.9g, bound %.3g, rho %.3g;' % "
                             "(row, *at, *(call[k][at] for k in ('out', 'exact', 'bound')), rho[at]),\n"
                             "      (rho > 1).sum(), 'of', (~np.isnan(call['exact'])).sum(), 'elements fail')\n";

typedef struct dump {
    kvb_tensor tensors[MOST_TENSORS];
    void *data[MOST_TENSORS];
    size_t n;
    bool no_memory;
} dump;

/* Adds a tensor of zeros. c 0: two dims. NULL: no memory. */
static void *tensor_add(dump *d, const char *name, kvb_dtype dtype, uint64_t a, uint64_t b, uint64_t c)
{
    kvb_tensor *t = &d->tensors[d->n];
    *t = (kvb_tensor){.name = name, .dtype = dtype, .n_dims = c ? 3 : 2, .dims = {a, b, c}};
    d->no_memory |= kvb_tensor_shape(t, false) != 0;
    t->data = d->data[d->n++] = calloc(1, t->bytes + 1);
    d->no_memory |= !t->data;
    return d->data[d->n - 1];
}

static void rows_add(dump *d, const char *const names[2], const kvb_view *view, uint32_t heads)
{
    size_t codes = kvb_codes_bytes(view->format, view->dim);
    char *stored = codes && view->format->elem != KVB_OPAQUE
                       ? tensor_add(d, names[0], KVB_DTYPE_U8, heads, view->cells, codes)
                       : NULL;
    float *decoded = tensor_add(d, names[1], KVB_DTYPE_F32, heads, view->cells, view->dim);
    for (uint32_t h = 0; h < heads && !d->no_memory; h++) {
        kvb_view_read(view, h, 0, view->cells, decoded + (size_t)h * view->cells * view->dim);
        for (uint32_t c = 0; c < view->cells && stored; c++)
            memcpy(stored + ((size_t)h * view->cells + c) * codes, kvb_view_row(view, h, c), codes);
    }
}

static void mask_add(dump *d, const kvb_pass *p, const kvb_attend_spec *spec)
{
    const kvb_problem *problem = &p->call.args.problem;
    uint8_t *seen = tensor_add(d, "mask", KVB_DTYPE_BOOL, problem->n_tok, problem->n_cells, 0);
    for (uint32_t t = 0; t < problem->n_tok && !d->no_memory; t++) {
        uint32_t cursor = 0;
        for (kvb_run run; kvb_mask_next(&spec->mask, problem->n_tok, problem->n_cells, t, &cursor, &run);)
            memset(seen + (size_t)t * problem->n_cells + run.begin, 1, run.end - run.begin);
    }
}

/* Fills in the exact outputs and bounds of the rows that the oracle checks. */
static void expected_fill(const kvb_pass *p, const kvb_attend_spec *spec, uint32_t layer, uint32_t n_new, double *exact,
                          double *bound, double *exact_lse, double *bound_lse)
{
    const kvb_problem *problem = &p->call.args.problem;
    kvb_arithmetic arithmetic;
    char why[256];
    size_t rows = 0;
    const kvb_expect *expect;
    kvb_call_arithmetic(&p->call, &arithmetic);
    if (kvb_rounded_rows(p->judging.rounded, &p->call.args, p->place->event, layer, &arithmetic, &expect, &rows, why,
                         sizeof why))
        return;
    for (size_t i = 0; i < rows; i++) {
        uint32_t query = problem->n_tok - n_new + expect[i].query;
        size_t row = (size_t)query * problem->n_heads + expect[i].head;
        kvb_expect e = expect[i];
        if (!kvb_pass_asks(p, n_new, e.query))
            continue;
        const kvb_attend_of of = {&spec->mask, spec->k.cells, problem->n_tok, query};
        if (p->window && kvb_window_solve(p->window, &expect[i], &of, &e))
            continue;
        double scale = (double)problem->scale, cap = (double)problem->softcap;
        bool empty = isinf(e.lse) && e.lse < 0;
        for (uint32_t c = 0; c < problem->v_dim; c++) {
            exact[row * problem->v_dim + c] = e.terms[c].o;
            bound[row * problem->v_dim + c] = empty ? 0
                                                    : kvb_bound_output(&arithmetic, KVB_BOUND_STATISTICAL, &e.row,
                                                                       &e.terms[c], scale, cap, problem->out_elem);
        }
        exact_lse[row] = e.lse;
        bound_lse[row] = kvb_bound_lse(&arithmetic, KVB_BOUND_STATISTICAL, &e.row, e.lse, scale, cap);
    }
}

static void outputs_add(dump *d, const kvb_pass *p, const kvb_attend_spec *spec, uint32_t layer, uint32_t n_new)
{
    const kvb_problem *problem = &p->call.args.problem;
    uint32_t n = problem->n_tok, heads = problem->n_heads, dim = problem->v_dim;
    size_t rows = (size_t)n * heads;
    float *q = tensor_add(d, "q", KVB_DTYPE_F32, n, heads, problem->k_dim);
    float *out = tensor_add(d, "out", KVB_DTYPE_F32, n, heads, dim),
          *lse = tensor_add(d, "lse", KVB_DTYPE_F32, n, heads, 0);
    double *exact = tensor_add(d, "exact", KVB_DTYPE_F64, n, heads, dim);
    double *bound = tensor_add(d, "bound", KVB_DTYPE_F64, n, heads, dim);
    double *exact_lse = tensor_add(d, "exact_lse", KVB_DTYPE_F64, n, heads, 0);
    double *bound_lse = tensor_add(d, "bound_lse", KVB_DTYPE_F64, n, heads, 0);
    if (d->no_memory)
        return;
    memcpy(q, p->io.q, rows * problem->k_dim * sizeof *q);
    memcpy(lse, p->io.lse, rows * sizeof *lse);
    for (size_t row = 0; row < rows; row++) {
        const void *of = kvb_kernel_io_row(&p->io, (uint32_t)(row / heads), (uint32_t)(row % heads));
        kvb_elems_decode(problem->out_elem, out + row * dim, of, dim);
        exact_lse[row] = bound_lse[row] = NAN;
    }
    for (size_t i = 0; i < rows * dim; i++)
        exact[i] = bound[i] = NAN;
    if (p->options->oracle)
        expected_fill(p, spec, layer, n_new, exact, bound, exact_lse, bound_lse);
}

/* Does the folder hold a call? call: the path of its file. */
static bool dump_exists(const char *folder, char call[4096])
{
    snprintf(call, 4096, "%.4000s/call.safetensors", folder);
    return access(call, F_OK) == 0;
}

int kvb_dump_folder(const char *path, char *why, size_t why_bytes)
{
    char call[4096];
    int error = mkdir(path, 0777) && errno != EEXIST ? -errno : dump_exists(path, call) ? -EEXIST : 0;
    if (error)
        snprintf(why, why_bytes, "%s: %s", error == -EEXIST ? call : path, strerror(-error));
    return error;
}

/* Writes the tensors to `path`, and the script beside it, and frees the tensors. */
static void dump_write(const char *folder, const char *path, dump *d, const char *const *facts)
{
    char python[4096], why[512] = "no memory";
    kvb_output_file file = {.stream = NULL};
    snprintf(python, sizeof python, "%.4000s/difference.py", folder);
    int error = d->no_memory;
    if (!error)
        error = kvb_output_file_open(python, false, &file, why, sizeof why);
    if (!error) {
        fputs(script, file.stream);
        error = kvb_output_file_close(&file, true, why, sizeof why);
    }
    if (!error)
        error = kvb_safetensors_write(path, d->tensors, d->n, facts, why, sizeof why);
    if (error)
        fprintf(stderr, "kvbench run: --dump: %s\n", why);
    for (size_t i = 0; i < d->n; i++)
        free(d->data[i]);
}

void kvb_dump(const kvb_pass *p, const kvb_made *m)
{
    const kvb_attend_spec *spec = m->spec;
    const uint32_t layer = m->layer, n_new = m->fed->judged;
    static const char *const k_names[] = {"k_stored", "k_decoded"}, *const v_names[] = {"v_stored", "v_decoded"};
    char event[384], number[16], scale[32], softcap[32], path[4096];
    if (dump_exists(p->options->dump, path))
        return;
    dump d = {.n = 0};
    outputs_add(&d, p, spec, layer, n_new);
    rows_add(&d, k_names, &spec->k, spec->group->kv_heads);
    if (!spec->group->latent)
        rows_add(&d, v_names, &spec->v, spec->group->kv_heads);
    mask_add(&d, p, spec);
    kvb_event_words(&p->trace->events[p->place->event], event, sizeof event);
    snprintf(number, sizeof number, "%u", layer);
    snprintf(scale, sizeof scale, "%.9g", (double)p->call.args.problem.scale);
    snprintf(softcap, sizeof softcap, "%.9g", (double)p->call.args.problem.softcap);
    dump_write(p->options->dump, path, &d,
               (const char *const[]){"event", event, "layer", number, "scale", scale, "softcap", softcap, "kernel",
                                     p->options->kernel->name, "k_format", spec->k.format->name, "v_format",
                                     spec->v.format->name, NULL});
}

/* ---- a scan ------------------------------------------------------------------------------------------------------ */

static void floats_add(dump *d, const char *name, const float *from, uint64_t a, uint64_t b, uint64_t c)
{
    float *to = from ? tensor_add(d, name, KVB_DTYPE_F32, a, b, c) : NULL;
    if (to && !d->no_memory)
        memcpy(to, from, a * b * c * sizeof *to);
}

/* Adds the slots that the call names, in ascending order, and their states. */
static void states_add(dump *d, const kvb_scan *call, const char *before)
{
    const kvb_scan_problem *p = &call->problem;
    const size_t each = (size_t)p->d_k * p->d_v, all = p->heads * each;
    const char *const names[] = {"states_before", "states"}, *const from[] = {before, call->states.base};
    bool *named = calloc(call->states.slots + 1u, sizeof *named);
    uint64_t n = 0, i = 0;
    d->no_memory |= !named;
    for (uint32_t t = 0; named && t < p->n_tok; t++)
        for (int side = 0; side < 2; side++) {
            const uint32_t slot = side ? call->to[t] : call->from[t];
            if (slot < call->states.slots) {
                n += !named[slot];
                named[slot] = true;
            }
        }
    int64_t *slots = n ? tensor_add(d, "slots", KVB_DTYPE_I64, n, 1, 0) : NULL;
    for (int side = 0; side < 2 && slots && !d->no_memory; side++) {
        float *to = from[side] ? tensor_add(d, names[side], KVB_DTYPE_F32, n, p->heads, each) : NULL;
        i = 0;
        for (uint32_t slot = 0; to && slot < call->states.slots && !d->no_memory; slot++)
            if (named[slot]) {
                slots[i] = slot;
                kvb_elems_decode(p->state_elem, to + i++ * all, from[side] + slot * call->states.slot_bytes, all);
            }
    }
    free(named);
}

void kvb_dump_scan(const kvb_pass *p, uint32_t layer, const kvb_scan *call, const char *before, const double *known)
{
    const kvb_scan_problem *of = &call->problem;
    const bool conv = of->kind == KVB_SCAN_CONV, each = of->kind == KVB_SCAN_MAMBA1;
    const uint64_t n = of->n_tok, heads = of->heads, d_k = of->d_k, d_v = of->d_v, row = heads * d_v;
    char event[384], number[16], path[4096];
    if (dump_exists(p->options->dump, path))
        return;
    dump d = {.n = 0};
    floats_add(&d, "q", call->q, n, of->groups, d_k);
    floats_add(&d, "k", call->k, n, of->groups, d_k);
    floats_add(&d, "v", call->v, n, heads, d_v);
    floats_add(&d, "gate", call->gate, n, heads, each ? d_v : 1);
    floats_add(&d, "beta", call->beta, n, heads, 1);
    floats_add(&d, "a", call->a, heads, conv ? d_k + 1 : each ? d_k : 1, conv || each ? d_v : 1);
    floats_add(&d, "bias", call->bias, 1, 1, d_v);
    int64_t *from = tensor_add(&d, "from", KVB_DTYPE_I64, n, 1, 0), *to = tensor_add(&d, "to", KVB_DTYPE_I64, n, 1, 0);
    float *out = tensor_add(&d, "out", KVB_DTYPE_F32, n, heads, d_v);
    double *exact = tensor_add(&d, "exact", KVB_DTYPE_F64, n, heads, d_v),
           *bound = tensor_add(&d, "bound", KVB_DTYPE_F64, n, heads, d_v);
    for (uint32_t t = 0; t < n && !d.no_memory; t++) {
        from[t] = call->from[t] == KVB_SCAN_ZERO       ? -1
                  : call->from[t] == KVB_SCAN_PREVIOUS ? -2
                                                       : (int64_t)call->from[t];
        to[t] = call->to[t] == KVB_SCAN_NONE ? -1 : (int64_t)call->to[t];
    }
    if (!d.no_memory) {
        kvb_elems_decode(of->out_elem, out, call->out, n * row);
        memcpy(exact, known, n * row * sizeof *exact);
        memcpy(bound, known + n * row, n * row * sizeof *bound);
    }
    states_add(&d, call, before);
    kvb_event_words(&p->trace->events[p->place->event], event, sizeof event);
    snprintf(number, sizeof number, "%u", layer);
    dump_write(p->options->dump, path, &d,
               (const char *const[]){"event", event, "layer", number, "recurrence", kvb_scan_kind_name(of->kind),
                                     "kernel", p->options->scan->name, NULL});
}
