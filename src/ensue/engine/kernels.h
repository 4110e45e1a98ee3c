/* Matrix products for generated recurrent steps.
 *
 * A generated file includes this file once and is compiled for one type: -DREAL_IS_DOUBLE=0 makes `real` float, =1
 * makes it double. The language is C11 with the vector extensions of gcc and clang; the width of a vector follows the
 * target (-march=native). Compile with -ffp-contract=fast, but not with -ffast-math: the rounding in functions.h must
 * stay as written, and NaN must stay NaN.
 *
 * A product C = A B packs B (k x n) once and uses it for many steps. Packing divides B into panels of PANEL columns:
 * entry (p, j) is at (j / PANEL) * k * PANEL + p * PANEL + j % PANEL, and columns past n are zero. B may have any
 * strides, so a transpose needs no extra copy. Packed memory should start at a multiple of 64 bytes; any other start is
 * correct but slower. All strides are in reals, not bytes.
 *
 * With -DREAL_IS_DOUBLE=0 -DPRODUCTS_IN_BF16=1, on a processor with AVX512_BF16, the factors of a product are rounded
 * to bf16 (to nearest even; subnormal numbers to 0), B when it is packed and A during the product. Sums are in float. A
 * real of packed memory is then a pair of entries, of rows 2p and 2p + 1, and a row past k is zero.
 * With -DPRODUCTS_IN_AMX=1 in addition, on a processor with AMX, amx.h has to follow, which multiplies such pairs in
 * tile registers. The number of rows of pairs is then a multiple of AMX_ROWS. */
#ifndef ENSUE_KERNELS_H
#define ENSUE_KERNELS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if REAL_IS_DOUBLE
typedef double real;
typedef uint64_t bits;
#define PICK(for_float, for_double) for_double
#else
typedef float real;
typedef uint32_t bits;
#define PICK(for_float, for_double) for_float
#endif

#if PRODUCTS_IN_BF16 && !REAL_IS_DOUBLE && defined(__AVX512BF16__)
#include <immintrin.h>
#define IN_BF16 1
#else
#define IN_BF16 0
#endif

#if PRODUCTS_IN_AMX && IN_BF16 && (defined(__AMX_BF16__) || defined(AMX_IS_EMULATED))
#define IN_AMX 1
#else
#define IN_AMX 0
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

/* A tile of C is TILE_ROWS x PANEL, held in registers: 24 of 32 vector registers, or 12 of 16. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define TILE_ROWS 12
#else
#define TILE_ROWS 6
#endif

enum {
    LANES = VECTOR_BYTES / sizeof(real),
    PANEL = 2 * LANES,
    PAIR = IN_BF16 ? 2 : 1, /* entries in one real of packed memory */
    AMX_ROWS = 16, /* rows of a tile register */
    BLOCK = (IN_AMX ? 1024 : 2048) / sizeof(real) * PAIR, /* a tile of A with this many columns fits in the L1 cache, */
    BLOCK_WORDS = BLOCK / PAIR,
    BLOCK_PANELS = 512 * 1024 / (BLOCK_WORDS * PANEL * sizeof(real)), /* and these panels in half an L2 cache */
    /* Longer sums are added in chunks of this length, which round less; factors in bf16 have a far larger error. */
    SUM_CHUNK = IN_BF16 ? BLOCK_WORDS : 128,
};

typedef real vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
/* The type of vector arguments, since gcc 14 and later fails on ARM if an argument is a `vector`. */
typedef real aligned_vector __attribute__((vector_size(VECTOR_BYTES)));

#define UNUSED __attribute__((unused))
#define INLINE static inline __attribute__((always_inline, unused))
#if defined(_WIN32)
#define PUBLIC __declspec(dllexport)
#else
#define PUBLIC
#endif

/* Keeps a loaded vector in its register, since gcc would load it again for every row of a small tile. */
#if defined(__x86_64__)
#define KEEP(v) __asm__("" : "+v"(v))
#else
#define KEEP(v) (void)(v)
#endif

INLINE int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }

/* Returns the size of the next chunk, if `left` entries are split evenly into chunks of at most `limit`. For example,
 * 13 rows in tiles of 12 are split into 7 and 6, not into 12 and 1. */
