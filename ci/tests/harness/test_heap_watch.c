/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: while it is on, the heap watch counts every call that allocates or frees memory, from the program, the C
 * library, a plug-in and any thread, except calls of an excused library. Its blocks are sound. It counts started
 * threads. */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <threads.h>

#include "ci/tests/tests.h"
#include "harness/replay/heap_watch.h"

/* Hides blocks from the compiler, which may remove a pair of malloc and free. */
static void *volatile sink;

TEST(nothing_is_counted_without_calls)
{
    sink = malloc(10);
    free(sink);
    kvb_heap_watch_start();
    assert_int_equal(kvb_heap_watch_stop(), 0);
    sink = malloc(10);
    void *volatile none = NULL;
    kvb_heap_watch_start();
    free(none);
    assert_int_equal(kvb_heap_watch_stop(), 0);
    free(sink);
    kvb_heap_watch_start(); /* counts from 0 again */
    assert_int_equal(kvb_heap_watch_stop(), 0);
}

/* ---- each function alone ----------------------------------------------------------------------------------- */

enum { MALLOC, CALLOC, REALLOC, REALLOCARRAY, POSIX_MEMALIGN, ALIGNED_ALLOC, MEMALIGN, STRDUP, FUNCTIONS };

static const struct {
    const char *name;
    size_t alignment;
} functions[FUNCTIONS] = {{"malloc", 16},          {"calloc", 16},         {"realloc", 16},   {"reallocarray", 16},
                          {"posix_memalign", 256}, {"aligned_alloc", 256}, {"memalign", 256}, {"strdup", 1}};

/* A block of 1000 bytes or some more. */
static void *made_by(int function)
{
    static char text[1000];
    void *block = NULL;
    switch (function) {
    case MALLOC:
        return malloc(1000);
    case CALLOC:
        return calloc(100, 10);
    case REALLOC:
        return realloc(NULL, 1000);
    case REALLOCARRAY:
        return reallocarray(NULL, 10, 100);
    case POSIX_MEMALIGN:
        return posix_memalign(&block, 256, 1000) ? NULL : block;
    case ALIGNED_ALLOC:
        return aligned_alloc(256, 1024);
    case MEMALIGN:
        return memalign(256, 1000);
    default: /* the C library's own call of malloc */
        memset(text, 'x', sizeof text - 1);
        return strdup(text);
    }
}

TEST(each_function_is_counted)
{
    bool thread_sanitizer = dlsym(RTLD_DEFAULT, "__tsan_init") != NULL;
    for (int i = 0; i < FUNCTIONS; i++) {
        kvb_heap_watch_start();
        sink = made_by(i);
        uint64_t made = kvb_heap_watch_stop();
        assert_non_null(sink);
        /* the thread sanitizer calls no hook for aligned blocks */
        if (made != 1 && !(thread_sanitizer && functions[i].alignment == 256))
            fail_msg("%s: counted %llu times", functions[i].name, (unsigned long long)made);
        assert_int_equal((uintptr_t)sink % functions[i].alignment, 0);
        assert_true(malloc_usable_size(sink) >= 1000);
        for (size_t b = 0; i == CALLOC && b < 1000; b++)
            assert_int_equal(((char *)sink)[b], 0);
        memset(sink, 1, 1000);
        kvb_heap_watch_start();
        free(sink);
        assert_int_equal(kvb_heap_watch_stop(), 1);
    }
}

TEST(growing_a_block_is_counted_and_keeps_it)
{
    char *small = malloc(10);
    memcpy(small, "123456789", 10);
    sink = small;
    kvb_heap_watch_start();
    sink = realloc(sink, 1000);
    assert_in_range(kvb_heap_watch_stop(), 1, 2); /* a sanitizer's runtime takes a new block and frees the old */
    assert_string_equal((char *)sink, "123456789");
    free(sink);
}

