/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the reference codecs store rows as the published definitions require: every pattern of 16 bits, and known
 * answers to the byte. whole/test_numpy reads all levels of codebooks once more. */
#include "ci/tests/tests.h"
#include "oracle/codec.h"
#include "workloads/special_rows.h"

/* Rows encoded by a reference codec, into parts of the exact sizes that the codec declares. */

enum { PART_BYTES = 32 * 1024, CANARY = 0xa5 };

typedef struct stored_row {
    const kvb_codec *codec;
    uint32_t dim;
    float head_scale;
    unsigned char bytes[KVB_PARTS][PART_BYTES];
} stored_row;

static inline size_t part_bytes(const stored_row *s, int part, uint32_t n)
{
    return (s->codec->shared && part != KVB_CODES ? 1 : n) * kvb_codec_bytes(s->codec, s->dim, part);
}

/* Encodes n rows, at most codec->block. */
static inline void stored_encode(stored_row *s, const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim,
                                 float head_scale)
{
    unsigned char *part[KVB_PARTS];
    s->codec = codec, s->dim = dim, s->head_scale = head_scale;
    memset(s->bytes, CANARY, sizeof s->bytes);
    for (int p = 0; p < KVB_PARTS; p++)
        part[p] = s->bytes[p];
    kvb_codec_encode(codec, rows, n, dim, head_scale, part);
    for (int p = 0; p < KVB_PARTS; p++)
        for (size_t i = part_bytes(s, p, n), end = i + 64; i < end; i++)
            assert_int_equal(s->bytes[p][i], CANARY);
}

static inline void stored_decode(const stored_row *s, uint32_t row_index, double *row, double *size)
{
    const unsigned char *part[KVB_PARTS];
    for (int p = 0; p < KVB_PARTS; p++)
        part[p] = s->bytes[p] + part_bytes(s, p, 1) * (s->codec->shared && p != KVB_CODES ? 0 : row_index);
    kvb_codec_decode(s->codec, part, s->dim, s->head_scale, row, size);
}

/* Shows: the reference codecs of f16 and bf16 decode every pattern exactly and encode to nearest even. */

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void assert_same(double a, double b, uint32_t pattern)
{
    if (isnan(a) && isnan(b))
        return;
    if (a != b || signbit(a) != signbit(b))
        fail_msg("pattern %04x: %a, not %a", pattern, a, b);
}

TEST(every_bf16_decodes)
{
    for (uint32_t h = 0; h < 65536; h++)
        assert_same(kvb_codec_value(KVB_BF16, (uint16_t)h), (double)float_of(h << 16), h);
}

TEST(every_f16_is_the_compilers)
{
#if defined(__FLT16_MANT_DIG__)
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t bits = (uint16_t)h;
        _Float16 x;
        memcpy(&x, &bits, sizeof x);
        assert_same(kvb_codec_value(KVB_F16, bits), (double)x, h);
    }
    uint64_t r = 1;
    for (int i = 0; i < 200000; i++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        float x = float_of((uint32_t)(r >> 32));
        if (isnan(x))
            continue;
        _Float16 narrow = (_Float16)x;
        uint16_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        if (kvb_codec_code(KVB_F16, x) != bits)
            fail_msg("%a encodes to %04x, the compiler says %04x", (double)x, kvb_codec_code(KVB_F16, x), bits);
    }
#else
    print_message("# this compiler has no half type\n");
#endif
}

typedef struct narrow {
    kvb_elem elem;
    uint16_t inf;
    double overflow; /* the largest finite value plus half a spacing */
} narrow;

static const narrow halves[] = {
    {KVB_F16, 0x7c00, 65520},
    {KVB_BF16, 0x7f80, 0x1.ffp127},
};

TEST(every_value_encodes_to_itself)
{
    for (size_t i = 0; i < 2; i++)
        for (uint32_t h = 0; h < 65536; h++) {
            if ((h & 0x7fff) > halves[i].inf)
                continue;
            assert_int_equal(kvb_codec_code(halves[i].elem, (float)kvb_codec_value(halves[i].elem, (uint16_t)h)), h);
        }
}

/* Numbers between two neighbours: below the middle they round down, above it up, on it to the even one. */
TEST(neighbours_round_to_nearest_even)
{
    for (size_t i = 0; i < 2; i++)
        for (uint32_t h = 0; h + 1 < halves[i].inf; h++) {
            double low = kvb_codec_value(halves[i].elem, (uint16_t)h),
                   high = kvb_codec_value(halves[i].elem, (uint16_t)(h + 1));
            float middle = (float)((low + high) / 2);
            assert_true((double)middle == (low + high) / 2);
            uint32_t even = h & 1 ? h + 1 : h;
            assert_int_equal(kvb_codec_code(halves[i].elem, middle), even);
            assert_int_equal(kvb_codec_code(halves[i].elem, -middle), even | 0x8000);
            assert_int_equal(kvb_codec_code(halves[i].elem, nextafterf(middle, 0)), h);
            assert_int_equal(kvb_codec_code(halves[i].elem, nextafterf(middle, INFINITY)), h + 1);
        }
}

