/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The harness's own counts as software-defined events of library "kvbench". PAPI finds libsde in the process by the
 * dynamic symbols sde_ti_*; linking with -lsde is enough.
 */
#include <errno.h>
#include <sde_lib.h>
#include <string.h>
#include <unistd.h>

#include "harness/counters/source.h"

/* In the order of the fields of kvb_own_counts. */
const char *const kvb_sde_events[] = {KVB_SDE_PREFIX "cells_read", KVB_SDE_PREFIX "bytes_read",
                                      KVB_SDE_PREFIX "bytes_walk", KVB_SDE_PREFIX "mask_words",
                                      KVB_SDE_PREFIX "rescales",   NULL};

static const struct {
    size_t at;
    const char *description;
} counts[] = {
    {offsetof(kvb_own_counts, cells_read), "unique visible cells read by steps, one layer"},
    {offsetof(kvb_own_counts, bytes_read), "unique bytes of K and V read by steps"},
    {offsetof(kvb_own_counts, bytes_walk), "bytes of K and V that a walk per query reads"},
    {offsetof(kvb_own_counts, mask_words), "64-bit words of explicit masks handed to kernels"},
    {offsetof(kvb_own_counts, rescales), "rescales of running softmax sums"},
};
_Static_assert(sizeof kvb_sde_events / sizeof *kvb_sde_events == sizeof counts / sizeof *counts + 1,
               "one name a count");

/* libsde's registry is one for the process, and what is in it stays: libsde 1.0 uses freed memory after
 * papi_sde_unregister_counter and crashes in papi_sde_init after papi_sde_shutdown. So each event is a callback,
 * registered once, that reads what is published now. A forked child inherits all of it and publishes anew. */
static const kvb_own_counts *published;
static pid_t publisher;

static long long count_read(void *at)
{
    return published ? *(const long long *)((const char *)published + *(const size_t *)at) : 0;
}

static int library_register(char *why, size_t why_bytes)
{
    static bool done;
    papi_handle_t library = done ? NULL : papi_sde_init("kvbench");
    if (done)
        return 0;
    if (!library) {
        snprintf(why, why_bytes, "libsde: papi_sde_init failed");
        return -ENOTSUP;
    }
    for (size_t i = 0; kvb_sde_events[i]; i++) {
        const char *name = kvb_sde_events[i] + strlen(KVB_SDE_PREFIX);
        int error = papi_sde_register_counter_cb(library, name, PAPI_SDE_RO | PAPI_SDE_DELTA, PAPI_SDE_long_long,
                                                 count_read, (void *)(uintptr_t)&counts[i].at);
        if (error != SDE_OK) {
            snprintf(why, why_bytes, "libsde: %s was not registered, error %d", name, error);
            return -ENOTSUP;
        }
        papi_sde_describe_counter(library, name, counts[i].description);
    }
    done = true;
    return 0;
}

int kvb_sde_publish(const kvb_own_counts *own, char *why, size_t why_bytes)
{
    if (published && publisher == getpid()) {
        snprintf(why, why_bytes, "libsde: other counts are published in this process");
        return -EBUSY;
    }
    int error = library_register(why, why_bytes);
    if (error)
        return error;
    published = own;
    publisher = getpid();
    return 0;
}

void kvb_sde_retract(const kvb_own_counts *own)
{
    if (published == own)
        published = NULL;
}
