/* SPDX-License-Identifier: Apache-2.0 */
/* One memory file, mapped again and again over a large reservation; private mappings, so that what is written stays
 * apart. */
#include "harness/calls/tall.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FENCE       ((size_t)256 << 10) /* bytes on either side that must not be touched */
#define LEAST_BLOCK ((size_t)2 << 20)   /* a process may have some 65,000 mappings: 128 GiB take as many */

static size_t common_divisor(size_t a, size_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* A file of whole rows and whole pages, all rows alike, in *bytes; or a negative errno. */
static int block_make(size_t stride, const void *row, size_t page, size_t *bytes)
{
    const size_t least = stride / common_divisor(stride, page) * page;
    *bytes = (LEAST_BLOCK + least - 1) / least * least;
    const int file = memfd_create("kvbench rows", MFD_CLOEXEC);
    if (file < 0)
        return -errno;
    unsigned char *block = MAP_FAILED;
    if (!ftruncate(file, (off_t)*bytes))
        block = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (block == MAP_FAILED) {
        const int rc = -errno;
        close(file);
        return rc;
    }
    for (size_t at = 0; at < *bytes; at += stride)
        if (row)
            memcpy(block + at, row, stride);
        else
            memset(block + at, 0xff, stride);
    munmap(block, *bytes);
    return file;
}

int kvb_tall_open(kvb_tall *tall, size_t cell_stride, uint32_t cells, uint32_t n_kv_heads, const void *row)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes, block;
    *tall = (kvb_tall){0};
    if (__builtin_mul_overflow((size_t)cells * n_kv_heads, cell_stride, &bytes) || bytes > SIZE_MAX / 2 || !bytes)
        return bytes ? -EOVERFLOW : -EINVAL;
    bytes = (bytes + page - 1) / page * page;
    const int file = block_make(cell_stride, row, page, &block);
    if (file < 0)
        return file;
    const size_t all = bytes + 2 * FENCE;
    int rc = 0;
    unsigned char *mapping = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        rc = -errno;
    for (size_t at = 0; at < bytes && !rc; at += block)
        if (mmap(mapping + FENCE + at, at + block < bytes ? block : bytes - at, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED)
            rc = -errno;
    close(file);
    if (rc) {
        if (mapping != MAP_FAILED)
            munmap(mapping, all);
        return rc;
    }
    *tall = (kvb_tall){.base = mapping + FENCE,
                       .head_stride = cells * cell_stride,
                       .cell_stride = cell_stride,
                       .mapping = mapping,
                       .mapping_bytes = all};
    return 0;
}

void kvb_tall_close(kvb_tall *tall)
{
    if (tall->mapping)
        munmap(tall->mapping, tall->mapping_bytes);
    *tall = (kvb_tall){0};
}
