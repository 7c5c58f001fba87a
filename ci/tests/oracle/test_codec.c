/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the reference codecs store rows as the published definitions require: every pattern of 16 bits, known answers
 * to the byte, levels of codebooks, and no element further off than half a step. */
#include <float.h>

#include "ci/tests/tests.h"
#include "oracle/codec.h"
#include "oracle/storage.h"
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

/* The same value in another way: widens to binary32 by moving bit fields. */
static double f16_widened(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, field = h >> 10 & 31, man = h & 0x3ff;
    if (field == 31)
        return (double)float_of(sign | 0x7f800000 | man << 13);
    if (field)
        return (double)float_of(sign | (field + 112) << 23 | man << 13);
    return (sign ? -1.0 : 1.0) * ldexp(man, -24);
}

static double bf16_widened(uint16_t h)
{
    return (double)float_of((uint32_t)h << 16);
}

static void assert_same(double a, double b, uint32_t pattern)
{
    if (isnan(a) && isnan(b))
        return;
    if (a != b || signbit(a) != signbit(b))
        fail_msg("pattern %04x: %a, not %a", pattern, a, b);
}

TEST(every_pattern_decodes)
{
    for (uint32_t h = 0; h < 65536; h++) {
        assert_same(kvb_codec_value(KVB_F16, (uint16_t)h), f16_widened((uint16_t)h), h);
        assert_same(kvb_codec_value(KVB_BF16, (uint16_t)h), bf16_widened((uint16_t)h), h);
    }
}

/* The compiler's half type, if it has one, agrees, too. */
TEST(every_pattern_agrees_with_the_compiler)
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

TEST(rows_are_little_endian_and_exact)
{
    static stored_row s;
    const float row[3] = {1.0f, -2.5f, 0.333333343f};
    double back[3], size[3];

    stored_encode(&s, kvb_codec_find("f16"), row, 1, 3, 1);
    assert_int_equal(part_bytes(&s, KVB_CODES, 1), 6);
    assert_memory_equal(s.bytes[KVB_CODES], "\x00\x3c\x00\xc1\x55\x35", 6);
    stored_decode(&s, 0, back, size);
    assert_true(back[0] == 1 && back[1] == -2.5 && back[2] == 0x1.554p-2 && size[1] == 2.5);

    stored_encode(&s, kvb_codec_find("bf16+had"), row, 1, 3, 1);
    assert_int_equal(part_bytes(&s, KVB_CODES, 1), 6);
    assert_memory_equal(s.bytes[KVB_CODES], "\x80\x3f\x20\xc0\xab\x3e", 6);
    stored_decode(&s, 0, back, size);
    assert_true(back[0] == 1 && back[1] == -2.5 && back[2] == 0x1.56p-2 && size[1] == 2.5);

    stored_encode(&s, kvb_codec_find("f32"), row, 1, 3, 1);
    assert_int_equal(part_bytes(&s, KVB_CODES, 1), 12);
    assert_memory_equal(s.bytes[KVB_CODES], row, 12);
    stored_decode(&s, 0, back, size);
    assert_true(back[2] == (double)row[2] && size[1] == 2.5);

    for (int part = KVB_SCALES; part < KVB_PARTS; part++)
        assert_int_equal(part_bytes(&s, part, 1), 0);
    assert_null(kvb_codec_find("f17"));
    assert_null(kvb_codec_find("f"));
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
}

