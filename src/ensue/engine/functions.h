/* Functions of one number for generated recurrent steps. This file follows kernels.h.
 *
 * exp_, expm1_, sigmoid_, tanh_, log_, log1p_ and in float erf_ have no branches and no calls, so that the compiler
 * vectorizes loops over them. The error of a normal result is at most 3 units in the last place. NaN stays NaN. */
#define sqrt_ PICK(sqrtf, sqrt)
#define sin_ PICK(sinf, sin)
#define cos_ PICK(cosf, cos)
#define fabs_ PICK(fabsf, fabs)

INLINE bits bits_of(real x) {
    bits b;
    memcpy(&b, &x, sizeof b);
    return b;
}

INLINE real real_of(bits b) {
    real x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* ROUNDER + n, for an integer n, has n in its lowest bits: adding ROUNDER rounds, and shifting the sum to the exponent
 * multiplies by 2^n. */
#define ROUNDER PICK(0x1.8p23f, 0x1.8p52)
#define EXPONENT PICK(23, 52)

/* log 2 as a sum of two numbers: n times the first is exact. */
#define LOG_2_HIGH PICK(0x1.63p-1f, 0x1.62e42feep-1)
#define LOG_2_LOW PICK(-0x1.bd0106p-13f, 0x1.a39ef35793c76p-33)

/* Returns 2^n from ROUNDER + n, for n from the smallest exponent to one past the largest, for which it is infinite. */
INLINE real power_of_two(real rounder_plus_n) { return real_of((bits_of(rounder_plus_n) << EXPONENT) + bits_of(1)); }

/* Returns exp(r) - 1, and ROUNDER + n, for x = n log 2 + r with |r| <= log(2) / 2. The Taylor series ends where a term
 * is below the rounding error. */
INLINE real reduce(real x, real *rounder_plus_n) {
    *rounder_plus_n = x * (real)1.4426950408889634 + ROUNDER;
    real n = *rounder_plus_n - ROUNDER;
    real r = (x - n * LOG_2_HIGH) - n * LOG_2_LOW;
    real tail = PICK(1 / 5040.f, 1 / 6227020800.);
#if REAL_IS_DOUBLE
    tail = tail * r + 1 / 479001600.;
    tail = tail * r + 1 / 39916800.;
    tail = tail * r + 1 / 3628800.;
    tail = tail * r + 1 / 362880.;
    tail = tail * r + 1 / 40320.;
    tail = tail * r + 1 / 5040.;
#endif
    /* Terms are added in pairs, which is faster than one chain of additions. */
    real rr = r * r;
    real second = (real)(1 / 2.) + (real)(1 / 6.) * r;
    real fourth = (real)(1 / 24.) + (real)(1 / 120.) * r;
    real sixth = (real)(1 / 720.) + tail * r;
    return r + rr * (second + rr * (fourth + rr * sixth));
}

/* The comparisons are written so that NaN stays NaN. */
INLINE real clamp(real x, real low, real high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* exp(x), with 2^n as two factors, since 2^n may overflow or underflow where exp(x) does not. */
INLINE real exp_(real x) {
    real shifted, m = reduce(clamp(x, PICK(-104, -746), PICK(89, 710)), &shifted);
    real half = (shifted - ROUNDER) * (real)0.5 + ROUNDER;
    real other = real_of(((bits_of(shifted) - bits_of(half)) << EXPONENT) + bits_of(1));
    return (m + 1) * power_of_two(half) * other;
}

/* exp(x) - 1, also accurate near 0. */
INLINE real expm1_(real x) {
    real shifted, m = reduce(clamp(x, PICK(-87, -708), 1), &shifted), power = power_of_two(shifted);
    return x > 1 ? exp_(x) - 1 : PICK(copysignf, copysign)(m * power + (power - 1), x);
}

/* 1 / (1 + exp(-x)); a result too small for a normal number is 0. */
INLINE real sigmoid_(real x) {
    real shifted, m = reduce(clamp(-x, PICK(-87, -708), PICK(89, 710)), &shifted);
    return 1 / (1 + (m + 1) * power_of_two(shifted));
}

/* tanh |x| = m / (m + 2) with m = exp(2|x|) - 1, also accurate near 0; past the bound it rounds to 1. */
INLINE real tanh_(real x) {
    real shifted, size = PICK(fabsf, fabs)(x);
    real m = reduce(2 * (size > PICK(10, 20) ? PICK(10, 20) : size), &shifted);
    real power = power_of_two(shifted);
    m = m * power + (power - 1);
    return PICK(copysignf, copysign)(m / (m + 2), x);
}

#if REAL_IS_DOUBLE
#define erf_ erf
#else
/* x (1 + q(x^2)) near 0, else 1 - exp(p(|x|)), with minimax polynomials q and p. From 4 on the result rounds to 1. */
INLINE real erf_(real x) {
    real size = fabsf(x), square = x * x, t = size > 4 ? 4 : size;
    real q = 8.27119895e-05f, p = 0.00019718458f;
    q = q * square - 0.000811898674f;
    q = q * square + 0.00519891266f;
    q = q * square - 0.0268585315f;
    q = q * square + 0.112836796f;
    q = q * square - 0.376126327f;
    q = q * square + 0.128379167f;
    p = p * t - 0.00305541469f;
    p = p * t + 0.0222753805f;
    p = p * t - 0.104031776f;
    p = p * t - 0.637068524f;
    p = p * t - 1.1277429f;
    p = p * t - 0.000179460856f;
    real far = copysignf(1 - exp_(p), x);
    return size > 0.9277f ? far : x + x * q;
}
#endif

/* log(x) with x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), and s = f / (2 + f):
 * log(1 + f) = 2 s + 2/3 s^3 + 2/5 s^5 + ..., where 2 s = f - s f = f - f^2 / 2 + s f^2 / 2 leaves f itself exact. */
INLINE real log_(real x) {
    int subnormal = x < PICK(0x1p-126f, 0x1p-1022);
    bits b = bits_of(subnormal ? x * PICK(0x1p24f, 0x1p54) : x), root = bits_of((real)0.70710678118654752);
    bits n = ((b - root + bits_of(1)) >> EXPONENT) - (bits_of(1) >> EXPONENT);
    real power = real_of(bits_of(ROUNDER) + n) - ROUNDER - (subnormal ? PICK(24, 54) : 0);
    real f = real_of(b - (n << EXPONENT)) - 1, s = f / (2 + f), z = s * s, half = (real)0.5 * f * f;
    real sum = PICK(2 / 11.f, 2 / 21.);
#if REAL_IS_DOUBLE
    sum = sum * z + 2 / 19.;
    sum = sum * z + 2 / 17.;
    sum = sum * z + 2 / 15.;
    sum = sum * z + 2 / 13.;
    sum = sum * z + 2 / 11.;
#endif
    sum = sum * z + (real)(2 / 9.);
    sum = sum * z + (real)(2 / 7.);
    sum = sum * z + (real)(2 / 5.);
    sum = sum * z + (real)(2 / 3.);
    real y = power * LOG_2_HIGH + (f - (half - (s * (half + sum * z) + power * LOG_2_LOW)));
    y = x > PICK(0x1.fffffep127f, 0x1.fffffffffffffp1023) ? x : y;
    return x > 0 ? y : x == 0 ? -(real)INFINITY : (real)NAN;
}

/* log(1 + x) as log(u) x / (u - 1), which corrects for the rounding of u = 1 + x. */
INLINE real log1p_(real x) {
    real u = 1 + x;
    return u == 1 ? x : log_(u) * (u > PICK(0x1p64f, 0x1p64) ? 1 : x / (u - 1));
}
