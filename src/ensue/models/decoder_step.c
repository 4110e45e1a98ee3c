/* A Transformer with keys and values in C: the encoder with the keys and values of its output for all layers of the
 * decoder, and one position of the decoder for many rows, from the ids to the log-probabilities of the next token.
 * Compiled after engine/kernels.h and functions.h. Matrices are packed by `pack`, transposed: a product is x W^T. */

#include <stdlib.h>

#ifndef IN_INT8
#define IN_INT8 0
#endif

/* The weights of a layer; an encoder has none for attention to a memory. */
typedef struct {
    const real *norm, *norm_b, *last_norm, *last_norm_b;
    const real *in, *in_b, *out, *out_b, *first, *first_b, *second, *second_b;
    const real *cross_norm, *cross_norm_b, *query, *query_b, *cross_out, *cross_out_b, *project, *project_b;
} __attribute__((may_alias)) layer;

/* Encoder or decoder. Sizes: features, heads, hidden features, layers, vocabulary; whether norms come first; the hidden
 * layer's nonlinearity. `numbers` are the epsilon of norms and the factor of the embedding. */
typedef struct {
    int64_t d, heads, hidden, num_layers, vocabulary, norms_first, activation;
    const double *numbers;
    const layer *layers;
    const real *embedding, *norm, *norm_b;
} __attribute__((may_alias)) side;

/* The texts of a search: text k has `lengths[k]` positions, from row `starts[k]` of the memory of each layer of the
 * decoder on. A row has the keys and then the values of a position. */
