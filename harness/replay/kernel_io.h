/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel's buffers besides K and V: q, out and lse. Each has exactly the size of the call and lies in guarded memory,
 * unless guards are turned off. Before each call the outputs are filled with a NaN of a special pattern. An element that
 * still has the pattern after the call was not written.
 */
#ifndef KVB_KERNEL_IO_H
#define KVB_KERNEL_IO_H

#include "caches/allocator.h"
#include "kernels/view.h"
#include "kernels/model.h"

/* Memory for caches and kernel scratch: guarded (zeros at first), from malloc, or from malloc and zeroed. */
extern const kvb_memory_source kvb_guarded_source, kvb_plain_source, kvb_zeroed_source;

/* A block that changes its size from call to call. Zero at first. */
typedef struct kvb_buffer {
    void *block;
    size_t room, bytes; /* bytes that are allocated; bytes of the current call */
} kvb_buffer;

/* Gives the buffer so many bytes of arbitrary content, in guarded memory flush with its end. NULL: no memory. */
void *kvb_buffer_fit(kvb_buffer *buffer, const kvb_memory_source *source, const char *name, size_t bytes);
void kvb_buffer_free(kvb_buffer *buffer, const kvb_memory_source *source);

typedef struct kvb_kernel_io {
    /* set by the caller */
    const kvb_memory_source *source; /* guarded or plain */
    kvb_elem out_elem;
    bool no_lse; /* the kernel computes no lse, and lse holds zeros */
    /* zero at first */
    kvb_buffer buffers[3]; /* q, out, lse */
    char *kept;            /* out and lse, one behind the other: kvb_kernel_io_keep() */
    size_t kept_room;
    /* of the current call: */
    float *q, *lse;
    void *out; /* of out_elem */
    const kvb_group *group;
    uint32_t n_tok;
} kvb_kernel_io;

/* From now on the threads of this team touch each new large block first, in equal parts: with several NUMA nodes part i
 * lies near thread i. NULL: the thread that writes a page first touches it first. */
void kvb_first_touch(const kvb_team *team);

/* Fits the buffers to n_tok queries of a layer of the group and copies q [n_tok][heads][k_dim]. q NULL: not copied, as a
 * witness reads none. 0 or -ENOMEM. */
int kvb_kernel_io_fill(kvb_kernel_io *io, const kvb_group *group, uint32_t n_tok, const float *q);
/* Fills out and lse with the special NaN. */
void kvb_kernel_io_poison(kvb_kernel_io *io);
/* Copies out and lse to `kept`, before the call is made again. 0 or -ENOMEM. */
int kvb_kernel_io_keep(kvb_kernel_io *io);
void kvb_kernel_io_restore(kvb_kernel_io *io); /* copies them back */
/* Did the kernel write every element? If not, why names the first unwritten one. */
bool kvb_kernel_io_written(const kvb_kernel_io *io, char *why, size_t why_bytes);
/* The output row of one query and head. */
const void *kvb_kernel_io_row(const kvb_kernel_io *io, uint32_t query, uint32_t head);
/* The log-sum-exp of one query and head. NULL: the kernel computes none. */
const float *kvb_kernel_io_lse(const kvb_kernel_io *io, uint32_t query, uint32_t head);
/* Continues a digest (64-bit FNV-1a) over out and lse of the last n queries. */
#define KVB_DIGEST_START UINT64_C(0xcbf29ce484222325)
uint64_t kvb_kernel_io_digest(const kvb_kernel_io *io, uint32_t n, uint64_t digest);
uint64_t kvb_digest_bytes(const void *from, size_t bytes, uint64_t digest);

/* Fills n elements with the special NaN. element_bytes: 4 or 2. */
void kvb_outputs_fill(void *block, size_t n, size_t element_bytes);
/* The index of the first element that still holds it; n: none does. */
size_t kvb_outputs_left(const void *block, size_t n, size_t element_bytes);
void kvb_kernel_io_free(kvb_kernel_io *io);

/* Can a program flush a cache line of this processor? If not, why says why. */
bool kvb_flush_available(char *why, size_t why_bytes);
/* Flushes all memory that a kernel may read of a view, side tables included; or a block of memory. */
void kvb_view_flush(const kvb_view *view, uint32_t n_kv_heads);
/* Makes its guarded memory and its front's read-only, or writable. */
void kvb_view_protect(const kvb_view *view, bool read_only);
void kvb_block_flush(const void *block, size_t bytes);

#endif
