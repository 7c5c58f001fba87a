/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/judge/recorded.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <zlib.h>

#include "oracle/codec.h"
#include "workloads/array.h"
#include "workloads/files.h"

typedef struct span {
    const uint8_t *at;
    uint64_t bytes;
} span;

typedef struct opened {
    kvb_tensors tensors; /* first: callers hold its address */
    size_t room, n_maps, map_room;
    span *maps;                   /* [n_maps] mappings to unmap */
    kvb_safetensors *safetensors; /* NULL: none */
} opened;

/* A little-endian number of n bytes. */
static uint64_t number(const uint8_t *at, uint32_t n)
{
    uint64_t value = 0;
    memcpy(&value, at, n);
    return value;
}

static bool ends_with(const char *name, uint64_t bytes, const char *end)
{
    const size_t n = strlen(end);
    return bytes > n && memcmp(name + bytes - n, end, n) == 0;
}

/* ---- element types ---------------------------------------------------------------------------------------------- */

/* Names here, and names of numpy and ml_dtypes without the byte order. */
static const struct {
    const char *name, *numpy;
} dtypes[KVB_DTYPES] = {
    [KVB_DTYPE_F64] = {"f64", "f8"},
    [KVB_DTYPE_F32] = {"f32", "f4"},
    [KVB_DTYPE_F16] = {"f16", "f2"},
    [KVB_DTYPE_BF16] = {"bf16", "bfloat16"},
    [KVB_DTYPE_E4M3] = {"e4m3", "float8_e4m3fn"},
    [KVB_DTYPE_E5M2] = {"e5m2", "float8_e5m2"},
    [KVB_DTYPE_I8] = {"i8", "i1"},
    [KVB_DTYPE_U8] = {"u8", "u1"},
    [KVB_DTYPE_I16] = {"i16", "i2"},
    [KVB_DTYPE_U16] = {"u16", "u2"},
    [KVB_DTYPE_I32] = {"i32", "i4"},
    [KVB_DTYPE_U32] = {"u32", "u4"},
    [KVB_DTYPE_I64] = {"i64", "i8"},
    [KVB_DTYPE_U64] = {"u64", "u8"},
    [KVB_DTYPE_BOOL] = {"bool", "b1"},
};

/* Refused types: a name without the byte order, or its first letter. */
static const struct {
    const char *name, *advice;
} refused[] = {
    {"O", "Python objects (a pickle): expected numbers, as .astype('float32') makes them"},
    {"V1", "bytes without a type (numpy has no FP8): save .view('uint8') and name the format in the description"},
    {"V2",
     "2 bytes without a type (numpy has no bfloat16): save .view('uint16') and name the format in the description"},
    {"V", "bytes without a type: expected one number an element"},
    {"c", "complex numbers: expected real ones"},
};

const char *kvb_dtype_name(kvb_dtype dtype)
{
    return dtypes[dtype].name;
}

double kvb_tensor_value(const kvb_tensor *t, uint64_t i)
{
    const size_t bytes = kvb_dtype_bytes(t->dtype);
    const int unused = 64 - 8 * (int)bytes;
    union {
        uint64_t bits;
        double f64;
        float f32;
    } x = {.bits = 0};
    memcpy(&x, (const uint8_t *)t->data + i * bytes, bytes);
    switch (t->dtype) {
    case KVB_DTYPE_F64:
        return x.f64;
    case KVB_DTYPE_F32:
        return (double)x.f32;
    case KVB_DTYPE_F16:
        return kvb_codec_value(KVB_F16, (uint16_t)x.bits);
    case KVB_DTYPE_BF16:
        return kvb_codec_value(KVB_BF16, (uint16_t)x.bits);
    case KVB_DTYPE_E4M3:
        return kvb_codec_value(KVB_E4M3, (uint8_t)x.bits);
    case KVB_DTYPE_E5M2:
        return kvb_codec_value(KVB_E5M2, (uint8_t)x.bits);
    case KVB_DTYPE_I8:
    case KVB_DTYPE_I16:
    case KVB_DTYPE_I32:
    case KVB_DTYPE_I64:
        return (double)((int64_t)(x.bits << unused) >> unused);
    case KVB_DTYPE_BOOL:
        return x.bits != 0;
    default:
        return (double)x.bits;
    }
}

