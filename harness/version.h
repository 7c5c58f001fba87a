/* SPDX-License-Identifier: Apache-2.0 */
/* What was built: filled in by the Makefile through build/version-facts.h. */
#ifndef KVB_VERSION_H
#define KVB_VERSION_H

extern const char kvb_version[];             /* "0.1.0" */
extern const char kvb_build_commit[];        /* git commit, "-dirty" when the tree had changes; "unknown" outside git */
extern const char kvb_compiler[];            /* "gcc 12.2.0" */
extern const char kvb_flags[];               /* compiler flags */
extern const char kvb_workloads_installed[]; /* where `make install` puts the shipped workloads */
extern const char kvb_plots_installed[];     /* and the report's sources */

#endif