INLINE int64_t even_chunk(int64_t left, int64_t limit) {
    int64_t chunks = 1 + (left - 1) / limit;
    return (left + chunks - 1) / chunks;
}

/* The number of reals that store k entries, and the number of reals in a packed k x n matrix. */
INLINE int64_t words(int64_t k) {
    int64_t pairs = (k + PAIR - 1) / PAIR;
    return IN_AMX ? (pairs + AMX_ROWS - 1) / AMX_ROWS * AMX_ROWS : pairs;
}
UNUSED static int64_t packed_size(int64_t k, int64_t n) { return (n + PANEL - 1) / PANEL * PANEL * words(k); }

/* The first or the second half of two interleaved vectors, a0 b0 a1 b1 ... */
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef bits places __attribute__((vector_size(VECTOR_BYTES)));
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif
#if VECTOR_BYTES == 64 && !REAL_IS_DOUBLE
#define FIRST_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define SECOND_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VECTOR_BYTES == 64 || (VECTOR_BYTES == 32 && !REAL_IS_DOUBLE)
#define FIRST_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define SECOND_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#elif VECTOR_BYTES == 32 || !REAL_IS_DOUBLE
#define FIRST_HALVES 0, 4, 1, 5
#define SECOND_HALVES 2, 6, 3, 7
#else
#define FIRST_HALVES 0, 2
#define SECOND_HALVES 1, 3
#endif

/* to[p * ld_to + j] = from[j * ld + p] for p, j < LANES: interleaving the rows log2(LANES) times transposes them. */
INLINE void transpose_square(const real *from, int64_t ld, real *to, int64_t ld_to) {
    vector v[LANES], w[LANES];
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++)
        v[j] = *(const vector *)(from + j * ld);
#pragma GCC unroll 4
    for (int step = 1; step < LANES; step *= 2) {
#pragma GCC unroll 8
        for (int j = 0; j < LANES / 2; j++) {
            w[2 * j] = SHUFFLED(v[j], v[j + LANES / 2], FIRST_HALVES);
            w[2 * j + 1] = SHUFFLED(v[j], v[j + LANES / 2], SECOND_HALVES);
        }
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            v[j] = w[j];
    }
#pragma GCC unroll 16
    for (int p = 0; p < LANES; p++)
        *(vector *)(to + p * ld_to) = v[p];
}

#if IN_BF16
typedef int32_t word __attribute__((may_alias));

/* Returns the first `count` (at most 16) of from[0], from[stride], ..., and zeros after them. */
INLINE __m512 load_lanes(int64_t count, const real *from, int64_t stride) {
    count = count < 0 ? 0 : minimum(count, LANES);
    if (stride == 1)
        return _mm512_maskz_loadu_ps((1u << count) - 1, from);
    real lanes[LANES] = {0};
    for (int64_t q = 0; q < count; q++)
        lanes[q] = from[q * stride];
    return _mm512_loadu_ps(lanes);
}

/* Writes the rows of A (rows x k) as pairs of neighbors, with a distance of `ld` reals between rows, in complete
 * vectors. */
INLINE void pair_rows(int64_t rows, int64_t k, const real *A, int64_t row_stride, int64_t column_stride, real *to,
                      int64_t ld) {
    for (int64_t i = 0; i < rows; i++, A += row_stride, to += ld)
        for (int64_t p = 0; p < k; p += 2 * LANES) {
            /* The processor does not prefetch the next row. */
            __builtin_prefetch(A + row_stride + p * column_stride);
            __builtin_prefetch(A + row_stride + (p + LANES) * column_stride);
            __m512 low = load_lanes(k - p, A + p * column_stride, column_stride);
            __m512 high = load_lanes(k - p - LANES, A + (p + LANES) * column_stride, column_stride);
            _mm512_storeu_si512(to + p / 2, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
}

/* Returns the pairs of at most 16 columns of two rows of B, which are contiguous; a missing row is zeros. */
INLINE __m512i pair_columns(int64_t columns, int64_t rows, const real *B, int64_t row_stride) {
    __m512 low = rows > 0 ? load_lanes(columns, B, 1) : _mm512_setzero_ps();
    __m512 high = rows > 1 ? load_lanes(columns, B + row_stride, 1) : _mm512_setzero_ps();
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    return _mm512_or_si512(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(both)),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1)), 16));
}