/* ---- .npy: magic, version, length, a Python dict, data ---------------------------------------------------------- */

/* Reads a dict of Python: its literals as JSON are 'a' as "a", (3,) as [3], True as true, 3L as 3. NULL: it is none. */
static json_t *dict_load(const char *from, size_t n)
{
    char *text = malloc(n + 1), *to = text, quote = 0;
    for (const char *at = from, *end = from + n, *next; text && at < end; at++) {
        for (next = at + 1; *at == ',' && next < end && isspace((unsigned char)*next); next++)
            ;
        if (quote ? *at == quote : *at == '\'' || *at == '"') {
            quote = quote ? 0 : *at;
            *to++ = '"';
        } else if (quote)
            *to++ = *at;
        else if (*at == '(' || *at == ')')
            *to++ = *at == '(' ? '[' : ']';
        else if (*at != 'L' && !(*at == ',' && next < end && (*next == ')' || *next == '}')))
            *to++ = (char)tolower((unsigned char)*at);
    }
    json_t *dict =
        text ? json_loadb(text, (size_t)(to - text), JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    free(text);
    return dict;
}

static int dtype_parse(const char *descr, kvb_tensor *t, char *why, size_t why_bytes)
{
    const char *name = descr + (*descr && strchr("<>|=", *descr));
    char known[200] = "";
    for (uint32_t d = 0; d < KVB_DTYPES; d++) {
        t->dtype = (kvb_dtype)d;
        if (strcmp(name, dtypes[d].numpy) == 0)
            return *descr == '>' && kvb_dtype_bytes(t->dtype) > 1
                       ? kvb_why_set(-EINVAL, why, why_bytes, "dtype '%s' is big-endian: expected '<%s'", descr, name)
                       : 0;
        kvb_list_add(known, sizeof known, ", ", "%s", dtypes[d].numpy);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(name, refused[i].name) == 0 || (*name == *refused[i].name && !refused[i].name[1]))
            return kvb_why_set(-EINVAL, why, why_bytes, "dtype '%s' is %s", descr, refused[i].advice);
    return kvb_why_set(-EINVAL, why, why_bytes, "dtype '%s': expected one of %s", descr, known);
}

/* Parses a header's dict into dtype, dims, strides, elements, bytes. */
static int dict_parse(const char *text, size_t n, kvb_tensor *t, char *why, size_t why_bytes)
{
    json_t *dict = dict_load(text, n), *shape = json_object_get(dict, "shape"), *dim;
    const json_t *descr = json_object_get(dict, "descr"), *order = json_object_get(dict, "fortran_order");
    bool good = json_object_size(dict) == 3 && json_is_string(descr) && json_is_boolean(order) &&
                json_is_array(shape) && json_array_size(shape) <= KVB_TENSOR_DIMS;
    size_t i;
    int err;
    json_array_foreach(shape, i, dim)
    {
        good = good && json_is_integer(dim) && json_integer_value(dim) >= 0;
        t->n_dims += good;
        t->dims[good ? i : 0] = (uint64_t)json_integer_value(dim);
    }
    if (json_is_array(descr))
        err = kvb_why_set(-EINVAL, why, why_bytes, "a structured dtype: expected one number an element");
    else if (!good)
        err = kvb_why_set(-EINVAL, why, why_bytes,
                          "header: expected {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} with at most "
                          "%u dims, found %.*s",
                          KVB_TENSOR_DIMS, (int)(n < 120 ? n : 120), text);
    else
        err = dtype_parse(json_string_value(descr), t, why, why_bytes);
    if (!err && kvb_tensor_shape(t, json_is_true(order)))
        err = kvb_why_set(-EOVERFLOW, why, why_bytes, "shape: its size overflows 64 bits");
    json_decref(dict);
    return err;
}

static int npy_parse(span file, kvb_tensor *t, char *why, size_t why_bytes)
{
    static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    enum { LENGTH = sizeof magic + 2 }; /* offset of the header's length, behind major and minor version */
    if (file.bytes < LENGTH + 4 || memcmp(file.at, magic, sizeof magic) != 0)
        return kvb_why_set(-EINVAL, why, why_bytes, "not in numpy's format: expected it to begin with \\x93NUMPY");
    const uint32_t version = file.at[sizeof magic], begin = LENGTH + (version == 1 ? 2 : 4);
    if (version < 1 || version > 3)
        return kvb_why_set(-EINVAL, why, why_bytes, "version %u of numpy's format: expected 1, 2 or 3", version);
    const uint64_t length = number(file.at + LENGTH, begin - LENGTH), left = file.bytes - begin;
    if (length > left)
        return kvb_why_set(-EINVAL, why, why_bytes, "cut: a header of %llu bytes, but %llu are left",
                           (unsigned long long)length, (unsigned long long)left);
    t->data = file.at + begin + length;
    int err = dict_parse((const char *)file.at + begin, length, t, why, why_bytes);
    if (!err && t->bytes != left - length)
        err = kvb_why_set(-EINVAL, why, why_bytes, "holds %llu bytes of data, but dtype and shape need %llu",
                          (unsigned long long)(left - length), (unsigned long long)t->bytes);
    return err;
}

/* ---- the list --------------------------------------------------------------------------------------------------- */

static int no_memory(const char *path, char *why, size_t why_bytes)
{
    return kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
}

/* Adds a tensor; copies its name. */
static int tensor_add(opened *o, const char *path, const kvb_tensor *tensor, const char *name, size_t name_bytes,
                      char *why, size_t why_bytes)
{
    kvb_tensors *t = &o->tensors;
    char *copy = t->n < UINT32_MAX ? strndup(name, name_bytes) : NULL;
    if (!copy || kvb_array_reserve(&t->list, &o->room, t->n + 1u, sizeof *t->list)) {
        free(copy);
        return no_memory(path, why, why_bytes);
    }
    t->list[t->n] = *tensor;
    t->list[t->n++].name = copy;
    return 0;
}

/* Adds a .npy file's tensor. name: ends with .npy. */
static int npy_add(opened *o, const char *path, span file, const char *name, uint64_t name_bytes, char *why,
                   size_t why_bytes)
{
    char reason[400];
    kvb_tensor tensor = {.name = NULL};
    int err = npy_parse(file, &tensor, reason, sizeof reason);
    const size_t bare = (size_t)name_bytes - strlen(".npy");
    if (err)
        return kvb_why_set(err, why, why_bytes, "%s: array '%.*s': %s", path, (int)(bare < 80 ? bare : 80), name,
                           reason);
    return tensor_add(o, path, &tensor, name, bare, why, why_bytes);
}

/* Keeps a mapping for kvb_tensors_close(). */
static int map_keep(opened *o, span map)
{
    if (!map.bytes)
        return 0;
    if (kvb_array_reserve(&o->maps, &o->map_room, o->n_maps + 1, sizeof *o->maps)) {
        munmap((void *)map.at, map.bytes);
        return -ENOMEM;
    }
    o->maps[o->n_maps++] = map;
    return 0;
}

static int map_file(opened *o, const char *path, span *file, char *why, size_t why_bytes)
{
    size_t bytes = 0;
    int err = kvb_file_map(path, &file->at, &bytes, why, why_bytes);
    file->bytes = bytes;
    return err ? err : map_keep(o, *file) ? no_memory(path, why, why_bytes) : 0;
}

static int npy_open(opened *o, const char *path, char *why, size_t why_bytes)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    span file;
    int err = map_file(o, path, &file, why, why_bytes);
    return err ? err : npy_add(o, path, file, name, strlen(name), why, why_bytes);
}

