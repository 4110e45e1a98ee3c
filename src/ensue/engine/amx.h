/* Products of bf16 pairs in the tile registers of Intel's AMX. This file follows kernels.h, with -DPRODUCTS_IN_AMX=1.
 * It is empty if the compiler or the target does not support AMX.
 *
 * A tile register holds 16 rows of 64 bytes. One instruction adds to a 16 x 16 tile of C (float) the product of 16 rows
 * of 16 pairs of A and 16 rows of pairs of 16 columns of B (kernels.h packs B in this form). The eight registers hold
 * four tiles of C, two of A and two of B. Before its first product, a process requests the registers by may_use_amx.
 *
 * Tests define AMX_IS_EMULATED and functions that replace the instructions, for processors without AMX. */
#if IN_AMX
#ifndef AMX_IS_EMULATED
#include <sys/syscall.h>
#include <unistd.h>

/* "memory" tells the compiler that these instructions access memory through their addresses. */
#define TILES_CONFIGURE(from) __asm__ volatile("ldtilecfg %0" ::"m"(*(from)) : "memory")
#define TILES_RELEASE() __asm__ volatile("tilerelease" ::: "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define TILE_LOAD(t, from, ld) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"((ld) * (int64_t)sizeof(real)) : "memory")
#define TILE_STORE(t, to, ld) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"((ld) * (int64_t)sizeof(real)) : "memory")
#define TILE_MULTIPLY(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

/* Linux enables the registers for a process on request (arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA). */
UNUSED static int may_use_amx(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }
#endif

enum { AMX_LD = BLOCK_WORDS + AMX_ROWS }; /* not a power of two: its multiples map to few sets of the cache */

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} __attribute__((aligned(64))) tile_shapes;

/* Tiles 0 to 3 are C: upper left, upper right, lower left, lower right; 4 and 5 are A: upper, lower; 6 and 7 are B:
 * left, right. Without lower rows there are no lower tiles. */
static void configure(int64_t upper, int64_t lower) {
    uint8_t high = (uint8_t)upper, low = (uint8_t)lower;
    uint16_t below = low ? 64 : 0;
    tile_shapes shapes = {
        .palette = 1,
        .bytes = {64, 64, below, below, 64, below, 64, 64},
        .rows = {high, high, low, low, high, low, AMX_ROWS, AMX_ROWS},
    };
    TILES_CONFIGURE(&shapes);
}

/* C (two tiles of rows x PANEL) = or += A times one panel, as configured; A has `words` columns of pairs. */
INLINE void two_rows_of_tiles(int has_lower, int64_t words, const real *A, const real *panel, real *C, int64_t ldc,
                              int accumulate) {
    real *lower = C + AMX_ROWS * ldc;
    TILE_ZERO(0);
    TILE_ZERO(1);
    if (accumulate) {
        TILE_LOAD(0, C, ldc);
        TILE_LOAD(1, C + LANES, ldc);
    }
    if (has_lower) {
        TILE_ZERO(2);
        TILE_ZERO(3);
        if (accumulate) {
            TILE_LOAD(2, lower, ldc);
            TILE_LOAD(3, lower + LANES, ldc);
        }
    }
    for (int64_t p = 0; p < words; p += AMX_ROWS, panel += AMX_ROWS * PANEL) {
        TILE_LOAD(4, A + p, AMX_LD);
        TILE_LOAD(6, panel, PANEL);
        TILE_LOAD(7, panel + LANES, PANEL);
        TILE_MULTIPLY(0, 4, 6);
        TILE_MULTIPLY(1, 4, 7);
        if (has_lower) {
            TILE_LOAD(5, A + AMX_ROWS * AMX_LD + p, AMX_LD);
            TILE_MULTIPLY(2, 5, 6);
            TILE_MULTIPLY(3, 5, 7);
        }
    }
    TILE_STORE(0, C, ldc);
    TILE_STORE(1, C + LANES, ldc);
    if (has_lower) {
        TILE_STORE(2, lower, ldc);
        TILE_STORE(3, lower + LANES, ldc);
    }
}

/* Copies A (m x k) as pairs into rows AMX_LD apart, in complete tiles of columns; contiguous columns are transposed in
 * squares of 16. */
static void copy_rows(int64_t m, int64_t k, const real *A, int64_t row_stride, int64_t column_stride, real *copy) {
    if (column_stride == 1 || row_stride != 1) {
        pair_rows(m, k, A, row_stride, column_stride, copy, AMX_LD);
        return;
    }
    for (int64_t p = 0; p < k; p += 2 * LANES)
        for (int64_t i = 0; i < m; i += LANES) {
            real square[LANES][LANES];
            for (int64_t q = 0; q < LANES; q++) {
                const real *from = A + i + (p + 2 * q) * column_stride;
                __builtin_prefetch(from + LANES);
                _mm512_storeu_si512(square[q], pair_columns(m - i, k - p - 2 * q, from, column_stride));
            }
            transpose_square(*square, LANES, copy + i * AMX_LD + p / 2, AMX_LD);
        }
}

static void strip_of_product(int64_t m, int64_t n, int64_t depth, const real *A, int64_t row_stride,
                             int64_t column_stride, const real *packed, int64_t panel_stride, real *C, int64_t ldc,
                             int accumulate) {
    _Alignas(64) real copy[STRIP * AMX_LD], edge[2 * AMX_ROWS * PANEL];
    copy_rows(m, depth, A, row_stride, column_stride, copy);
    for (int64_t first = 0; first < n; first += BLOCK_PANELS * PANEL)
        for (int64_t i = 0; i < m; i += 2 * AMX_ROWS) {
            int64_t rows = minimum(2 * AMX_ROWS, m - i), upper = minimum(AMX_ROWS, rows);
            int64_t last = minimum(n, first + BLOCK_PANELS * PANEL);
            configure(upper, rows - upper);
            for (int64_t j = first; j < last; j += PANEL) {
                int64_t columns = minimum(PANEL, last - j), is_full = columns == PANEL;
                real *to = is_full ? C + i * ldc + j : edge;
                two_rows_of_tiles(rows > upper, words(depth), copy + i * AMX_LD, packed + j / PANEL * panel_stride, to,
                                  is_full ? ldc : PANEL, is_full && accumulate);
                for (int64_t r = 0; !is_full && r < rows; r++)
                    for (int64_t q = 0; q < columns; q++)
                        C[(i + r) * ldc + j + q] = edge[r * PANEL + q] + (accumulate ? C[(i + r) * ldc + j + q] : 0);
            }
        }
    TILES_RELEASE();
}
#endif
