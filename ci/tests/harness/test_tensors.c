/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: arrays of .npy, .npz and .safetensors files are read as they were written, element by element; each kind of bad
 * file is refused with one line that names file and array, and no byte of one crashes. */
#include "ci/tests/workloads/scratch.h"

#include <zlib.h>

#include "harness/judge/recorded.h"

#define N(array)    (sizeof(array) / sizeof *(array))
#define DICT(dtype) "{'descr': '" dtype "', 'fortran_order': False, 'shape': (2,), }\n"

static char why[600];

/* Bytes of a file under construction. */
typedef struct bytes {
    uint8_t at[4096];
    size_t n;
} bytes;

static void put(bytes *b, const void *data, size_t n)
{
    assert_true(b->n + n <= sizeof b->at);
    if (n)
        memcpy(b->at + b->n, data, n);
    b->n += n;
}

static void put_number(bytes *b, uint64_t value, size_t n)
{
    put(b, &value, n);
}

static bytes npy(uint32_t version, const char *dict, const void *data, size_t n)
{
    bytes b = {.n = 0};
    put(&b, "\x93NUMPY", 6);
    put_number(&b, version, 2);
    put_number(&b, strlen(dict), version == 1 ? 2 : 4);
    put(&b, dict, strlen(dict));
    put(&b, data, n);
    return b;
}

typedef struct zip {
    bytes members, directory;
    uint64_t base; /* offset of the first member in the file */
    bool wide;     /* zip64 */
    uint16_t n;
} zip;