static int folder_open(opened *o, const char *path, char *why, size_t why_bytes)
{
    DIR *folder = opendir(path);
    int err = folder ? 0 : kvb_why_set(-errno, why, why_bytes, "%s: cannot be read: %s", path, strerror(errno));
    for (struct dirent *entry; !err && (entry = readdir(folder));) {
        char *file = NULL;
        if (entry->d_name[0] == '.' || !ends_with(entry->d_name, strlen(entry->d_name), ".npy"))
            continue;
        err = asprintf(&file, "%s/%s", path, entry->d_name) < 0 ? no_memory(path, why, why_bytes)
                                                                : npy_open(o, file, why, why_bytes);
        free(file);
    }
    if (folder)
        closedir(folder);
    if (!err && o->tensors.n == 0)
        err = kvb_why_set(-EINVAL, why, why_bytes, "%s: holds no array: expected .npy files in it", path);
    return err;
}

/* ---- .npz: a zip of .npy (APPNOTE.TXT, 4.3) ---------------------------------------------------------------------- */

/* An entry of the directory. */
typedef struct member {
    const char *name;
    uint32_t name_bytes, flags, method, crc;
    uint64_t packed, bytes, offset;
} member;

/* The directory: n entries from byte `at` on, which end before byte `end` of the file. */
typedef struct directory {
    uint64_t at, end, n;
} directory;

