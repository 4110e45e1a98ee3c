/* One position of a Transformer decoder for many rows, from the ids to the log-probabilities of the next token. Compiled
 * after engine/kernels.h and functions.h. Matrices are packed by `pack`, transposed: a product is x W^T. */

#ifndef IN_INT8
#define IN_INT8 0
#endif

/* Sizes: features, heads, hidden features, layers, vocabulary; whether norms come first; the hidden layer's
 * nonlinearity; positions read, including this one; positions of the memory; shift: a chunk has 2^shift places. */
typedef struct {
    int64_t d, heads, hidden, layers, vocabulary, norms_first, activation, read, memory, shift;
} shape;

/* The weights of a layer, and the weights outside of the layers. */
typedef struct {
    const real *norm, *norm_b, *in, *in_b, *out, *out_b;
    const real *cross_norm, *cross_norm_b, *query, *query_b, *cross_out, *cross_out_b;
    const real *last_norm, *last_norm_b, *first, *first_b, *second, *second_b;
    const real *keys, *values; /* of the memory, (texts, positions, d) */
} layer;
typedef struct {
    const real *embedding, *position, *norm, *norm_b, *scores, *scores_b;
} outer;

/* y = x W^T + b, or += if `adds`, for x (rows x k) and y (rows x n), in blocks of columns that stay in the cache. */
static void product(int64_t rows, int64_t n, int64_t k, const real *x, int64_t ldx, const real *W, const real *b,
                    real *y, int64_t ldy, int adds) {
    enum { COLUMNS = (IN_INT8 ? 64 : 8) * PANEL }; /* int8.h rounds x in each block */
    for (; n > 0; n -= COLUMNS, b += COLUMNS, y += COLUMNS, W += packed_size(k, COLUMNS)) {
        int64_t columns = minimum(n, COLUMNS);
        for (int64_t i = 0; i < rows; i++)
#pragma omp simd
            for (int64_t j = 0; j < columns; j++)
                y[i * ldy + j] = adds ? y[i * ldy + j] + b[j] : b[j];
        gemm(rows, columns, k, x, ldx, 1, W, y, ldy, 1);
    }
}

static void normalize(int64_t rows, int64_t d, int64_t ld, real epsilon, const real *x, const real *weight,
                      const real *bias, real *y) {
    for (int64_t i = 0; i < rows; i++, x += ld, y += ld) {
        real sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < d; j++)
            sum += x[j];
        real mean = sum / d;
#pragma omp simd reduction(+ : squares)
        for (int64_t j = 0; j < d; j++)
            squares += (x[j] - mean) * (x[j] - mean);
        real scale = 1 / sqrt_(squares / d + epsilon);
#pragma omp simd
        for (int64_t j = 0; j < d; j++)
            y[j] = (x[j] - mean) * scale * weight[j] + bias[j];
    }
}

/* x - log sum exp x; all NaN if an element is NaN. */
static void log_softmax(int64_t count, real *x) {
    real maximum = -(real)INFINITY, total = 0;
#pragma omp simd reduction(max : maximum)
    for (int64_t j = 0; j < count; j++)
        maximum = x[j] > maximum ? x[j] : maximum;
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < count; j++)
        total += exp_(x[j] - maximum);
    maximum += log_(total);
#pragma omp simd
    for (int64_t j = 0; j < count; j++)
        x[j] -= maximum;
}

/* The nonlinearity: ReLU (0), GELU (1) or SiLU (2). */
static void activate(int64_t count, int kind, real *x) {
    if (kind == 1)
        for (int64_t j = 0; j < count; j++)
            x[j] = x[j] * (real)0.5 * (1 + erf_(x[j] * (real)0.70710678118654752));
    else if (kind == 2)
        for (int64_t j = 0; j < count; j++)
            x[j] = x[j] / (1 + exp_(-x[j]));
    else
        for (int64_t j = 0; j < count; j++)
            x[j] = x[j] < 0 ? 0 : x[j];
}

