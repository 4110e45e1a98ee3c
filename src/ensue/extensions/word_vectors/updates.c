/* Updates of word vectors by negative sampling and by GloVe. This file is compiled after engine/kernels.h and
 * engine/functions.h, with vectors of DIMENSION numbers and NEGATIVES noise words per example.
 *
 * Both are constants, so that the compiler can unroll the loops over a vector. The caller checks all sizes and that ids
 * are rows of the tables. Threads update the same vectors without locks (Hogwild, Recht et al. 2011). */
enum { D = DIMENSION, K = NEGATIVES };

/* The rows of word w in the table of vectors are w and, for its n-grams, rows[starts[w]] to rows[starts[w + 1] - 1].
 * `starts` is NULL without n-grams. */
typedef struct {
    const int32_t *rows;
    const int64_t *starts;
} subwords;

/* The alias method (Walker 1977): column c yields word c below its threshold, and word alias[c] above the threshold. */
typedef struct {
    const uint32_t *threshold;
    const int32_t *alias;
    uint64_t size, key;
} noise;

/* The loss is nats - log(product). Logarithms are slow, so `product` collects probabilities until it is tiny. */
typedef struct {
    double nats, product;
} loss;

/* Number `place` of the stream `key` of SplitMix64 (Steele, Lea & Flood 2014), as in data/permutation.py. */
INLINE uint64_t random_number(uint64_t key, uint64_t place) {
    uint64_t z = key + (place + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Return the noise word at index `place` of the random stream. */
INLINE int32_t draw_word(const noise *from, uint64_t place) {
    uint64_t number = random_number(from->key, place), column = ((number >> 32) * from->size) >> 32;
    return (uint32_t)number < from->threshold[column] ? (int32_t)column : from->alias[column];
}

INLINE real dot(const real *a, const real *b) {
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < D; j++)
        sum += a[j] * b[j];
    return sum;
}

/* to += scale * from */
INLINE void add(real *to, const real *from, real scale) {
#pragma omp simd
    for (int j = 0; j < D; j++)
        to[j] += scale * from[j];
}

INLINE void count_loss(loss *sum, real probability) {
    sum->product *= probability > (real)1e-30 ? probability : (real)1e-30;
    if (sum->product < 1e-200) {
        sum->nats -= log(sum->product);
        sum->product = 1;
    }
}

/* One example: the logistic regression of `target` against K noise words, given `h`. Updates the output vectors of all
 * words, and writes the update of h to `move`. A noise word that equals the target is ignored. */
INLINE void update_outputs(const real *h, int32_t target, const noise *from, uint64_t place, real rate, real *outputs,
                           real *move, loss *sum) {
    real *words[K + 1], error[K + 1], scores[K + 1];
    int counts[K + 1];
    for (int k = 0; k <= K; k++) {
        int32_t word = k ? draw_word(from, place * K + k - 1) : target;
        counts[k] = !k || word != target;
        words[k] = outputs + (int64_t)word * D;
    }
    for (int k = 0; k <= K; k++)
        scores[k] = dot(h, words[k]);
#pragma omp simd
    for (int k = 0; k <= K; k++) {
        real wrong = sigmoid_(k ? scores[k] : -scores[k]); /* the probability of the wrong class */
        error[k] = counts[k] ? (k ? -wrong : wrong) : 0;
    }
    for (int k = 0; k <= K; k++)
        count_loss(sum, 1 - fabs_(error[k]));
    for (int j = 0; j < D; j++)
        move[j] = 0;
    for (int k = 0; k <= K; k++)
        add(move, words[k], rate * error[k]);
    for (int k = 0; k <= K; k++)
        add(words[k], h, rate * error[k]);
}

/* Add the rows of `word` to h, and return the number of these rows. */
INLINE int64_t add_rows(real *h, const real *vectors, int32_t word, const subwords *parts) {
    add(h, vectors + (int64_t)word * D, 1);
    if (!parts->starts)
        return 1;
    int64_t first = parts->starts[word], last = parts->starts[word + 1];
    for (int64_t n = first; n < last; n++)
        add(h, vectors + (int64_t)parts->rows[n] * D, 1);
    return 1 + last - first;
}

/* Add `move` to each row of `word`. */
INLINE void move_rows(const real *move, real *vectors, int32_t word, const subwords *parts) {
    add(vectors + (int64_t)word * D, move, 1);
    if (!parts->starts)
        return;
    for (int64_t n = parts->starts[word], last = parts->starts[word + 1]; n < last; n++)
        add(vectors + (int64_t)parts->rows[n] * D, move, 1);
}

INLINE void divide(real *h, int64_t count) {
    real scale = 1 / (real)count;
    for (int j = 0; j < D; j++)
        h[j] *= scale;
}

INLINE double nats(const loss *sum) { return sum->nats - log(sum->product); }

/* CBOW: the mean of the rows of the context predicts the word. As in word2vec, each row gets the full update. */
PUBLIC double cbow(int64_t first, int64_t last, const int32_t *ids, const int32_t *left, const int32_t *right,
                   real *vectors, real *outputs, const int32_t *rows, const int64_t *starts, const uint32_t *threshold,
                   const int32_t *alias, uint64_t size, uint64_t key, int64_t window, double rate) {
    noise from = {threshold, alias, size, key};
    subwords parts = {rows, starts};
    loss sum = {0, 1};
    for (int64_t i = first; i < last; i++) {
        real h[D] = {0}, move[D];
        int64_t count = 0;
        for (int32_t j = left[i]; j < right[i]; j++)
            if (j != i)
                count += add_rows(h, vectors, ids[j], &parts);
        if (!count)
            continue;
        divide(h, count);
        update_outputs(h, ids[i], &from, (uint64_t)i, (real)rate, outputs, move, &sum);
        for (int32_t j = left[i]; j < right[i]; j++)
            if (j != i)
                move_rows(move, vectors, ids[j], &parts);
    }
    return nats(&sum);
}

/* Skip-gram: the mean of the rows of a word predicts each word of its context, one after another. */
PUBLIC double skip_gram(int64_t first, int64_t last, const int32_t *ids, const int32_t *left, const int32_t *right,
                 real *vectors, real *outputs, const int32_t *rows, const int64_t *starts, const uint32_t *threshold,
                 const int32_t *alias, uint64_t size, uint64_t key, int64_t window, double rate) {
    noise from = {threshold, alias, size, key};
    subwords parts = {rows, starts};
    loss sum = {0, 1};
    for (int64_t i = first; i < last; i++) {
        real h[D] = {0}, move[D], total[D] = {0};
        if (right[i] - left[i] < 2)
            continue;
        divide(h, add_rows(h, vectors, ids[i], &parts));
        for (int32_t j = left[i]; j < right[i]; j++)
            if (j != i) {
                uint64_t place = (uint64_t)i * (2 * window + 1) + (uint64_t)(j - i + window);
                update_outputs(h, ids[j], &from, place, (real)rate, outputs, move, &sum);
                add(h, move, 1);
                add(total, move, 1);
            }
        move_rows(total, vectors, ids[i], &parts);
    }
    return nats(&sum);
}

/* AdaGrad: `square` is the sum of the squared gradients of `parameter`. */
INLINE void step_by(real *parameter, real *square, real gradient) {
    *parameter -= gradient / sqrt_(*square);
    *square += gradient * gradient;
}

/* GloVe (Pennington et al. 2014): an AdaGrad step for each pair on the loss (w·c + b + a - log count)² · weight / 2. */
PUBLIC double glove(int64_t first, int64_t last, const int32_t *centers, const int32_t *neighbors,
             const float *logarithm, const float *weight, real *vectors, real *contexts, real *biases,
             real *context_biases, real *vector_squares, real *context_squares, real *bias_squares,
             real *context_bias_squares, double rate) {
    double sum = 0;
    for (int64_t n = first; n < last; n++) {
        int64_t a = centers[n], b = neighbors[n];
        real *w = vectors + a * D, *c = contexts + b * D, *w2 = vector_squares + a * D, *c2 = context_squares + b * D;
        real difference = dot(w, c) + biases[a] + context_biases[b] - logarithm[n];
        real error = weight[n] * difference, g = error * (real)rate;
        sum += 0.5 * error * difference;
#pragma omp simd
        for (int j = 0; j < D; j++) {
            real gradient_w = g * c[j], gradient_c = g * w[j];
            step_by(w + j, w2 + j, gradient_w);
            step_by(c + j, c2 + j, gradient_c);
        }
        step_by(biases + a, bias_squares + a, g);
        step_by(context_biases + b, context_bias_squares + b, g);
    }
    return sum;
}