typedef struct {
    int64_t texts, longest;
    const int64_t *starts, *lengths;
    real *const *of_layers;
} __attribute__((may_alias)) memory;

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
static void attend(const side *s, const real *query, int64_t n, const real **keys, const real **values, real *weights,
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

/* Arrays of `rows` rows: the residual stream x, x normalized, and a wider array w for projections and hidden features.
 * `weights`, `keys` and `values` are for one query. Rows are `ld` or `wide` numbers apart, not a power of two, whose
 * multiples map to few sets of the cache. */
typedef struct {
    int64_t rows, ld, wide;
    real epsilon, *x, *normalized, *w, *weights;
    const real **keys, **values;
} arrays;

enum { ROW_PADDING = 16 };

/* Rounds up to a multiple of 8. */
INLINE int64_t round_up(int64_t count) { return (count + 7) / 8 * 8; }

/* Allocates the arrays of `rows` rows with at most `positions` keys for a query. `to_free` is NULL without memory. */
static arrays arrays_of(const side *s, int64_t rows, int64_t positions, void **to_free) {
    arrays a = {.rows = rows, .epsilon = (real)s->numbers[0]};
    a.ld = round_up(s->d) + ROW_PADDING, a.wide = round_up(s->hidden > 3 * s->d ? s->hidden : 3 * s->d) + ROW_PADDING;
    int64_t numbers = rows * (2 * a.ld + a.wide) + round_up(positions), pointers = 2 * round_up(positions);
    char *memory = malloc(VECTOR_BYTES + (size_t)numbers * sizeof(real) + (size_t)pointers * sizeof(real *));
    *to_free = memory;
    a.x = (real *)(memory + (VECTOR_BYTES - (uintptr_t)memory % VECTOR_BYTES) % VECTOR_BYTES);
    a.normalized = a.x + rows * a.ld, a.w = a.normalized + rows * a.ld, a.weights = a.w + rows * a.wide;
    a.keys = (const real **)(a.weights + round_up(positions)), a.values = a.keys + round_up(positions);
    return a;
}

static void embed(const side *s, int64_t id, const real *position, real *x) {
    real scale = (real)s->numbers[1];
    for (int64_t j = 0; j < s->d; j++)
        x[j] = s->embedding[id * s->d + j] * scale + position[j];
}

/* The input of a sublayer: x, or x normalized by the norm of the sublayer if norms come first. */
static const real *input(const side *s, const arrays *a, const real *norm, const real *bias) {
    if (s->norms_first)
        normalize(a->rows, s->d, a->ld, a->epsilon, a->x, norm, bias, a->normalized);
    return s->norms_first ? a->normalized : a->x;
}

/* Adds the output of a sublayer, y W^T + b, to x, and normalizes x if norms come last. */
static void add_output(const side *s, const arrays *a, int64_t k, const real *y, int64_t ldy, const real *W,
                       const real *b, const real *norm, const real *bias) {
    product(a->rows, s->d, k, y, ldy, W, b, a->x, a->ld, 1);
    if (!s->norms_first)
        normalize(a->rows, s->d, a->ld, a->epsilon, a->x, norm, bias, a->x);
}

/* Queries, keys and values of all rows. */
static void project(const side *s, const arrays *a, const layer *m) {
    product(a->rows, 3 * s->d, s->d, input(s, a, m->norm, m->norm_b), a->ld, m->in, m->in_b, a->w, a->wide, 0);
}

static void feed_forward(const side *s, const arrays *a, const layer *m) {
    product(a->rows, s->hidden, s->d, input(s, a, m->last_norm, m->last_norm_b), a->ld, m->first, m->first_b, a->w,
            a->wide, 0);
    for (int64_t i = 0; i < a->rows; i++)
        activate(s->hidden, s->activation, a->w + i * a->wide);
    add_output(s, a, s->hidden, a->w, a->wide, m->second, m->second_b, m->last_norm, m->last_norm_b);
}

/* The arguments of `encode`: the encoder, and the memory to which it writes keys and values for the decoder's layers.
 * Text k begins at `ids[starts[k]]`; `positions` has the encodings of `longest` positions. */
typedef struct {
    side encoder;
    memory target;
    const side *decoder;
    const int64_t *ids;
    const real *positions;
} __attribute__((may_alias)) encoding;

/* Encodes the texts from `first` to `last`. Returns 1 for an id that is not in the vocabulary, -1 without memory. */
PUBLIC int64_t encode(const encoding *e, int64_t first, int64_t last) {
    const side *s = &e->encoder;
    const memory *to = &e->target;
    int64_t begin = to->starts[first], rows = to->starts[last - 1] + to->lengths[last - 1] - begin;
    for (int64_t i = begin; i < begin + rows; i++)
        if (e->ids[i] < 0 || e->ids[i] >= s->vocabulary) return 1;
    void *to_free;
    arrays a = arrays_of(s, rows, to->longest, &to_free);
    if (!to_free) return -1;
    for (int64_t k = first, row = 0; k < last; k++)
        for (int64_t p = 0; p < to->lengths[k]; p++, row++)
            embed(s, e->ids[begin + row], e->positions + p * s->d, a.x + row * a.ld);
    for (const layer *m = s->layers; m < s->layers + s->num_layers; m++) {
        project(s, &a, m);
        for (int64_t k = first; k < last; k++) {
            int64_t start = to->starts[k] - begin, length = to->lengths[k];
            for (int64_t p = 0; p < length; p++) {
                a.keys[p] = a.w + (start + p) * a.wide + s->d;
                a.values[p] = a.keys[p] + s->d;
            }
            for (int64_t i = start; i < start + length; i++)
                attend(s, a.w + i * a.wide, length, a.keys, a.values, a.weights, a.normalized + i * a.ld);
        }
        add_output(s, &a, s->d, a.normalized, a.ld, m->out, m->out_b, m->norm, m->norm_b);
        feed_forward(s, &a, m);
    }
    const real *h = input(s, &a, s->norm, s->norm_b);
    for (int64_t l = 0; l < e->decoder->num_layers; l++) {
        const layer *m = e->decoder->layers + l;
        int64_t width = 2 * e->decoder->d;
        product(rows, width, s->d, h, a.ld, m->project, m->project_b, to->of_layers[l] + begin * width, width, 0);
    }
    free(to_free);
    return 0;
}

/* The arguments of `decode`: a step of `rows` rows with `read` slots each, of which the last is new. `slots` is the
 * number of slots that have been written. `before` has the slots of each row before this step, and `after` gets the
 * slots after it. A chunk has 2^shift slots, each with the keys and values of all layers. */
typedef struct {
    side decoder;
    memory source;
    const real *matrix, *bias; /* of the scores */
    int64_t shift, slots, read, rows;
    const int64_t *ids, *before, *texts;
    int64_t *after;
    const real *position;
    real *const *chunks, *scores;
} __attribute__((may_alias)) decoding;

/* The keys and values of all layers at a slot, which are contiguous. */
static real *at_slot(const decoding *c, int64_t slot) {
    int64_t index = slot & (((int64_t)1 << c->shift) - 1);
    return c->chunks[slot >> c->shift] + index * c->decoder.num_layers * 2 * c->decoder.d;
}

/* Row i writes its keys and values, behind its query, to its last slot, and attends to all its slots. */
static void attend_to_past(const decoding *c, const arrays *a, int64_t l, const int64_t *slots, int64_t i) {
    const int64_t d = c->decoder.d;
    const real *query = a->w + i * a->wide;
    for (int64_t p = 0; p < c->read; p++) {
        a->keys[p] = at_slot(c, slots[p]) + 2 * l * d;
        a->values[p] = a->keys[p] + d;
    }
    memcpy((real *)a->keys[c->read - 1], query + d, (size_t)(2 * d) * sizeof(real));
    attend(&c->decoder, query, c->read, a->keys, a->values, a->weights, a->normalized + i * a->ld);
}

/* Row i attends to the positions of its text. */
static void attend_to_memory(const decoding *c, const arrays *a, int64_t l, int64_t text, int64_t i) {
    int64_t d = c->decoder.d, length = c->source.lengths[text];
    for (int64_t p = 0; p < length; p++) {
        a->keys[p] = c->source.of_layers[l] + (c->source.starts[text] + p) * 2 * d;
        a->values[p] = a->keys[p] + d;
    }
    attend(&c->decoder, a->w + i * a->wide, length, a->keys, a->values, a->weights, a->normalized + i * a->ld);
}

/* Computes the rows from `first` to `last`. Returns 1 for an id, a slot or a text out of range, -1 without memory. */
PUBLIC int64_t decode(const decoding *c, int64_t first, int64_t last) {
    const side *s = &c->decoder;
    int64_t d = s->d, rows = last - first, past = c->read - 1;
    const int64_t *ids = c->ids + first, *texts = c->texts + first, *before = c->before + first * past;
    int64_t *after = c->after + first * c->read;
    for (int64_t i = 0; i < rows; i++) {
        if (ids[i] < 0 || ids[i] >= s->vocabulary) return 1;
        for (int64_t p = 0; p < past; p++) {
            int64_t slot = before[i * past + p];
            if (slot < 0 || slot >= c->slots) return 1;
            after[i * c->read + p] = slot;
        }
        if (texts[i] < 0 || texts[i] >= c->source.texts) return 1;
        after[i * c->read + past] = c->slots + first + i;
    }
    void *to_free;
    arrays a = arrays_of(s, rows, c->read > c->source.longest ? c->read : c->source.longest, &to_free);
    if (!to_free) return -1;
    for (int64_t i = 0; i < rows; i++)
        embed(s, ids[i], c->position, a.x + i * a.ld);
    for (int64_t l = 0; l < s->num_layers; l++) {
        const layer *m = s->layers + l;
        project(s, &a, m);
        for (int64_t i = 0; i < rows; i++)
            attend_to_past(c, &a, l, after + i * c->read, i);
        add_output(s, &a, d, a.normalized, a.ld, m->out, m->out_b, m->norm, m->norm_b);
        product(rows, d, d, input(s, &a, m->cross_norm, m->cross_norm_b), a.ld, m->query, m->query_b, a.w, a.wide, 0);
        for (int64_t i = 0; i < rows; i++)
            attend_to_memory(c, &a, l, texts[i], i);
        add_output(s, &a, d, a.normalized, a.ld, m->cross_out, m->cross_out_b, m->cross_norm, m->cross_norm_b);
        feed_forward(s, &a, m);
    }
    real *scores = c->scores + first * s->vocabulary;
    const real *h = input(s, &a, s->norm, s->norm_b);
    product(rows, s->vocabulary, d, h, a.ld, c->matrix, c->bias, scores, s->vocabulary, 0);
    for (int64_t i = 0; i < rows; i++)
        log_softmax(s->vocabulary, scores + i * s->vocabulary);
    free(to_free);
    return 0;
}