/* The weights of n keys at any addresses, for one query of a head: softmax of scaled dot products. */
INLINE void weigh(const int64_t size, const real *query, int64_t n, const real **keys, int64_t from, real scale,
                  real *weights) {
    real maximum = -(real)INFINITY, total = 0;
    for (int64_t p = 0; p < n; p++) {
        const real *k = keys[p] + from;
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < size; j++)
            sum += query[from + j] * k[j];
        weights[p] = sum * scale;
        maximum = weights[p] > maximum ? weights[p] : maximum;
    }
#pragma omp simd reduction(+ : total)
    for (int64_t p = 0; p < n; p++) {
        weights[p] = exp_(weights[p] - maximum);
        total += weights[p];
    }
    total = 1 / total;
    for (int64_t p = 0; p < n; p++)
        weights[p] *= total;
}

/* The sum of n weighted values, for a head of `count` vectors, which stay in registers. */
INLINE void add_up(const int count, int64_t n, const real **values, int64_t from, const real *weights, real *context) {
    vector sum[8] = {{0}};
    for (int64_t p = 0; p < n; p++)
#pragma GCC unroll 8
        for (int v = 0; v < count; v++)
            sum[v] += weights[p] * *(const vector *)(values[p] + from + v * LANES);
#pragma GCC unroll 8
    for (int v = 0; v < count; v++)
        *(vector *)(context + from + v * LANES) = sum[v];
}

#define HEAD(count) \
    case count * LANES: \
        weigh(count * LANES, query, n, keys, from, scale, weights); \
        add_up(count, n, values, from, weights, context); \
        break;

/* One query over n keys and values. Without any, the context is zero. */
static void attend(const shape *s, const real *query, int64_t n, const real **keys, const real **values, real *weights,
                   real *context) {
    int64_t size = s->d / s->heads;
    real scale = 1 / sqrt_((real)size);
    for (int64_t from = 0; from < s->d; from += size)
        switch (size) {
            HEAD(1) HEAD(2) HEAD(4) HEAD(8)
        default:
            weigh(size, query, n, keys, from, scale, weights);
            for (int64_t j = from; j < from + size; j++) {
                context[j] = 0;
                for (int64_t p = 0; p < n; p++)
                    context[j] += weights[p] * values[p][j];
            }
        }
}

/* The keys and values of all layers at a place, which are contiguous. */
static real *at_place(const shape *s, real *const *chunks, int64_t place) {
    return chunks[place >> s->shift] + (place & (((int64_t)1 << s->shift) - 1)) * s->layers * 2 * s->d;
}

/* Arrays of `rows` rows: the residual stream x, x normalized, and a wider array w for projections and hidden features.
 * Weights, keys and values belong to one query. Rows are `ld` and `wide` apart, not a power of two, whose multiples map
 * to few sets of the cache. */
typedef struct {
    int64_t rows, ld, wide;
    real *x, *normalized, *w, *weights;
    const real **keys, **values;
} arrays;

/* The input of a sublayer: x, or x normalized by the norm of the sublayer if norms come first. */
static const real *input(const shape *s, const arrays *a, real epsilon, const real *norm, const real *bias) {
    if (s->norms_first)
        normalize(a->rows, s->d, a->ld, epsilon, a->x, norm, bias, a->normalized);
    return s->norms_first ? a->normalized : a->x;
}

/* Adds the output of a sublayer, y W^T + b, to x, and normalizes x if norms come last. */
static void add_output(const shape *s, const arrays *a, real epsilon, int64_t k, const real *y, int64_t ldy,
                       const real *W, const real *b, const real *norm, const real *bias) {
    product(a->rows, s->d, k, y, ldy, W, b, a->x, a->ld, 1);
    if (!s->norms_first)
        normalize(a->rows, s->d, a->ld, epsilon, a->x, norm, bias, a->x);
}

