/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that safetensors files are written and read back, and that a wrong header is refused. whole/test_fuzz damages
 * files. */
#include "ci/tests/tests.h"
#include "workloads/safetensors.h"

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
    assert_int_equal(f->n, N_TENSORS);
    for (size_t i = 0; i < N_TENSORS; i++) {
        const kvb_tensor *t = &f->tensors[i], *want = &safetensors_tensors[i];
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
    assert_int_equal((uintptr_t)f->tensors[0].data % 8, 0);
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
