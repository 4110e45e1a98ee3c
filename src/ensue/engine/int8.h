/* Products of int8 numbers by the instruction `vpdpbusd` (AVX512_VNNI or AVX_VNNI), in place of those of kernels.h, which
 * it follows, with -DREAL_IS_DOUBLE=0 -DPRODUCTS_IN_INT8=1. Without the instruction IN_INT8 is 0, and nothing changes.
 *
 * Each column of B is rounded to multiples of its maximum / 127 when it is packed, each row of A during the product. So
 * a row of C depends on no other row. Sums of int8 products are exact. The instruction multiplies unsigned numbers (A,
 * plus 128) by signed ones (B), so 128 times the sum of a column is subtracted.
 *
 * A packed panel of PANEL columns has blocks of at most DEPTH rows: the units of the columns, 128 times their sums, and
 * the numbers, with four rows interleaved; rows past k and columns past n are zero. */
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
    DEPTH = 4096,    /* 128 * 127 * DEPTH fits 32 bits */
    A_LD = DEPTH + 64, /* not a power of two, whose multiples map to few sets of the cache */
};

INLINE int64_t quads(int64_t k) { return (k + QUAD - 1) / QUAD; }
INLINE int64_t packed_size_int8(int64_t k, int64_t n) {
    return (n + PANEL - 1) / PANEL * PANEL * (quads(k) + (k + DEPTH - 1) / DEPTH * 2);
}

/* Rounds from[0], from[stride], ... to multiples of the unit that it returns: NaN if a number is not finite. */
INLINE real round_numbers(int64_t k, const real *from, int64_t stride, int8_t *to) {
    typedef bits some_bits __attribute__((may_alias));
    const some_bits *patterns = (const some_bits *)from;
    const real tiny = 1e-30f, infinite = INFINITY;
    bits most = 0, lower, upper;
    memcpy(&lower, &tiny, sizeof lower);
    memcpy(&upper, &infinite, sizeof upper);
    for (int64_t p = 0; p < k; p++) {
        bits size = patterns[p * stride] & INT32_MAX;
        most = size > most ? size : most;
    }
    if (most < lower || most >= upper) {
        memset(to, 0, (size_t)k);
        return most < lower ? 0 : NAN;
    }
    real largest;
    memcpy(&largest, &most, sizeof largest);
    const real factor = LARGEST / largest;
    for (int64_t p = 0; p < k; p++)
        to[p] = (int8_t)(int32_t)rintf(from[p * stride] * factor);
    return largest / LARGEST;
}

UNUSED static void pack_int8(int64_t k, int64_t n, const real *B, int64_t row_stride, int64_t column_stride,
                             real *packed) {
    int8_t column[DEPTH];
    memset(packed, 0, (size_t)packed_size_int8(k, n) * sizeof(real));
    for (int64_t j = 0; j < n; j += PANEL)
        for (int64_t p = 0, depth; p < k; p += depth, packed += packed_size_int8(depth, PANEL)) {
            quad *sums = (quad *)packed + PANEL, *numbers = sums + PANEL;
            depth = minimum(DEPTH, k - p);
            for (int64_t c = 0; c < minimum(PANEL, n - j); c++) {
                int32_t sum = 0;
                packed[c] = round_numbers(depth, B + p * row_stride + (j + c) * column_stride, row_stride, column);
                for (int64_t q = 0; q < depth; q++)
                    sum += column[q];
                sums[c] = 128 * sum;
                memset(column + depth, 0, (size_t)(-depth & (QUAD - 1)));
                for (int64_t q = 0; q < quads(depth); q++)
                    numbers[q * PANEL + c] = ((const quad *)column)[q];
            }
        }
}

/* C (rows x PANEL) = or += A times one panel. */
INLINE void tile_int8(const int rows, int64_t k, const uint8_t *A, const real *units, const real *panel, real *C,
                      int64_t ldc, int accumulate) {
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
            ints both = SAME_QUADS(*(const quad *)(A + i * A_LD + q * QUAD));
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
        tile_int8(rows, k, A, units, panel, C, ldc, accumulate); \
        break;
static void rows_int8(int64_t rows, int64_t k, const uint8_t *A, const real *units, const real *panel, real *C,
                      int64_t ldc, int accumulate) {
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
    enum { STRIP = 8 * TILE_ROWS };
    _Alignas(64) uint8_t copy[STRIP * A_LD];
    real units[STRIP], edge[TILE_ROWS * PANEL];
    int64_t p = 0, depth;
    do {
        depth = minimum(DEPTH, k - p);
        for (int64_t i = 0, strip; i < m; i += strip) {
            strip = even_chunk(m - i, STRIP);
            int64_t rows = even_chunk(strip, TILE_ROWS);
            for (int64_t r = 0; r < strip; r++) {
                uint8_t *row = copy + r * A_LD;
                units[r] = round_numbers(depth, A + (i + r) * row_stride + p * column_stride, column_stride,
                                         (int8_t *)row);
                for (int64_t q = 0; q < quads(depth) * QUAD; q++)
                    row[q] ^= 128; /* plus 128; what is past the end is multiplied by 0 */
            }
            for (int64_t j = 0; j < n; j += PANEL)
                for (int64_t r = 0; r < strip; r += rows) {
                    int64_t some = minimum(rows, strip - r), columns = minimum(PANEL, n - j);
                    real *to = C + (i + r) * ldc + j;
                    int is_full = columns == PANEL, adds = accumulate || p;
                    rows_int8(some, depth, copy + r * A_LD, units + r, packed + j / PANEL * packed_size_int8(k, PANEL),
                              is_full ? to : edge, is_full ? ldc : PANEL, is_full && adds);
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

/* What follows multiplies by the functions above. */
#define packed_size packed_size_int8
#define pack pack_int8
#define gemm gemm_int8
#define gemm_once gemm_once_int8
#else
#define IN_INT8 0
#endif
