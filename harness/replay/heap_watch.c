/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap watch. The program defines the C library's allocation functions and hands each call on to glibc's own, so
 * that calls from plug-ins and from libraries pass here too: symbol lookup finds the program's definition first. As the heap is
 * still glibc's, functions that are not defined here (valloc, malloc_usable_size) keep working.
 */
#include "harness/replay/heap_watch.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_RUNTIME_HOOKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_RUNTIME_HOOKS 1
#endif
#endif

static atomic_bool watching;
static atomic_uint_fast64_t calls;

/* While the watch is off this costs one branch, not taken. */
static inline void call_count(void)
{
    if (__builtin_expect(atomic_load_explicit(&watching, memory_order_relaxed), 0))
        atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
}

#ifdef HAS_RUNTIME_HOOKS

/* From the runtime of the sanitizers (sanitizer/allocator_interface.h). ThreadSanitizer calls no hook for aligned blocks, so
 * there they are not counted. */
__attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
                                                                    void (*free_hook)(const volatile void *));

static void malloc_hook(const volatile void *block, size_t bytes)
{
    (void)block, (void)bytes;
    call_count();
}

static void free_hook(const volatile void *block)
{
    (void)block;
    call_count();
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
    call_count();
    return __libc_malloc(bytes);
}

EXPORTED void *calloc(size_t n, size_t bytes)
{
    call_count();
    return __libc_calloc(n, bytes);
}

EXPORTED void *realloc(void *block, size_t bytes)
{
    call_count();
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
    call_count();
    return __libc_memalign(alignment, bytes);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t bytes)
{
    call_count();
    return __libc_memalign(alignment, bytes);
}

/* POSIX: a power of two that pointers fit; the error is returned, errno and *block stay as they were. */
EXPORTED int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    int before = errno;
    if (alignment % sizeof(void *) || alignment & (alignment - 1) || !alignment)
        return EINVAL;
    call_count();
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
        call_count(); /* free(NULL) touches no heap */
    __libc_free(block);
}

static void hooks_install(void) {}

#endif

void kvb_heap_watch_start(void)
{
    hooks_install();
    atomic_store(&calls, 0);
    atomic_store(&watching, true);
}

uint64_t kvb_heap_watch_stop(void)
{
    atomic_store(&watching, false);
    return atomic_load(&calls);
}
