/* The products of kernels.h as functions of a separate library, which is compiled once for all cells. */

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

/* A matrix (k x n), and the address where it is packed: the whole matrix, or for a single product panel by panel. */
typedef struct {
    int64_t k, n;
    const real *from;
    int64_t row_stride, column_stride;
    real *to;
} __attribute__((may_alias)) packing;

enum { COLUMNS = 8 };

/* Like `multiply`, to the bit, but `matrix` is a `packing`. It is packed panel by panel: a panel stays in the cache. */
static void multiply_panels(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *matrix,
                            real *c, int64_t ldc) {
    const packing *b = (const packing *)matrix;
    for (int64_t j = 0; j < n; j += PANEL) {
        int64_t columns = minimum(PANEL, n - j);
        pack(k, columns, b->from + j * b->column_stride, b->row_stride, b->column_stride, b->to);
        gemm(m, columns, k, a, row_stride, 1, b->to, c + j, ldc, 0);
    }
}

/* c (1 x columns) = a b, with contiguous columns of b, `stride` apart. `columns` is a constant at each call. */
INLINE void multiply_columns(const int columns, int64_t k, const real *a, const real *b, int64_t stride, real *c) {
    vector sum[COLUMNS] = {{0}};
    int64_t p = 0;
    for (; p + LANES <= k; p += LANES)
#pragma GCC unroll 8
        for (int j = 0; j < columns; j++)
            sum[j] += *(const vector *)(a + p) * *(const vector *)(b + j * stride + p);
#pragma GCC unroll 8
    for (int j = 0; j < columns; j++) {
        c[j] = total(sum[j]);
        for (int64_t q = p; q < k; q++)
            c[j] += a[q] * b[j * stride + q];
    }
}

/* Like `multiply` for one row, but `matrix` is a `packing` with contiguous columns, which are not copied. */
static void multiply_row(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *matrix,
                         real *c, int64_t ldc) {
    const packing *b = (const packing *)matrix;
    int64_t j = 0, stride = b->column_stride;
    for (; j + COLUMNS <= n; j += COLUMNS)
        multiply_columns(COLUMNS, k, a, b->from + j * stride, stride, c + j);
    for (; j < n; j++)
        multiply_columns(1, k, a, b->from + j * stride, stride, c + j);
}

static void pack_at_once(const packing *b) { pack(b->k, b->n, b->from, b->row_stride, b->column_stride, b->to); }

/* A product over all positions, of features of x and a matrix. */
typedef struct {
    packing matrix;
    int64_t m;
    const real *a;
    int64_t row_stride;
    real *c;
    int64_t ldc;
} __attribute__((may_alias)) product;

/* The header of a plan of a pass without gradients (`PlanRecorder` in c_passes.py). A plan is stored as the bases of
 * all numbers, and then the numbers. A number with a base is an offset in bytes from the base. Base 0 is the
 * plan; a number with base -1 is no address. */
typedef struct {
    int64_t matrices;
    void (*pass)(const range *, const array *, const final_state *, const int64_t *, const real *const *,
                 multiplication *);
    packing *packings;
    product *products;
    range *of; /* follows the products */
    const array *arrays;
    const final_state *finals;
    const int64_t *sizes;
} __attribute__((may_alias)) plan;

enum { PACK = 1, MULTIPLY = 2, LOOP = 4, AT_ONCE = 8, ONE_ROW = 16, MAX_PANEL_ROWS = 48, CHUNK_ROWS = 192 };

/* Returns the number of positions whose products are computed before the loop reads them, so that the results stay in
 * the cache: all positions of a short input; else positions with at least CHUNK_ROWS rows, a multiple of the rows that
 * a product computes together. */
static int64_t chunk_positions(const range *of, int64_t rows) {
    if (rows <= 2 * CHUNK_ROWS) return of->positions;
    int64_t positions = (CHUNK_ROWS + of->batch - 1) / of->batch;
    while (positions * of->batch % MAX_PANEL_ROWS) positions++;
    return positions;
}

/* Runs phases: PACK packs all matrices, MULTIPLY computes the products, and LOOP runs the loop over positions. `first`
 * to `last` (0: all) are rows of the products or of the batch. With AT_ONCE, packed matrices are not used again. With
 * ONE_ROW there is one row with one position, all matrices have contiguous columns, and no matrix is packed. */
PUBLIC void run_plan(const int64_t *numbers, int64_t size, const int64_t *bases, int64_t phases, int64_t first,
                     int64_t last, int64_t worker) {
    int64_t copy[size];
    for (int64_t k = 0; k < size; k++) {
        int64_t base = numbers[k];
        copy[k] = numbers[size + k] + (base < 0 ? 0 : base ? bases[base] : (int64_t)(intptr_t)copy);
    }
    const plan *of = (const plan *)copy;
    range *at = of->of;
    product *products = of->products;
    int64_t count = ((int64_t *)at - (int64_t *)products) / (int64_t)(sizeof(product) / sizeof(int64_t));
    const real *packed[of->matrices + 1];
    multiplication *unpacked = phases & ONE_ROW ? multiply_row : multiply_panels;
    int once = phases & ONE_ROW || (phases & AT_ONCE && at->positions == 1);
    int directly = phases & ONE_ROW || (phases & AT_ONCE && count && products->m <= MAX_PANEL_ROWS);
    for (int64_t k = 0; k < of->matrices; k++) {
        packed[k] = once ? (const real *)(of->packings + k) : of->packings[k].to;
        if (phases & PACK && !once) pack_at_once(of->packings + k);
    }
    for (int64_t k = 0; k < count && phases & PACK && !directly; k++) pack_at_once(&products[k].matrix);
    int64_t positions = at->to, begin = first, before = 0;
    int is_chunked = phases & MULTIPLY && phases & LOOP && count;
    int64_t step = is_chunked ? chunk_positions(at, products->m) : positions;
    for (at->from = 0; at->from < positions; at->from = at->to, before = begin) {
        at->to = minimum(at->from + step, positions);
        if (is_chunked) begin = at->begins[at->from];
        for (product *p = products; phases & MULTIPLY && p < products + count; p++) {
            int64_t end = at->to < positions ? at->begins[at->to] : last ? last : p->m;
            (directly ? unpacked : multiply)(end - begin, p->matrix.n, p->matrix.k, p->a + begin * p->row_stride,
                                             p->row_stride, directly ? (const real *)&p->matrix : p->matrix.to,
                                             p->c + (is_chunked ? 0 : begin) * p->ldc, p->ldc);
            for (int64_t k = 0; k < at->arrays && is_chunked; k++) { /* this chunk reuses the memory of the last one */
                array *a = (array *)of->arrays + k;
                if (a->base == p->c - before * p->ldc) a->base = p->c - begin * p->ldc;
            }
        }
        if (phases & LOOP) {
            at->first = first;
            at->last = last ? last : at->batch;
            at->worker = worker;
            of->pass(at, of->arrays, of->finals, of->sizes, packed, once ? unpacked : multiply);
        }
    }
}

PUBLIC int64_t size_of_block(int64_t n) { return packed_size(BLOCK, n); }

/* Returns the kernel of products in bf16 or int8: 0 (none), 1 (avx512), 2 (amx) or 3 (int8). To be called before the
 * first product. */
PUBLIC int64_t product_kernel(void) {
#if IN_INT8
    return 3;
#elif IN_AMX
    return may_use_amx() ? 2 : 0;
#else
    return IN_BF16;
#endif
}