/* Packs B[p * row_stride + j * column_stride], p < k, j < n. */
UNUSED static void pack(int64_t k, int64_t n, const real *B, int64_t row_stride, int64_t column_stride, real *packed) {
    for (int64_t j = 0; j < n; j += PANEL, packed += words(k) * PANEL) {
        const real *from = B + j * column_stride;
        int64_t columns = minimum(PANEL, n - j);
        for (int64_t p = 0; column_stride == 1 && p < PAIR * words(k); p += 2)
            for (int64_t q = 0; q < PANEL; q += LANES)
                _mm512_storeu_si512(packed + p / 2 * PANEL + q,
                                    pair_columns(columns - q, k - p, from + p * row_stride + q, row_stride));
        for (int64_t p = 0; column_stride != 1 && p < k; p += 2 * LANES) {
            real square[PANEL][LANES] = {{0}};
            pair_rows(columns, minimum(k - p, 2 * LANES), from + p * row_stride, column_stride, row_stride, *square,
                      LANES);
            real *to = packed + p / 2 * PANEL;
            int64_t rows = minimum(LANES, words(k - p));
            for (int64_t q = 0; rows == LANES && q < PANEL; q += LANES)
                transpose_square(square[q], LANES, to + q, PANEL);
            for (int64_t r = 0; rows < LANES && r < rows; r++)
                for (int64_t q = 0; q < PANEL; q++)
                    ((word *)to)[r * PANEL + q] = ((word *)square[q])[r];
        }
    }
}

/* sum (rows x PANEL) += one column of pairs of A times one row of pairs of a panel. */
INLINE void add_outer(const int rows, vector sum[][2], const real *A, int64_t row_stride, const real *panel_row) {
    __m512i left = _mm512_loadu_si512(panel_row), right = _mm512_loadu_si512(panel_row + LANES);
    KEEP(left);
    KEEP(right);
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        __m512bh pair = (__m512bh)_mm512_set1_epi32(*(const word *)(A + i * row_stride));
        sum[i][0] = (vector)_mm512_dpbf16_ps((__m512)sum[i][0], pair, (__m512bh)left);
        sum[i][1] = (vector)_mm512_dpbf16_ps((__m512)sum[i][1], pair, (__m512bh)right);
    }
}
#else
/* Packs B[p * row_stride + j * column_stride], p < k, j < n; contiguous rows or columns are copied as vectors. */
UNUSED static void pack(int64_t k, int64_t n, const real *B, int64_t row_stride, int64_t column_stride, real *packed) {
    for (int64_t j = 0; j < n; j += PANEL, packed += k * PANEL) {
        int64_t columns = minimum(PANEL, n - j), p = 0;
        const real *from = B + j * column_stride;
        if (columns == PANEL && column_stride == 1)
            for (; p < k; p++)
                memcpy(packed + p * PANEL, from + p * row_stride, PANEL * sizeof(real));
        else if (columns == PANEL && row_stride == 1)
            for (; p + LANES <= k; p += LANES) {
                transpose_square(from + p, column_stride, packed + p * PANEL, PANEL);
                transpose_square(from + LANES * column_stride + p, column_stride, packed + p * PANEL + LANES, PANEL);
            }
        for (; p < k; p++)
            for (int64_t q = 0; q < PANEL; q++)
                packed[p * PANEL + q] = q < columns ? from[p * row_stride + q * column_stride] : 0;
    }
}

/* sum (rows x PANEL) += one column of A times one row of a panel. */
INLINE void add_outer(const int rows, vector sum[][2], const real *A, int64_t row_stride, const real *panel_row) {
    vector left = *(const vector *)panel_row, right = *(const vector *)(panel_row + LANES);
    KEEP(left);
    KEEP(right);
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        sum[i][0] += A[i * row_stride] * left;
        sum[i][1] += A[i * row_stride] * right;
    }
}
#endif