TEST(all_are_there)
{
    static const char *const names[] = {"f32",        "f16",     "bf16",        "e4m3",      "e4m3-tensor", "e4m3-head",
                                        "e4m3-token", "e5m2",    "e5m2-tensor", "e5m2-head", "e5m2-token",  "int8",
                                        "int8-asym",  "q8_0",    "q5_1",        "q5_0",      "q4_1",        "q4_0",
                                        "iq4_nl",     "a8g32",   "a8g64",       "a8g128",    "a4g32",       "a4g64",
                                        "a4g128",     "a2g32",   "a2g64",       "a2g128",    "kivi4-v",     "kivi2-v",
                                        "kivi4-k",    "kivi2-k", "mxfp4",       "nvfp4",     "tq4",         "tq3"};
    size_t n = sizeof names / sizeof *names;
    for (size_t i = 0; i < n; i++)
        assert_string_equal(kvb_codecs[i].name, names[i]);
    assert_null(kvb_codecs[n].name);
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

/*
 * Shows: the levels of tq4 and tq3 are the fixed point of Lloyd's iteration for N(0, 1), computed here by integrals in
 * closed form. Rows stored with them, transform included, lose no more than TurboQuant's bound (arXiv 2504.19874,
 * theorem 1): |x - stored|^2 <= sqrt(3) pi / 2 4^-b |x|^2, in the mean.
 */

static const double pi = 3.14159265358979323846;

/* Reads the codec's levels from a row stored with scale 1. */
static void levels_read(const kvb_codec *codec, double *levels)
{
    unsigned char codes[16] = {0}, one[2] = {0x00, 0x3c}; /* 1 as f16 */
    const unsigned char *part[KVB_PARTS] = {codes, one, NULL};
    double row[32], size[32];
    uint32_t n = 1u << codec->bits;
    for (uint32_t code = 0; code < n; code++)
        for (uint32_t b = 0; b < codec->bits; b++) {
            uint32_t at = code * codec->bits + b;
            codes[at / 8] = (unsigned char)(codes[at / 8] | (code >> b & 1) << at % 8);
        }
    kvb_codec_decode(codec, part, 32, 1, row, size);
    memcpy(levels, row, n * sizeof *levels);
}

static double density(double x)
{
    return exp(-x * x / 2) / sqrt(2 * pi);
}
static double below(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

/* One step of Lloyd's iteration: each level becomes the mean of N(0, 1) over the numbers nearest to it. */
static double lloyd(double *levels, int n)
{
    double border[17], moved = 0;
    border[0] = -INFINITY, border[n] = INFINITY;
    for (int k = 1; k < n; k++)
        border[k] = (levels[k - 1] + levels[k]) / 2;
    for (int k = 0; k < n; k++) {
        double mean = (density(border[k]) - density(border[k + 1])) / (below(border[k + 1]) - below(border[k]));
        moved = fmax(moved, fabs(mean - levels[k]));
        levels[k] = mean;
    }
    return moved;
}

TEST(levels_are_lloyds)
{
    static const char *const names[] = {"tq4", "tq3"};
    for (int i = 0; i < 2; i++) {
        const kvb_codec *codec = kvb_codec_find(names[i]);
        double levels[16], best[16];
        int n = 1 << codec->bits;
        levels_read(codec, levels);
        for (int k = 0; k < n; k++)
            best[k] = (k - (n - 1) / 2.0) * 6 / n; /* any start works: here evenly spread */
        while (lloyd(best, n) > 1e-9)
            ;
        for (int k = 0; k < n; k++)
            if (fabs(levels[k] - best[k]) > 1e-3)
                fail_msg("%s: level %d is %g, Lloyd's is %g", names[i], k, levels[k], best[k]);
    }
}

typedef enum rows_of { GAUSSIAN, SIGNS, OUTLIER } rows_of;

static void row_make(rows_of kind, float *x, uint32_t dim, uint64_t *seed)
{
    row_fill(ROW_NORMAL, x, dim, seed);
    for (uint32_t c = 0; c < dim; c++)
        x[c] = kind == SIGNS ? copysignf(0.7f, x[c]) : kind == OUTLIER ? x[c] * 0x1p-10f : x[c];
    if (kind == OUTLIER)
        x[row_random(seed) % dim] = 1000;
}

/* The lost share of |x|^2. */
static double loss(uint32_t bits, rows_of kind, uint32_t dim)
{
    enum { ROWS = 64 };
    const kvb_format format = {.name = bits == 4 ? "tq4" : "tq3",
                               .elem = KVB_CODEBOOK,
                               .axis = KVB_AXIS_CHANNELS,
                               .group = KVB_GROUP_ROW,
                               .scale_elem = KVB_F16,
                               .transform = KVB_TRANSFORM_SIGNED_HADAMARD};
    float x[256];
    const float *row = x;
    double stored[256], size[256], lost = 0, all = 0;
    kvb_storage store;
    char why[200];
    uint64_t seed = dim;

    assert_int_equal(kvb_storage_init(&store, &format, dim, NULL, 1, 0, why, sizeof why), 0);
    void *scratch = malloc(kvb_storage_scratch(&store));
    assert_non_null(scratch);
    for (int r = 0; r < ROWS; r++) {
        row_make(kind, x, dim, &seed);
        kvb_storage_rows(&store, &row, 1, scratch, stored, size);
        for (uint32_t c = 0; c < dim; c++) {
            lost += ((double)x[c] - stored[c]) * ((double)x[c] - stored[c]);
            all += (double)x[c] * (double)x[c];
        }
    }
    free(scratch);
    return lost / all;
}

/*
 * The theorem is about the mean over random rotations. The mean over Gaussian rows is such a mean. The mean over rows
 * of one magnitude and random signs is that of a constant row over all signs that the transform could have had. In a
 * block of 64 or less these take few different values; with 4 bits the loss is up to 0.0121, above 0.0106: not
 * asserted.
 */
TEST(loss_is_below_the_papers_bound)
{
    static const uint32_t dims[] = {64, 96, 128, 256};
    for (uint32_t bits = 3; bits <= 4; bits++)
        for (int d = 0; d < 4; d++) {
            double bound = sqrt(3) * pi / 2 * pow(4, -(double)bits), gaussian = loss(bits, GAUSSIAN, dims[d]);
            assert_true(gaussian <= bound);
            assert_true(dims[d] < 128 || loss(bits, SIGNS, dims[d]) <= bound);
            assert_true(gaussian > (bits == 3 ? 0.030 : 0.0080)); /* Max, table I: 0.03454 and 0.009497 for N(0, 1) */
        }
}

/*
 * If one element dominates a row, a Hadamard transform makes all elements +-1, with any signs. The theorem's rotations
 * do not; with 3 bits the loss exceeds the bound. It is the distance to the nearest level.
 */
TEST(an_outlier_is_two_levels)
{
    static const uint32_t dims[] = {64, 128, 256};
    for (int d = 0; d < 3; d++) {
        assert_true(fabs(loss(3, OUTLIER, dims[d]) - (1 - 0.756) * (1 - 0.756)) < 2e-3);
        assert_true(fabs(loss(4, OUTLIER, dims[d]) - (1 - 0.9424) * (1 - 0.9424)) < 1e-3);
    }
}

/*
 * Shows: decode(encode(x)) is within half a step of x, element by element, with a step that is computed from the row
 * alone. Numbers beyond the range become its end. Decoded elements are finite, unless codes have a NaN.
 */

#define F32 0x1p-24 /* unit roundoffs */
#define F16 0x1p-11

/* x limited to the codec's range. */
static double limited(float x, double limit)
{
    return isnan(x) ? 0 : fmax(-limit, fmin(limit, (double)x));
}

/* The largest error of an f16 near x. */
static double f16_error(double x)
{
    return fmax(fabs(x) * F16, 0x1p-25);
}

/* ---- the largest error of each family on element c of a row ------------------------------------------------------ */

typedef double allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c);

static void range(const float *x, uint32_t n, double limit, double *lo, double *hi)
{
    *lo = INFINITY, *hi = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        *lo = fmin(*lo, limited(x[i], limit));
        *hi = fmax(*hi, limited(x[i], limit));
    }
}