static void zip_add(zip *z, const char *name, const bytes *b, bool deflated)
{
    bytes packed = *b;
    const uint64_t offset = z->base + z->members.n, length = strlen(name);
    if (deflated) {
        z_stream s = {.next_in = (uint8_t *)b->at, .avail_in = (uInt)b->n, .next_out = packed.at, .avail_out = 4096};
        assert_int_equal(deflateInit2(&s, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
        assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
        packed.n = s.total_out;
        deflateEnd(&s);
    }
    const uint64_t method = deflated ? 8 : 0, crc = crc32_z(0, b->at, b->n);
    bytes *const sides[] = {&z->members, &z->directory};
    for (int side = 0; side < 2; side++) {
        const bool wide = side && z->wide;
        put(sides[side], side ? "PK\1\2" : "PK\3\4", 4);
        put_number(sides[side], 45, side ? 4 : 2); /* versions */
        put_number(sides[side], 0, 2);             /* flags: at 8 of an entry */
        put_number(sides[side], method, 2);
        put_number(sides[side], 0, 4); /* time and date */
        put_number(sides[side], crc, 4);
        put_number(sides[side], wide ? UINT32_MAX : packed.n, 4);
        put_number(sides[side], wide ? UINT32_MAX : b->n, 4);
        put_number(sides[side], length, 2);
        put_number(sides[side], wide ? 28 : 0, 2); /* extra field */
        if (side) {
            put_number(sides[side], 0, 8); /* comment, disk, attributes */
            put_number(sides[side], 0, 2);
            put_number(sides[side], wide ? UINT32_MAX : offset, 4);
        }
        put(sides[side], name, length);
        for (size_t i = 0; wide && i < 4; i++)
            put_number(sides[side], (const uint64_t[]){1 | 24 << 16, b->n, packed.n, offset}[i], i ? 8 : 4);
    }
    put(&z->members, packed.at, packed.n);
    z->n++;
}

/* The file: members, directory and end. */
static bytes zip_end(const zip *z)
{
    bytes b = z->members;
    const uint64_t directory = z->base + b.n, end = directory + z->directory.n;
    put(&b, z->directory.at, z->directory.n);
    if (z->wide) { /* zip64's end, and its offset */
        put(&b, "PK\6\6", 4);
        put_number(&b, 44, 8);
        put_number(&b, 45, 8); /* versions, disk */
        put_number(&b, 0, 4);
        for (size_t i = 0; i < 4; i++)
            put_number(&b, (const uint64_t[]){z->n, z->n, z->directory.n, directory}[i], 8);
        put(&b, "PK\6\7", 4);
        put_number(&b, 0, 4);
        put_number(&b, end, 8);
        put_number(&b, 1, 4);
    }
    put(&b, "PK\5\6", 4);
    put_number(&b, 0, 4);
    put_number(&b, z->wide ? UINT16_MAX : z->n, 2);
    put_number(&b, z->wide ? UINT16_MAX : z->n, 2);
    put_number(&b, z->directory.n, 4);
    put_number(&b, z->wide ? UINT32_MAX : directory, 4);
    put_number(&b, 3, 2);
    put(&b, "end", 3); /* a comment */
    return b;
}

static kvb_tensors *open_good(const char *path)
{
    kvb_tensors *t = NULL;
    if (kvb_tensors_open(path, &t, why, sizeof why))
        fail_msg("%s", why);
    return t;
}

/* The file must be refused with one line that names it and has this part. */
static void open_bad(const char *path, const char *part)
{
    kvb_tensors *t = NULL;
    *why = 0;
    if (kvb_tensors_open(path, &t, why, sizeof why) >= 0)
        fail_msg("%s: opened, expected \"%s\"", path, part);
    assert_null(t);
    assert_ptr_equal(strstr(why, path), why);
    assert_contains(why, part);
    assert_null(strchr(why, '\n'));
}

/* Element i in row-major order. */
static double value_at(const kvb_tensor *t, uint64_t i)
{
    uint64_t offset = 0;
    for (uint32_t d = t->n_dims; d-- > 0; i /= t->dims[d])
        offset += i % t->dims[d] * t->strides[d];
    return kvb_tensor_value(t, offset);
}

/* Both must have the same arrays with the same elements. */
static void assert_alike(const kvb_tensors *a, const kvb_tensors *b)
{
    assert_int_equal(a->n, b->n);
    for (uint32_t i = 0; i < a->n; i++) {
        const kvb_tensor *x = &a->list[i], *y = &b->list[i];
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->n_dims, y->n_dims);
        assert_memory_equal(x->dims, y->dims, x->n_dims * sizeof *x->dims);
        assert_int_equal(x->elements, y->elements);
        for (uint64_t e = 0; e < x->elements; e++) {
            const double got = value_at(x, e), want = value_at(y, e);
            if (got != want && !(isnan(got) && isnan(want)))
                fail_msg("'%s', element %d: %.17g, expected %.17g", x->name, (int)e, got, want);
        }
    }
}

/* ---- good files --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *npy;
    kvb_dtype dtype;
    const char *name;
    uint64_t bits[2];
    double values[2];
} dtypes[] = {
    {"<f8", KVB_DTYPE_F64, "f64", {0x3ff8000000000000, 1}, {1.5, 0x1p-1074}},
    {"<f4", KVB_DTYPE_F32, "f32", {0xbfc00000, 0x7f800000}, {-1.5, INFINITY}},
    {"<f2", KVB_DTYPE_F16, "f16", {0x3c01, 0x8001}, {1 + 0x1p-10, -0x1p-24}},
    {"bfloat16", KVB_DTYPE_BF16, "bf16", {0x3f81, 0xc049}, {1 + 0x1p-7, -3.140625}},
    {"float8_e4m3fn", KVB_DTYPE_E4M3, "e4m3", {0x7e, 0x81}, {448, -0x1p-9}},
    {"float8_e5m2", KVB_DTYPE_E5M2, "e5m2", {0x7b, 0x3d}, {57344, 1.25}},
    {"|i1", KVB_DTYPE_I8, "i8", {0x80, 0x7f}, {-128, 127}},
    {"|u1", KVB_DTYPE_U8, "u8", {0x80, 0xff}, {128, 255}},
    {"<i2", KVB_DTYPE_I16, "i16", {0x8000, 2}, {-32768, 2}},
    {"<u2", KVB_DTYPE_U16, "u16", {0x8000, 2}, {32768, 2}},
    {"<i4", KVB_DTYPE_I32, "i32", {0x80000000, 3}, {-0x1p31, 3}},
    {"=u4", KVB_DTYPE_U32, "u32", {0x80000000, 3}, {0x1p31, 3}},
    {"<i8", KVB_DTYPE_I64, "i64", {UINT64_MAX, 1ull << 53}, {-1, 0x1p53}},
    {"<u8", KVB_DTYPE_U64, "u64", {UINT64_MAX, 1ull << 53}, {0x1p64, 0x1p53}},
    {"|b1", KVB_DTYPE_BOOL, "bool", {0, 1}, {0, 1}},
};

TEST(test_dtypes)
{
    for (size_t i = 0; i < N(dtypes); i++)
        for (uint32_t version = 1; version <= 3; version++) {
            const size_t each = kvb_dtype_bytes(dtypes[i].dtype);
            char dict[200];
            snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }\n", dtypes[i].npy);
            bytes b = npy(version, dict, NULL, 0);
            for (int e = 0; e < 2; e++)
                put_number(&b, dtypes[i].bits[e], each);
            kvb_tensors *t = open_good(tests_write("d.npy", b.at, b.n));
            assert_int_equal(t->n, 1);
            assert_string_equal(t->list->name, "d");
            assert_int_equal(t->list->dtype, dtypes[i].dtype);
            assert_string_equal(kvb_dtype_name(t->list->dtype), dtypes[i].name);
            assert_int_equal(t->list->bytes, 2 * each);
            for (uint64_t e = 0; e < 2; e++)
                assert_true(kvb_tensor_value(t->list, e) == dtypes[i].values[e]);
            kvb_tensors_close(t);
        }
    assert_int_equal(N(dtypes), KVB_DTYPES);
}

TEST(test_shapes)
{
    static const struct {
        const char *dict;
        uint32_t n_dims;
        uint64_t dims[3], strides[3];
    } shapes[] = {
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }", 2, {2, 3}, {3, 1}},
        {"{\"shape\":(2L,3L),\"fortran_order\":True,\"descr\":\"|u1\"}  \n", 2, {2, 3}, {1, 2}},
        {"{ 'descr': '|u1', 'fortran_order': True, 'shape': (1, 2, 3) }", 3, {1, 2, 3}, {1, 1, 2}},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (), }", 0, {0}, {0}},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (4, 0), }", 2, {4, 0}, {0, 1}},
    };
    for (size_t i = 0; i < N(shapes); i++) {
        const size_t n = i == 3 ? 1 : i == 4 ? 0 : 6;
        bytes b = npy(1, shapes[i].dict, "abcdef", n);
        kvb_tensors *t = open_good(tests_write("s.npy", b.at, b.n));
        assert_int_equal(t->list->n_dims, shapes[i].n_dims);
        assert_memory_equal(t->list->dims, shapes[i].dims, shapes[i].n_dims * sizeof(uint64_t));
        assert_memory_equal(t->list->strides, shapes[i].strides, shapes[i].n_dims * sizeof(uint64_t));
        assert_int_equal(t->list->elements, n);
        kvb_tensors_close(t);
    }
}

TEST(test_zip)
{
    const bytes a = npy(1, DICT("<f4"), (const float[]){1, 2}, 8), b = npy(2, DICT("|i1"), "\1\2", 2);
    const uint64_t bases[] = {0, 5ull << 30}; /* beyond 32 bits, behind a hole */
    for (size_t i = 0; i < N(bases); i++) {
        zip z = {.base = bases[i], .wide = bases[i] > 0};
        zip_add(&z, "layer/b.npy", &b, true);
        zip_add(&z, "a.npy", &a, false);
        zip_add(&z, "notes.txt", &a, false);
        const bytes end = zip_end(&z);
        const char *path = tests_path("z.npz");
        FILE *file = fopen(path, "w");
        assert_int_equal(fseeko(file, (off_t)z.base, SEEK_SET), 0);
        assert_int_equal(fwrite(end.at, 1, end.n, file), end.n);
        assert_int_equal(fclose(file), 0);
        kvb_tensors *t = open_good(path);
        assert_int_equal(t->n, 2);
        assert_string_equal(t->list[0].name, "a");
        assert_string_equal(t->list[1].name, "layer/b");
        for (uint32_t n = 0; n < 2; n++)
            for (uint64_t e = 0; e < 2; e++)
                assert_true(kvb_tensor_value(&t->list[n], e) == (double)e + 1);
        kvb_tensors_close(t);
    }
    kvb_tensors_close(NULL);
}