/* C (rows x PANEL) = or += A (rows x k) times one panel. `rows` and `chains` are constants at each call. A sum over p
 * is split into `chains` independent sums, since the additions of few rows would wait for each other. */
INLINE void tile(const int rows, const int chains, int64_t k, const real *A, int64_t row_stride, int64_t column_stride,
                 const real *panel, real *C, int64_t ldc, int accumulate) {
    vector sum[TILE_ROWS][2] = {{{0}}};
    int64_t p = 0;
    for (; p + chains <= k; p += chains)
#pragma GCC unroll 4
        for (int s = 0; s < chains; s++)
            add_outer(rows, sum + s * rows, A + (p + s) * column_stride, row_stride, panel + (p + s) * PANEL);
    for (; p < k; p++)
        add_outer(rows, sum, A + p * column_stride, row_stride, panel + p * PANEL);
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            vector *c = (vector *)(C + i * ldc + v * LANES);
#pragma GCC unroll 4
            for (int s = 1; s < chains; s++)
                sum[i][v] += sum[s * rows + i][v];
            *c = sum[i][v] + (accumulate ? *c : (vector){0});
        }
}

#define CHAINS(rows) (IN_BF16 && rows == 1 ? 4 : rows <= TILE_ROWS / 3 ? 2 : 1)
#define CASE(rows) \
    case rows: \
        tile(rows, CHAINS(rows), k, A, row_stride, column_stride, panel, C, ldc, accumulate); \
        break;
#if TILE_ROWS == 12
#define CASES CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#else
#define CASES CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#endif

/* A tile whose rows of A are contiguous. */
static void tile_by_rows(int64_t rows, int64_t k, const real *A, int64_t row_stride, const real *panel, real *C,
                         int64_t ldc, int accumulate) {
    enum { column_stride = 1 };
    switch (rows) { CASES }
}

/* A tile whose columns of A are contiguous, TILE_ROWS apart, as written by `copy_columns`. */
static void tile_by_columns(int64_t rows, int64_t k, const real *A, const real *panel, real *C, int64_t ldc,
                            int accumulate) {
    enum { row_stride = 1, column_stride = TILE_ROWS };
    switch (rows) { CASES }
}
#undef CASES
#undef CASE
#undef CHAINS

/* At most TILE_ROWS rows of C (rows x n) = or += the same rows of A times the panels, which are `panel_stride` apart. A
 * has the layout of `tile_by_rows` or `tile_by_columns`. The columns of an incomplete last panel go through `edge`. */
UNUSED static void row_of_tiles(int64_t rows, int64_t n, int64_t k, const real *A, int64_t row_stride, int by_rows,
                         const real *packed, int64_t panel_stride, real *C, int64_t ldc, int accumulate) {
    real edge[TILE_ROWS * PANEL];
    for (; n > 0; n -= PANEL, packed += panel_stride, C += PANEL) {
        int is_full = n >= PANEL, adds = is_full && accumulate;
        real *to = is_full ? C : edge;
        int64_t p = 0, chunk, stride = is_full ? ldc : PANEL;
        do {
            chunk = even_chunk(k - p, SUM_CHUNK);
            if (by_rows)
                tile_by_rows(rows, chunk, A + p, row_stride, packed + p * PANEL, to, stride, adds || p);
            else
                tile_by_columns(rows, chunk, A + p * TILE_ROWS, packed + p * PANEL, to, stride, adds || p);
        } while ((p += chunk) < k);
        for (int64_t i = 0; !is_full && i < rows; i++)
            for (int64_t j = 0; j < n; j++)
                C[i * ldc + j] = edge[i * PANEL + j] + (accumulate ? C[i * ldc + j] : 0);
    }
}

#if IN_AMX
enum { STRIP = 8 * AMX_ROWS };
static void strip_of_product(int64_t m, int64_t n, int64_t depth, const real *A, int64_t row_stride,
                             int64_t column_stride, const real *packed, int64_t panel_stride, real *C, int64_t ldc,
                             int accumulate);
#elif IN_BF16
enum {
    STRIP = 10 * TILE_ROWS,
    COPY_LD = BLOCK_WORDS + LANES, /* not a power of two: its multiples map to few sets of the cache */
    TILE = TILE_ROWS * COPY_LD,
};

