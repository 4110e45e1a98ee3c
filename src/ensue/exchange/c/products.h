/* The numbers of matrices and tables are of 32 bits, halves of 16, or whole numbers of 8. Before whole numbers there is a
 * factor for each column of a matrix, and for each row of a table. */
#ifndef PRECISION
#define PRECISION 32
#endif
#if PRECISION == 16
typedef uint16_t stored;

/* Of a half that is finite; the product makes subnormal ones right, too. */
INLINE real number(stored half) {
    return real_of(bits_of(real_of((bits)(half & 0x7FFF) << 13) * 0x1p112f) | (bits)(half & 0x8000) << 16);
}
#elif PRECISION == 8
typedef int8_t stored;

INLINE real number(stored whole) { return (real)whole; }
#else
typedef real stored;

INLINE real number(stored x) { return x; }
#endif

static const stored *stored_behind(const real *factors, size_t count) {
    return (const stored *)(const void *)(factors + (PRECISION == 8 ? count : 0));
}

/* A row of a table, times a factor. */
UNUSED static void read_row(const real *table, size_t rows, size_t width, size_t row, real factor, real *to) {
    const stored *from = stored_behind(table, rows) + row * width;
    if (PRECISION == 8) factor *= table[row];
    for (size_t k = 0; k < width; k++) to[k] = number(from[k]) * factor;
}

/* C = A M for rows A of k numbers and a matrix M of k rows of n: eight rows of M at a time, so that each number of C is
 * read and written an eighth as often. No row depends on those beside it. */
typedef void multiplication(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *packed,
                            real *c, int64_t ldc);

static void add_rows(int64_t n, int64_t k, const real *restrict a, const stored *restrict m, real *restrict c) {
    int64_t i = 0;
    for (; i + 8 <= k; i += 8, a += 8, m += 8 * n) {
        const stored *restrict m0 = m, *restrict m1 = m + n, *restrict m2 = m + 2 * n, *restrict m3 = m + 3 * n;
        const stored *restrict m4 = m + 4 * n, *restrict m5 = m + 5 * n, *restrict m6 = m + 6 * n,
                               *restrict m7 = m + 7 * n;
        const real a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3], a4 = a[4], a5 = a[5], a6 = a[6], a7 = a[7];
        for (int64_t j = 0; j < n; j++) {
            real even = a0 * number(m0[j]) + a2 * number(m2[j]) + a4 * number(m4[j]) + a6 * number(m6[j]);
            real odd = a1 * number(m1[j]) + a3 * number(m3[j]) + a5 * number(m5[j]) + a7 * number(m7[j]);
            c[j] += even + odd;
        }
    }
    for (; i < k; i++, a++, m += n)
        for (int64_t j = 0; j < n; j++) c[j] += a[0] * number(m[j]);
}

static void multiply(int64_t rows, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *packed, real *c,
                     int64_t ldc) {
    const stored *m = stored_behind(packed, (size_t)n);
    for (int64_t r = 0; r < rows; r++) memset(c + r * ldc, 0, (size_t)n * sizeof *c);
    if (rows == 1) add_rows(n, k, a, m, c);
    for (int64_t i = 0; rows > 1 && i < k; i += 8)
        for (int64_t r = 0; r < rows; r++) add_rows(n, k - i < 8 ? k - i : 8, a + r * row_stride + i, m + i * n, c + r * ldc);
    for (int64_t r = 0; PRECISION == 8 && r < rows; r++)
        for (int64_t j = 0; j < n; j++) c[r * ldc + j] *= packed[j];
}
