/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap watch. The program defines the C library's functions that allocate memory and start threads, and hands each
 * call on to glibc's own, so that calls from plug-ins and from libraries pass here too: symbol lookup finds the
 * program's definition first. As the heap is still glibc's, functions that are not defined here (valloc,
 * malloc_usable_size) keep working.
 */
#include "harness/replay/heap_watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_RUNTIME_HOOKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_RUNTIME_HOOKS 1
#endif
#endif

static atomic_bool watching;
static atomic_uint_fast64_t calls, threads;

#define EXPORTED    __attribute__((visibility("default")))
#define MOST_FRAMES 32

/* The origin of a call. */
typedef struct origin {
    const char *function;
    size_t bytes;
    void *frames[MOST_FRAMES];
    int n;
} origin;

static origin first;        /* the first call since start */
static origin first_thread; /* of the process */

static void origin_take(origin *o, const char *function, size_t bytes)
{
    o->function = function;
    o->bytes = bytes;
    o->n = backtrace(o->frames, MOST_FRAMES);
}

/* Addresses [from, to) of a library; calls from them are not counted. 0, 0: none. */
static uintptr_t excused_from, excused_to;

static inline bool is_excused(const void *address)
{
    return (uintptr_t)address - excused_from < excused_to - excused_from;
}

/* from: address of the caller. */
static __attribute__((noinline)) void call_take(const char *function, size_t bytes, const void *from)
{
    if (is_excused(from))
        return;
    if (atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) == 0)
        origin_take(&first, function, bytes);
}

/* While the watch is off this costs one branch, not taken. */
static inline void call_count(const char *function, size_t bytes, const void *from)
{
    if (__builtin_expect(atomic_load_explicit(&watching, memory_order_relaxed), 0))
        call_take(function, bytes, from);
}

#ifdef HAS_RUNTIME_HOOKS

/* The sanitizers' runtime has it (sanitizer/allocator_interface.h). ThreadSanitizer calls no hook for aligned blocks, so
 * it does not count them. */
__attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
                                                                    void (*free_hook)(const volatile void *));

/* A frame of the excused library. A hook does not know the runtime's caller, so any frame counts. */
static const void *excused_frame(void)
{
    void *frames[MOST_FRAMES];
    const int n = excused_to && atomic_load(&watching) ? backtrace(frames, MOST_FRAMES) : 0;
    for (int i = 0; i < n; i++)
        if (is_excused(frames[i]))
            return frames[i];
    return NULL;
}

static void malloc_hook(const volatile void *block, size_t bytes)
{
    (void)block;
    call_count("malloc", bytes, excused_frame());
}

static void free_hook(const volatile void *block)
{
    (void)block;
    call_count("free", 0, excused_frame());
}

static void hooks_install(void)
{
    static bool installed;
    if (!installed && __sanitizer_install_malloc_and_free_hooks)
        installed = __sanitizer_install_malloc_and_free_hooks(malloc_hook, free_hook) != 0;
}

#else

/* glibc's own names of the functions, the same in every version since 2.2.5. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

EXPORTED void *malloc(size_t bytes)
{
    call_count("malloc", bytes, __builtin_return_address(0));
    return __libc_malloc(bytes);
}

EXPORTED void *calloc(size_t n, size_t bytes)
{
    call_count("calloc", n * bytes, __builtin_return_address(0));
    return __libc_calloc(n, bytes);
}

EXPORTED void *realloc(void *block, size_t bytes)
{
    call_count("realloc", bytes, __builtin_return_address(0));
    return __libc_realloc(block, bytes);
}

EXPORTED void *reallocarray(void *block, size_t n, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(n, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    call_count("reallocarray", all, __builtin_return_address(0));
    return __libc_realloc(block, all);
}

EXPORTED void *memalign(size_t alignment, size_t bytes)
{
    call_count("memalign", bytes, __builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t bytes)
{
    call_count("aligned_alloc", bytes, __builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

/* POSIX: alignment is a power of two and a multiple of a pointer's size; an error is returned, and errno and *block stay
 * as they were. */
EXPORTED int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    int before = errno;
    if (alignment % sizeof(void *) || alignment & (alignment - 1) || !alignment)
        return EINVAL;
    call_count("posix_memalign", bytes, __builtin_return_address(0));
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
        call_count("free", 0, __builtin_return_address(0)); /* free(NULL) touches no heap */
    __libc_free(block);
}

static void hooks_install(void) {}

#endif

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* The next function of that name in symbol lookup order, looked up once. */
static void *next_function(void *_Atomic *kept, const char *name)
{
    void *next = atomic_load(kept);
    if (!next) {
        next = dlsym(RTLD_NEXT, name);
        atomic_store(kept, next);
    }
    return next;
}

static void thread_count(const char *function)
{
    if (atomic_fetch_add(&threads, 1) == 0)
        origin_take(&first_thread, function, 0);
}

/* The sanitizer's own function, in a build with one: it must see each thread. */
__attribute__((weak)) int __interceptor_pthread_create(pthread_t *id, const pthread_attr_t *attributes,
                                                       void *(*start)(void *), void *ctx);

EXPORTED int pthread_create(pthread_t *restrict id, const pthread_attr_t *restrict attributes, void *(*start)(void *),
                            void *restrict ctx)
{
    static void *_Atomic next;
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = __interceptor_pthread_create;
    if (!create)
        *(void **)&create = next_function(&next, "pthread_create");
    thread_count("pthread_create");
    return create(id, attributes, start, ctx);
}

EXPORTED int thrd_create(thrd_t *id, thrd_start_t start, void *ctx)
{
    static void *_Atomic next;
    int (*create)(thrd_t *, thrd_start_t, void *);
    *(void **)&create = next_function(&next, "thrd_create");
    thread_count("thrd_create");
    return create(id, start, ctx);
}

/* ---- the watch -------------------------------------------------------------------------------------------------- */

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

static bool is_ours(const void *address)
{
    Dl_info info, own;
    return dladdr((const char *)address - 1, &info) && dladdr(&first, &own) && info.dli_fbase == own.dli_fbase;
}

void kvb_heap_watch_excuse(const void *inside)
{
    struct dl_find_object object;
    excused_from = excused_to = 0;
    if (!inside || is_ours((const char *)inside + 1) || _dl_find_object((void *)(uintptr_t)inside, &object))
        return;
    excused_from = (uintptr_t)object.dlfo_map_start;
    excused_to = (uintptr_t)object.dlfo_map_end;
}

uint64_t kvb_heap_watch_stop(void)
{
    atomic_store(&watching, false);
    return atomic_load(&calls);
}

/* Names the frame's function, or its offset in its file. False: there is no such file. */
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

void kvb_heap_watch_words(bool thread, char *text, size_t bytes)
{
    const origin *o = thread ? &first_thread : &first;
    char frame[256];
    int at = 0, end;
    size_t used = (size_t)snprintf(text, bytes, "%s", o->function);
    if (o->bytes)
        used += (size_t)snprintf(text + used, bytes - used, " of %zu bytes", o->bytes);
    while (at < o->n && is_ours(o->frames[at])) /* the functions above */
        at++;
    for (end = at; end < o->n && !is_ours(o->frames[end]); end++)
        ;
    for (int i = end - 1; i >= at && used < bytes; i--) /* the outermost first: it is the plug-in's */
        if (frame_words(o->frames[i], frame, sizeof frame))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", i == end - 1 ? ", called by " : " > ", frame);
}

uint64_t kvb_threads_started(void)
{
    return atomic_load(&threads);
}

void kvb_threads_forget(void)
{
    atomic_store(&threads, 0);
}
