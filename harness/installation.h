/* SPDX-License-Identifier: Apache-2.0 */
/* What was built, and where the files that come with the program are. The Makefile writes the facts to build/version-facts.h. */
#ifndef KVB_INSTALLATION_H
#define KVB_INSTALLATION_H

extern const char kvb_version[];             /* "0.1.0" */
extern const char kvb_build_commit[];        /* git commit, "-dirty" when the tree had changes; "unknown" outside git */
extern const char kvb_compiler[];            /* "gcc 12.2.0" */
extern const char kvb_flags[];               /* compiler flags */
extern const char kvb_workloads_installed[]; /* where `make install` puts the shipped workloads */
extern const char kvb_plots_installed[];     /* and the report's sources */

/* Where `place` (a path of the source tree) is: what the environment variable says; else in a folder above the program, which may
 * be build/kvbench or build/asan/kvbench; else where `make install` puts it. From malloc; NULL: no memory. It need not exist. */
char *kvb_folder_find(const char *variable, const char *place, const char *installed);

#endif