/* In a row, every number rounds and every code decodes as it does alone. Each code stands for the upper bits of a float. */
TEST(rows_of_halves_are_like_their_elements)
{
    for (size_t i = 0; i < 2; i++)
        for (uint32_t h = 0; h < 65536; h++) {
            const kvb_elem elem = halves[i].elem;
            const uint16_t code = (uint16_t)h;
            float row[] = {float_of(h << 16 | h * 40503u >> 16), (float)kvb_codec_value(elem, h), 65519.996f, -65520};
            double value, want[4];
            for (size_t c = 0; c < 4; c++)
                want[c] = kvb_codec_rounded(elem, row[c]);
            kvb_codec_values(elem, &code, 1, &value);
            kvb_codec_round(elem, row, 4);
            assert_same(value, kvb_codec_value(elem, h), h);
            for (size_t c = 0; c < 4; c++)
                assert_same((double)row[c], want[c], h);
        }
}

TEST(extremes)
{
    for (size_t i = 0; i < 2; i++) {
        float edge = (float)halves[i].overflow;
        assert_int_equal(kvb_codec_code(halves[i].elem, edge), halves[i].inf);
        assert_int_equal(kvb_codec_code(halves[i].elem, nextafterf(edge, 0)), halves[i].inf - 1);
        assert_int_equal(kvb_codec_code(halves[i].elem, 3.4e38f), halves[i].inf & (i ? 0x7f80 : 0x7c00));
        assert_int_equal(kvb_codec_code(halves[i].elem, INFINITY), halves[i].inf);
        assert_int_equal(kvb_codec_code(halves[i].elem, -INFINITY), halves[i].inf | 0x8000);
        assert_int_equal(kvb_codec_code(halves[i].elem, 0.0f), 0);
        assert_int_equal(kvb_codec_code(halves[i].elem, -0.0f), 0x8000);
    }
    assert_int_equal(kvb_codec_code(KVB_F16, 0x1p-25f), 0);          /* half the smallest subnormal: to even 0 */
    assert_int_equal(kvb_codec_code(KVB_F16, 0x1.000002p-25f), 1);   /* just above it */
    assert_int_equal(kvb_codec_code(KVB_BF16, float_of(0x8000)), 0); /* the same for bf16; a binary32 subnormal */
    assert_int_equal(kvb_codec_code(KVB_BF16, float_of(0x8001)), 1);
}

TEST(nan_stays_quiet_nan)
{
    static const uint32_t patterns[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff};
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
        for (size_t i = 0; i < 2; i++) {
            uint16_t h = kvb_codec_code(halves[i].elem, float_of(patterns[p]));
            assert_true(isnan(kvb_codec_value(halves[i].elem, h)));
            assert_int_equal(h >> 15, patterns[p] >> 31);
            assert_true(h & (i ? 0x40 : 0x200)); /* the quiet bit */
        }
}

/* Shows: rows computed by hand from the published definitions (known_rows.txt) are encoded to the byte and decoded, in
 * every format. */

static stored_row kept;
static double read_back[256], magnitude[256];

/* Reads dim numbers; x*3 stands for three; a list that is too short is repeated. */
static void numbers(const char *text, uint32_t dim, double *x)
{
    uint32_t n = 0;
    char *end;
    for (double one = strtod(text, &end); end != text && n < dim; one = strtod(text = end, &end))
        for (uint32_t times = *end == '*' ? (uint32_t)strtoul(end + 1, &end, 10) : 1; times-- && n < dim;)
            x[n++] = one;
    assert_true(n > 0);
    for (uint32_t c = n; c < dim; c++)
        x[c] = x[c - n];
}

static void numbers_are(const char *line, const double *got, const char *text)
{
    double want[64];
    numbers(text, kept.dim, want);
    for (uint32_t c = 0; c < kept.dim; c++)
        if ((got[c] != want[c] || signbit(got[c]) != signbit(want[c])) && !(isnan(got[c]) && isnan(want[c])))
            fail_msg("%s: element %u is %a", line, c, got[c]);
}

static void known_row(const char *line)
{
    char name[32], *field[7], text[1024], hex[3];
    double x[64], head_scale;
    float row[64];
    uint32_t dim = 0;
    snprintf(text, sizeof text, "%s", line);
    char *rest = text;
    for (int i = 0; i < 7; i++)
        assert_non_null(field[i] = strsep(&rest, "|"));
    assert_true(!rest && sscanf(field[0], "%31s %lf %u", name, &head_scale, &dim) == 3 && dim <= 64);
    numbers(field[1], dim, x);
    for (uint32_t c = 0; c < dim; c++)
        row[c] = (float)x[c];
    assert_non_null(kvb_codec_find(name));
    stored_encode(&kept, kvb_codec_find(name), row, 1, dim, (float)head_scale);
    stored_decode(&kept, 0, read_back, magnitude);
    for (int p = 0; p < KVB_PARTS; p++) {
        const char *want = field[2 + p] + 1;
        const size_t n = part_bytes(&kept, p, 1), listed = strcspn(want, " ");
        assert_int_equal(n > 0, listed > 0);
        for (size_t i = 0; i < n; i++) {
            snprintf(hex, sizeof hex, "%02x", kept.bytes[p][i]);
            if (memcmp(hex, want + 2 * i % listed, 2))
                fail_msg("%s: byte %zu of part %d is %s", line, i, p, hex);
        }
    }
    numbers_are(line, read_back, field[5]);
    numbers_are(line, magnitude, field[6]);
}