static double peak(const float *x, uint32_t n, double limit)
{
    double lo, hi;
    range(x, n, limit, &lo, &hi);
    return fmax(-lo, hi);
}

/* Half of 2^-man of the binade, at least half a subnormal. Beyond the largest number: the distance to it. */
static double fp8_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    bool e4m3 = codec->elem == KVB_E4M3;
    double largest = e4m3 ? 448 : 57344, y = fabs((double)x[c]), scale = codec->head_scale ? 0.5 : 1;
    if (codec->group) {
        scale = peak(x, dim, FLT_MAX) / largest;
        y = fmin(y, FLT_MAX);
    }
    if (scale < 0x1p-126) /* the scale itself is a subnormal, or 0 */
        return y;
    double half = fmax(y * (e4m3 ? 0x1p-4 : 0x1p-3), scale * (e4m3 ? 0x1p-10 : 0x1p-17));
    return y > largest * scale ? y - largest * scale + 4 * F32 * y : half + 4 * F32 * y;
}

static double int8_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    double lo, hi, v = limited(x[c], 0x1p126);
    range(x, dim, 0x1p126, &lo, &hi);
    bool symmetric = codec->elem == KVB_INT8;
    double reach = symmetric ? fmax(-lo, hi) : hi - lo, step = reach / (symmetric ? 127 : 255);
    /* A subnormal step is off by up to half of 2^-149, times the code. */
    return 0.5 * step + 4 * F32 * (reach + fabs(v)) + 256 * 0x1p-150;
}