#define ZIP_END     "PK\5\6"
#define ZIP_END_64  "PK\6\6"
#define ZIP_LOCATOR "PK\6\7"
#define ZIP_ENTRY   "PK\1\2"
#define ZIP_LOCAL   "PK\3\4"
enum { END = 22, END_64 = 56, LOCATOR = 20, ENTRY = 46, LOCAL = 30 }; /* bytes without names and comments */

/* Does a record of n bytes with this signature lie at byte `at`? */
static bool is_record(span file, uint64_t at, const char *signature, uint64_t n)
{
    return at <= file.bytes && n <= file.bytes - at && memcmp(file.at + at, signature, 4) == 0;
}

static bool directory_find(span file, directory *d)
{
    uint64_t end = file.bytes < END ? file.bytes : file.bytes - END, lowest = end < 0xffff ? 0 : end - 0xffff;
    while (end > lowest && !is_record(file, end, ZIP_END, END))
        end--; /* a comment may follow the record */
    if (!is_record(file, end, ZIP_END, END))
        return false;
    *d = (directory){number(file.at + end + 16, 4), end, number(file.at + end + 10, 2)};
    if (end < LOCATOR || !is_record(file, end - LOCATOR, ZIP_LOCATOR, LOCATOR))
        return true;
    const uint64_t at = number(file.at + end - LOCATOR + 8, 8);
    if (!is_record(file, at, ZIP_END_64, END_64))
        return false;
    *d = (directory){number(file.at + at + 48, 8), at, number(file.at + at + 32, 8)};
    return true;
}

/* Reads the entry at d->at and moves behind it. False: the entry is cut off. */
static bool entry_read(span file, directory *d, member *m)
{
    if (!is_record((span){file.at, d->end}, d->at, ZIP_ENTRY, ENTRY))
        return false;
    const uint8_t *e = file.at + d->at;
    const uint64_t name = number(e + 28, 2), extra = number(e + 30, 2), all = ENTRY + name + extra + number(e + 32, 2);
    if (all > d->end - d->at)
        return false;
    *m = (member){.name = (const char *)e + ENTRY,
                  .name_bytes = (uint32_t)name,
                  .flags = (uint32_t)number(e + 8, 2),
                  .method = (uint32_t)number(e + 10, 2),
                  .crc = (uint32_t)number(e + 16, 4),
                  .packed = number(e + 20, 4),
                  .bytes = number(e + 24, 4),
                  .offset = number(e + 42, 4)};
    const uint8_t *field = e + ENTRY + name, *end = field + extra;
    for (uint64_t n; end - field >= 4; field += n) {
        n = 4 + number(field + 2, 2);
        if (n > (uint64_t)(end - field))
            return false;
        uint64_t *const wide[] = {&m->bytes, &m->packed, &m->offset};
        const uint8_t *from = field + 4;
        for (int i = 0; number(field, 2) == 1 && i < 3; i++)
            if (*wide[i] == UINT32_MAX) { /* more than 32 bits: the number is the next one of the zip64 field */
                if (field + n - from < 8)
                    return false;
                *wide[i] = number(from, 8);
                from += 8;
            }
    }
    d->at += all;
    return true;
}

