/* SPDX-License-Identifier: Apache-2.0 */
/* What was built, and where the files that come with the program are. The Makefile writes the facts to
 * build/version-facts.h. */
#ifndef KVB_INSTALLATION_H
#define KVB_INSTALLATION_H

extern const char kvb_version[];      /* "0.1.0" */
extern const char kvb_build_commit[]; /* git commit, "-dirty" when the tree had changes; "unknown" outside git */
extern const char kvb_compiler[];     /* "gcc 12.2.0" */
extern const char kvb_flags[];        /* compiler flags */

/* A folder that comes with the program: what the environment variable says; else the first of `installed` (where `make
 * install` puts it, below the prefix) and `source` (its path in the source tree) that lies in a folder above the
 * program, be that PREFIX/bin/kvbench, build/kvbench or build/asan/kvbench; else `source`. From malloc; NULL: no
 * memory. It need not exist. */
char *kvb_folder_find(const char *variable, const char *installed, const char *source);

#endif
