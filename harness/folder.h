/* SPDX-License-Identifier: Apache-2.0 */
/* Where the files that come with the program are. */
#ifndef KVB_FOLDER_H
#define KVB_FOLDER_H

/* What the environment variable says; else `place` (as in the source tree) in a folder above the program, which may be
 * build/kvbench or build/asan/kvbench; else where `make install` puts it. From malloc; NULL: no memory. It need not exist. */
char *kvb_folder_find(const char *variable, const char *place, const char *installed);

#endif
