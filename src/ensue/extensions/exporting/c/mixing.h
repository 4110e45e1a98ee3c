/* c += a M for k numbers of a; M has k rows of n numbers, with a row stride of `stride`. */
UNUSED static void add_products(int64_t n, int64_t k, const real *restrict a, const real *restrict m,
                                int64_t stride, real *restrict c) {
    for (; k >= 4; k -= 4, a += 4, m += 4 * stride) {
        const real *restrict m1 = m + stride, *restrict m2 = m1 + stride, *restrict m3 = m2 + stride;
        const real a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
        for (int64_t j = 0; j < n; j++) c[j] += (a0 * m[j] + a2 * m2[j]) + (a1 * m1[j] + a3 * m3[j]);
    }
    for (; k > 0; k--, a++, m += stride)
        for (int64_t j = 0; j < n; j++) c[j] += a[0] * m[j];
}
