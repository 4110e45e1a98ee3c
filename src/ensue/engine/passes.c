/* Kernels outside of recurrent steps: dropout masks, rotations and softmaxes. Masks and rotations have the same bits as
 * torch's operations: compiled for floats with -ffp-contract=off, after kernels.h and functions.h. Numbers are floats
 * or, if `is_bf16`, bfloat16. */
typedef uint16_t bf16;
typedef unsigned __int128 uint128;

INLINE float number_at(const void *x, int64_t i, int is_bf16) {
    return is_bf16 ? real_of((bits)((const bf16 *)x)[i] << 16) : ((const float *)x)[i];
}

/* Rounds to the nearest bfloat16, ties to even. */
INLINE bf16 to_bf16(float x) {
    bits b = bits_of(x);
    return x != x ? 0x7fc0 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

INLINE void store(void *y, int64_t i, float x, int is_bf16) {
    if (is_bf16)
        ((bf16 *)y)[i] = to_bf16(x);
    else
        ((float *)y)[i] = x;
}

/* Rounds x to the type of the results. */
INLINE float round_to_type(float x, int is_bf16) {
    bf16 bits16 = to_bf16(x);
    return is_bf16 ? number_at(&bits16, 0, 1) : x;
}

/* The generator PCG64 DXSM, as in numpy (O'Neill 2014). */
typedef struct {
    uint128 state, increment;
} sequence;
static const uint64_t MULTIPLIER = 0xda942042e4dd58b5;

INLINE uint64_t next_word(sequence *from) {
    uint64_t high = from->state >> 64, low = from->state;
    from->state = from->state * MULTIPLIER + from->increment;
    high = (high ^ high >> 32) * MULTIPLIER;
    return (high ^ high >> 48) * (low | 1);
}

static sequence advance(sequence from, uint64_t words) {
    uint128 factor = MULTIPLIER, sum = from.increment;
    for (; words; words >>= 1, sum *= factor + 1, factor *= factor)
        if (words & 1) from.state = from.state * factor + sum;
    return from;
}

/* Writes dropout masks of rows `first` to `last`: `scale` where the random number of an element is at least
 * `threshold`, else 0. Row r has the random numbers of row begin + r of the batch, or of row places[r]. */
INLINE void mask(int64_t first, int64_t last, int64_t size, int64_t threshold, float scale, const uint64_t *key,
                 int64_t begin, const int64_t *places, void *y, int is_bf16) {
    enum { WORDS = 64, NUMBERS = 4 * WORDS };
    int64_t words_of_row = (size + 3) / 4;
    sequence start = {(uint128)key[0] << 64 | key[1], (uint128)key[2] << 64 | key[3]};
    sequence from = advance(start, (begin + first) * words_of_row);
    for (int64_t row = first; row < last; row++) {
        if (places) from = advance(start, places[row] * words_of_row);
        for (int64_t j = row * size, end = j + size, count; j < end; j += count) {
            uint64_t words[WORDS];
            int16_t numbers[NUMBERS];
            count = minimum(end - j, NUMBERS);
            for (int64_t k = 0; k < (count + 3) / 4; k++)
                words[k] = next_word(&from);
            memcpy(numbers, words, sizeof numbers);
            for (int64_t k = 0; k < count; k++)
                store(y, j + k, numbers[k] >= threshold ? scale : 0, is_bf16);
        }
    }
}

PUBLIC void masks(int64_t first, int64_t last, int64_t size, int64_t threshold, float scale, const uint64_t *key,
           int64_t begin, const int64_t *places, void *y, int64_t is_bf16) {
    if (is_bf16)
        mask(first, last, size, threshold, scale, key, begin, places, y, 1);
    else
        mask(first, last, size, threshold, scale, key, begin, places, y, 0);
}

/* Rotates each pair of neighboring features by an angle (sign 1) or back (-1). x and y are (rows, heads, positions,
 * 2 pairs), y is contiguous, and the tables are (rows, positions, pairs). `sizes` are heads, positions and pairs;
 * `strides` are the strides of rows, heads and positions of x, and of rows of the tables (0: rows share a table). */
INLINE void rotate_rows(int64_t first, int64_t last, const int64_t *sizes, const int64_t *strides,
                 const void *restrict cosines, const void *restrict sines, float sign, const void *restrict x,
                 void *restrict y, int is_bf16) {
    int64_t heads = sizes[0], positions = sizes[1], pairs = sizes[2];
    for (int64_t row = first; row < last; row++)
        for (int64_t i = 0; i < heads * positions; i++) {
            int64_t from = row * strides[0] + i / positions * strides[1] + i % positions * strides[2];
            int64_t to = (row * heads * positions + i) * 2 * pairs, at = row * strides[3] + i % positions * pairs;
            for (int64_t k = 0; k < pairs; k++) {
                float a = number_at(x, from + 2 * k, is_bf16), b = number_at(x, from + 2 * k + 1, is_bf16);
                float c = number_at(cosines, at + k, is_bf16), s = sign * number_at(sines, at + k, is_bf16);
                store(y, to + 2 * k, round_to_type(a * c, is_bf16) - round_to_type(b * s, is_bf16), is_bf16);
                store(y, to + 2 * k + 1, round_to_type(a * s, is_bf16) + round_to_type(b * c, is_bf16), is_bf16);
            }
        }
}

PUBLIC void rotate(int64_t first, int64_t last, const int64_t *sizes, const int64_t *strides, const void *cosines,
            const void *sines, float sign, const void *x, void *y, int64_t is_bf16) {
    if (is_bf16)
        rotate_rows(first, last, sizes, strides, cosines, sines, sign, x, y, 1);
    else
        rotate_rows(first, last, sizes, strides, cosines, sines, sign, x, y, 0);
}

/* Writes the cross-entropy of `targets` under the logits z (rows x words) to `nats`, and overwrites z with its
 * gradient. A target has the probability 1 - smoothing, and `smoothing` is spread over all words. `workspace` has a
 * number for each word. */
INLINE void cross_entropy(int64_t first, int64_t last, int64_t words, float smoothing, const int64_t *targets,
                          float *workspace, float *nats, void *z, int is_bf16) {
    for (int64_t row = first; row < last; row++) {
        int64_t from = row * words, target = targets[row];
        float maximum = -INFINITY, mean = 0, sum = 0, share = smoothing / words;
#pragma omp simd reduction(max : maximum)
        for (int64_t k = 0; k < words; k++) {
            workspace[k] = number_at(z, from + k, is_bf16);
            maximum = workspace[k] > maximum ? workspace[k] : maximum;
        }
        float expected = (1 - smoothing) * workspace[target];
#pragma omp simd reduction(+ : sum, mean)
        for (int64_t k = 0; k < words; k++) {
            mean += workspace[k];
            workspace[k] = exp_(workspace[k] - maximum);
            sum += workspace[k];
        }
        if (smoothing) expected += share * mean;
        nats[row] = maximum + log_(sum) - expected;
        float scale = 1 / sum, at_target = workspace[target] * scale - share + smoothing - 1;
        for (int64_t k = 0; k < words; k++)
            store(z, from + k, workspace[k] * scale - share, is_bf16);
        store(z, from + target, at_target, is_bf16);
    }
}

PUBLIC void surprisals(int64_t first, int64_t last, int64_t words, float smoothing, const int64_t *targets,
                       float *workspace, float *nats, void *z, int64_t is_bf16) {
    if (is_bf16)
        cross_entropy(first, last, words, smoothing, targets, workspace, nats, z, 1);
    else
        cross_entropy(first, last, words, smoothing, targets, workspace, nats, z, 0);
}

/* Computes the weights y of scores z (rows, heads, queries, keys): the softmax of `scale` z over allowed keys, and 0 at
 * other keys. `sizes` are heads, queries and keys, and the strides of rows and of queries in `allowed`, which may be
 * NULL. `workspace` has a number for each key, and padding to a multiple of 16, so that loops are vectorized. */
INLINE void softmax(int64_t first, int64_t last, const int64_t *sizes, float scale, const uint8_t *allowed,
                    float *workspace, const void *restrict z, void *restrict y, int is_bf16) {
    int64_t queries = sizes[0] * sizes[1], keys = sizes[2], padded = (keys + 15) & ~(int64_t)15;
    for (int64_t i = first * queries; i < last * queries; i++) {
        const uint8_t *is_allowed = allowed ? allowed + i / queries * sizes[3] + i % sizes[1] * sizes[4] : NULL;
        float maximum = -INFINITY, sum = 0;
        for (int64_t k = 0; k < keys; k++)
            workspace[k] = scale * number_at(z, i * keys + k, is_bf16);
        if (is_allowed)
            for (int64_t k = 0; k < keys; k++)
                workspace[k] = is_allowed[k] ? workspace[k] : -INFINITY;
        for (int64_t k = keys; k < padded; k++)
            workspace[k] = -INFINITY;
#pragma omp simd reduction(max : maximum)
        for (int64_t k = 0; k < padded; k++)
            maximum = workspace[k] > maximum ? workspace[k] : maximum;
        maximum = maximum > -INFINITY ? maximum : 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < padded; k++) {
            workspace[k] = exp_(workspace[k] - maximum);
            sum += workspace[k];
        }
        float factor = sum != 0 ? 1 / sum : 0;
        for (int64_t k = 0; k < keys; k++)
            store(y, i * keys + k, workspace[k] * factor, is_bf16);
    }
}

