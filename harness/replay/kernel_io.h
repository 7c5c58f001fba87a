/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buffers that a kernel is handed besides K and V: q, and out and lse for its results. Each has exactly the size of
 * the call and lies in guarded memory, unless that is turned off. Before each call the outputs are filled with a NaN of
 * our own pattern; where it is still there afterwards, the kernel has left an element unwritten.
 */
#ifndef KVB_KERNEL_IO_H
#define KVB_KERNEL_IO_H

#include "caches/allocator.h"
#include "kernels/view.h"
#include "kernels/model.h"

typedef struct kvb_kernel_io {
    bool guarded, no_lse; /* no_lse: the kernel gives none, and zeros stand there */
    kvb_elem out_elem;
    size_t most[3];   /* bytes of one token in q, out and lse, in the layers where they are the largest */
    void *block[3];   /* what was allocated, for `room` tokens of that size */
    uint32_t room;    /* tokens */
    size_t fitted[3]; /* bytes that the blocks are fitted to */
    /* of the present call: */
    float *q, *lse;
    void *out; /* of out_elem */
    const kvb_group *group;
    uint32_t n_tok;
} kvb_kernel_io;

/* Memory for caches and kernel scratch: guarded (zeros at first), or from the C library, with what it held or with
 * zeros. */
extern const kvb_memory_source kvb_guarded_source, kvb_plain_source, kvb_zeroed_source;

/* From now on the threads of this team first touch large blocks of both sources, in equal parts, so that with several
 * NUMA nodes each part lies near the thread of its number. NULL: whoever writes first touches them. */
void kvb_first_touch(const kvb_team *team);

void kvb_kernel_io_init(kvb_kernel_io *io, const kvb_model *model, kvb_elem out_elem, bool guarded);
/* Buffers for n_tok queries of a layer of the group; copies q [n_tok][heads][k_dim], unless it is NULL: a witness reads
 * none. 0 or -ENOMEM. */
int kvb_kernel_io_fill(kvb_kernel_io *io, const kvb_group *group, uint32_t n_tok, const float *q);
void kvb_kernel_io_poison(kvb_kernel_io *io);
/* Did the kernel write every element? If not, why names the first one that it left. */
bool kvb_kernel_io_written(const kvb_kernel_io *io, char *why, size_t why_bytes);
/* The output row of one query and head. */
const void *kvb_kernel_io_row(const kvb_kernel_io *io, uint32_t query, uint32_t head);
/* Its log-sum-exp; NULL: the kernel gives none. */
const float *kvb_kernel_io_lse(const kvb_kernel_io *io, uint32_t query, uint32_t head);
/* Continues a digest (FNV-1a of 64 bits) over the out and lse of the last n queries. */
#define KVB_DIGEST_START UINT64_C(0xcbf29ce484222325)
uint64_t kvb_kernel_io_digest(const kvb_kernel_io *io, uint32_t n, uint64_t digest);
uint64_t kvb_digest_bytes(const void *from, size_t bytes, uint64_t digest);

/* Fills n elements of outputs with the NaN of our own; the index of the first that still is, or n. element_bytes: 4
 * or 2. */
void kvb_outputs_fill(void *block, size_t n, size_t element_bytes);
size_t kvb_outputs_left(const void *block, size_t n, size_t element_bytes);
void kvb_kernel_io_free(kvb_kernel_io *io);

/* Can this processor flush a line from a program? false with the reason. */
bool kvb_flush_available(char *why, size_t why_bytes);
/* Flush all that a kernel may read of a view, side tables included; or a block of memory. */
void kvb_view_flush(const kvb_view *view, uint32_t n_kv_heads);
void kvb_block_flush(const void *block, size_t bytes);

#endif
