/* C = A M for an int8 matrix M, like `multiply` of rows.h. Each row of A is rounded to 16 bits relative to its maximum,
 * so processors can add two products at once, and 32-bit sums are exact: the rows of C do not depend on each other. M is
 * stored as zero-padded panels of columns, with pairs of rows interleaved. */
typedef void multiplication(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *packed,
                            real *c, int64_t ldc);

enum { PANEL = 16, ROW_BLOCK = 16, DEPTH_BLOCK = 512 }; /* columns; rows of A and of M per pass: sums fit 32 bits */

#if HAS_LANES && defined(__AVX512BW__)
typedef __m512i wide;
#define PAIRS_OF(from) _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)(from)))
#define ADD_PAIRS(sum, a, b) sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_set1_epi32(a), b))
#elif HAS_LANES && defined(__AVX2__)
typedef __m256i wide;
#define PAIRS_OF(from) _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(from)))
#define ADD_PAIRS(sum, a, b) sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_set1_epi32(a), b))
#elif HAS_LANES && defined(__SSE2__)
typedef __m128i wide;
#define PAIRS_OF(from) _mm_srai_epi16(_mm_unpacklo_epi8(_mm_loadl_epi64((const void *)(from)), _mm_loadl_epi64((const void *)(from))), 8)
#define ADD_PAIRS(sum, a, b) sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_set1_epi32(a), b))
#elif HAS_LANES && defined(__wasm_simd128__)
typedef v128_t wide;
#define PAIRS_OF(from) wasm_i16x8_load8x8(from)
#define ADD_PAIRS(sum, a, b) sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(wasm_i32x4_splat(a), b))
#endif

/* Without this gcc reloads a vector of M for each row, and computes all products before it adds them. */
#if defined(__GNUC__) && !defined(__clang__)
#define KEEP(vector) __asm__("" : "+v"(vector))
#define UNROLLED _Pragma("GCC unroll 8")
#else
#define KEEP(vector) (void)0
#define UNROLLED
#endif

/* The sums of ROWS rows and a panel. */
#ifdef PAIRS_OF
#define BLOCK(ROWS)                                                                                      \
    INLINE void block_##ROWS(int64_t k, const int16_t *a, const stored *m, int32_t (*to)[PANEL]) {       \
        enum { EACH = sizeof(wide) / sizeof(int32_t), WIDE = EACH < 8 ? 2 : PANEL / EACH };              \
        for (int j = 0; j < PANEL; j += WIDE * EACH, m += 2 * WIDE * EACH) {                             \
            wide sums[ROWS][WIDE], b[WIDE];                                                              \
            UNROLLED for (int r = 0; r < ROWS; r++)                                                      \
                UNROLLED for (int w = 0; w < WIDE; w++) sums[r][w] = (wide){0};                          \
            for (int64_t i = 0; i < k; i += 2) {                                                         \
                UNROLLED for (int w = 0; w < WIDE; w++) {                                                \
                    b[w] = PAIRS_OF(m + PANEL * i + 2 * EACH * w);                                       \
                    if (ROWS > 1) KEEP(b[w]);                                                            \
                }                                                                                        \
                UNROLLED for (int r = 0; r < ROWS; r++) {                                                \
                    int32_t pair;                                                                        \
                    memcpy(&pair, a + r * DEPTH_BLOCK + i, sizeof pair);                                 \
                    UNROLLED for (int w = 0; w < WIDE; w++) {                                            \
                        ADD_PAIRS(sums[r][w], pair, b[w]);                                               \
                        KEEP(sums[r][w]);                                                                \
                    }                                                                                    \
                }                                                                                        \
            }                                                                                            \
            UNROLLED for (int r = 0; r < ROWS; r++)                                                      \
                UNROLLED for (int w = 0; w < WIDE; w++) memcpy(to[r] + j + w * EACH, &sums[r][w], sizeof(wide)); \
        }                                                                                                \
    }
