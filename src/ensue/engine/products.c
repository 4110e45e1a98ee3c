/* The products of kernels.h as functions of a separate library, which is compiled once and used by every cell. */

PUBLIC int64_t size_of_packed(int64_t k, int64_t n) { return packed_size(k, n); }

PUBLIC void pack_matrix(int64_t k, int64_t n, const real *from, int64_t row_stride, int64_t column_stride, real *to) {
    pack(k, n, from, row_stride, column_stride, to);
}

/* c (m x n) = a b, with b packed. */
PUBLIC void multiply(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *packed, real *c,
              int64_t ldc) {
    gemm(m, n, k, a, row_stride, 1, packed, c, ldc, 0);
}

/* c (m x n) = or += a b, with b not packed; `workspace` has size_of_block(n) reals. */
PUBLIC void multiply_once(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride_a, int64_t column_stride_a,
                   const real *b, int64_t row_stride_b, int64_t column_stride_b, real *c, int64_t ldc,
                   int64_t accumulate, real *workspace) {
    gemm_once(m, n, k, a, row_stride_a, column_stride_a, b, row_stride_b, column_stride_b, c, ldc, accumulate != 0,
              workspace);
}

PUBLIC int64_t size_of_block(int64_t n) { return packed_size(BLOCK, n); }

/* The kernel of products in bf16: 0, none; 1, avx512; 2, amx. Must be called before any product. */
PUBLIC int64_t bf16_kernel(void) {
#if IN_AMX
    return may_use_amx() ? 2 : 0;
#else
    return IN_BF16;
#endif
}