/* Each row writes its keys and values, behind its query, to its last place, and attends to all its places. */
static void attend_to_past(const shape *s, const arrays *a, int64_t l, real *const *chunks, const int64_t *places) {
    for (int64_t i = 0; i < a->rows; i++, places += s->read) {
        const real *query = a->w + i * a->wide;
        for (int64_t p = 0; p < s->read; p++) {
            a->keys[p] = at_place(s, chunks, places[p]) + 2 * l * s->d;
            a->values[p] = a->keys[p] + s->d;
        }
        memcpy((real *)a->keys[s->read - 1], query + s->d, 2 * s->d * sizeof(real));
        attend(s, query, s->read, a->keys, a->values, a->weights, a->normalized + i * a->ld);
    }
}

/* Each row attends to the positions of its text. */
static void attend_to_memory(const shape *s, const arrays *a, const layer *m, const int64_t *texts,
                             const int64_t *lengths) {
    for (int64_t i = 0; i < a->rows; i++) {
        int64_t begin = texts[i] * s->memory, length = lengths[texts[i]];
        for (int64_t p = 0; p < length; p++) {
            a->keys[p] = m->keys + (begin + p) * s->d;
            a->values[p] = m->values + (begin + p) * s->d;
        }
        attend(s, a->w + i * a->wide, length, a->keys, a->values, a->weights, a->normalized + i * a->ld);
    }
}

/* Each row reads its token of `ids` and the `read` places of `places`, whose last one it writes, and attends to
 * `lengths[text]` positions of its text. `workspace` has `ld` + `ld` + `wide` numbers for each row, and then a
 * number and two pointers for each position that can be attended to. */
PUBLIC void decode(const shape *s, const double *numbers, const layer *layers, const outer *o, real *const *chunks,
            int64_t rows, int64_t ld, int64_t wide, const int64_t *ids, const int64_t *places, const int64_t *texts,
            const int64_t *lengths, real *workspace, real *scores) {
    int64_t d = s->d, max_positions = s->read > s->memory ? s->read : s->memory;
    real epsilon = (real)numbers[0], scale = (real)numbers[1];
    arrays a = {.rows = rows, .ld = ld, .wide = wide, .x = workspace, .normalized = workspace + rows * ld};
    a.w = a.normalized + rows * ld, a.weights = a.w + rows * wide;
    a.keys = (const real **)(a.weights + (max_positions + 7) / 8 * 8), a.values = a.keys + max_positions;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < d; j++)
            a.x[i * ld + j] = o->embedding[ids[i] * d + j] * scale + o->position[j];
    for (int64_t l = 0; l < s->layers; l++) {
        const layer *m = layers + l;
        product(rows, 3 * d, d, input(s, &a, epsilon, m->norm, m->norm_b), ld, m->in, m->in_b, a.w, wide, 0);
        attend_to_past(s, &a, l, chunks, places);
        add_output(s, &a, epsilon, d, a.normalized, ld, m->out, m->out_b, m->norm, m->norm_b);
        product(rows, d, d, input(s, &a, epsilon, m->cross_norm, m->cross_norm_b), ld, m->query, m->query_b, a.w, wide,
                0);
        attend_to_memory(s, &a, m, texts, lengths);
        add_output(s, &a, epsilon, d, a.normalized, ld, m->cross_out, m->cross_out_b, m->cross_norm, m->cross_norm_b);
        product(rows, s->hidden, d, input(s, &a, epsilon, m->last_norm, m->last_norm_b), ld, m->first, m->first_b, a.w,
                wide, 0);
        for (int64_t i = 0; i < rows; i++)
            activate(s->hidden, s->activation, a.w + i * wide);
        add_output(s, &a, epsilon, s->hidden, a.w, wide, m->second, m->second_b, m->last_norm, m->last_norm_b);
    }
    const real *y = input(s, &a, epsilon, o->norm, o->norm_b);
    product(rows, s->vocabulary, d, y, ld, o->scores, o->scores_b, scores, s->vocabulary, 0);
    for (int64_t i = 0; i < rows; i++)
        log_softmax(s->vocabulary, scores + i * s->vocabulary);
}