/* Inflates `packed` to at most so many bytes. False: bad data, or more bytes. */
static bool inflates(span packed, uint8_t *out, uint64_t bytes)
{
    z_stream z = {.next_in = (uint8_t *)packed.at, .next_out = out};
    int said = inflateInit2(&z, -MAX_WBITS); /* raw deflate */
    if (said != Z_OK)
        return false;
    while (said == Z_OK) { /* zlib's counters have 32 bits */
        const uint64_t in = (uint64_t)(packed.at + packed.bytes - z.next_in),
                       room = (uint64_t)(out + bytes - z.next_out);
        z.avail_in = in > UINT32_MAX ? UINT32_MAX : (uInt)in;
        z.avail_out = room > UINT32_MAX ? UINT32_MAX : (uInt)room;
        said = inflate(&z, Z_NO_FLUSH);
    }
    inflateEnd(&z);
    return said == Z_STREAM_END;
}

/* Finds the bytes of a member: in the file, or inflated into memory. */
static int member_read(opened *o, span file, const member *m, span *data, char *why, size_t why_bytes)
{
    enum { STORED = 0, DEFLATED = 8, MOST = 1032 }; /* MOST: most bytes that one byte of deflate expands to */
    if (m->flags & 1)
        return kvb_why_set(-EINVAL, why, why_bytes, "encrypted: expected a plain member");
    if (m->method != STORED && m->method != DEFLATED)
        return kvb_why_set(-EINVAL, why, why_bytes, "compression method %u: expected 0 (stored) or 8 (deflated)",
                           m->method);
    if (!is_record(file, m->offset, ZIP_LOCAL, LOCAL))
        return kvb_why_set(-EINVAL, why, why_bytes, "expected a local header at byte %llu",
                           (unsigned long long)m->offset);
    const uint8_t *local = file.at + m->offset;
    const uint64_t begin = m->offset + LOCAL + number(local + 26, 2) + number(local + 28, 2);
    if (begin > file.bytes || m->packed > file.bytes - begin)
        return kvb_why_set(-EINVAL, why, why_bytes, "cut: expected %llu bytes from byte %llu on",
                           (unsigned long long)m->packed, (unsigned long long)begin);
    *data = (span){file.at + begin, m->packed};
    if (m->method == STORED)
        return m->bytes == m->packed ? 0 : kvb_why_set(-EINVAL, why, why_bytes, "stored, but of two sizes");
    if (m->bytes / MOST > m->packed || !m->bytes)
        return kvb_why_set(-EINVAL, why, why_bytes, "%llu bytes cannot be deflated to %llu",
                           (unsigned long long)m->bytes, (unsigned long long)m->packed);
    uint8_t *out = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (out == MAP_FAILED || map_keep(o, (span){out, m->bytes}))
        return kvb_why_set(-ENOMEM, why, why_bytes, "no memory for its %llu bytes", (unsigned long long)m->bytes);
    if (!inflates(*data, out, m->bytes) || crc32_z(0, out, m->bytes) != m->crc)
        return kvb_why_set(-EINVAL, why, why_bytes, "does not inflate to its size and CRC");
    *data = (span){out, m->bytes};
    return 0;
}

