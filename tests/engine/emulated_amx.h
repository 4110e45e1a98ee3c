/* The instructions of Intel's AMX that amx.h uses, as C: tiles have the shapes of the last configuration, and what the
 * processor would refuse ends the process. Sums are in double, so that a test compares with exact sums of products.
 * Without AVX512_BF16 amx.h is left out, and nothing of this is used.
 * With -DEMULATED_ERROR=1 products are wrong; with -DEMULATED_REFUSAL=1 the system does not lend the registers. */
#define AMX_IS_EMULATED 1
#define EMULATED __attribute__((unused)) static
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

EMULATED struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} emulated_shapes;
EMULATED uint8_t emulated_tiles[8][16][64];

#ifndef EMULATED_ERROR
#define EMULATED_ERROR 0
#endif
#ifndef EMULATED_REFUSAL
#define EMULATED_REFUSAL 0
#endif

#define REFUSE_UNLESS(condition) \
    if (!(condition)) abort()
#define TILES_CONFIGURE(from) emulate_configure(from)
#define TILES_RELEASE() memset(&emulated_shapes, 0, sizeof emulated_shapes)
#define TILE_ZERO(t) emulate_zero(t)
#define TILE_LOAD(t, from, ld) emulate_load(t, from, (ld) * 4)
#define TILE_STORE(t, to, ld) emulate_store(t, to, (ld) * 4)
#define TILE_MULTIPLY(c, a, b) emulate_multiply(c, a, b)

EMULATED int may_use_amx(void) { return EMULATED_REFUSAL == 0; }

EMULATED void emulate_configure(const void *from) {
    REFUSE_UNLESS((uintptr_t)from % 64 == 0); /* not the processor's rule, but amx.h says that it is so */
    memcpy(&emulated_shapes, from, 64);
    REFUSE_UNLESS(emulated_shapes.palette == 1 && emulated_shapes.start_row == 0);
    for (int i = 0; i < 14; i++)
        REFUSE_UNLESS(emulated_shapes.reserved[i] == 0);
    for (int t = 0; t < 16; t++) {
        REFUSE_UNLESS(emulated_shapes.bytes[t] <= 64 && emulated_shapes.rows[t] <= 16);
        REFUSE_UNLESS(t < 8 || (emulated_shapes.bytes[t] == 0 && emulated_shapes.rows[t] == 0));
        REFUSE_UNLESS((emulated_shapes.bytes[t] == 0) == (emulated_shapes.rows[t] == 0));
    }
    memset(emulated_tiles, 0, sizeof emulated_tiles);
}

EMULATED void emulate_zero(int t) {
    REFUSE_UNLESS(emulated_shapes.rows[t] > 0);
    memset(emulated_tiles[t], 0, sizeof emulated_tiles[t]);
}

EMULATED void emulate_load(int t, const void *from, int64_t stride) {
    emulate_zero(t);
    for (int r = 0; r < emulated_shapes.rows[t]; r++)
        memcpy(emulated_tiles[t][r], (const char *)from + r * stride, emulated_shapes.bytes[t]);
}

EMULATED void emulate_store(int t, void *to, int64_t stride) {
    REFUSE_UNLESS(emulated_shapes.rows[t] > 0);
    for (int r = 0; r < emulated_shapes.rows[t]; r++)
        memcpy((char *)to + r * stride, emulated_tiles[t][r], emulated_shapes.bytes[t]);
}

EMULATED double emulated_half(const uint8_t *from) {
    uint32_t bits = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 24;
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

EMULATED void emulate_multiply(int c, int a, int b) {
    REFUSE_UNLESS(a != b && a != c && b != c && emulated_shapes.rows[c] > 0);
    REFUSE_UNLESS(emulated_shapes.rows[c] == emulated_shapes.rows[a]);
    REFUSE_UNLESS(emulated_shapes.bytes[c] == emulated_shapes.bytes[b]);
    REFUSE_UNLESS(emulated_shapes.bytes[a] == 4 * emulated_shapes.rows[b]);
    for (int m = 0; m < emulated_shapes.rows[c]; m++)
        for (int n = 0; n < emulated_shapes.bytes[c] / 4; n++) {
            float sum;
            memcpy(&sum, emulated_tiles[c][m] + 4 * n, 4);
            double exact = sum;
            for (int k = 0; k < emulated_shapes.rows[b]; k++)
                for (int half = 0; half < 2; half++)
                    exact += emulated_half(emulated_tiles[a][m] + 4 * k + 2 * half) *
                             emulated_half(emulated_tiles[b][k] + 4 * n + 2 * half);
            sum = (float)(exact + EMULATED_ERROR);
            memcpy(emulated_tiles[c][m] + 4 * n, &sum, 4);
        }
}