/* ---- numpy -------------------------------------------------------------------------------------------------------- */

/* Arrays of all dtypes, of several shapes and both orders; `want`: the same in double. */
static const char writer[] =
    "import numpy as np, sys\n"
    "rng = np.random.default_rng(1)\n"
    "arrays, folder = {}, sys.argv[1]\n"
    "for d in 'f8 f4 f2 i1 u1 i2 u2 i4 u4 i8 u8 ?'.split():\n"
    "    for n, shape in enumerate([(), (0, 3), (7,), (3, 4), (2, 3, 4, 5), (2, 1, 2, 1, 2, 1, 2, 2)]):\n"
    "        x = np.asarray(rng.standard_normal(shape) * 100).astype(d)\n"
    "        arrays[f'{x.dtype}-{n}'] = x if n % 2 else np.asfortranarray(x)\n"
    "arrays['special'] = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-8], 'f2')\n"
    "np.savez(folder + '/plain.npz', **arrays)\n"
    "np.savez_compressed(folder + '/packed.npz', **arrays)\n"
    "np.savez(folder + '/want.npz', **{k: v.astype('f8') for k, v in arrays.items()})\n"
    "for i, (k, v) in enumerate(arrays.items()):\n"
    "    with open(f'{folder}/{k}.npy', 'wb') as f:\n"
    "        np.lib.format.write_array(f, v, version=(1 + i % 3, 0))\n";

