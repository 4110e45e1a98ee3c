/* Multi-head self-attention of one position: head_j = softmax(q_j K_j' / sqrt(D_HEAD)) V_j (Vaswani et al. 2017, eq.
 * 1). Keys are stored as columns, so that the scores of many positions are computed at once. */
enum { D_HEADS = HEADS * D_HEAD, KEY_ROW = CONTEXT + 16 /* not a power of two, for the cache */ };

typedef struct {
    real keys[D_HEADS * KEY_ROW], values[CONTEXT * D_HEADS];
} attended;

#if defined(__GNUC__) && !defined(__clang__) && !defined(FAST)
/* gcc 12 fuses the rounding of pairs of products (vfmaddsub) even with -ffp-contract=off. */
#define WITHOUT_VECTORS __attribute__((noinline, optimize("no-tree-vectorize")))
#else
#define WITHOUT_VECTORS
#endif

/* Rotates each pair of features of all heads; `angles` has the cosine and sine of each pair (Su et al. 2021). */
WITHOUT_VECTORS static void rotate(const real *restrict angles, real *restrict x) {
    for (int h = 0; h < HEADS; h++, x += D_HEAD)
        for (int i = 0; i < D_HEAD; i += 2) {
            real even = x[i], odd = x[i + 1];
            x[i] = even * angles[i] - odd * angles[i + 1], x[i + 1] = even * angles[i + 1] + odd * angles[i];
        }
}

/* `x` has the query, key and value of a position; `angles` may be NULL; `weights` has room for CONTEXT numbers. */
static void attend(attended *of, int64_t position, const real *angles, real *x, real *weights, real *heads) {
    real *key = x + D_HEADS;
    if (angles) rotate(angles, x), rotate(angles, key);
    for (int j = 0; j < D_HEADS; j++) of->keys[j * KEY_ROW + position] = key[j];
    memcpy(of->values + position * D_HEADS, key + D_HEADS, D_HEADS * sizeof *heads);
    int64_t count = position + 1;
    for (int j = 0; j < D_HEADS; j += D_HEAD) {
        memset(weights, 0, (size_t)count * sizeof *weights);
        add_products(count, D_HEAD, x + j, of->keys + j * KEY_ROW, KEY_ROW, weights);
        real max = largest(weights, (uint32_t)count), sum = 0;
        for (int64_t t = 0; t < count; t++) weights[t] = exp_((weights[t] - max) * (real)SCORE_SCALE);
        for (int64_t t = 0; t < count; t++) sum += weights[t];
        for (int64_t t = 0; t < count; t++) weights[t] /= sum;
        memset(heads + j, 0, D_HEAD * sizeof *heads);
        add_products(D_HEAD, count, weights, of->values + j, D_HEADS, heads + j);
    }
}
