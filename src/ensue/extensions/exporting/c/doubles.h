/* The functions above in double precision, with the suffix _64. Math libraries differ in the last digit; these functions
 * use arithmetic only, so their results are the same everywhere. */
#undef PICK
#undef REAL_IS_DOUBLE
#define PICK(for_float, for_double) for_double
#define REAL_IS_DOUBLE 1
typedef double real_64;
typedef uint64_t bits_64;
@FUNCTIONS@
#undef PICK
#undef REAL_IS_DOUBLE
#define PICK(for_float, for_double) for_float
#define REAL_IS_DOUBLE 0

/* The sine of x plus a number of quarter turns. Numbers above 1e8 are first reduced by a rounded turn. */
UNUSED static real sine(double x, int quarters) {
    if (!(fabs(x) < INFINITY)) return (real)NAN;
    if (fabs(x) > 1e8) x = fmod(x, 6.283185307179586477);
    double n = floor(x * 0.63661977236758134308 + 0.5), term = 1, sum = 0;
    double r = ((x - n * 0x1.921fb5p0) - n * 0x1.110b46p-26) - n * 0x1.1a62633145c07p-54;
    int quarter = quarters + (int)(n - 4 * floor(n / 4)), is_odd = !(quarter & 1);
    if (is_odd) term = r;
    for (int k = is_odd; k < 18; k += 2, term *= -r * r / ((k - 1) * k)) sum += term;
    return (real)(quarter & 2 ? -sum : sum);
}
#undef sin_
#undef cos_
#define sin_(x) sine(x, 0)
#define cos_(x) sine(x, 1)
