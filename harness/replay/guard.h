/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guarded memory. Every buffer of a kernel lies between two fences: address space that no code may touch. Its end is
 * flush with the second fence, up to the 64-byte alignment of its start; the slack on either side holds a canary. An
 * access to a fence raises SIGSEGV, and the handler names the buffer and the distance. A write into the slack is found
 * when the canary is checked. A block can be made read-only: a write into it is reported in the same way.
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

/* A guarded block of exactly `bytes` zeros, its start aligned to 64. name: for messages ("out", "scratch", "K and V
 * rows"); must outlive the block. NULL: no memory. */
void *kvb_guard_alloc(const char *name, size_t bytes);
/* Changes the size of a block, to at most the size that it was made with, and returns its new start. The block moves
 * within its pages so that its end is flush again; its content is then arbitrary. For buffers that change size from
 * call to call: the page faults of a new block would be timed. */
void *kvb_guard_fit(void *block, size_t bytes);
/* Makes the block that holds this address, slack included, read-only or writable. 0, -ENOENT if no block holds it
 * (a plug-in's own memory), or another negative errno. */
int kvb_guard_protect(const void *address, bool read_only);
/* From now on new blocks may take the memory of freed ones, which saves page faults. Freed memory may not be touched. For
 * processes that time nothing. */
void kvb_guard_reuse(void);
/* Frees a block, or NULL. An unknown block is a bug (assert). */
void kvb_guard_free(void *block);

/* Is every canary of every live block whole? If not, why is such as "write 0 bytes past the end of out". */
bool kvb_guard_check(char *why, size_t why_bytes);

/* Sets what the report of a fault near NULL adds ("scratch is NULL, as …"), a string constant. NULL: nothing. */
void kvb_guard_null(const char *why);

/* Installs the handler of SIGSEGV and SIGBUS, on a stack of its own. On a fault in a fence, in a read-only block or near
 * NULL it writes into `text`, "" at first, a line like "read 8 bytes past the end of scratch" or "write at byte 16 of q,
 * which is read-only" ("access" where the processor does not tell which). Then, as after any other fault, the signal
 * takes its default action. 0 or a negative errno. */
#define KVB_GUARD_TEXT 160u
int kvb_guard_install(char text[KVB_GUARD_TEXT]);

#endif
