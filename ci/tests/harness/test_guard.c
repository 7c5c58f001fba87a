/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: guarded memory, and arrays of recorded calls. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "ci/tests/tests.h"
#include "harness/replay/guard.h"
#include "harness/replay/kernel_io.h"

/* Shows: an access outside a guarded block ends in a signal with a message that names block, direction and distance;
 * canaries find a write into the slack; other faults are handled as usual. */

#ifdef __x86_64__
#define READ  "read "
#define WRITE "write "
#else
#define READ  "access "
#define WRITE "access "
#endif

/* The message of a child's handler. */
static char *said;

static int said_map(void **state)
{
    said = mmap(NULL, KVB_GUARD_TEXT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return said == MAP_FAILED ? -1 : 0;
}

static int said_unmap(void **state)
{
    return munmap(said, KVB_GUARD_TEXT);
}

static CMFixtureFunction tests_setup = said_map, tests_teardown = said_unmap;

/* The signal that killed a child that did this to the block; 0: none did. */
static int child_signal(void (*crime)(void *block), void *block)
{
    int status;
    memset(said, 0, KVB_GUARD_TEXT);
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGSEGV, SIG_DFL); /* not cmocka's */
        if (kvb_guard_install(said))
            _exit(2);
        crime(block);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* ---- crimes: offsets are set before the child is made ----------------------------------------------------- */

static ptrdiff_t offset;

static void byte_write(void *block)
{
    ((volatile char *)block)[offset] = 1;
}

static void byte_read(void *block)
{
    (void)((volatile char *)block)[offset];
}

static void *write_elsewhere(void *block)
{
    byte_write(block);
    return NULL;
}

static void thread_write(void *block)
{
    pthread_t thread;
    if (!pthread_create(&thread, NULL, write_elsewhere, block))
        pthread_join(thread, NULL);
}

static void signal_send(void *block)
{
    (void)block;
    raise(SIGSEGV);
}

static void expect_fault(void *block, void (*crime)(void *block), ptrdiff_t at, const char *text)
{
    offset = at;
    assert_int_equal(child_signal(crime, block), SIGSEGV);
    assert_string_equal(said, text);
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

TEST(a_block_is_aligned_zero_and_writable)
{
    static const size_t sizes[] = {1, 4, 63, 64, 65, 4092, 4096, 4100, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char why[128] = "";
        unsigned char *block = kvb_guard_alloc("block", sizes[i]);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        for (size_t b = 0; b < sizes[i]; b++)
            assert_int_equal(block[b], 0);
        memset(block, 0xff, sizes[i]);
        assert_true(kvb_guard_check(why, sizeof why));
        kvb_guard_free(block);
    }
    kvb_guard_free(NULL);
    assert_null(kvb_guard_alloc("too large", SIZE_MAX - 100));
    assert_null(kvb_guard_alloc("too large", (size_t)1 << 60));
}

TEST(faults_name_block_and_distance)
{
    void *q = kvb_guard_alloc("q", 4096), *out = kvb_guard_alloc("out", 8192), *none = kvb_guard_alloc("none", 0);
    expect_fault(out, byte_write, 8192, WRITE "0 bytes past the end of out");
    expect_fault(out, byte_read, 8192 + 12345, READ "12345 bytes past the end of out");
    expect_fault(out, byte_write, -4, WRITE "4 bytes before the start of out");
    expect_fault(q, byte_read, -1, READ "1 bytes before the start of q");
    expect_fault(q, byte_write, 4096 + 200000, WRITE "200000 bytes past the end of q");
    expect_fault(none, byte_read, 0, READ "0 bytes past the end of none");
    kvb_guard_free(out);
    expect_fault(q, byte_write, 4096, WRITE "0 bytes past the end of q");
    offset = 4095;
    assert_int_equal(child_signal(byte_write, q), 0);
    kvb_guard_free(none);
    kvb_guard_free(q);
}

TEST(another_thread_may_fault)
{
    void *out = kvb_guard_alloc("out", 64);
    expect_fault(out, thread_write, 64, WRITE "0 bytes past the end of out");
    kvb_guard_free(out);
}

TEST(other_faults_are_not_ours)
{
    void *out = kvb_guard_alloc("out", 64);
    void *elsewhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(elsewhere != MAP_FAILED);
    expect_fault(elsewhere, byte_write, 0, "");
    expect_fault(out, signal_send, 0, "");
    munmap(elsewhere, 4096);
    kvb_guard_free(out);
}

TEST(read_only_blocks_are_told_as_such)
{
    char *q = kvb_guard_alloc("q", 8000); /* 8000 is a multiple of 64: slack lies before it only */
    q[16] = 7;
    assert_int_equal(kvb_guard_protect(q, true), 0);
    assert_int_equal(q[16], 7);
    expect_fault(q, byte_write, 16, WRITE "at byte 16 of q, which is read-only");
    expect_fault(q, byte_write, -8, WRITE "8 bytes before the start of q, which is read-only");
    expect_fault(q, byte_read, 8000, READ "0 bytes past the end of q");
    assert_int_equal(kvb_guard_protect(q + 100, false), 0); /* any address of the block */
    q[16] = 8;
    assert_int_equal(kvb_guard_protect(&tests_n, true), -ENOENT);
    kvb_guard_free(q);
}

TEST(canaries_find_writes_into_the_slack)
{
    char why[128];
    char *lse = kvb_guard_alloc("lse", 20), *out = kvb_guard_alloc("out", 100);
    char *all[] = {lse, out};
    static const size_t bytes[] = {20, 100};
    for (size_t i = 0; i < 2; i++) {
        size_t lead = 4096 - (bytes[i] + 63) / 64 * 64, trail = (bytes[i] + 63) / 64 * 64 - bytes[i];
        for (ptrdiff_t at = -(ptrdiff_t)lead; at < (ptrdiff_t)(bytes[i] + trail); at++) {
            char before = all[i][at], want[128];
            all[i][at] = (char)~before;
            bool whole = kvb_guard_check(why, sizeof why);
            all[i][at] = before;
            assert_int_equal(whole, at >= 0 && at < (ptrdiff_t)bytes[i]);
            if (whole)
                continue;
            if (at < 0)
                snprintf(want, sizeof want, "write %td bytes before the start of %s", -at, i ? "out" : "lse");
            else
                snprintf(want, sizeof want, "write %td bytes past the end of %s", at - (ptrdiff_t)bytes[i],
                         i ? "out" : "lse");
            assert_string_equal(why, want);
        }
    }
    assert_true(kvb_guard_check(why, sizeof why));
    kvb_guard_free(lse);
    kvb_guard_free(out);
}

TEST(a_fitted_block_is_guarded_at_its_new_size)
{
    char why[128];
    char *made = kvb_guard_alloc("scratch", 100000), *less = kvb_guard_fit(made, 1024);
    assert_ptr_equal(less, made + (100000 + 63) / 64 * 64 - 1024);
    assert_true(kvb_guard_check(why, sizeof why));
    expect_fault(less, byte_write, 1024, WRITE "0 bytes past the end of scratch");
    less[-4] = 0;
    assert_false(kvb_guard_check(why, sizeof why));
    assert_string_equal(why, "write 4 bytes before the start of scratch");
    less = kvb_guard_fit(less, 1000);
    assert_true(kvb_guard_check(why, sizeof why));
    less[1000] = 0;
    assert_false(kvb_guard_check(why, sizeof why));
    assert_string_equal(why, "write 0 bytes past the end of scratch");
    assert_ptr_equal(kvb_guard_fit(less, 100000), made);
    memset(made, 0, 100000);
    assert_true(kvb_guard_check(why, sizeof why));
    kvb_guard_free(made);
}

TEST(many_blocks_come_and_go)
{
    enum { many = 300 };
    char *all[many], why[128];
    for (size_t i = 0; i < many; i++) {
        all[i] = kvb_guard_alloc(i == 77 ? "the one" : "another", 8 * i);
        assert_non_null(all[i]);
    }
    for (size_t i = 0; i < many; i += 2)
        kvb_guard_free(all[i]);
    assert_true(kvb_guard_check(why, sizeof why));
    all[77][-1] = 0;
    assert_false(kvb_guard_check(why, sizeof why));
    assert_string_equal(why, "write 1 bytes before the start of the one");
    for (size_t i = 1; i < many; i += 2)
        kvb_guard_free(all[i]);
    assert_true(kvb_guard_check(why, sizeof why));
}

/* A smaller block lies at the end of the memory, behind a fence. Of many freed blocks the largest are kept. */
TEST(memory_of_freed_blocks_is_used_again)
{
    enum { many = 40 };
    static const size_t sizes[] = {235000, 200000, 64, 100};
    char *freed = NULL, *ends[many], why[128];
    kvb_guard_reuse();
    for (size_t i = 0; i < many; i++) {
        const size_t bytes = 40000 + 5000 * i;
        freed = kvb_guard_alloc("large", bytes);
        ends[i] = freed + (bytes + 63) / 64 * 64;
        assert_true(i == 0 || ends[i] != ends[i - 1]); /* that one is a page too small */
        memset(freed, 7, bytes);
        kvb_guard_protect(freed, true);
        kvb_guard_free(freed);
    }
    expect_fault(freed, byte_read, 100000, "");
    expect_fault(freed, byte_write, 234999, "");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *block = kvb_guard_alloc("block", sizes[i]);
        bool again = false;
        for (size_t k = 0; k < many; k++)
            again |= (char *)block + (sizes[i] + 63) / 64 * 64 == ends[k];
        assert_true(again);
        for (size_t b = 0; b < sizes[i]; b++)
            assert_int_equal(block[b], 0);
        memset(block, 7, sizes[i]);
        assert_true(kvb_guard_check(why, sizeof why));
        expect_fault(block, byte_write, (ptrdiff_t)sizes[i] + 4096, WRITE "4096 bytes past the end of block");
        expect_fault(block, byte_read, -4096, READ "4096 bytes before the start of block");
        block[-1] = 7;
        assert_false(kvb_guard_check(why, sizeof why));
        kvb_guard_free(block);
    }
}

/*
 * Shows, for outputs of every type and layers of unlike groups in turn, that every unwritten element is found and
 * named, that a write outside is found, and that the digest depends on every bit of the wanted rows and on no other.
 */

/* One group has the larger q rows, the other the larger outputs. */
static const kvb_model model = {.n_layers = 2,
                                .n_groups = 2,
                                .group_of = {0, 1},
                                .groups = {{.heads = 3, .kv_heads = 1, .k_dim = 9, .v_dim = 5, .scale = 1},
                                           {.heads = 2, .kv_heads = 2, .k_dim = 2, .v_dim = 11, .scale = 1}}};
enum { MOST = 7 * 3 * 11 };

static const kvb_elem elems[] = {KVB_F32, KVB_F16, KVB_BF16};
enum { ELEMS = sizeof elems / sizeof *elems };

static size_t size_of(kvb_elem elem)
{
    return elem == KVB_F32 ? 4 : 2;
}

/* Fills n elements as a kernel may: with zeros, and with quiet NaNs, which count as written. */
static void fill(void *block, size_t n, kvb_elem elem)
{
    static const uint32_t nan_of[] = {[KVB_F32] = 0x7fc00000, [KVB_F16] = 0x7e00, [KVB_BF16] = 0x7fc0};
    for (size_t i = 0; i < n; i++) {
        uint32_t wide = i % 3 ? 0 : nan_of[elem];
        uint16_t narrow = (uint16_t)wide;
        memcpy((char *)block + i * size_of(elem), elem == KVB_F32 ? (void *)&wide : (void *)&narrow, size_of(elem));
    }
}

static void refuses(const kvb_kernel_io *io, const char *format, size_t query, size_t head, size_t channel)
{
    char why[128], want[128];
    snprintf(want, sizeof want, format, query, head, channel);
    assert_false(kvb_kernel_io_written(io, why, sizeof why));
    assert_string_equal(why, want);
}

/* One call. Each element of out and lse in turn stays unwritten and must be named. */
static void call_check(kvb_kernel_io *io, const kvb_group *g, uint32_t n, const float *q)
{
    size_t outs = (size_t)n * g->heads * g->v_dim, lses = (size_t)n * g->heads, bytes = size_of(io->out_elem);
    char why[128];
    assert_int_equal(kvb_kernel_io_fill(io, g, n, q), 0);
    assert_memory_equal(io->q, q, (size_t)n * g->heads * g->k_dim * sizeof(float));
    kvb_kernel_io_poison(io);
    assert_true(isnan(io->lse[0]) && isnan(io->lse[lses - 1]));
    refuses(io, "left out unwritten at query %zu, head %zu, channel %zu", 0, 0, 0);
    for (size_t i = 0; i < outs; i++) {
        kvb_kernel_io_poison(io);
        char kept[4];
        const char *at = (const char *)io->out + i * bytes;
        memcpy(kept, at, bytes);
        fill(io->out, outs, io->out_elem);
        memcpy((char *)io->out + i * bytes, kept, bytes);
        refuses(io, "left out unwritten at query %zu, head %zu, channel %zu", i / g->v_dim / g->heads,
                i / g->v_dim % g->heads, i % g->v_dim);
        if (i % g->v_dim == 0)
            assert_ptr_equal(
                kvb_kernel_io_row(io, (uint32_t)(i / g->v_dim / g->heads), (uint32_t)(i / g->v_dim % g->heads)), at);
    }
    fill(io->out, outs, io->out_elem);
    for (size_t i = 0; i < lses; i++) {
        kvb_kernel_io_poison(io);
        float kept = io->lse[i];
        fill(io->out, outs, io->out_elem);
        fill(io->lse, lses, KVB_F32);
        memcpy(&io->lse[i], &kept, sizeof kept);
        refuses(io, "left lse unwritten at query %zu, head %zu", i / g->heads, i % g->heads, 0);
    }
    fill(io->lse, lses, KVB_F32);
    assert_true(kvb_kernel_io_written(io, why, sizeof why));
    assert_true(io->source == &kvb_plain_source || kvb_guard_check(why, sizeof why)); /* all of it lies in the blocks */
}

TEST(unwritten_elements_are_named)
{
    static const uint32_t sizes[] = {2, 7, 1, 7, 3}; /* larger calls, and smaller ones in the same block */
    static float q[MOST];
    for (size_t i = 0; i < 2 * ELEMS; i++) {
        kvb_kernel_io io = {.source = i % 2 ? &kvb_guarded_source : &kvb_plain_source, .out_elem = elems[i / 2]};
        for (size_t s = 0; s < 2 * sizeof sizes / sizeof *sizes; s++) {
            q[0] = (float)s;
            call_check(&io, &model.groups[s % 2], sizes[s / 2], q);
        }
        kvb_kernel_io_free(&io);
    }
}

/* A write to the first element behind out or lse, in the slack of the guarded block, for calls of any size. */
TEST(a_write_outside_is_seen)
{
    static float q[MOST];
    for (size_t e = 0; e < ELEMS; e++)
        for (uint32_t i = 0; i < 2 * 4; i++) {
            const kvb_group *g = &model.groups[i % 2];
            uint32_t n = 7 - i / 2; /* blocks that are larger than the call */
            size_t outs = (size_t)n * g->heads * g->v_dim * size_of(elems[e]),
                   lses = (size_t)n * g->heads * sizeof(float);
            for (int side = 0; side < 2; side++) {
                kvb_kernel_io io = {.source = &kvb_guarded_source, .out_elem = elems[e]};
                char why[128] = "", want[64];
                assert_int_equal(kvb_kernel_io_fill(&io, &model.groups[1], 7, q), 0);
                assert_int_equal(kvb_kernel_io_fill(&io, g, n, q), 0);
                assert_true((side ? lses : outs) % 64); /* else there is no slack, and a write would end in a signal */
                assert_true(kvb_guard_check(why, sizeof why));
                memset(side ? (char *)io.lse + lses : (char *)io.out + outs, 0, size_of(elems[e]));
                snprintf(want, sizeof want, "write 0 bytes past the end of %s", side ? "lse" : "out");
                assert_false(kvb_guard_check(why, sizeof why));
                assert_string_equal(why, want);
                kvb_kernel_io_free(&io);
            }
        }
}

TEST(digest_tells_every_bit)
{
    enum { QUERIES = 4, OWN = 3 };
    static float q[MOST];
    for (size_t e = 0; e < 2 * ELEMS; e++) {
        const kvb_group *g = &model.groups[e % 2];
        const size_t row[] = {g->heads * g->v_dim * size_of(elems[e / 2]), g->heads * sizeof(float)};
        kvb_kernel_io io = {.source = &kvb_plain_source, .out_elem = elems[e / 2]};
        assert_int_equal(kvb_kernel_io_fill(&io, g, QUERIES, q), 0);
        memset(io.out, 0, QUERIES * row[0]);
        memset(io.lse, 0, QUERIES * row[1]);
        const uint64_t zeros = kvb_kernel_io_digest(&io, OWN, KVB_DIGEST_START);
        char *const block[] = {io.out, (char *)io.lse};
        for (int b = 0; b < 2; b++)
            for (size_t i = 0; i < 8 * QUERIES * row[b]; i++) {
                block[b][i / 8] ^= (char)(1u << i % 8);
                bool own = i / 8 >= (QUERIES - OWN) * row[b];
                assert_true((kvb_kernel_io_digest(&io, OWN, KVB_DIGEST_START) != zeros) == own);
                block[b][i / 8] = 0;
            }
        for (size_t i = row[0]; i + 16 <= QUERIES * row[0]; i += 8) { /* two sign changes do not cancel */
            block[0][i + 7] ^= (char)0x80, block[0][i + 15] ^= (char)0x80;
            assert_true(kvb_kernel_io_digest(&io, OWN, KVB_DIGEST_START) != zeros);
            block[0][i + 7] = block[0][i + 15] = 0;
        }
        assert_true(kvb_kernel_io_digest(&io, OWN, zeros) != zeros); /* continued from a digest */
        kvb_kernel_io_free(&io);
    }
}