TEST(known_rows)
{
    FILE *file = fopen("ci/tests/oracle/known_rows.txt", "r");
    char line[1024];
    uint32_t n = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (*line != '#')
            known_row(line), n++;
    }
    fclose(file);
    assert_true(n > 90);
    assert_true(!kvb_codec_find("f17") && !kvb_codec_find("f"));
}

TEST(head_scales)
{
    const float amax[] = {448, 896, 44.8f}, none[] = {0, NAN, INFINITY};
    kvb_format f = {.elem = KVB_E4M3, .head_scale = KVB_STATIC_HEAD};
    assert_true(kvb_codec_head_scale(&f, amax, 3, 0) == 1 && kvb_codec_head_scale(&f, amax, 3, 1) == 2);
    assert_true(kvb_codec_head_scale(&f, amax, 3, 2) == 44.8f / 448 && kvb_codec_head_scale(&f, NULL, 3, 1) == 1);
    for (uint32_t h = 0; h < 3; h++)
        assert_true(kvb_codec_head_scale(&f, none, 3, h) == 1);
    f.head_scale = KVB_STATIC_TENSOR;
    assert_true(kvb_codec_head_scale(&f, amax, 3, 0) == 2 && kvb_codec_head_scale(&f, amax, 3, 2) == 2);
    f.elem = KVB_E5M2;
    assert_true(kvb_codec_head_scale(&f, amax, 3, 0) == 896.0f / 57344);
    f.elem = KVB_E2M1;
    assert_true(kvb_codec_head_scale(&f, amax, 3, 0) == 896.0f / 2688);
    f.head_scale = KVB_STATIC_NONE;
    assert_true(kvb_codec_head_scale(&f, amax, 3, 0) == 1);
}

/* KIVI's K: a scale and a zero for each channel, over the rows of the block. */
TEST(channels)
{
    const float rows[2][4] = {{0, -1, 5, 2}, {3, 2, 5, 8}};
    stored_encode(&kept, kvb_codec_find("kivi2-k"), rows[0], 2, 4, 1);
    assert_memory_equal(kept.bytes[KVB_CODES], "\x00\xcf", 2);
    assert_memory_equal(kept.bytes[KVB_SCALES], "\x00\x3c\x00\x3c\x00\x00\x00\x40", 8);
    assert_memory_equal(kept.bytes[KVB_ZEROS], "\x00\x00\x00\xbc\x00\x45\x00\x40", 8);
    for (uint32_t i = 0; i < 2; i++) {
        stored_decode(&kept, i, read_back, magnitude);
        for (int c = 0; c < 4; c++)
            assert_true(read_back[c] == (double)rows[i][c]);
    }
    const float three[3][5] = {{0, -3, 5, -0.0f, NAN}, {1, -1, 5, 0, -2}, {3, 0, 5, 0.0f, 1}};
    stored_encode(&kept, kvb_codec_find("kivi2-k"), three[0], 3, 5, 1); /* NaN is 0, above -2 */
    assert_memory_equal(kept.bytes[KVB_CODES], "\x00\x02\x09\x00\x0f\x03", 6);
    assert_memory_equal(kept.bytes[KVB_SCALES], "\x00\x3c\x00\x3c\x00\x00\x00\x00\x00\x3c", 10);
    assert_memory_equal(kept.bytes[KVB_ZEROS], "\x00\x00\x00\xc2\x00\x45\x00\x80\x00\xc0", 10);
}

/* Decoded rows do not change, signs of zeros included, when they are stored again. */
TEST(stored_rows_stay)
{
    enum { DIM = 256 };
    static const char *const names[] = {"f16", "bf16", "e4m3", "e5m2", "mxfp4", "e4m3-head", "e5m2-tensor"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        uint64_t seed = 7;
        for (int i = 0; i < 50; i++) {
            float row[DIM];
            double stored[DIM], again[DIM];
            row_fill(ROW_NORMAL, row, DIM, &seed);
            stored_encode(&kept, kvb_codec_find(names[n]), row, 1, DIM, 4);
            stored_decode(&kept, 0, stored, magnitude);
            for (uint32_t c = 0; c < DIM; c++)
                row[c] = (float)stored[c];
            stored_encode(&kept, kvb_codec_find(names[n]), row, 1, DIM, 4);
            stored_decode(&kept, 0, again, magnitude);
            assert_memory_equal(stored, again, sizeof again);
        }
    }
}