TEST(errors_are_those_of_the_standard)
{
    volatile size_t huge = SIZE_MAX / 2 + 1;
    void *block = &block;
    if (dlsym(RTLD_DEFAULT, "__sanitizer_install_malloc_and_free_hooks"))
        skip(); /* a sanitizer ends the program instead of returning an error */
    errno = 0;
    sink = reallocarray(NULL, huge, 2);
    assert_null(sink);
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    sink = calloc(huge, 2);
    assert_null(sink);
    assert_int_equal(errno, ENOMEM);
    volatile size_t odd = 24;
    errno = 0;
    assert_int_equal(posix_memalign(&block, odd, 10), EINVAL);
    assert_int_equal(posix_memalign(&block, 64, huge), ENOMEM);
    assert_int_equal(errno, 0);
    assert_ptr_equal(block, &block);
}

static void *allocate(void *context)
{
    for (int i = 0; i < 1000; i++) {
        void *volatile block = malloc(16);
        free(block);
    }
    return NULL;
}

TEST(threads_are_counted)
{
    pthread_t threads[3];
    kvb_heap_watch_start();
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_in_range(kvb_heap_watch_stop(), 6000, 6030); /* pthread_create allocates too */
}

static int nothing_more(void *context)
{
    return context != NULL;
}

TEST(started_threads_are_counted)
{
    pthread_t thread;
    thrd_t other;
    char words[256];
    int result;
    kvb_threads_forget();
    assert_int_equal(kvb_threads_started(), 0);
    assert_int_equal(thrd_create(&other, nothing_more, NULL), thrd_success);
    assert_int_equal(thrd_join(other, &result), thrd_success);
    assert_int_equal(result, 0);
    assert_int_equal(kvb_threads_started(), 1);
    assert_int_equal(pthread_create(&thread, NULL, allocate, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(kvb_threads_started(), 2);
    kvb_heap_watch_words(true, words, sizeof words);
    assert_int_equal(strncmp(words, "thrd_create", strlen("thrd_create")), 0);
    kvb_threads_forget();
    assert_int_equal(kvb_threads_started(), 0);
}

/* ---- a plug-in ---------------------------------------------------------------------------------------------- */

static const char plugin_source[] = "#include <stdlib.h>\n"
                                    "void *plugin_take(size_t bytes) { return malloc(bytes); }\n"
                                    "void plugin_give(void *block) { free(block); }\n"
                                    "int plugin_honest(int x) { return x + 1; }\n";

TEST(a_plugin_is_counted)
{
    const char *cc = getenv("CC");
    const char *source = tests_text("plugin.c", plugin_source), *path = tests_path("plugin.so");
    char line[2500];
    snprintf(line, sizeof line, "%s -O1 -shared -fPIC '%s' -o '%s'", cc ? cc : "cc", source, path);
    assert_int_equal(system(line), 0);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(object);
    void *(*take)(size_t) = (void *(*)(size_t))dlsym(object, "plugin_take");
    void (*give)(void *) = (void (*)(void *))dlsym(object, "plugin_give");
    int (*honest)(int) = (int (*)(int))dlsym(object, "plugin_honest");
    assert_true(take && give && honest);

    kvb_heap_watch_start();
    int two = honest(1);
    assert_int_equal(kvb_heap_watch_stop(), 0);
    assert_int_equal(two, 2);
    kvb_heap_watch_start();
    void *block = take(100);
    assert_int_equal(kvb_heap_watch_stop(), 1);
    kvb_heap_watch_start();
    give(block);
    assert_int_equal(kvb_heap_watch_stop(), 1);

    /* A library's own calls can be left out; the program's never. */
    kvb_heap_watch_excuse((const void *)(uintptr_t)honest);
    kvb_heap_watch_start();
    give(take(100));
    assert_int_equal(kvb_heap_watch_stop(), 0);
    kvb_heap_watch_start();
    sink = malloc(10);
    give(take(100));
    assert_int_equal(kvb_heap_watch_stop(), 1);
    free(sink);
    kvb_heap_watch_excuse((const void *)(uintptr_t)main);
    kvb_heap_watch_start();
    give(take(100));
    sink = malloc(10);
    assert_int_equal(kvb_heap_watch_stop(), 3);
    free(sink);
    kvb_heap_watch_excuse(NULL);

    dlclose(object);
}
