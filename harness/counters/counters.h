/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters around a replay's timed steps: PAPI where it has the event, then perf software events, then getrusage. Each
 * counter ends as a value, as a value with the share of time in which it was counted (multiplexed), or as null with
 * the reason of the source that could not count it.
 *
 * The harness's own counts are published as PAPI software-defined events through libsde, library "kvbench": cells_read,
 * bytes_read, bytes_walk, mask_words, rescales. They are then read back through PAPI: this tests that path on machines
 * without a PMU, and other PAPI tools see the counts, too.
 */
#ifndef KVB_COUNTERS_H
#define KVB_COUNTERS_H

#include <sys/types.h>

#include "harness/command_line.h"
#include "results/result.h"

/* The harness's own counts. The replay changes them, PAPI reads them meanwhile. */
typedef struct kvb_own_counts {
    long long cells_read, bytes_read, bytes_walk, mask_words, rescales;
} kvb_own_counts;

typedef struct kvb_counters kvb_counters;

/* events: PAPI names (presets such as PAPI_TOT_CYC, natives) and two of ours, dram_bytes_read and energy_package_nj,
 * both of the package of processor 0; NULL-terminated. NULL: the default set: PAPI_TOT_CYC, PAPI_TOT_INS, PAPI_L3_TCM
 * and our two. Events that cannot be counted are kept with the reason. PAPI reads `own` until close.
 * 0, -ENOMEM, or -E2BIG if a result has no room for so many.
 * Call it in the thread that runs the replay, after fork() and before that thread starts others: threads started later
 * are counted, too, threads started before are not (getrusage counts the whole process). One at a time in a process: a
 * second one gets null for PAPI's counters. */
int kvb_counters_open(const char *const *events, kvb_own_counts *own, kvb_counters **counters);
/* Start and stop counting, many times if needed: counts add up. A pair costs some 2 us without hardware counters. Events
 * that do not all fit in hardware take turns, from pair to pair: their values are scaled up and have a share of the
 * time. */
void kvb_counters_start(kvb_counters *counters);
void kvb_counters_stop(kvb_counters *counters);
/* Append all counters to the result; to be called when stopped. */
void kvb_counters_report(const kvb_counters *counters, kvb_result *result);
void kvb_counters_close(kvb_counters *counters);

/* Can PAPI count an event of this name here? 0; -EINVAL with PAPI's words in why: the name is unknown; -ENOTSUP with the
 * same: the event is known, but cannot be counted here. For the knob events. Not while counters are open. */
int kvb_counters_check(const char *event, char *why, size_t why_bytes);

/* Checks the words of the knob events: refuses an unknown name, and notes a name that cannot be counted. Returns an exit
 * code. */
int kvb_counters_admit(const char *command, const kvb_words *events);

/* Appends every counter of the default set; one that cannot be counted here has the reason. 0 or a negative errno. */
int kvb_counters_describe(kvb_result *result);
/* The source of the i-th of these: "PAPI", "perf" or "getrusage". */
const char *kvb_counters_source(const kvb_result *result, uint32_t i);

/* ---- inside counters, for tests: the harness's own counts ---- */

#define KVB_SDE_PREFIX "sde:::kvbench::"
/* The events as PAPI names them; ends with NULL. */
extern const char *const kvb_sde_events[];
/* Publishes own under library "kvbench"; one at a time in a process. 0 or -errno with why. */
int kvb_sde_publish(const kvb_own_counts *own, char *why, size_t why_bytes);
void kvb_sde_retract(const kvb_own_counts *own); /* does nothing if others are published */

/*
 * ---- inside counters, for tests: sets of PAPI events ----
 * Events are counted in sets of one PAPI component each. A component counts one set at a time. Events that do not fit in
 * one set go to another, and the sets of a component take turns from region to region. Turns give the share of the time
 * exactly; PAPI's own multiplexing (by the kernel's timer) scales values by an unknown factor. Errors are PAPI's.
 */
typedef struct kvb_papi_sets kvb_papi_sets;

/* Initialises PAPI for this process; after a fork, again. 0 or PAPI's error. */
int kvb_papi_init(void);
/* most: events in one set, for tests; 0: as many as PAPI takes. NULL: no memory. */
kvb_papi_sets *kvb_papi_sets_new(uint32_t most);
int kvb_papi_sets_add(kvb_papi_sets *sets, const char *name, uint32_t *event);
void kvb_papi_sets_begin(kvb_papi_sets *sets); /* after the last add */
void kvb_papi_sets_start(kvb_papi_sets *sets);
void kvb_papi_sets_stop(kvb_papi_sets *sets);
/* The event's count between starts and stops, scaled up if its set had only a share of the time. */
int kvb_papi_sets_value(const kvb_papi_sets *sets, uint32_t event, double *value, double *share);
void kvb_papi_sets_free(kvb_papi_sets *sets);

/*
 * ---- count.c ----
 * Exact counts of the steps of a replay: instructions, data reads and writes, misses. The program restarts itself under
 * Callgrind, a tool of Valgrind, which emulates the CPU and models its caches. Nothing else on the machine changes these
 * counts. Callgrind runs no AVX-512 and one thread at a time, and sees neither prefetching nor bandwidth.
 */

/* The highest level of instruction sets (kernels/cpu.h) that can be counted here: "avx2" or "portable". */
const char *kvb_count_level(void);

/* Replaces this process by one that runs the command argv under Callgrind; returns 0 in that process, at once. threads:
 * the wanted thread counts, ending with NULL; NULL: none are given. Else prints an error and returns KVB_EXIT_USAGE (the
 * command cannot be counted anywhere) or KVB_EXIT_MACHINE (there is no Callgrind here). */
int kvb_count_start(char **argv, const char *const *threads);

/* In a child: prepares for counting. Code between an odd call of kvb_count_turn() and the next one is counted. Without
 * Callgrind both do nothing. */
void kvb_count_open(void);
void kvb_count_turn(void);

/* After a child has ended: fills the counts of its result if that passed, and fails the result if there are none. Without
 * Callgrind it does nothing. */
void kvb_count_read(pid_t child, kvb_result *result);

#endif