TEST(test_numpy)
{
    static const char python[] = "/usr/bin/python3"; /* Debian's, with Debian's numpy */
    static const char *const names[] = {"plain.npz", "packed.npz", "."};
    char command[1000];
    snprintf(command, sizeof command, "%s -c 'import numpy' 2>/dev/null", python);
    if (system(command))
        skip(); /* no numpy here */
    const char *script = tests_text("writer.py", writer);
    snprintf(command, sizeof command, "rm -f %s/*.npy && %s %s %s", tests_here(), python, script, tests_here());
    assert_int_equal(system(command), 0);
    kvb_tensors *want = open_good(tests_path("want.npz"));
    assert_true(want->n == 12 * 6 + 1);
    for (size_t i = 0; i < N(names); i++) {
        kvb_tensors *t = open_good(tests_path("%s", names[i]));
        assert_alike(t, want);
        kvb_tensors_close(t);
    }
    kvb_tensors_close(want);
}

/* ---- bad files ---------------------------------------------------------------------------------------------------- */

TEST(test_bad_npy)
{
    static const struct {
        uint32_t version;
        const char *dict;
        size_t n; /* bytes of data */
        const char *part;
    } bad[] = {
        {4, DICT("<f4"), 8, "x.npy: array 'x': version 4 of numpy's format: expected 1, 2 or 3"},
        {1, DICT("<f4"), 7, "array 'x': holds 7 bytes of data, but dtype and shape need 8"},
        {1, DICT("<f4"), 9, "holds 9 bytes of data, but dtype and shape need 8"},
        {1, DICT(">f4"), 8, "dtype '>f4' is big-endian: expected '<f4'"},
        {1, DICT("|O"), 8, "dtype '|O' is Python objects (a pickle): expected numbers"},
        {1, DICT("|V2"), 4, "save .view('uint16') and name the format in the description"},
        {1, DICT("<V1"), 2, "save .view('uint8') and name the format in the description"},
        {1, DICT("|V16"), 32, "dtype '|V16' is bytes without a type: expected one number an element"},
        {1, DICT("<c8"), 16, "dtype '<c8' is complex numbers"},
        {1, DICT("<U1"), 8, "dtype '<U1': expected one of f8, f4, f2, bfloat16, float8_e4m3fn"},
        {1, DICT("float8_e4m3"), 2, "dtype 'float8_e4m3': expected one of"},
        {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8, "a structured dtype"},
        {1, "{'descr': '<f4', 'fortran_order': False}", 8, "header: expected {'descr': '<f4'"},
        {1, "{'descr': '<f4', 'fortran_order': 1, 'shape': (2,)}", 8, "header: expected"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': 2}", 8, "'shape': (2, 3)} with at most 8 dims, found {"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 8, "header: expected"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", 8, "with at most 8 dims"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 8, "header: expected"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 8, "overflows 64 bits"},
        {1, "{'descr': '<f4', 'shape': (1,), 'shape': (2,), 'fortran_order': False}", 8, "header: expected"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'other': 1}", 8, "header: expected"},
        {1, "{'descr': '\n\033[2J", 8, "header: expected"},
        {1, "", 8, "header: expected"},
    };
    for (size_t i = 0; i < N(bad); i++) {
        const bytes b = npy(bad[i].version, bad[i].dict, "0123456789abcdef0123456789abcdef", bad[i].n);
        open_bad(tests_write("x.npy", b.at, b.n), bad[i].part);
    }
    bytes cut = npy(1, DICT("<f4"), "01234567", 8);
    cut.at[8] = 255; /* its header's length */
    open_bad(tests_write("x.npy", cut.at, cut.n), "array 'x': cut: a header of 255 bytes, but ");
    open_bad(tests_text("x.npy", "a text that is none"), "array 'x': not in numpy's format");
    open_bad(tests_text("x.npy", ""), "array 'x': not in numpy's format");
    open_bad(tests_text("x.npz", "PK"), "x.npz: expected a zip file, whose directory lies at its end");
    open_bad(tests_text("x.txt", "a"), "x.txt: expected a file .npy, .npz or .safetensors, or a folder of .npy");
    open_bad(tests_path("nothing.npy"), "nothing.npy: cannot be read: No such file");
    open_bad("/dev/null", "expected a file .npy");
    assert_int_equal(mkdir(tests_path("empty"), 0777), 0);
    open_bad(tests_path("empty"), "empty: holds no array: expected .npy files in it");
    assert_int_equal(rmdir(tests_path("empty")), 0);
}

TEST(test_bad_zip)
{
    static const struct {
        enum { STORED, DEFLATED, WIDE, LOCAL } kind;
        size_t place, n; /* bytes in the first member's entry of the directory, or in its local header */
        uint64_t value;
        const char *part;
    } bad[] = {
        {STORED, 8, 2, 1, "x.npz: array 'a': encrypted: expected a plain member"},
        {STORED, 10, 2, 12, "array 'a': compression method 12: expected 0 (stored) or 8 (deflated)"},
        {STORED, 20, 4, 8, "array 'a': stored, but of two sizes"},
        {STORED, 20, 4, 1 << 20, "x.npz: its members are larger than the file"},
        {STORED, 24, 4, 8, "array 'a': stored, but of two sizes"},
        {STORED, 42, 4, 1, "array 'a': expected a local header at byte 1"},
        {STORED, 42, 4, UINT32_MAX, "array 'a': expected a local header at byte 4294967295"},
        {STORED, 28, 2, 9999, "x.npz: its directory is cut: expected 2 members, found 0"},
        {STORED, 0, 1, 'Q', "x.npz: its directory is cut: expected 2 members, found 0"},
        {DEFLATED, 16, 4, 1, "array 'a': does not inflate to its size and CRC"},
        {DEFLATED, 24, 4, 9, "array 'a': does not inflate to its size and CRC"},
        {DEFLATED, 24, 4, 999, "array 'a': does not inflate to its size and CRC"},
        {DEFLATED, 24, 4, UINT32_MAX - 1, "array 'a': 4294967294 bytes cannot be deflated to"},
        {WIDE, 46 + 5 + 2, 2, 16, "x.npz: its directory is cut: expected 2 members, found 0"},
        {WIDE, 46 + 5 + 2, 2, 9999, "x.npz: its directory is cut: expected 2 members, found 0"},
        {LOCAL, 26, 2, 9999, "array 'a': cut: expected "},
    };
    const bytes a = npy(1, DICT("<f4"), "01234567", 8);
    for (size_t i = 0; i < N(bad); i++) {
        zip z = {.wide = bad[i].kind == WIDE};
        zip_add(&z, "a.npy", &a, bad[i].kind == DEFLATED);
        zip_add(&z, "b.npy", &a, bad[i].kind == DEFLATED);
        memcpy((bad[i].kind == LOCAL ? z.members.at : z.directory.at) + bad[i].place, &bad[i].value, bad[i].n);
        const bytes b = zip_end(&z);
        open_bad(tests_write("x.npz", b.at, b.n), bad[i].part);
    }
    zip twice = {.n = 0};
    zip_add(&twice, "a.npy", &a, false);
    zip_add(&twice, "a.npy", &a, true);
    const bytes b = zip_end(&twice);
    open_bad(tests_write("x.npz", b.at, b.n), "x.npz: array 'a': two have this name");
}

/* A file cut at any length is refused. With any byte changed it is refused, or can be read to its last element. */
TEST(test_each_byte)
{
    static const char *const names[] = {"x.npy", "x.npz", "x.safetensors"};
    bytes files[3] = {npy(1, DICT("<f2"), "0123", 4)};
    zip z = {.n = 0};
    zip_add(&z, "a.npy", &files[0], false);
    zip_add(&z, "b.npy", &files[0], true);
    files[1] = zip_end(&z);
    files[1].n -= 3; /* the comment may be cut */
    const kvb_tensor t = {.name = "a", .dtype = KVB_DTYPE_I8, .n_dims = 1, .dims = {4}, .bytes = 4, .data = "0123"};
    assert_int_equal(kvb_safetensors_write(tests_path("x.safetensors"), &t, 1, NULL, why, sizeof why), 0);
    kvb_tensors *good = open_good(tests_path("x.safetensors"));
    assert_true(good->n == 1 && kvb_tensor_value(good->list, 3) == '3');
    kvb_tensors_close(good);
    char *text = tests_read(tests_path("x.safetensors"), &files[2].n);
    memcpy(files[2].at, text, files[2].n);
    free(text);
    for (size_t f = 0; f < N(names); f++) {
        for (size_t n = 0; n < files[f].n; n++)
            open_bad(tests_write(names[f], files[f].at, n), names[f]);
        for (size_t i = 0; i < 3 * files[f].n; i++) {
            bytes b = files[f];
            kvb_tensors *opened;
            volatile double sum = 0;
            b.at[i / 3] = (uint8_t)(i % 3 ? b.at[i / 3] ^ 1 << i % 3 : 0xff);
            if (kvb_tensors_open(tests_write(names[f], b.at, b.n), &opened, why, sizeof why))
                continue;
            for (uint32_t k = 0; k < opened->n; k++)
                for (uint64_t e = 0; e < opened->list[k].elements; e++)
                    sum = sum + value_at(&opened->list[k], e);
            kvb_tensors_close(opened);
        }
    }
}