/* Copies A (m x k, m <= STRIP) as pairs into tiles of `rows` rows. The rows of a tile are COPY_LD apart if `by_rows`;
 * otherwise the row stride of A is 1, and the columns of a tile are TILE_ROWS apart. */
INLINE void copy_strip(int64_t m, int64_t rows, int64_t k, const real *A, int64_t row_stride, int64_t column_stride,
                       int by_rows, real *copy) {
    for (int64_t i = 0; by_rows && i < m; i += rows, copy += TILE)
        pair_rows(minimum(rows, m - i), k, A + i * row_stride, row_stride, column_stride, copy, COPY_LD);
    for (int64_t p = 0; !by_rows && p < k; p += 2, A += 2 * column_stride, copy += TILE_ROWS)
        for (int64_t i = 0, t = 0; i < m; i += rows, t += TILE) {
            /* Distant rows of A are on different pages, across which the processor does not prefetch. */
            __builtin_prefetch(A + i + 16 * column_stride);
            __builtin_prefetch(A + i + 17 * column_stride);
            _mm512_storeu_si512(copy + t, pair_columns(minimum(rows, m - i), k - p, A + i, column_stride));
        }
}

/* Rows i to i + m of `gemm`, m <= STRIP, for entries p to p + depth of the sum: A is rounded once for all panels. */
static void strip_of_product(int64_t m, int64_t n, int64_t depth, const real *A, int64_t row_stride,
                             int64_t column_stride, const real *packed, int64_t panel_stride, real *C, int64_t ldc,
                             int accumulate) {
    real copy[STRIP / TILE_ROWS * TILE];
    int by_rows = column_stride == 1 || row_stride != 1;
    int64_t rows = even_chunk(m, TILE_ROWS);
    copy_strip(m, rows, depth, A, row_stride, column_stride, by_rows, copy);
    for (int64_t j = 0; j < n; j += BLOCK_PANELS * PANEL)
        for (int64_t i = 0; i < m; i += rows)
            row_of_tiles(minimum(rows, m - i), minimum(BLOCK_PANELS * PANEL, n - j), words(depth),
                         copy + i / rows * TILE, COPY_LD, by_rows, packed + j / PANEL * panel_stride,
                         panel_stride, C + i * ldc + j, ldc, accumulate);
}
#else
/* Rows of A^T are read in complete cache lines: 48 adjacent floats or 24 doubles are three lines. */
enum { STRIP = INT32_MAX, TILES = 4, GROUP = TILES * TILE_ROWS, TILE = TILE_ROWS * BLOCK };

/* Copies the columns of A (m x k, m <= GROUP) into tiles of `rows` rows, TILE_ROWS apart. */
INLINE void copy_columns(int64_t m, int64_t rows, int64_t k, const real *A, int64_t row_stride, int64_t column_stride,
                         real *copy) {
    for (int64_t p = 0; p < k; p++, A += column_stride, copy += TILE_ROWS)
        if (m == GROUP && row_stride == 1) {
            /* Rows of A^T are on different pages, across which the processor does not prefetch. */
            for (int64_t line = 0; line < GROUP; line += GROUP / 3)
                __builtin_prefetch(A + 8 * column_stride + line);
            for (int64_t t = 0; t < TILES; t++)
                memcpy(copy + t * TILE, A + t * TILE_ROWS, TILE_ROWS * sizeof(real)); /* of constant size: no call */
        } else
            for (int64_t i = 0; i < m; i += rows)
                for (int64_t q = 0; q < minimum(rows, m - i); q++)
                    copy[i / rows * TILE + q] = A[(i + q) * row_stride];
}

