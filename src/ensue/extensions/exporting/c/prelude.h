/* Products and sums are rounded separately, so that all compilers and processors give the same numbers. With -DFAST a
 * compiler may fuse them. */
#if !defined(FAST) && defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif !defined(FAST) && defined(__GNUC__)
#pragma GCC optimize("-ffp-contract=off")
#elif !defined(FAST) && defined(_MSC_VER)
#pragma fp_contract(off)
#endif
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "the rounding has to stay as it is written: compile without -ffast-math"
#elif FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16 /* 16: half precision */
#error "floats have to be rounded as floats: compile with -mfpmath=sse -msse2"
#endif
#if defined(__GNUC__)
#define UNUSED __attribute__((unused))
#else
#define UNUSED
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define NO_OVERLAP _Pragma("GCC ivdep")
#else
#define NO_OVERLAP
#endif
#define INLINE UNUSED static inline
#define PICK(for_float, for_double) for_float
#define REAL_IS_DOUBLE 0

typedef float real;
typedef uint32_t bits;
