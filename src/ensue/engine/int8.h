/* Products of int8 numbers by the instruction `vpdpbusd` (AVX512_VNNI or AVX_VNNI). This file follows kernels.h, with
 * -DREAL_IS_DOUBLE=0 -DPRODUCTS_IN_INT8=1, and replaces the products of kernels.h. Without the instruction it defines
 * IN_INT8 as 0 and nothing else.
 *
 * In blocks of at most DEPTH numbers, columns of B (when B is packed) and rows of A (in the product) are rounded to
 * multiples of their maximum absolute value / 127. So a row of C does not depend on other rows. Sums of int8 products
 * are exact. The instruction multiplies unsigned numbers (A plus 128) by signed numbers (B), so 128 times the sum of a
 * column of B is subtracted.
 *
 * A packed panel of PANEL columns has blocks of at most DEPTH rows: the units of the columns, 128 times the sums of the
 * columns, and the numbers, with four rows interleaved. Rows past k and columns past n are zero. */
#if PRODUCTS_IN_INT8 && !REAL_IS_DOUBLE && (defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__)))
#include <immintrin.h>
#define IN_INT8 1

#ifdef __AVX512F__
typedef __m512i ints;
#define ADD_QUADS _mm512_dpbusd_epi32
#define SAME_QUADS _mm512_set1_epi32
#define FLOATS(v) ((vector)_mm512_cvtepi32_ps(v))
#else
typedef __m256i ints;
#define ADD_QUADS _mm256_dpbusd_avx_epi32
#define SAME_QUADS _mm256_set1_epi32
#define FLOATS(v) ((vector)_mm256_cvtepi32_ps(v))
#endif
typedef ints any_ints __attribute__((aligned(4), may_alias));
typedef int32_t quad __attribute__((aligned(1), may_alias));

enum {
    LARGEST = 127,
    QUAD = 4,
    DEPTH = 4096, /* 255 * 127 * DEPTH fits 32 bits */
    GAP = 64,     /* bytes between rows of A: rows at distances of a power of two map to few sets of the cache */
    COPY_BYTES = TILE_ROWS * (DEPTH + GAP),
};

INLINE int64_t quads(int64_t k) { return (k + QUAD - 1) / QUAD; }
INLINE int64_t packed_size_int8(int64_t k, int64_t n) {
    int64_t blocks = k == 0 ? 1 : (k + DEPTH - 1) / DEPTH;
    return (n + PANEL - 1) / PANEL * PANEL * (quads(k) + 2 * blocks);
}

/* Returns the unit of the numbers from[0], from[stride], ...: the maximum absolute value / 127; 0 if all numbers are
 * tiny, and NaN if a number is not finite. */
INLINE real unit_of(int64_t k, const real *from, int64_t stride) {
    typedef bits some_bits __attribute__((may_alias));
    const some_bits *patterns = (const some_bits *)from;
    const real tiny = 1e-30f, infinite = INFINITY;
    bits highest = 0, lower, upper;
    real largest;
    memcpy(&lower, &tiny, sizeof lower);
    memcpy(&upper, &infinite, sizeof upper);
    for (int64_t p = 0; p < k; p++) {
        bits size = patterns[p * stride] & INT32_MAX;
        highest = size > highest ? size : highest;
    }
    memcpy(&largest, &highest, sizeof largest);
    return highest < lower ? 0 : highest < upper ? largest / LARGEST : NAN;
}

/* Rounds numbers to multiples of a unit; to 0 if the unit is 0 or NaN. */
INLINE void round_numbers(int64_t k, const real *from, int64_t stride, real unit, int8_t *to) {
    const real factor = unit > 0 ? 1 / unit : 0;
    for (int64_t p = 0; unit > 0 && stride == 1 && p < k; p++)
        to[p] = (int8_t)(int32_t)rintf(from[p] * factor);
    for (int64_t p = 0; unit > 0 && stride != 1 && p < k; p++)
        to[p] = (int8_t)(int32_t)rintf(from[p * stride] * factor);
    if (!(unit > 0))
        memset(to, 0, (size_t)k);
}

/* Packs LANES or fewer columns and at most DEPTH rows: half of a block. */
INLINE void pack_half(int64_t k, int64_t columns, const real *B, int64_t row_stride, int64_t column_stride, real *units) {
    enum { ROWS = 8 * LANES, LD = ROWS + LANES }; /* quads; not a power of two */
    real square[LANES][LD];
    real *numbers = units + 2 * PANEL;
    for (int64_t c = 0; c < LANES; c++)
        units[c] = c < columns ? unit_of(k, B + c * column_stride, row_stride) : 0;
    ints sums = (ints){0};
    for (int64_t q = 0; q < quads(k); q += ROWS) {
        int64_t some = minimum(k - q * QUAD, ROWS * QUAD), rows = quads(some), r = 0;
        for (int64_t c = 0; c < LANES; c++) {
            int64_t count = c < columns ? some : 0;
            int8_t *to = (int8_t *)square[c];
            round_numbers(count, B + c * column_stride + q * QUAD * row_stride, row_stride, units[c], to);
            memset(to + count, 0, (size_t)(rows * QUAD - count));
        }
        for (; r + LANES <= rows; r += LANES)
            transpose_square(*square + r, LD, numbers + (q + r) * PANEL, PANEL);
        for (; r < rows; r++)
            for (int64_t c = 0; c < LANES; c++)
                ((quad *)numbers)[(q + r) * PANEL + c] = ((const quad *)square[c])[r];
        for (r = 0; r < rows; r++)
            sums = ADD_QUADS(sums, SAME_QUADS((int)0x80808080), *(const any_ints *)(numbers + (q + r) * PANEL));
    }
    *(any_ints *)(units + PANEL) = sums;
}