static double ggml_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    (void)dim;
    const float *block = x + c / 32 * 32;
    double lo, hi, v = limited(x[c], 65504);
    range(block, 32, 65504, &lo, &hi);
    double most = fmax(-lo, hi), slack = 8 * F32 * (hi - lo), d;
    switch (codec->elem) {
    case KVB_Q8_0:
        d = most / 127;
        return 0.5 * d + 127 * f16_error(d) + slack;
    case KVB_Q5_1:
    case KVB_Q4_1:
        d = (hi - lo) / (codec->elem == KVB_Q5_1 ? 31 : 15);
        return 0.5 * d + (codec->elem == KVB_Q5_1 ? 31 : 15) * f16_error(d) + f16_error(lo) + slack;
    case KVB_Q5_0:
    case KVB_Q4_0: /* the peak's opposite has no code */
        d = most / (codec->elem == KVB_Q5_0 ? 16 : 8);
        return (fabs(v) > most - d / 2 ? 1 : 0.5) * d + 16 * f16_error(d) + slack;
    default: /* iq4_nl: half of the widest gap, or from 113 to 127; least squares move d by up to 0.12 of itself */
        d = most / 127;
        return (fabs(v) > 113 * d ? 14 : 12) * d + 127 * (0.12 * d + f16_error(d)) + slack;
    }
}

/* The scale puts a whole number of steps between the far edge and 0; it is 2/3 to 2 times the plain scale. */
static double mlx_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    (void)dim;
    double lo, hi, top = (1 << codec->bits) - 1, v = limited(x[c], 65504);
    range(x + c / codec->group * codec->group, codec->group, 65504, &lo, &hi);
    double edge = -lo > hi ? lo : hi, plain = fmax((hi - lo) / top, (double)1e-7f), steps = rint(fabs(edge) / plain);
    double scale = steps > 0 ? fabs(edge) / steps : plain, away = fabs(v - (steps > 0 ? edge : 0)) / scale;
    double excess = away > top ? away - top : 0; /* beyond the last code */
    return fmax(0.5, excess) * scale + top * f16_error(scale) + f16_error(edge) + 8 * F32 * (hi - lo + fabs(edge)) +
           (fabs(fabs(edge) / plain - steps) > 0.4999 ? scale : 0); /* rounded either way */
}

/* x: the 32 elements of a group. */
static double kivi_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    double lo, hi, top = (1 << codec->bits) - 1;
    x = codec->shared ? x : x + c / 32 * 32;
    (void)dim;
    range(x, 32, 65504, &lo, &hi);
    double scale = (hi - lo) / top, error = f16_error(scale);
    /* A code is clamped if the scale was rounded down; all codes are 0 if it was rounded to 0. */
    return 0.5 * (scale + error) + top * error + 8 * F32 * (hi - lo) + (scale < 0x1p-24 ? hi - lo : 0);
}

/* Half of the gap between the neighbours of y; above 6 the distance to 6. */
static double e2m1_half(double y)
{
    return y > 6 ? fmax(y - 6, 1) : y > 4 ? 1 : y > 2 ? 0.5 : 0.25;
}

static double mx_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    (void)dim;
    double v = fabs(limited(x[c], FLT_MAX)), amax = peak(x + c / codec->group * codec->group, codec->group, FLT_MAX);
    double scale = fmax(ldexp(1, amax > 0 ? ilogb(amax) - 2 : -127), 0x1p-127);
    if (codec->group == 16) { /* the scale is an E4M3, at most 448 */
        scale = kvb_codec_value(KVB_E4M3, kept.bytes[KVB_SCALES][c / 16]);
        double exact = fmin(amax / 6 / 0.5, 448);
        assert_true(fabs(scale - exact) <= fmax(exact * (0x1p-4 + 4 * F32), 0x1.00001p-10));
        scale *= 0.5;
    }
    return scale > 0 ? (e2m1_half(v / scale) + 32 * F32) * scale + 8 * F32 * v : v;
}

