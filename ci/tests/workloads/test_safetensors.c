/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: safetensors files; damaged safetensors files and traces. */
#include <sys/mman.h>

#include "ci/tests/tests.h"
#include "ci/tests/workloads/scratch.h"
#include "workloads/rng.h"
#include "workloads/safetensors.h"
#include "workloads/trace.h"

/* Shows that safetensors files are written and read back, and that a wrong header is refused. */

static const float data_a[6] = {1, -2, 3.5f, 0, 1e-30f, 1e30f};
static const uint16_t data_b[3] = {0x3c00, 0xc000, 0x0001}; /* binary16: 1, -2, 2^-24 */
static const uint16_t data_c[2] = {0x3f80, 0xc049};         /* bfloat16: 1, -3.140625 */
static const int64_t data_d[1] = {-7};

static const kvb_tensor safetensors_tensors[] = {
    {.name = "a", .dtype = KVB_DTYPE_F32, .n_dims = 2, .dims = {2, 3}, .data = data_a, .bytes = sizeof data_a},
    {.name = "b.\xc3\xa4",
     .dtype = KVB_DTYPE_F16,
     .n_dims = 3,
     .dims = {3, 1, 1},
     .data = data_b,
     .bytes = sizeof data_b},
    {.name = "c", .dtype = KVB_DTYPE_BF16, .n_dims = 1, .dims = {2}, .data = data_c, .bytes = sizeof data_c},
    {.name = "empty", .dtype = KVB_DTYPE_U8, .n_dims = 2, .dims = {0, 5}, .data = data_c, .bytes = 0},
    {.name = "d", .dtype = KVB_DTYPE_I64, .n_dims = 0, .dims = {0}, .data = data_d, .bytes = sizeof data_d},
};
#define N_TENSORS (sizeof safetensors_tensors / sizeof *safetensors_tensors)