#else
#define BLOCK(ROWS)                                                                                      \
    INLINE void block_##ROWS(int64_t k, const int16_t *a, const stored *m, int32_t (*to)[PANEL]) {       \
        for (int r = 0; r < ROWS; r++, a += DEPTH_BLOCK) {                                               \
            int32_t sums[PANEL] = {0};                                                                   \
            for (int64_t i = 0; i < k; i += 2)                                                           \
                for (int j = 0; j < PANEL; j++)                                                          \
                    sums[j] += a[i] * m[PANEL * i + 2 * j] + a[i + 1] * m[PANEL * i + 2 * j + 1];        \
            memcpy(to[r], sums, sizeof sums);                                                            \
        }                                                                                                \
    }
#endif
BLOCK(4)
BLOCK(3)
BLOCK(2)
BLOCK(1)

/* Rounds a row to 16-bit integers, with a zero after them; returns their unit. If a number is not finite, all products
 * become NaN. */
static real round_row(int64_t k, const real *a, int16_t *to) {
    bits max = 0;
    for (int64_t i = 0; i < k; i++) {
        bits size = bits_of(a[i]) & 0x7FFFFFFF;
        max = size > max ? size : max;
    }
    to[k] = 0;
    if (max < bits_of(1e-30f) || max >= bits_of(INFINITY)) {
        memset(to, 0, (size_t)k * sizeof *to);
        return max < bits_of(1e-30f) ? 0 : NAN;
    }
    const real factor = 32767 / real_of(max);
    for (int64_t i = 0; i < k; i++) to[i] = (int16_t)bits_of(a[i] * factor + ROUNDER);
    return real_of(max) / 32767;
}

/* Adds the products of up to ROW_BLOCK rows of A and DEPTH_BLOCK of M; panels are `panel` numbers apart. */
static void add_rows(int64_t rows, int64_t n, int64_t k, const real *a, int64_t stride, const stored *m, int64_t panel,
                     const real *factors, real *c, int64_t ldc, int is_first) {
    int16_t rounded[ROW_BLOCK * DEPTH_BLOCK + 2];
    real sizes[ROW_BLOCK];
    int32_t sums[ROW_BLOCK][PANEL];
    for (int64_t r = 0; r < rows; r++) sizes[r] = round_row(k, a + r * stride, rounded + r * DEPTH_BLOCK);
    for (int64_t j = 0; j < n; j += PANEL, m += panel) {
        int64_t r = 0;
        for (; rows - r >= 4; r += 4) block_4(k, rounded + r * DEPTH_BLOCK, m, sums + r);
        if (rows - r == 3) block_3(k, rounded + r * DEPTH_BLOCK, m, sums + r);
        if (rows - r == 2) block_2(k, rounded + r * DEPTH_BLOCK, m, sums + r);
        if (rows - r == 1) block_1(k, rounded + r * DEPTH_BLOCK, m, sums + r);
        int64_t width = n - j < PANEL ? n - j : PANEL;
        for (r = 0; r < rows; r++)
            for (int64_t w = 0; w < width; w++) {
                real *to = c + r * ldc + j + w;
                *to = (is_first ? 0 : *to) + (real)sums[r][w] * sizes[r] * factors[j + w];
            }
    }
}

static void multiply(int64_t rows, int64_t n, int64_t k, const real *a, int64_t stride, const real *packed, real *c,
                     int64_t ldc) {
    const stored *m = skip_scales(packed, (size_t)n);
    int64_t panel = (k + k % 2) * PANEL;
    for (int64_t r = 0; r < rows; r += ROW_BLOCK)
        for (int64_t i = 0; i < k; i += DEPTH_BLOCK)
            add_rows(rows - r < ROW_BLOCK ? rows - r : ROW_BLOCK, n, k - i < DEPTH_BLOCK ? k - i : DEPTH_BLOCK,
                     a + r * stride + i, stride, m + i * PANEL, panel, packed, c + r * ldc, ldc, i == 0);
}
