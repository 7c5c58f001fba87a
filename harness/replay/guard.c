/* SPDX-License-Identifier: Apache-2.0 */
/* Guarded memory: [forbidden][slack, block, slack][forbidden], one mapping for each block. */
#include "harness/replay/guard.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "workloads/array.h"

#define ALIGNMENT 64u /* of a block's start: attend.h promises it for scratch */
#define FENCE                                                                                                          \
    ((size_t)256 << 10) /* bytes of address space on either side: a kernel that is off by a row still hits it */
#define CANARY      0xc5
#define HUGE_BLOCK  ((size_t)4 << 20)
#define STACK_BYTES (64u << 10) /* the handler's own: room for the registers of AVX-512 and AMX */

/* All addresses: mapping <= low <= canary <= start <= end <= high; the fences lie below low and from high on. */
typedef struct block {
    const char *name;
    size_t room;      /* bytes between the mapping's fences; low is above the first of them in memory used again */
    char *low, *high; /* bounds of the pages that may be touched */
    char *canary;     /* from here to start, and from end to high */
    char *start, *end;
    bool read_only;
} block;

/* Live blocks. The handler reads them on whichever thread faults; they do not change while kernels run. */
static block *_Atomic blocks;
static atomic_size_t n_blocks;
static size_t room;

static char *_Atomic report; /* [KVB_GUARD_TEXT] */

/* Memory of freed blocks, which may not be touched. */
#define KEPT 24u
static block kept[KEPT];
static unsigned n_kept;
static bool reuses;

/* ---- blocks ----------------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static block *block_find(const void *start)
{
    block *all = blocks;
    size_t i = n_blocks;
    while (i > 0 && all[i - 1].start != start)
        i--;
    assert(i > 0); /* else no block of kvb_guard_alloc */
    return &all[i - 1];
}

/* Puts the block's bytes at the end of its pages and paints the slack. Before the block at most one page is painted: a
 * block fitted to less than it was made with has more slack, and painting all of it would take time. */
static void block_place(block *b, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    b->start = b->high - round_up(bytes, ALIGNMENT);
    b->end = b->start + bytes;
    b->canary = (size_t)(b->start - b->low) > page ? b->start - page : b->low;
    memset(b->canary, CANARY, (size_t)(b->start - b->canary));
    memset(b->end, CANARY, (size_t)(b->high - b->end));
}

static void block_unmap(const block *b)
{
    munmap(b->high - b->room - FENCE, b->room + 2 * FENCE);
}

void kvb_guard_reuse(void)
{
    reuses = true;
}

/* The smallest kept memory with so much room; n_kept: none has. */
static unsigned kept_find(size_t bytes)
{
    unsigned best = n_kept;
    for (unsigned i = 0; i < n_kept; i++)
        if (kept[i].room >= bytes && (best == n_kept || kept[i].room < kept[best].room))
            best = i;
    return best;
}

/* Keeps a freed block's memory, if need be in place of the smallest that is kept. */
static void block_keep(const block *b)
{
    if (!reuses || b->room >= HUGE_BLOCK || mprotect(b->low, (size_t)(b->high - b->low), PROT_NONE)) {
        block_unmap(b);
        return;
    }
    const unsigned at = n_kept < KEPT ? n_kept++ : kept_find(0);
    if (kept[at].high)
        block_unmap(&kept[at]);
    kept[at] = *b;
}

void *kvb_guard_alloc(const char *name, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX / 2 || kvb_array_reserve(&blocks, &room, n_blocks + 1, sizeof *blocks))
        return NULL;
    size_t touchable = round_up(bytes, page);
    const unsigned at = kept_find(touchable);
    const bool again = at < n_kept;
    block b = {.name = name, .room = touchable};
    if (again) {
        b.room = kept[at].room;
        b.high = kept[at].high;
        kept[at] = kept[--n_kept];
        kept[n_kept] = (block){.high = NULL};
    } else {
        char *mapping = mmap(NULL, touchable + 2 * FENCE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapping == MAP_FAILED)
            return NULL;
        b.high = mapping + FENCE + touchable;
    }
    b.low = b.high - touchable;
    if (touchable && mprotect(b.low, touchable, PROT_READ | PROT_WRITE)) {
        block_unmap(&b);
        return NULL;
    }
    if (again)
        memset(b.low, 0, touchable);
    else if (touchable >= HUGE_BLOCK)
        madvise(b.low, touchable, MADV_HUGEPAGE); /* fewer page faults, where the system has such pages */
    block_place(&b, bytes);
    blocks[n_blocks++] = b;
    return b.start;
}

void *kvb_guard_fit(void *start, size_t bytes)
{
    block *b = block_find(start);
    assert(bytes <= (size_t)(b->high - b->low) && !b->read_only);
    block_place(b, bytes);
    return b->start;
}

int kvb_guard_protect(const void *address, bool read_only)
{
    const char *at = address;
    block *b = NULL;
    for (size_t i = 0; i < n_blocks && !b; i++)
        if (at >= blocks[i].low && at <= blocks[i].high) /* an empty block starts at high */
            b = &blocks[i];
    if (!b)
        return -ENOENT;
    if (b->read_only == read_only)
        return 0;
    size_t bytes = (size_t)(b->high - b->low);
    if (bytes && mprotect(b->low, bytes, read_only ? PROT_READ : PROT_READ | PROT_WRITE))
        return -errno;
    b->read_only = read_only;
    return 0;
}