TEST(test_round_trip)
{
    char why[400] = "";
    static const char *const metadata[] = {"format", "kvbench", "note", "x", NULL};
    const char *path = tests_path("a.safetensors");
    assert_int_equal(kvb_safetensors_write(path, safetensors_tensors, N_TENSORS, metadata, why, sizeof why), 0);
    kvb_safetensors *f;
    if (kvb_safetensors_open(path, &f, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(kvb_safetensors_count(f), N_TENSORS);
    for (size_t i = 0; i < N_TENSORS; i++) {
        const kvb_tensor *t = kvb_safetensors_at(f, i), *want = &safetensors_tensors[i];
        assert_string_equal(t->name, want->name); /* in the order of writing */
        assert_ptr_equal(kvb_safetensors_find(f, want->name), t);
        assert_int_equal(t->dtype, want->dtype);
        assert_int_equal(t->n_dims, want->n_dims);
        assert_memory_equal(t->dims, want->dims, want->n_dims * sizeof(uint64_t));
        assert_int_equal(t->bytes, want->bytes);
        assert_int_equal(t->elements * kvb_dtype_bytes(t->dtype), want->bytes);
        if (t->n_dims)
            assert_int_equal(t->strides[t->n_dims - 1], 1);
        if (t->bytes)
            assert_memory_equal(t->data, want->data, want->bytes);
    }
    assert_int_equal((uintptr_t)kvb_safetensors_at(f, 0)->data % 8, 0);
    assert_null(kvb_safetensors_find(f, "none"));
    kvb_safetensors_close(f);
    kvb_safetensors_close(NULL);
}

TEST(test_read_f32)
{
    char why[400] = "";
    const char *path = tests_path("a.safetensors");
    assert_int_equal(kvb_safetensors_write(path, safetensors_tensors, N_TENSORS, NULL, why, sizeof why), 0);
    kvb_safetensors *f;
    assert_int_equal(kvb_safetensors_open(path, &f, why, sizeof why), 0);
    float out[6];
    const uint64_t shape[] = {2, 3}, b[] = {3, 1, 1}, c[] = {2};
    assert_int_equal(kvb_safetensors_read_f32(f, "a", shape, 2, out, why, sizeof why), 0);
    assert_memory_equal(out, data_a, sizeof data_a);
    assert_int_equal(kvb_safetensors_read_f32(f, "b.\xc3\xa4", b, 3, out, why, sizeof why), 0);
    assert_true(out[0] == 1 && out[1] == -2 && out[2] == 0x1p-24f);
    assert_int_equal(kvb_safetensors_read_f32(f, "c", c, 1, out, why, sizeof why), 0);
    assert_true(out[0] == 1 && out[1] == -3.140625f);
    assert_int_equal(kvb_safetensors_read_f32(f, "x", c, 1, out, why, sizeof why), -ENOENT);
    assert_contains(why, "a.safetensors: tensor 'x' is missing");
    assert_int_equal(kvb_safetensors_read_f32(f, "a", c, 1, out, why, sizeof why), -EINVAL);
    assert_contains(why, "tensor 'a': has shape [2,3], expected [2]");
    const uint64_t swapped[] = {3, 2};
    assert_int_equal(kvb_safetensors_read_f32(f, "a", swapped, 2, out, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_safetensors_read_f32(f, "d", c, 0, out, why, sizeof why), -EINVAL);
    assert_contains(why, "tensor 'd': has dtype I64, expected F32, F16 or BF16");
    kvb_safetensors_close(f);
}

/* Every binary16 number against (-1)^s 2^(e-15) 1.f, computed here. */
TEST(test_every_f16)
{
    static uint16_t bits[65536];
    static float out[65536];
    uint32_t n = 0;
    for (uint32_t b = 0; b < 65536; b++)
        if ((b >> 10 & 31) != 31)
            bits[n++] = (uint16_t)b;
    char why[400] = "";
    kvb_tensor t = {.name = "h", .dtype = KVB_DTYPE_F16, .n_dims = 1, .dims = {n}, .data = bits, .bytes = 2 * n};
    const char *path = tests_path("h");
    assert_int_equal(kvb_safetensors_write(path, &t, 1, NULL, why, sizeof why), 0);
    kvb_safetensors *f;
    assert_int_equal(kvb_safetensors_open(path, &f, why, sizeof why), 0);
    assert_int_equal(kvb_safetensors_read_f32(f, "h", t.dims, 1, out, why, sizeof why), 0);
    for (uint32_t i = 0; i < n; i++) {
        int e = bits[i] >> 10 & 31, fraction = bits[i] & 1023;
        double want = (e ? 1 + fraction / 1024.0 : fraction / 1024.0) * pow(2, (e ? e : 1) - 15);
        assert_true(out[i] == (float)(bits[i] >> 15 ? -want : want));
    }
    kvb_safetensors_close(f);
}

TEST(test_not_finite)
{
    static const struct {
        float value;
        const char *part;
    } bad[] = {{NAN, "tensor 'q.0': NaN at [1,0,2]"}, {-INFINITY, "tensor 'q.0': infinity at [1,0,2]"}};
    for (size_t i = 0; i < 2; i++) {
        float values[2 * 2 * 3] = {0}, out[12];
        values[8] = bad[i].value;
        char why[400] = "";
        kvb_tensor t = {.name = "q.0",
                        .dtype = KVB_DTYPE_F32,
                        .n_dims = 3,
                        .dims = {2, 2, 3},
                        .data = values,
                        .bytes = sizeof values};
        assert_int_equal(kvb_safetensors_write(tests_path("n"), &t, 1, NULL, why, sizeof why), 0);
        kvb_safetensors *f;
        assert_int_equal(kvb_safetensors_open(tests_path("n"), &f, why, sizeof why), 0);
        tests_refused(kvb_safetensors_read_f32(f, "q.0", t.dims, 3, out, why, sizeof why), -EINVAL, why, bad[i].part);
        kvb_safetensors_close(f);
    }
}

/* header: the text after the length; data: number of bytes after it; length 0: the true length. */
static const struct {
    const char *header;
    uint32_t data;
    uint64_t length;
    const char *part;
} bad[] = {
    {"", 0, 0, "header: "},
    {"{}", 0, (uint64_t)1 << 63, "header length 9223372036854775808 does not fit in the file's 10 bytes"},
    {"{}", 0, UINT64_MAX, "does not fit"},
    {"{}", 0, 3, "header length 3 does not fit"},
    {"not json", 0, 0, "header: "},
    {"[]", 0, 0, "header: expected an object"},
    {"{\"a\":", 0, 0, "header: "},
    {"{}", 4, 0, "4 bytes of data belong to no tensor"},
    {"{\"a\":{}}", 0, 0, "tensor 'a': expected an object with the keys dtype, shape, data_offsets"},
    {"{\"a\":7}", 0, 0, "tensor 'a': expected an object with the keys"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, 0,
     "expected an object with the keys"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 0,
     "tensor 'a': unknown dtype \"F33\", known: F64, F32"},
    {"{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 0, "unknown dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, 0, "\"shape\": expected an array"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, 0,
     "\"shape\"[0]: expected an integer of 0 or more"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, 0, "\"shape\"[0]: expected an integer"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, 0, "at most 8"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, 0,
     "its size overflows 64 bits"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0, 0,
     "its size overflows 64 bits"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, 0,
     "holds 4 bytes, but dtype and shape need 8"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 0,
     "holds 4 bytes, but dtype and shape need 2"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, 0,
     "data ends at byte 8, but the file holds 4 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, 0, "begin <= end"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, 0, "expected two integers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, 0, "expected two integers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]}}", 4, 0, "too big integer"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
     "offsets\":[2,6]}}",
     6, 0, "tensor 'b': begins at byte 2 of the data: overlaps the tensor before it, expected 4"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
     "offsets\":[0,4]}}",
     4, 0, "tensor 'b': begins at byte 0 of the data: overlaps"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
     "offsets\":[6,10]}}",
     10, 0, "tensor 'b': begins at byte 6 of the data: leaves a gap, expected 4"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
     "offsets\":[4,8]}}",
     8, 0, "header: duplicate object key"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, 0, "4 bytes of data belong to no tensor"},
    {"{\"__metadata__\":{\"a\":1}}", 0, 0, "__metadata__: expected an object of strings"},
    {"{\"__metadata__\":\"a\"}", 0, 0, "__metadata__: expected an object of strings"},
};

TEST(test_bad_headers)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char bytes[1024] = {0}, why[500] = "";
        size_t n = strlen(bad[i].header);
        uint64_t length = bad[i].length ? bad[i].length : n;
        for (unsigned k = 0; k < 8; k++)
            bytes[k] = (char)(length >> 8 * k);
        memcpy(bytes + 8, bad[i].header, n);
        kvb_safetensors *f;
        int err = kvb_safetensors_open(tests_write("bad", bytes, 8 + n + bad[i].data), &f, why, sizeof why);
        if (err != -EINVAL)
            fail_msg("%d for %s", err, bad[i].header);
        assert_null(f);
        assert_contains(why, "/bad: ");
        assert_contains(why, bad[i].part);
    }
}

TEST(test_bad_files)
{
    char why[400] = "";
    kvb_safetensors *f;
    assert_int_equal(kvb_safetensors_open(tests_path("none"), &f, why, sizeof why), -ENOENT);
    assert_contains(why, "none: cannot be read: No such file or directory");
    assert_int_equal(kvb_safetensors_open(tests_here(), &f, why, sizeof why), -EISDIR);
    tests_refused(kvb_safetensors_open("/dev/null", &f, why, sizeof why), -EINVAL, why, "no regular file");
    assert_int_equal(kvb_safetensors_open(tests_text("short", "1234567"), &f, why, sizeof why), -EINVAL);
    assert_contains(why, "7 bytes are too few");
    assert_int_equal(kvb_safetensors_open(tests_text("short", ""), &f, why, sizeof why), -EINVAL);
    assert_contains(why, "0 bytes are too few");
}

TEST(test_write_refuses)
{
    char why[400] = "";
    kvb_tensor two[] = {safetensors_tensors[0], safetensors_tensors[0]};
    assert_int_equal(kvb_safetensors_write(tests_path("w"), two, 2, NULL, why, sizeof why), -EINVAL);
    assert_contains(why, "tensor 'a': name is taken, or bytes disagree");
    two[0].bytes = 20;
    assert_int_equal(kvb_safetensors_write(tests_path("w"), two, 1, NULL, why, sizeof why), -EINVAL);
    assert_int_equal(access(tests_path("w"), F_OK), -1);
}

/* Shows that no damaged trace or safetensors file crashes its reader: thousands of seeded mutations, each
 * either read or refused with a message. (Run under AddressSanitizer by `make asan`.) */

#define MUTANTS 5000u

/* Makes a file in memory with these bytes: thousands on a disk would take minutes. */
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

/* Changes bytes[n] in one to three places: any byte, one of JSON's, a deletion, a repetition, a cut. */
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

TEST(test_traces)
{
    unsigned refused = 0;
    for (uint64_t i = 0; i < MUTANTS; i++) {
        const char *text = trace_texts[i % 2];
        size_t size = strlen(text);
        char bytes[sizeof HEADER_GROUPS EVENTS + 64], why[300] = "";
        memcpy(bytes, text, size);
        /* Half of the mutations change only the header, which has more fields than any line. */
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
    assert_in_range(refused, MUTANTS / 4, MUTANTS - 1); /* many mutations are refused, but not all */
}

TEST(test_safetensors)
{
    static const float data[12] = {1, 2, 3};
    const kvb_tensor tensors[] = {
        {.name = "q.0", .dtype = KVB_DTYPE_F32, .n_dims = 2, .dims = {3, 2}, .data = data, .bytes = 24},
        {.name = "k.0", .dtype = KVB_DTYPE_BF16, .n_dims = 3, .dims = {3, 2, 1}, .data = data, .bytes = 12},
        {.name = "empty", .dtype = KVB_DTYPE_U8, .n_dims = 1, .dims = {0}, .data = data, .bytes = 0}};
    static const char *const metadata[] = {"a", "b", NULL};
    char why[400] = "";
    assert_int_equal(kvb_safetensors_write(tests_path("s"), tensors, 3, metadata, why, sizeof why), 0);
    size_t size;
    char *whole = tests_read(tests_path("s"), &size);
    assert_non_null(whole);
    unsigned refused = 0;
    for (uint64_t i = 0; i < MUTANTS; i++) {
        char bytes[1024];
        assert_true(size + 64 < sizeof bytes);
        memcpy(bytes, whole, size);
        /* Half of the mutations keep the length, and so reach the header's content. */
        size_t keep = i % 2 ? 8 : 0;
        size_t n = keep + mutate(kvb_rng_key(2, i), bytes + keep, size - keep, sizeof bytes - keep);
        kvb_safetensors *f;
        *why = 0;
        int err = kvb_safetensors_open(memory_write(bytes, n), &f, why, sizeof why);
        assert_true(err == 0 || *why);
        refused += err != 0;
        volatile char sum = 0;
        for (size_t k = 0; !err && k < kvb_safetensors_count(f); k++) { /* reads every byte of every tensor */
            const kvb_tensor *t = kvb_safetensors_at(f, k);
            for (uint64_t b = 0; b < t->bytes; b++)
                sum = (char)(sum + ((const char *)t->data)[b]);
        }
        kvb_safetensors_close(f);
    }
    assert_in_range(refused, MUTANTS / 4, MUTANTS - 1);
    free(whole);
}