PUBLIC void attention_weights(int64_t first, int64_t last, const int64_t *sizes, float scale, const uint8_t *allowed,
                       float *workspace, const void *z, void *y, int64_t is_bf16) {
    if (is_bf16)
        softmax(first, last, sizes, scale, allowed, workspace, z, y, 1);
    else
        softmax(first, last, sizes, scale, allowed, workspace, z, y, 0);
}

/* y = scale w (x - sum of w x), for each row of weights w and of gradients x of the weights. */
INLINE void softmax_gradient(int64_t first, int64_t last, int64_t keys, float scale, const void *restrict w,
                   const void *restrict x, void *restrict y, int is_bf16) {
    for (int64_t from = first * keys; from < last * keys; from += keys) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = from; k < from + keys; k++)
            sum += number_at(w, k, is_bf16) * number_at(x, k, is_bf16);
        for (int64_t k = from; k < from + keys; k++)
            store(y, k, scale * number_at(w, k, is_bf16) * (number_at(x, k, is_bf16) - sum), is_bf16);
    }
}

PUBLIC void attention_gradients(int64_t first, int64_t last, int64_t keys, float scale, const void *w, const void *x,
                              void *y, int64_t is_bf16) {
    if (is_bf16)
        softmax_gradient(first, last, keys, scale, w, x, y, 1);
    else
        softmax_gradient(first, last, keys, scale, w, x, y, 0);
}

