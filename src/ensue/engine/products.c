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

/* A matrix (k x n), and the place where it is packed: whole, or panel by panel for a single product. */
typedef struct {
    int64_t k, n;
    const real *from;
    int64_t row_stride, column_stride;
    real *to;
} __attribute__((may_alias)) packing;

/* Like `multiply`, with the same sums, but `matrix` is a `packing`: each panel stays in the cache. */
static void multiply_panels(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *matrix,
                            real *c, int64_t ldc) {
    const packing *b = (const packing *)matrix;
    for (int64_t j = 0; j < n; j += PANEL) {
        int64_t columns = minimum(PANEL, n - j);
        pack(k, columns, b->from + j * b->column_stride, b->row_stride, b->column_stride, b->to);
        gemm(m, columns, k, a, row_stride, 1, b->to, c + j, ldc, 0);
    }
}

static void pack_whole(const packing *b) { pack(b->k, b->n, b->from, b->row_stride, b->column_stride, b->to); }

/* A product over all positions, of features of x and a matrix. */
typedef struct {
    packing matrix;
    int64_t m;
    const real *a;
    int64_t row_stride;
    real *c;
    int64_t ldc;
} __attribute__((may_alias)) product;

/* A plan of a pass without gradients (`PlanRecorder` in c_passes.py) begins with this. It has a base for each of its
 * numbers, and then the numbers. A number with a base is an offset in bytes; base 0 is the plan, and -1 no base. */
typedef struct {
    int64_t matrices;
    void (*pass)(const range *, const array *, const final_state *, const int64_t *, const real *const *,
                 multiplication *);
    packing *packings;
    product *products;
    range *of; /* after the products */
    const array *arrays;
    const final_state *finals;
    const int64_t *sizes;
} __attribute__((may_alias)) plan;

enum { PACK = 1, MULTIPLY = 2, LOOP = 4, AT_ONCE = 8, MAX_PANEL_ROWS = 48 };

/* Runs phases: packs all matrices, computes the products, goes through the positions; for the rows from `first` to
 * `last` of the products or of the batch (0: all). With AT_ONCE, packed matrices are not used again. */
PUBLIC void run_plan(const int64_t *numbers, int64_t size, const int64_t *bases, int64_t phases, int64_t first,
                     int64_t last, int64_t worker) {
    int64_t copy[size];
    for (int64_t k = 0; k < size; k++) {
        int64_t base = numbers[k];
        copy[k] = numbers[size + k] + (base < 0 ? 0 : base ? bases[base] : (int64_t)(intptr_t)copy);
    }
    const plan *of = (const plan *)copy;
    const real *packed[of->matrices + 1];
    int by_panels = phases & AT_ONCE && of->of->positions == 1;
    for (int64_t k = 0; k < of->matrices; k++) {
        packed[k] = by_panels ? (const real *)(of->packings + k) : of->packings[k].to;
        if (phases & PACK && !by_panels) pack_whole(of->packings + k);
    }
    for (product *p = of->products; (int64_t *)p < (int64_t *)of->of; p++) {
        int once = phases & AT_ONCE && p->m <= MAX_PANEL_ROWS;
        if (phases & PACK && !once) pack_whole(&p->matrix);
        if (phases & MULTIPLY)
            (once ? multiply_panels : multiply)((last ? last : p->m) - first, p->matrix.n, p->matrix.k,
                                                p->a + first * p->row_stride, p->row_stride,
                                                once ? (const real *)&p->matrix : p->matrix.to,
                                                p->c + first * p->ldc, p->ldc);
    }
    if (phases & LOOP) {
        of->of->first = first;
        of->of->last = last ? last : of->of->batch;
        of->of->worker = worker;
        of->pass(of->of, of->arrays, of->finals, of->sizes, packed, by_panels ? multiply_panels : multiply);
    }
}

PUBLIC int64_t size_of_block(int64_t n) { return packed_size(BLOCK, n); }

/* The kernel of products in bf16 or int8: 0, none; 1, avx512; 2, amx; 3, int8. Must be called before any product. */
PUBLIC int64_t product_kernel(void) {
#if IN_INT8
    return 3;
#elif IN_AMX
    return may_use_amx() ? 2 : 0;
#else
    return IN_BF16;
#endif
}
