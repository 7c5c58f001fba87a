/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that no damaged trace or safetensors file crashes its reader: thousands of seeded mutations, each
 * either read or refused with a message. (Run under AddressSanitizer by `make asan`.) */
#include "scratch.h"

#include "workloads/rng.h"
#include "workloads/safetensors.h"
#include "workloads/trace.h"

#include <sys/mman.h>

#define MUTANTS 5000u

/* A file in memory that holds just these bytes: thousands on a disk would take minutes. */
static const char *memory_write(const void *bytes, size_t n)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("mutant", MFD_CLOEXEC);
    assert_true(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, bytes, n, 0), n);
    return path;
}

#define EVENTS                                                                                                         \
    "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":4,\"tok\":[1,2,3,4]}}\n"                                                 \
    "{\"step\":{\"pos\":[4,0,5],\"seq\":[0,1,0]}}\n"                                                                   \
    "{\"fill\":{\"seq\":1,\"n\":30}}\n"                                                                                \
    "{\"seq_cp\":{\"src\":0,\"dst\":2,\"p0\":1,\"p1\":5}}\n"                                                           \
    "{\"seq_rm\":{\"seq\":0,\"p0\":2,\"p1\":4}}\n"                                                                     \
    "{\"save\":{\"slot\":1,\"seq\":0}}\n{\"load\":{\"slot\":1,\"seq\":5}}\n"                                           \
    "{\"save\":{\"slot\":0}}\n{\"load\":{\"slot\":0}}\n"                                                               \
    "{\"seq_keep\":{\"seq\":2}}\n"                                                                                     \
    "{\"seq_rm\":{\"seq\":2}}\n"                                                                                       \
    "{\"propose\":{\"parents\":[-1,0,0,1]}}\n"                                                                         \
    "{\"commit\":{\"accepted\":[0,1,3]}}\n"                                                                            \
    "{\"rewind\":{\"len\":2}}\n"                                                                                       \
    "{\"clear\":{}}\n"                                                                                                 \
    "{\"step\":{\"pos\":[0],\"seq\":[0]}}\n"
#define SHIFTS                                                                                                         \
    "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":9}}\n"                                                                   \
    "{\"seq_cp\":{\"src\":0,\"dst\":1}}\n"                                                                             \
    "{\"seq_rm\":{\"seq\":0,\"p0\":2,\"p1\":5}}\n"                                                                     \
    "{\"defrag\":{}}\n"                                                                                                \
    "{\"seq_add\":{\"seq\":0,\"p0\":5,\"p1\":8,\"delta\":-3}}\n"                                                       \
    "{\"seq_add\":{\"seq\":1,\"delta\":2}}\n"                                                                          \
    "{\"step\":{\"pos\":[9,11],\"seq\":[0,1]}}\n"

static const char *const trace_texts[] = {HEADER EVENTS, HEADER_GROUPS EVENTS, HEADER_ROPE SHIFTS};

/* Changes one to three places of bytes[n]: another byte, one of JSON's, a deletion, a repeat, a cut. */
static size_t mutate(uint64_t key, char *bytes, size_t n, size_t room)
{
    static const char syntax[] = "{}[]\",:0123456789-eE.tfn \n\\";
    uint64_t draw = 0;
    unsigned times = 1 + (unsigned)(kvb_rng_bits(key, draw++) % 3);
    for (unsigned i = 0; i < times && n > 1; i++) {
        uint64_t bits = kvb_rng_bits(key, draw++);
        size_t at = (size_t)(bits >> 32) % n, length = 1 + bits / 64 % 16;
        if (length > n - at)
            length = n - at;
        switch (bits % 6) {
        case 0:
            bytes[at] = (char)(bits >> 8);
            break;
        case 1:
        case 2:
            bytes[at] = syntax[bits / 8 % (sizeof syntax - 1)];
            break;
        case 3:
            memmove(bytes + at, bytes + at + length, n - at - length);
            n -= length;
            break;
        case 4:
            if (n + length > room)
                break;
            memmove(bytes + at + length, bytes + at, n - at);
            n += length;
            break;
        default:
            n = bits / 8 % 8 ? n : at;
        }
    }
    return n;
}

static void test_traces(void **state)
{
    (void)state;
    unsigned refused = 0;
    for (uint64_t i = 0; i < MUTANTS; i++) {
        const char *text = trace_texts[i % 2];
        size_t size = strlen(text);
        char bytes[sizeof HEADER_GROUPS EVENTS + 64], why[300] = "";
        memcpy(bytes, text, size);
        /* Every other one in the header alone, where there is more to get wrong than in a line. */
        size_t header = (size_t)(strchr(text, '\n') - text), span = i / 2 % 2 ? header : size, n = 0;
        n = mutate(kvb_rng_key(1, i), bytes, span, sizeof bytes - (size - span));
        memcpy(bytes + n, text + span, size - span);
        n += size - span;
        kvb_trace *trace;
        int err = kvb_trace_load(memory_write(bytes, n), 100, &trace, why, sizeof why);
        assert_true(err == 0 || *why);
        assert_int_equal(err == 0, trace != NULL);
        kvb_trace_free(trace);
        refused += err != 0;
    }
    assert_in_range(refused, MUTANTS / 4, MUTANTS - 1); /* the mutations bite, and not always */
}

static void test_safetensors(void **state)
{
    (void)state;
    static const float data[12] = {1, 2, 3};
    const kvb_tensor tensors[] = {
        {.name = "q.0", .dtype = KVB_DTYPE_F32, .n_dims = 2, .dims = {3, 2}, .data = data, .bytes = 24},
        {.name = "k.0", .dtype = KVB_DTYPE_BF16, .n_dims = 3, .dims = {3, 2, 1}, .data = data, .bytes = 12},
        {.name = "empty", .dtype = KVB_DTYPE_U8, .n_dims = 1, .dims = {0}, .data = data, .bytes = 0}};
    static const char *const metadata[] = {"a", "b", NULL};
    char why[400] = "";
    assert_int_equal(kvb_safetensors_write(scratch_path("s"), tensors, 3, metadata, why, sizeof why), 0);
    size_t size;
    char *whole = scratch_read(scratch_path("s"), &size);
    unsigned refused = 0;
    for (uint64_t i = 0; i < MUTANTS; i++) {
        char bytes[1024];
        assert_true(size + 64 < sizeof bytes);
        memcpy(bytes, whole, size);
        /* Half of them keep the length, and so reach the header's content. */
        size_t keep = i % 2 ? 8 : 0;
        size_t n = keep + mutate(kvb_rng_key(2, i), bytes + keep, size - keep, sizeof bytes - keep);
        kvb_safetensors *f;
        *why = 0;
        int err = kvb_safetensors_open(memory_write(bytes, n), &f, why, sizeof why);
        assert_true(err == 0 || *why);
        refused += err != 0;
        volatile char sum = 0;
        for (size_t k = 0; !err && k < kvb_safetensors_count(f); k++) { /* every byte that is handed out can be read */
            const kvb_tensor *t = kvb_safetensors_at(f, k);
            for (uint64_t b = 0; b < t->bytes; b++)
                sum = (char)(sum + ((const char *)t->data)[b]);
        }
        kvb_safetensors_close(f);
    }
    assert_in_range(refused, MUTANTS / 4, MUTANTS - 1);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_traces), cmocka_unit_test(test_safetensors)};
    return cmocka_run_group_tests_name("mutations", tests, scratch_setup, scratch_teardown);
}
