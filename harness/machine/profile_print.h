/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine profile for people and programs.
 *
 * table, md: the facts, the bandwidths, the peaks; no rows: the facts alone.
 * csv: one row for each probe, level and number of threads (rows: one fact each where nothing was measured).
 * json: one object
 *   {"schema": "kvbench.machine/1", "cpu_model", "cpu_features": [words], "isa": the level (kernels/cpu.h), "os", "memory_bytes",
 *    "sockets", "cores", "threads", "numa_nodes", "virtual_machine": "none" or name, "governor", "huge_pages", "read_isa",
 *    "counters": how many can be counted, and why not the others,
 *    "levels": [{"name": "L1", "bytes", "instances", "working_set_bytes": of a thread in L1 and L2, else of all,
 *                "note"}],
 *    "rows": [{"threads", "read_gb_per_s": {"L1": RATE, "L2", "LLC", "DRAM"}, "triad_gb_per_s": {the same},
 *              "peak_g_op_per_s": {"f32": RATE, "f16", "bf16", "int8"}}],
 *    "peak_unavailable": {"f16": reason}}
 * with RATE {"median", "low": 10 % quantile, "high": 90 % quantile, "samples"}, or null where not measured.
 */
#ifndef KVB_PROFILE_PRINT_H
#define KVB_PROFILE_PRINT_H

#include "harness/machine/profile.h"
#include "results/result.h"

/* 0, -ENOMEM or -EIO. Of the manifest only facts about the machine are used. */
int kvb_profile_print(const kvb_machine_profile *profile, const kvb_manifest *host, kvb_table_format format, FILE *out);
int kvb_profile_json_print(const kvb_machine_profile *profile, const kvb_manifest *host, FILE *out);

#endif