void kvb_guard_free(void *start)
{
    if (!start)
        return;
    block *b = block_find(start), freed = *b;
    *b = blocks[n_blocks - 1];
    n_blocks--;
    block_keep(&freed);
    if (!n_blocks) {
        free(blocks);
        blocks = NULL;
        room = 0;
    }
}

/* First byte of [from, to) that is not the canary's; `to` if there is none. */
static const char *canary_check(const char *from, const char *to)
{
    /* memory that equals itself one byte further on has all bytes alike */
    if (from < to && *from == (char)CANARY && !memcmp(from, from + 1, (size_t)(to - from - 1)))
        return to;
    while (from < to && *from == (char)CANARY)
        from++;
    return from;
}

bool kvb_guard_check(char *why, size_t why_bytes)
{
    for (size_t i = 0; i < n_blocks; i++) {
        const block *b = &blocks[i];
        const char *before = canary_check(b->canary, b->start), *after = canary_check(b->end, b->high);
        if (before < b->start)
            snprintf(why, why_bytes, "write %td bytes before the start of %s", b->start - before, b->name);
        else if (after < b->high)
            snprintf(why, why_bytes, "write %td bytes past the end of %s", after - b->end, b->name);
        else
            continue;
        return false;
    }
    return true;
}

/* ---- faults: all below runs in the signal handler and calls only what is safe there -------------------- */

static char *text_append(char *at, const char *end, const char *text)
{
    while (*text && at < end)
        *at++ = *text++;
    *at = 0;
    return at;
}

static char *number_append(char *at, const char *end, size_t number)
{
    char digits[24], *first = digits + sizeof digits - 1;
    *first = 0;
    do
        *--first = (char)('0' + number % 10);
    while (number /= 10);
    return text_append(at, end, first);
}

/* Was it a read or a write? Bit 1 of the page fault's error code (Intel SDM volume 3, 4.7) is set for a write. */
static const char *access_of(const ucontext_t *context)
{
#ifdef __x86_64__
    return context->uc_mcontext.gregs[REG_ERR] & 2 ? "write " : "read ";
#else
    (void)context;
    return "access ";
#endif
}

#define NULL_BYTES                                                                                                     \
    65536u /* a smaller address is a member or an element of NULL: the system maps nothing there (mmap_min_addr) */

static const char *volatile null_why;

void kvb_guard_null(const char *why)
{
    null_why = why;
}

/* Describes the fault at `address`, unless it lies in no fence and no read-only block. */
static void fault_tell(const char *address, const ucontext_t *context, char *text, size_t text_bytes)
{
    const block *all = blocks, *b = NULL;
    char *at = text;
    const char *end = text + text_bytes - 1;
    if ((uintptr_t)address < NULL_BYTES) {
        at = text_append(at, end, access_of(context));
        at = text_append(at, end, "at byte ");
        at = number_append(at, end, (size_t)(uintptr_t)address);
        at = text_append(at, end, " of NULL");
        if (null_why) {
            at = text_append(at, end, "; ");
            text_append(at, end, null_why);
        }
        return;
    }
    for (size_t i = 0; i < n_blocks && !b; i++)
        if (address >= all[i].low - FENCE && address < all[i].high + FENCE)
            b = &all[i];
    if (!b || (address >= b->low && address < b->high && !b->read_only))
        return;
    at = text_append(at, end, access_of(context));
    if (address < b->start || address >= b->end) {
        at = number_append(at, end, (size_t)(address < b->start ? b->start - address : address - b->end));
        at = text_append(at, end, address < b->start ? " bytes before the start of " : " bytes past the end of ");
    } else {
        at = text_append(at, end, "at byte ");
        at = number_append(at, end, (size_t)(address - b->start));
        at = text_append(at, end, " of ");
    }
    at = text_append(at, end, b->name);
    if (address >= b->low && address < b->high)
        text_append(at, end, ", which is read-only");
}

static void fault_handle(int signal_number, siginfo_t *info, void *context)
{
    bool fault = info->si_code > 0; /* else a process sent the signal, and it has no address */
    if (fault)
        fault_tell(info->si_addr, context, report, KVB_GUARD_TEXT);
    signal(signal_number, SIG_DFL);
    if (!fault)
        raise(signal_number); /* pending until the return; a fault comes again by itself */
}

int kvb_guard_install(char text[KVB_GUARD_TEXT])
{
    static _Alignas(64) char stack[STACK_BYTES];
    struct sigaction action = {.sa_sigaction = fault_handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    stack_t present;
    report = text;
    if (sigaltstack(NULL, &present))
        return -errno;
    /* keeps a stack that is set: a sanitizer gives each thread one, and unmaps the set one at the thread's end */
    if (present.ss_flags & SS_DISABLE && sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL))
        return -errno;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSEGV, &action, NULL) || sigaction(SIGBUS, &action, NULL))
        return -errno;
    return 0;
}
