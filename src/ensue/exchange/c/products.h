/* c = a M for a row a of k numbers and a matrix M of k rows of n: eight rows of M at a time, so that each number of c is
 * read and written an eighth as often. The signature is that of the printed step; there is one row. */
typedef void multiplication(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *packed,
                            real *c, int64_t ldc);

static void add_rows(int64_t n, int64_t k, const real *restrict a, const real *restrict m, real *restrict c) {
    int64_t i = 0;
    for (; i + 8 <= k; i += 8, a += 8, m += 8 * n) {
        const real *restrict m0 = m, *restrict m1 = m + n, *restrict m2 = m + 2 * n, *restrict m3 = m + 3 * n;
        const real *restrict m4 = m + 4 * n, *restrict m5 = m + 5 * n, *restrict m6 = m + 6 * n,
                             *restrict m7 = m + 7 * n;
        const real a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3], a4 = a[4], a5 = a[5], a6 = a[6], a7 = a[7];
        for (int64_t j = 0; j < n; j++) {
            real even = a0 * m0[j] + a2 * m2[j] + a4 * m4[j] + a6 * m6[j];
            real odd = a1 * m1[j] + a3 * m3[j] + a5 * m5[j] + a7 * m7[j];
            c[j] += even + odd;
        }
    }
    for (; i < k; i++, a++, m += n)
        for (int64_t j = 0; j < n; j++) c[j] += a[0] * m[j];
}

static void multiply(int64_t rows, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *packed, real *c,
                     int64_t ldc) {
    (void)rows, (void)row_stride, (void)ldc;
    memset(c, 0, (size_t)n * sizeof *c);
    add_rows(n, k, a, packed, c);
}
