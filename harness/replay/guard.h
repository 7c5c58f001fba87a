/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guarded memory: every buffer that a kernel is handed lies between two pieces of address space that no code may
 * touch, its end flush with the second one (up to the 64-byte alignment of its start; the slack on either side holds a
 * canary). A write or read outside ends in SIGSEGV, and the handler names the buffer and the distance; a write into the
 * slack is found when the canary is checked. A block may also be made read-only: a write into it is told the same way.
 *
 * Distances are those of the first byte touched: "0 bytes past the end" is the first byte behind the block, "4 bytes
 * before the start" the float just before it.
 *
 * Blocks are made, fitted, protected and freed by one thread, while no other thread uses any block.
 */
#ifndef KVB_GUARD_H
#define KVB_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Guarded block of exactly `bytes`, start aligned to 64, named for messages ("out", "scratch", "K and V rows"; the
 * name must outlive the block). NULL: no memory. Content: zero pages. */
void *kvb_guard_alloc(const char *name, size_t bytes);
/* Changes the block's size, to at most what it was made with. It moves within its pages, so that its end is flush again
 * and no page is new. Its content is then arbitrary. Returns its new start. For buffers whose size changes from call to
 * call: a new block would bring page faults into the timed region. */
void *kvb_guard_fit(void *block, size_t bytes);
/* Take away or give back the right to write into the block that holds this address, slack included. 0, -ENOENT when
 * no block does (memory of a plug-in's own), or another negative errno. */
int kvb_guard_protect(const void *address, bool read_only);
/* Free a block, or NULL. A block that is not known is a bug (assert). */
void kvb_guard_free(void *block);

/* Is every canary of every live block whole? false with "write 0 bytes past the end of out" in why. */
bool kvb_guard_check(char *why, size_t why_bytes);

/* What a fault near NULL is told with ("scratch is NULL: …"), a string constant; NULL: nothing. */
void kvb_guard_null(const char *why);

/* Install the SIGSEGV/SIGBUS handler on a stack of its own: when the fault lies in a guard page, `report` is called
 * with a line like "read 8 bytes past the end of scratch" or "write at byte 16 of q, which is read-only" ("access"
 * where the processor does not tell which), and then the signal takes its default action. Any other fault does so at
 * once. Async-signal-safe: report may only copy the text. 0 or a negative errno. */
int kvb_guard_install(void (*report)(const char *what));

#endif
