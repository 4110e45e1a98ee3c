/* C = A M for rows A of k numbers and a matrix M of k rows of n: eight rows of M at a time, so that each number of C is
 * read and written an eighth as often. No row depends on those beside it. */
typedef void multiplication(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *packed,
                            real *c, int64_t ldc);

static void add_rows(int64_t n, int64_t k, const real *restrict a, const stored *restrict m, real *restrict c) {
    int64_t i = 0, whole = n - n % LANE_COUNT;
    for (; i + 8 <= k; i += 8, a += 8, m += 8 * n) {
        for (int64_t j = 0; j < whole; j += LANE_COUNT) {
            lanes rows[8], sum;
            for (int r = 0; r < 8; r++) rows[r] = lanes_of(m + r * n + j);
            memcpy(&sum, c + j, sizeof sum);
            FOR_LANES(sum LANE += (a[0] * rows[0] LANE + a[2] * rows[2] LANE + a[4] * rows[4] LANE +
                                   a[6] * rows[6] LANE) +
                                  (a[1] * rows[1] LANE + a[3] * rows[3] LANE + a[5] * rows[5] LANE +
                                   a[7] * rows[7] LANE));
            memcpy(c + j, &sum, sizeof sum);
        }
        for (int64_t j = whole; j < n; j++)
            for (int r = 0; r < 8; r++) c[j] += a[r] * number(m[r * n + j]);
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