static int npz_open(opened *o, const char *path, char *why, size_t why_bytes)
{
    span file, data;
    directory d = {0};
    member m;
    uint64_t packed = 0;
    char reason[200];
    int err = map_file(o, path, &file, why, why_bytes);
    if (!err && !directory_find(file, &d))
        err = kvb_why_set(-EINVAL, why, why_bytes, "%s: expected a zip file, whose directory lies at its end", path);
    for (uint64_t i = 0; !err && i < d.n; i++) {
        if (!entry_read(file, &d, &m))
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: its directory is cut: expected %llu members, found %llu",
                               path, (unsigned long long)d.n, (unsigned long long)i);
        if (!ends_with(m.name, m.name_bytes, ".npy"))
            continue;
        /* members that overlap could inflate to any size */
        if (__builtin_add_overflow(packed, m.packed, &packed) || packed > file.bytes)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: its members are larger than the file", path);
        if ((err = member_read(o, file, &m, &data, reason, sizeof reason)))
            kvb_why_set(err, why, why_bytes, "%s: array '%.*s': %s", path,
                        (int)(m.name_bytes < 84 ? m.name_bytes : 84) - 4, m.name, reason);
        else
            err = npy_add(o, path, data, m.name, m.name_bytes, why, why_bytes);
    }
    return err;
}

/* ---- .safetensors ----------------------------------------------------------------------------------------------- */

static int safetensors_open(opened *o, const char *path, char *why, size_t why_bytes)
{
    kvb_safetensors *file;
    int err = kvb_safetensors_open(path, &file, why, why_bytes);
    if (err)
        return err;
    o->safetensors = file;
    o->tensors.metadata = kvb_safetensors_metadata(file);
    for (size_t i = 0; i < file->n && !err; i++) {
        const kvb_tensor *t = &file->tensors[i];
        err = tensor_add(o, path, t, t->name, strlen(t->name), why, why_bytes);
    }
    return err;
}

/* ---- one for all ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *end;
    int (*open)(opened *o, const char *path, char *why, size_t why_bytes);
} forms[] = {{".npy", npy_open}, {".npz", npz_open}, {".safetensors", safetensors_open}};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const kvb_tensor *)a)->name, ((const kvb_tensor *)b)->name);
}

static int open_by_form(opened *o, const char *path, char *why, size_t why_bytes)
{
    struct stat st;
    if (stat(path, &st))
        return kvb_why_set(-errno, why, why_bytes, "%s: cannot be read: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return folder_open(o, path, why, why_bytes);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (ends_with(path, strlen(path), forms[i].end))
            return forms[i].open(o, path, why, why_bytes);
    return kvb_why_set(-EINVAL, why, why_bytes, "%s: expected a file .npy, .npz or .safetensors, or a folder of .npy",
                       path);
}

int kvb_tensors_open(const char *path, kvb_tensors **tensors, char *why, size_t why_bytes)
{
    opened *o = calloc(1, sizeof *o);
    kvb_tensors *t = (kvb_tensors *)o;
    *tensors = NULL;
    if (!o)
        return no_memory(path, why, why_bytes);
    int err = open_by_form(o, path, why, why_bytes);
    if (t->n)
        qsort(t->list, t->n, sizeof *t->list, by_name);
    for (uint32_t i = 1; i < t->n && !err; i++)
        if (strcmp(t->list[i - 1].name, t->list[i].name) == 0)
            err = kvb_why_set(-EINVAL, why, why_bytes, "%s: array '%.80s': two have this name", path, t->list[i].name);
    if (err)
        kvb_tensors_close(t);
    else
        *tensors = t;
    return err;
}

void kvb_tensors_close(kvb_tensors *tensors)
{
    opened *o = (opened *)tensors;
    if (!o)
        return;
    for (uint32_t i = 0; i < tensors->n; i++)
        free((char *)tensors->list[i].name);
    for (size_t i = 0; i < o->n_maps; i++)
        munmap((void *)o->maps[i].at, o->maps[i].bytes);
    kvb_safetensors_close(o->safetensors);
    free(tensors->list);
    free(o->maps);
    free((char *)tensors->metadata);
    free(o);
}