/* Rows i to i + m of `gemm`, for entries p to p + depth of the sum. */
static void strip_of_product(int64_t m, int64_t n, int64_t depth, const real *A, int64_t row_stride,
                             int64_t column_stride, const real *packed, int64_t panel_stride, real *C, int64_t ldc,
                             int accumulate) {
    real copy[TILES * TILE];
    int by_rows = column_stride == 1;
    for (int64_t j = 0; j < n; j += BLOCK_PANELS * PANEL)
        for (int64_t i = 0, group; i < m; i += group) {
            group = minimum(m - i, GROUP);
            int64_t rows = even_chunk(group, TILE_ROWS);
            if (!by_rows)
                copy_columns(group, rows, depth, A + i * row_stride, row_stride, column_stride, copy);
            for (int64_t q = 0; q < group; q += rows)
                row_of_tiles(minimum(rows, group - q), minimum(BLOCK_PANELS * PANEL, n - j), depth,
                             by_rows ? A + (i + q) * row_stride : copy + q / rows * TILE, row_stride, by_rows,
                             packed + j / PANEL * panel_stride, panel_stride, C + (i + q) * ldc + j, ldc, accumulate);
        }
}
#endif

/* C[i * ldc + j] = or += sum over p of A[i * row_stride + p * column_stride] * B[p, j], with B (k x n) packed. */
UNUSED static void gemm(int64_t m, int64_t n, int64_t k, const real *A, int64_t row_stride, int64_t column_stride,
                        const real *packed, real *C, int64_t ldc, int accumulate) {
    int64_t p = 0, depth, rows;
    do {
        depth = minimum(k - p, words(even_chunk(k - p, BLOCK)) * PAIR); /* complete pairs, except at the end */
        for (int64_t i = 0; i < m; i += rows) {
            rows = even_chunk(m - i, STRIP);
            strip_of_product(rows, n, depth, A + i * row_stride + p * column_stride, row_stride, column_stride,
                             packed + words(p) * PANEL, words(k) * PANEL, C + i * ldc, ldc, accumulate || p);
        }
    } while ((p += depth) < k);
}

/* Like `gemm`, but B is not packed, for a single product (dW = dZ^T X): the rows of B are packed in blocks into
 * `workspace`, which has packed_size(BLOCK, n) reals. */
UNUSED static void gemm_once(int64_t m, int64_t n, int64_t k, const real *A, int64_t row_stride, int64_t column_stride,
                             const real *B, int64_t row_stride_b, int64_t column_stride_b, real *C, int64_t ldc,
                             int accumulate, real *workspace) {
    int64_t p = 0, depth;
    do {
        depth = even_chunk(k - p, BLOCK);
        pack(depth, n, B + p * row_stride_b, row_stride_b, column_stride_b, workspace);
        gemm(m, n, depth, A + p * column_stride, row_stride, column_stride, workspace, C, ldc, accumulate || p);
    } while ((p += depth) < k);
}

/* EXCHANGED(v, d) is the vector whose number i is number i ^ d of v. */
#define TWO(i, d) (i) ^ d, (i + 1) ^ d
#define FOUR(i, d) TWO(i, d), TWO(i + 2, d)
#define EIGHT(i, d) FOUR(i, d), FOUR(i + 4, d)
#if VECTOR_BYTES / PICK(4, 8) == 16
#define ALL(d) EIGHT(0, d), EIGHT(8, d)
#elif VECTOR_BYTES / PICK(4, 8) == 8
#define ALL(d) EIGHT(0, d)
#elif VECTOR_BYTES / PICK(4, 8) == 4
#define ALL(d) FOUR(0, d)
#else
#define ALL(d) TWO(0, d)
#endif
#ifdef __clang__
#define EXCHANGED(v, d) __builtin_shufflevector(v, v, ALL(d))
#else
typedef bits indices __attribute__((vector_size(VECTOR_BYTES)));
#define EXCHANGED(v, d) __builtin_shuffle(v, (indices){ALL(d)})
#endif

/* Returns the sum of the numbers of a vector, by adding halves in registers. */
INLINE real total(aligned_vector from) {
    vector v = from;
#if VECTOR_BYTES / PICK(4, 8) > 8
    v += EXCHANGED(v, 8);
#endif
#if VECTOR_BYTES / PICK(4, 8) > 4
    v += EXCHANGED(v, 4);
#endif
#if VECTOR_BYTES / PICK(4, 8) > 2
    v += EXCHANGED(v, 2);
#endif
    v += EXCHANGED(v, 1);
    return v[0];
}

#endif
