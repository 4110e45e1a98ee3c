/* The numbers of matrices and tables are 32-bit floats, 16-bit floats, or 8-bit integers. A scale for each column of a
 * matrix, or for each row of a table, precedes 8-bit integers. */
#ifndef PRECISION
#define PRECISION 32
#endif
#if PRECISION < 32 && (defined(__SSE2__) || defined(__F16C__)) && defined(__GNUC__)
#include <immintrin.h>
#elif PRECISION == 8 && defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

/* Converts a finite half; the product also handles subnormal numbers. */
INLINE real real_of_half(uint16_t half) {
    return real_of(bits_of(real_of((bits)(half & 0x7FFF) << 13) * 0x1p112f) | (bits)(half & 0x8000) << 16);
}

#if PRECISION == 16
typedef uint16_t stored;

INLINE real number(stored half) { return real_of_half(half); }
#elif PRECISION == 8
typedef int8_t stored;

INLINE real number(stored whole) { return (real)whole; }
#else
typedef real stored;

INLINE real number(stored x) { return x; }
#endif

static const stored *skip_scales(const real *factors, size_t count) {
    return (const stored *)(const void *)(factors + (PRECISION == 8 ? count : 0));
}

/* Reads a row of a table, multiplied by a factor. */
UNUSED static void read_row(const real *table, size_t rows, size_t width, size_t row, real factor, real *to) {
    const stored *from = skip_scales(table, rows) + row * width;
    if (PRECISION == 8) factor *= table[row];
    for (size_t k = 0; k < width; k++) to[k] = number(from[k]) * factor;
}

#if defined(__AVX512F__)
#define LANE_COUNT 16
#elif defined(__AVX__)
#define LANE_COUNT 8
#else
#define LANE_COUNT 4
#endif
#if defined(__GNUC__) && !defined(NO_LANES)
typedef real lanes __attribute__((vector_size(LANE_COUNT * sizeof(real))));
#define FOR_LANES(statement) statement
#define LANE
#define HAS_LANES 1
#else
typedef struct {
    real at[LANE_COUNT];
} lanes;
#define FOR_LANES(statement) for (int l = 0; l < LANE_COUNT; l++) statement
#define LANE .at[l]
#define HAS_LANES 0
#endif

/* A separate vector: when it is copied into an array of sums, gcc splits it and keeps the sums in memory. */
INLINE lanes lanes_at(const real *from) {
    lanes to;
    memcpy(&to, from, sizeof to);
    return to;
}

INLINE void put_lanes(lanes from, real *to) { memcpy(to, &from, sizeof from); }

/* Converts LANE_COUNT numbers like `number`. Intrinsics are used where compilers do not find the instruction. */
INLINE lanes lanes_of(const stored *from) {
#if PRECISION == 32
    return lanes_at(from);
#else
    lanes to;
#if !HAS_LANES
    for (int l = 0; l < LANE_COUNT; l++) to.at[l] = number(from[l]);
#elif PRECISION == 16 && defined(__AVX512F__)
    to = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
#elif PRECISION == 16 && defined(__F16C__)
    to = _mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
#else
    typedef int32_t wide __attribute__((vector_size(LANE_COUNT * sizeof(real))));
    stored few __attribute__((vector_size(LANE_COUNT * sizeof(stored))));
    memcpy(&few, from, sizeof few);
    wide whole = __builtin_convertvector(few, wide);
    to = (lanes)((wide)((lanes)((whole & 0x7FFF) << 13) * 0x1p112f) | (whole & 0x8000) << 16);
#endif
    return to;
#endif
}