UNUSED static void pack_int8(int64_t k, int64_t n, const real *B, int64_t row_stride, int64_t column_stride,
                             real *packed) {
    for (int64_t j = 0; j < n; j += PANEL) {
        int64_t p = 0, depth;
        do {
            depth = minimum(DEPTH, k - p);
            for (int64_t half = 0; half < PANEL; half += LANES)
                pack_half(depth, minimum(LANES, n - j - half), B + p * row_stride + (j + half) * column_stride,
                          row_stride, column_stride, packed + half);
            packed += packed_size_int8(depth, PANEL);
        } while ((p += depth) < k);
    }
}

/* C (rows x PANEL) = or += A times one panel. */
INLINE void tile_int8(const int rows, int64_t k, const uint8_t *A, int64_t lda, const real *units, const real *panel,
                      real *C, int64_t ldc, int accumulate) {
    ints sum[TILE_ROWS][2];
    const real *numbers = panel + 2 * PANEL;
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < 2; v++)
            sum[i][v] = (ints){0};
    for (int64_t q = 0; q < quads(k); q++, numbers += PANEL) {
        ints left = *(const any_ints *)numbers, right = *(const any_ints *)(numbers + LANES);
        KEEP(left);
        KEEP(right);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            ints both = SAME_QUADS(*(const quad *)(A + i * lda + q * QUAD));
            sum[i][0] = ADD_QUADS(sum[i][0], both, left);
            sum[i][1] = ADD_QUADS(sum[i][1], both, right);
            KEEP(sum[i][0]);
            KEEP(sum[i][1]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < 2; v++) {
            typedef int32_t each __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
            vector *c = (vector *)(C + i * ldc + v * LANES);
            vector product = FLOATS((ints)((each)sum[i][v] - *(const each *)(panel + PANEL + v * LANES)));
            product *= units[i] * *(const vector *)(panel + v * LANES);
            *c = product + (accumulate ? *c : (vector){0});
        }
}

#define CASE(rows) \
    case rows: \
        tile_int8(rows, k, A, lda, units, panel, C, ldc, accumulate); \
        break;
static void rows_int8(int64_t rows, int64_t k, const uint8_t *A, int64_t lda, const real *units, const real *panel,
                      real *C, int64_t ldc, int accumulate) {
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if TILE_ROWS == 12
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
}
#undef CASE

UNUSED static void gemm_int8(int64_t m, int64_t n, int64_t k, const real *A, int64_t row_stride, int64_t column_stride,
                             const real *packed, real *C, int64_t ldc, int accumulate) {
    _Alignas(64) uint8_t copy[COPY_BYTES];
    real units[COPY_BYTES / GAP], edge[TILE_ROWS * PANEL];
    int64_t p = 0, depth;
    do {
        depth = minimum(DEPTH, k - p);
        int64_t lda = quads(depth) * QUAD + GAP, max_rows = COPY_BYTES / lda;
        for (int64_t i = 0, strip; i < m; i += strip) {
            strip = even_chunk(m - i, max_rows - max_rows % TILE_ROWS);
            int64_t rows = even_chunk(strip, TILE_ROWS);
            for (int64_t r = 0; r < strip; r++) {
                const real *from = A + (i + r) * row_stride + p * column_stride;
                uint8_t *row = copy + r * lda;
                memset(row + depth, 0, QUAD); /* B has zeros there */
                units[r] = unit_of(depth, from, column_stride);
                round_numbers(depth, from, column_stride, units[r], (int8_t *)row);
                for (int64_t q = 0; q < depth; q++)
                    row[q] ^= 128; /* plus 128 */
            }
            for (int64_t j = 0; j < n; j += PANEL)
                for (int64_t r = 0; r < strip; r += rows) {
                    int64_t some = minimum(rows, strip - r), columns = minimum(PANEL, n - j);
                    real *to = C + (i + r) * ldc + j;
                    int is_full = columns == PANEL, adds = accumulate || p;
                    rows_int8(some, depth, copy + r * lda, lda, units + r,
                              packed + j / PANEL * packed_size_int8(k, PANEL), is_full ? to : edge,
                              is_full ? ldc : PANEL, is_full && adds);
                    for (int64_t e = 0; !is_full && e < some; e++)
                        for (int64_t c = 0; c < columns; c++)
                            to[e * ldc + c] = edge[e * PANEL + c] + (adds ? to[e * ldc + c] : 0);
                }
        }
        packed += packed_size_int8(depth, PANEL);
    } while ((p += depth) < k);
}

UNUSED static void gemm_once_int8(int64_t m, int64_t n, int64_t k, const real *A, int64_t row_stride,
                                  int64_t column_stride, const real *B, int64_t row_stride_b, int64_t column_stride_b,
                                  real *C, int64_t ldc, int accumulate, real *workspace) {
    for (int64_t p = 0; p < k || p == 0; p += BLOCK) {
        pack_int8(minimum(BLOCK, k - p), n, B + p * row_stride_b, row_stride_b, column_stride_b, workspace);
        gemm_int8(m, n, minimum(BLOCK, k - p), A + p * column_stride, row_stride, column_stride, workspace, C, ldc,
                  accumulate || p);
    }
}

/* Code after this file multiplies by these functions. */
#define packed_size packed_size_int8
#define pack pack_int8
#define gemm gemm_int8
#define gemm_once gemm_once_int8
#else
#define IN_INT8 0
#endif
