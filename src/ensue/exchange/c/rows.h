/* C = A M for rows of A: a block of rows by a panel of columns stays in registers while some rows of M pass by, so few
 * that the panel of them stays in the cache. Each number of C is one sum in the order of M's rows, so that no row depends
 * on those beside it. M has k rows of n numbers. */
typedef void multiplication(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *packed,
                            real *c, int64_t ldc);

/* ROWS rows by WIDE vectors of columns. */
#define BLOCK(ROWS, WIDE)                                                                                           \
    INLINE void block_##ROWS##_##WIDE(int64_t n, int64_t k, const real *a, int64_t stride, const stored *m, real *c, \
                                      int64_t ldc) {                                                               \
        lanes sums[ROWS][WIDE], b;                                                                                  \
        for (int r = 0; r < ROWS; r++)                                                                              \
            for (int w = 0; w < WIDE; w++) memcpy(&sums[r][w], c + r * ldc + w * LANE_COUNT, sizeof b);             \
        for (int64_t i = 0; i < k; i++, m += n)                                                                     \
            for (int w = 0; w < WIDE; w++) {                                                                        \
                b = lanes_of(m + w * LANE_COUNT);                                                                   \
                for (int r = 0; r < ROWS; r++) FOR_LANES(sums[r][w] LANE += a[r * stride + i] * b LANE);            \
            }                                                                                                       \
        for (int r = 0; r < ROWS; r++)                                                                              \
            for (int w = 0; w < WIDE; w++) memcpy(c + r * ldc + w * LANE_COUNT, &sums[r][w], sizeof b);             \
    }
BLOCK(1, 8)
BLOCK(8, 2)
BLOCK(8, 1)
BLOCK(4, 2)
BLOCK(3, 2)
BLOCK(2, 2)
BLOCK(1, 2)
BLOCK(4, 1)
BLOCK(3, 1)
BLOCK(2, 1)
BLOCK(1, 1)

enum { TOGETHER = 128 }; /* rows of M */

/* Panels of WIDE vectors, as many as there are; eight rows at once for processors with 32 registers of vectors. */
#define PANELS(WIDE)                                                                          \
    for (; j + WIDE * LANE_COUNT <= n; j += WIDE * LANE_COUNT) {                              \
        int64_t r = 0;                                                                        \
        for (; LANE_COUNT == 16 && r + 8 <= rows; r += 8)                                     \
            block_8_##WIDE(n, k, a + r * stride, stride, m + j, c + r * ldc + j, ldc);        \
        for (; r + 4 <= rows; r += 4)                                                         \
            block_4_##WIDE(n, k, a + r * stride, stride, m + j, c + r * ldc + j, ldc);        \
        if (rows - r == 3) block_3_##WIDE(n, k, a + r * stride, stride, m + j, c + r * ldc + j, ldc); \
        if (rows - r == 2) block_2_##WIDE(n, k, a + r * stride, stride, m + j, c + r * ldc + j, ldc); \
        if (rows - r == 1) block_1_##WIDE(n, k, a + r * stride, stride, m + j, c + r * ldc + j, ldc); \
    }

/* C += A M. */
static void add_product(int64_t rows, int64_t n, int64_t k, const real *a, int64_t stride, const stored *m,
                        real *c, int64_t ldc) {
    int64_t j = 0;
    for (; rows == 1 && j + 8 * LANE_COUNT <= n; j += 8 * LANE_COUNT) block_1_8(n, k, a, stride, m + j, c + j, ldc);
    PANELS(2)
    PANELS(1)
    for (; j < n; j++)
        for (int64_t r = 0; r < rows; r++) {
            real sum = c[r * ldc + j];
            for (int64_t i = 0; i < k; i++) sum += a[r * stride + i] * number(m[i * n + j]);
            c[r * ldc + j] = sum;
        }
}

static void multiply(int64_t rows, int64_t n, int64_t k, const real *a, int64_t stride, const real *packed, real *c,
                     int64_t ldc) {
    const stored *m = stored_behind(packed, (size_t)n);
    for (int64_t r = 0; r < rows; r++) memset(c + r * ldc, 0, (size_t)n * sizeof *c);
    for (int64_t i = 0; i < k; i += TOGETHER)
        add_product(rows, n, k - i < TOGETHER ? k - i : TOGETHER, a + i, stride, m + i * n, c, ldc);
    for (int64_t r = 0; PRECISION == 8 && r < rows; r++, c += ldc)
        for (int64_t j = 0; j < n; j++) c[j] *= packed[j];
}
