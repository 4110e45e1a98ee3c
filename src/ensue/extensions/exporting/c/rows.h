/* C = A M in blocks: sums for some rows of C stay in registers while rows of M that fit into the cache are read. Each
 * number of C is one sum in the order of M's rows, so the rows of C do not depend on each other. M has k rows of n
 * columns, stored as zero-padded panels of columns, since rows at a distance of a power of two would share few cache
 * sets. */
typedef void multiplication(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *packed,
                            real *c, int64_t ldc);

/* Without this gcc reloads a vector of M for each row. */
#if HAS_LANES && defined(__AVX__) && !defined(__clang__)
#define KEEP(vector) __asm__("" : "+v"(vector))
#else
#define KEEP(vector) (void)0
#endif

enum { PANEL = 16, DEPTH_BLOCK = 128 }; /* the columns of a panel; the rows of M per pass */

/* V8 loads all vectors of a basic block before it adds the first one, and has registers for one row of M and eight
 * sums. So in WebAssembly each row ends in a branch. OPAQUE hides the number of rows and the address from the compiler,
 * so that it keeps the branches and addresses the vectors of a row by offsets. */
#if defined(__wasm_simd128__)
#define EACH(add_row) for (int64_t i = 0;;) { add_row if (++i == k) break; add_row if (++i == k) break; }
#define OPAQUE(place) __asm__("" : "+r"(place))
#else
#define EACH(add_row) for (int64_t i = 0; i < k; i++) { add_row }
#define OPAQUE(place) (void)0
#endif

/* A block of ROWS rows by WIDE vectors of columns; panels are `panel` numbers apart. */
#define BLOCK(ROWS, WIDE)                                                                                            \
    INLINE void block_##ROWS##_##WIDE(int64_t panel, int64_t k, const real *a, int64_t stride, const stored *m, real *c, \
                                      int64_t ldc) {                                                                 \
        lanes sums[ROWS][WIDE], b;                                                                                   \
        for (int r = 0; r < ROWS; r++)                                                                               \
            for (int w = 0; w < WIDE; w++) sums[r][w] = lanes_at(c + r * ldc + w * LANE_COUNT);                      \
        OPAQUE(k);                                                                                                   \
        EACH(                                                                                                        \
            OPAQUE(m);                                                                                               \
            for (int w = 0; w < WIDE; w++) {                                                                         \
                b = lanes_of(m + w * LANE_COUNT / PANEL * panel + w * LANE_COUNT % PANEL);                           \
                if (ROWS > 1) KEEP(b);                                                                               \
                for (int r = 0; r < ROWS; r++) FOR_LANES(sums[r][w] LANE += a[r * stride + i] * b LANE);             \
            }                                                                                                        \
            m += PANEL;                                                                                              \
        )                                                                                                            \
        for (int r = 0; r < ROWS; r++)                                                                               \
            for (int w = 0; w < WIDE; w++) put_lanes(sums[r][w], c + r * ldc + w * LANE_COUNT);                      \
    }
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
#if defined(__wasm_simd128__)
BLOCK(2, 4)
BLOCK(1, 4)
#else
BLOCK(1, 8)
#endif

/* Runs a block at row r and column j. */
#define FROM(block, r, j) \
    block(panel, k, a + (r) * stride, stride, m + (j) / PANEL * panel + (j) % PANEL, c + (r) * ldc + (j), ldc)

/* All panels of WIDE vectors; eight rows at once on processors with 32 vector registers. */
#define PANELS(WIDE)                                                                                         \
    for (; j + WIDE * LANE_COUNT <= n; j += WIDE * LANE_COUNT) {                                             \
        int64_t r = 0;                                                                                       \
        for (; LANE_COUNT == 16 && r + 8 <= rows; r += 8) FROM(block_8_##WIDE, r, j);                        \
        for (; r + 4 <= rows; r += 4) FROM(block_4_##WIDE, r, j);                                            \
        if (rows - r == 3) FROM(block_3_##WIDE, r, j);                                                       \
        if (rows - r == 2) FROM(block_2_##WIDE, r, j);                                                       \
        if (rows - r == 1) FROM(block_1_##WIDE, r, j);                                                       \
    }

/* C += A M. */
static void add_product(int64_t rows, int64_t n, int64_t panel, int64_t k, const real *a, int64_t stride,
                        const stored *m, real *c, int64_t ldc) {
    int64_t j = 0;
#if defined(__wasm_simd128__)
    for (; j + PANEL <= n; j += PANEL) {
        int64_t r = 0;
        for (; r + 2 <= rows; r += 2) FROM(block_2_4, r, j);
        if (r < rows) FROM(block_1_4, r, j);
    }
#else
    for (; rows == 1 && j + 8 * LANE_COUNT <= n; j += 8 * LANE_COUNT) FROM(block_1_8, 0, j);
#endif
    PANELS(2)
    PANELS(1)
    const stored *last = m + j / PANEL * panel + j % PANEL;
    for (c += j, n -= j; n > 0; n--, last++, c++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < k; i++) c[r * ldc] += a[r * stride + i] * number(last[i * PANEL]);
}

/* With one row of A each panel is read once. */
static void multiply(int64_t rows, int64_t n, int64_t k, const real *a, int64_t stride, const real *packed, real *c,
                     int64_t ldc) {
    const stored *m = (const stored *)(const void *)packed;
    const int64_t depth = rows == 1 ? k : DEPTH_BLOCK;
    for (int64_t r = 0; r < rows; r++) memset(c + r * ldc, 0, (size_t)n * sizeof *c);
    for (int64_t i = 0; i < k; i += depth)
        add_product(rows, n, k * PANEL, k - i < depth ? k - i : depth, a + i, stride, m + i * PANEL, c, ldc);
}