/* y = x M for a matrix of `rows` rows, each of which is `padded` numbers, a multiple of 16. */
INLINE void multiply_row(int64_t rows, int64_t padded, const float *restrict x, const float *restrict M,
                         float *restrict y) {
    for (int64_t j = 0; j < padded; j += 16) {
        float even[16] = {0}, odd[16] = {0};
        for (int64_t i = 0; i + 1 < rows; i += 2)
            for (int64_t k = 0; k < 16; k++) {
                even[k] += x[i] * M[i * padded + j + k];
                odd[k] += x[i + 1] * M[(i + 1) * padded + j + k];
            }
        for (int64_t k = 0; k < 16; k++)
            y[j + k] = even[k] + odd[k] + (rows % 2 ? x[rows - 1] * M[(rows - 1) * padded + j + k] : 0);
    }
}

/* Computes the sums over all paths of each row, up to a factor for each row and position: see `_Sums` in
 * nn/heads/chain.py. `emissions` are (rows, positions, tags). `tables` are the exponentials of start, end, transitions
 * and the transpose of the transitions. Their rows are padded with 0 to a multiple of 16, so that loops are vectorized.
 * `workspace` has 4 + positions rows of this length. The log Z of a row is NaN if a number may be out of range. */
PUBLIC void chain_sums(int64_t rows, int64_t positions, int64_t tags, const int64_t *lengths, const float *emissions,
                       const float *tables, float *workspace, double *log_z, float *arrivals, float *through) {
    int64_t padded = (tags + 15) & ~(int64_t)15;
    const float *start = tables, *end = start + padded, *pairs = end + padded, *transposed = pairs + tags * padded;
    float *sums = workspace, *forward = sums + padded, *suffix = forward + padded, *factors = suffix + padded;
    memset(workspace, 0, (4 + positions) * padded * sizeof *workspace);
    for (int64_t row = 0; row < rows; row++) {
        int64_t length = lengths[row];
        double total = 0;
        for (int64_t t = 0; t < length; t++) {
            const float *z = emissions + (row * positions + t) * tags;
            float *factor = factors + t * padded, maximum = -INFINITY, sum = 0;
            for (int64_t k = 0; k < tags; k++)
                maximum = z[k] > maximum ? z[k] : maximum;
            for (int64_t k = 0; k < tags; k++)
                factor[k] = exp_(z[k] - maximum);
            if (t)
                multiply_row(tags, padded, forward, pairs, sums);
            else
                memcpy(sums, start, padded * sizeof *sums);
            memcpy(arrivals + (t * rows + row) * tags, sums, tags * sizeof *sums);
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < padded; k++)
                sum += sums[k] *= factor[k];
            total += maximum + log(sum);
            for (int64_t k = 0; k < padded; k++) {
                forward[k] = sums[k] / sum;
                factor[k] /= sum;
            }
            memcpy(through + (2 * t * rows + row) * tags, forward, tags * sizeof *forward);
        }
        float sum = 0, largest = 0;
        for (int64_t k = 0; length && k < tags; k++)
            sum += forward[k] * end[k];
        for (int64_t k = 0; k < padded; k++)
            suffix[k] = end[k] / sum;
        for (int64_t t = length - 1; t >= 0; t--) {
            for (int64_t k = 0; k < padded; k++)
                sums[k] = factors[t * padded + k] * suffix[k];
            memcpy(through + ((2 * (length - 1 - t) + 1) * rows + row) * tags, sums, tags * sizeof *sums);
            multiply_row(tags, padded, sums, transposed, suffix);
            for (int64_t k = 0; k < padded; k++)
                largest = suffix[k] < largest ? largest : suffix[k];
        }
        log_z[row] = largest >= 1e30f ? NAN : length ? total + log(sum) : 0;
    }
}
