/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap watch. The program defines the C library's allocation functions and hands each call on to glibc's own, so
 * that calls from plug-ins and from libraries pass here too: symbol lookup finds the program's definition first. As the heap is
 * still glibc's, functions that are not defined here (valloc, malloc_usable_size) keep working.
 */
#include "harness/replay/heap_watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_RUNTIME_HOOKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_RUNTIME_HOOKS 1
#endif
#endif

static atomic_bool watching;
static atomic_uint_fast64_t calls;

#define MOST_FRAMES 32

/* The first call since start. */
static struct {
    const char *function;
    size_t bytes;
    void *frames[MOST_FRAMES];
    int n;
} first;

static __attribute__((noinline)) void call_take(const char *function, size_t bytes)
{
    if (atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) > 0)
        return;
    first.function = function;
    first.bytes = bytes;
    first.n = backtrace(first.frames, MOST_FRAMES);
}

/* While the watch is off this costs one branch, not taken. */
static inline void call_count(const char *function, size_t bytes)
{
    if (__builtin_expect(atomic_load_explicit(&watching, memory_order_relaxed), 0))
        call_take(function, bytes);
}

#ifdef HAS_RUNTIME_HOOKS

/* From the runtime of the sanitizers (sanitizer/allocator_interface.h). ThreadSanitizer calls no hook for aligned blocks, so
 * there they are not counted. */
__attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
                                                                    void (*free_hook)(const volatile void *));

static void malloc_hook(const volatile void *block, size_t bytes)
{
    (void)block;
    call_count("malloc", bytes);
}

static void free_hook(const volatile void *block)
{
    (void)block;
    call_count("free", 0);
}

static void hooks_install(void)
{
    static bool installed;
    if (!installed && __sanitizer_install_malloc_and_free_hooks)
        installed = __sanitizer_install_malloc_and_free_hooks(malloc_hook, free_hook) != 0;
}

#else

#define EXPORTED __attribute__((visibility("default")))

/* glibc's own names of the functions, the same in every version since 2.2.5. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

EXPORTED void *malloc(size_t bytes)
{
    call_count("malloc", bytes);
    return __libc_malloc(bytes);
}

EXPORTED void *calloc(size_t n, size_t bytes)
{
    call_count("calloc", n * bytes);
    return __libc_calloc(n, bytes);
}

EXPORTED void *realloc(void *block, size_t bytes)
{
    call_count("realloc", bytes);
    return __libc_realloc(block, bytes);
}

EXPORTED void *reallocarray(void *block, size_t n, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(n, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, all);
}

EXPORTED void *memalign(size_t alignment, size_t bytes)
{
    call_count("memalign", bytes);
    return __libc_memalign(alignment, bytes);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t bytes)
{
    call_count("aligned_alloc", bytes);
    return __libc_memalign(alignment, bytes);
}

/* POSIX: a power of two that pointers fit; the error is returned, errno and *block stay as they were. */
EXPORTED int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    int before = errno;
    if (alignment % sizeof(void *) || alignment & (alignment - 1) || !alignment)
        return EINVAL;
    call_count("posix_memalign", bytes);
    void *made = __libc_memalign(alignment, bytes);
    errno = before;
    if (!made)
        return ENOMEM;
    *block = made;
    return 0;
}

EXPORTED void free(void *block)
{
    if (block)
        call_count("free", 0); /* free(NULL) touches no heap */
    __libc_free(block);
}

static void hooks_install(void) {}

#endif

void kvb_heap_watch_start(void)
{
    static bool warm;
    void *frame;
    hooks_install();
    if (!warm)
        backtrace(&frame, 1); /* the first call loads a library */
    warm = true;
    atomic_store(&calls, 0);
    atomic_store(&watching, true);
}

uint64_t kvb_heap_watch_stop(void)
{
    atomic_store(&watching, false);
    return atomic_load(&calls);
}

/* The frame's function, or its place in its file. False: there is no such file. */
static bool frame_words(const void *address, char *text, size_t bytes)
{
    Dl_info info;
    if (!dladdr((const char *)address - 1, &info) || !info.dli_fname) /* the call before the return address */
        return false;
    const char *base = strrchr(info.dli_fname, '/');
    base = base ? base + 1 : info.dli_fname;
    if (info.dli_sname)
        snprintf(text, bytes, "%s (%s)", info.dli_sname, base);
    else
        snprintf(text, bytes, "%s+%#tx", base, (const char *)address - 1 - (const char *)info.dli_fbase);
    return true;
}

static bool is_ours(const void *address)
{
    Dl_info info, own;
    return dladdr((const char *)address - 1, &info) && dladdr(&first, &own) && info.dli_fbase == own.dli_fbase;
}

void kvb_heap_watch_words(char *text, size_t bytes)
{
    char frame[256];
    int at = 0, end;
    size_t used = (size_t)snprintf(text, bytes, "%s", first.function);
    if (strcmp(first.function, "free"))
        used += (size_t)snprintf(text + used, bytes - used, " of %zu bytes", first.bytes);
    while (at < first.n && is_ours(first.frames[at])) /* the functions above */
        at++;
    for (end = at; end < first.n && !is_ours(first.frames[end]); end++)
        ;
    for (int i = end - 1; i >= at && used < bytes; i--) /* the outermost first: it is the plug-in's */
        if (frame_words(first.frames[i], frame, sizeof frame))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", i == end - 1 ? ", called by " : " > ", frame);
}