static double codebook_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    double sum = 0, outer = codec->bits == 4 ? 2.733 : 2.152, half = codec->bits == 4 ? 0.332 : 0.404;
    for (uint32_t i = 0; i < dim; i++)
        sum += limited(x[i], 65504) * limited(x[i], 65504);
    double rms = sqrt(sum / dim), error = f16_error(rms), v = fabs(limited(x[c], 65504));
    if (rms <= 0x1p-25)
        return v;
    return fmax(half * (rms + error), v - outer * (rms - error)) + 4 * F32 * v;
}

static allowance *allowance_of(const kvb_codec *codec)
{
    switch (codec->elem) {
    case KVB_E4M3:
    case KVB_E5M2:
        return fp8_allowance;
    case KVB_INT8:
        return int8_allowance;
    case KVB_E2M1:
        return mx_allowance;
    case KVB_CODEBOOK:
        return codebook_allowance;
    case KVB_UINT8:
    case KVB_UINT4:
    case KVB_UINT2:
        return codec->group == KVB_GROUP_ROW ? int8_allowance : codec->block > 1 ? kivi_allowance : mlx_allowance;
    default:
        return ggml_allowance;
    }
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

enum { DIM = 256, ROWS = 32 };
static float rows[ROWS][DIM];
static double stored[DIM], size[DIM];

static bool has_codes_for_nan(const kvb_codec *codec)
{
    return codec->elem == KVB_E4M3 || codec->elem == KVB_E5M2;
}

static void row_check(const kvb_codec *codec, uint32_t r, row_kind kind)
{
    for (uint32_t c = r % 3; c < DIM; c += 3) { /* a third of the elements: allowances read whole groups */
        float x = rows[r][c], column[ROWS];
        if (isnan(x) && has_codes_for_nan(codec)) {
            assert_true(isnan(stored[c]));
            continue;
        }
        for (uint32_t i = 0; i < ROWS; i++)
            column[i] = rows[i][c];
        double most =
            codec->shared ? allowance_of(codec)(codec, column, ROWS, r) : allowance_of(codec)(codec, rows[r], DIM, c);
        double v = limited(x, FLT_MAX), limit = codec->elem == KVB_E2M1 || has_codes_for_nan(codec)            ? FLT_MAX
                                                : codec->group == KVB_GROUP_ROW && codec->elem != KVB_CODEBOOK ? 0x1p126
                                                                                                               : 65504;
        double error = fabs(stored[c] - limited((float)v, limit));
        if (!isfinite(stored[c]) || !isfinite(size[c]) || size[c] < fabs(stored[c]) || !(error <= most))
            fail_msg("%s, row kind %d, element %u: %a is stored as %a, off by %g of %g", codec->name, (int)kind, c,
                     (double)x, stored[c], error, most);
    }
}

/* Rows of every kind in every format. */
TEST(within_half_a_step)
{
    for (const kvb_codec *codec = kvb_codecs + 3; codec->name; codec++)
        for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
            uint64_t seed = kind;
            for (uint32_t r = 0; r < ROWS; r++) {
                row_fill(kind, rows[r], DIM, &seed);
                for (uint32_t c = 0; codec->block > 1 && c < DIM; c++)
                    rows[r][c] = (float)kvb_codec_rounded(KVB_F16, rows[r][c]);
            }
            for (uint32_t first = 0; first < ROWS; first += codec->block) {
                stored_encode(&kept, codec, rows[first], codec->block, DIM, 0.5f);
                for (uint32_t i = 0; i < codec->block; i++) {
                    stored_decode(&kept, i, stored, size);
                    row_check(codec, first + i, kind);
                }
            }
        }
}

/* Decoded rows do not change, signs of zeros included, when they are stored again. */
TEST(stored_rows_stay)
{
    static const char *const names[] = {"f16", "bf16", "e4m3", "e5m2", "mxfp4", "e4m3-head", "e5m2-tensor"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        uint64_t seed = 7;
        for (int i = 0; i < 50; i++) {
            double again[DIM];
            row_fill(ROW_NORMAL, rows[0], DIM, &seed);
            stored_encode(&kept, kvb_codec_find(names[n]), rows[0], 1, DIM, 4);
            stored_decode(&kept, 0, stored, size);
            for (uint32_t c = 0; c < DIM; c++)
                rows[0][c] = (float)stored[c];
            stored_encode(&kept, kvb_codec_find(names[n]), rows[0], 1, DIM, 4);
            stored_decode(&kept, 0, again, size);
            assert_memory_equal(stored, again, sizeof again);
        }
    }
}
