/* What layers do outside of recurrent steps, each in one pass. Masks and turns have the bits of torch's operations:
 * compiled for floats with -ffp-contract=off, after kernels.h and functions.h. Numbers are floats or, if `is_brief`,
 * bfloat16. */
typedef uint16_t brief;
typedef unsigned __int128 wide;

INLINE float number_at(const void *x, int64_t i, int is_brief) {
    return is_brief ? real_of((bits)((const brief *)x)[i] << 16) : ((const float *)x)[i];
}

/* To the nearest bfloat16, or the even one of two. */
INLINE brief rounded(float x) {
    bits b = bits_of(x);
    return x != x ? 0x7fc0 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

INLINE void put(void *y, int64_t i, float x, int is_brief) {
    if (is_brief)
        ((brief *)y)[i] = rounded(x);
    else
        ((float *)y)[i] = x;
}

/* What a bfloat16 keeps of x, where results are of that type. */
INLINE float as_kept(float x, int is_brief) {
    brief kept = rounded(x);
    return is_brief ? number_at(&kept, 0, 1) : x;
}

/* PCG64 DXSM as numpy has it (O'Neill 2014): state, increment. */
typedef struct {
    wide state, increment;
} sequence;
static const uint64_t MULTIPLIER = 0xda942042e4dd58b5;

INLINE uint64_t next_word(sequence *from) {
    uint64_t high = from->state >> 64, low = from->state;
    from->state = from->state * MULTIPLIER + from->increment;
    high = (high ^ high >> 32) * MULTIPLIER;
    return (high ^ high >> 48) * (low | 1);
}

static sequence advanced(sequence from, uint64_t words) {
    wide factor = MULTIPLIER, sum = from.increment;
    for (; words; words >>= 1, sum *= factor + 1, factor *= factor)
        if (words & 1) from.state = from.state * factor + sum;
    return from;
}

/* Masks of dropout, for rows `first` to `last`: `scale` where the number of an element is `least_kept` or more, else 0.
 * The numbers are those of the rows from `begin` on of a batch, or of the rows in `places`. */
INLINE void mask(int64_t first, int64_t last, int64_t size, int64_t least_kept, float scale, const uint64_t *key,
                 int64_t begin, const int64_t *places, void *y, int is_brief) {
    enum { WORDS = 64, NUMBERS = 4 * WORDS };
    int64_t words_of_row = (size + 3) / 4;
    sequence start = {(wide)key[0] << 64 | key[1], (wide)key[2] << 64 | key[3]};
    sequence from = advanced(start, (begin + first) * words_of_row);
    for (int64_t row = first; row < last; row++) {
        if (places) from = advanced(start, places[row] * words_of_row);
        for (int64_t j = row * size, end = j + size, count; j < end; j += count) {
            uint64_t words[WORDS];
            int16_t numbers[NUMBERS];
            count = least(end - j, NUMBERS);
            for (int64_t k = 0; k < (count + 3) / 4; k++)
                words[k] = next_word(&from);
            memcpy(numbers, words, sizeof numbers);
            for (int64_t k = 0; k < count; k++)
                put(y, j + k, numbers[k] >= least_kept ? scale : 0, is_brief);
        }
    }
}

PUBLIC void masks(int64_t first, int64_t last, int64_t size, int64_t least_kept, float scale, const uint64_t *key,
           int64_t begin, const int64_t *places, void *y, int64_t is_brief) {
    if (is_brief)
        mask(first, last, size, least_kept, scale, key, begin, places, y, 1);
    else
        mask(first, last, size, least_kept, scale, key, begin, places, y, 0);
}

/* The neighbors of each pair turned by an angle (sign 1) or back (-1). x is (rows, heads, positions, 2 pairs), y too,
 * without gaps, and the tables are (rows, positions, pairs). `sizes` are those behind the rows, `strides` those of x, and
 * that of the tables' rows, 0 if all have one. */
INLINE void turn(int64_t first, int64_t last, const int64_t *sizes, const int64_t *strides,
                 const void *restrict cosines, const void *restrict sines, float sign, const void *restrict x,
                 void *restrict y, int is_brief) {
    int64_t heads = sizes[0], positions = sizes[1], pairs = sizes[2];
    for (int64_t row = first; row < last; row++)
        for (int64_t i = 0; i < heads * positions; i++) {
            int64_t from = row * strides[0] + i / positions * strides[1] + i % positions * strides[2];
            int64_t to = (row * heads * positions + i) * 2 * pairs, at = row * strides[3] + i % positions * pairs;
            for (int64_t k = 0; k < pairs; k++) {
                float a = number_at(x, from + 2 * k, is_brief), b = number_at(x, from + 2 * k + 1, is_brief);
                float c = number_at(cosines, at + k, is_brief), s = sign * number_at(sines, at + k, is_brief);
                put(y, to + 2 * k, as_kept(a * c, is_brief) - as_kept(b * s, is_brief), is_brief);
                put(y, to + 2 * k + 1, as_kept(a * s, is_brief) + as_kept(b * c, is_brief), is_brief);
            }
        }
}

PUBLIC void turned(int64_t first, int64_t last, const int64_t *sizes, const int64_t *strides, const void *cosines,
            const void *sines, float sign, const void *x, void *y, int64_t is_brief) {
    if (is_brief)
        turn(first, last, sizes, strides, cosines, sines, sign, x, y, 1);
    else
        turn(first, last, sizes, strides, cosines, sines, sign, x, y, 0);
}

/* Scores z (rows x words) become the gradients of their nats at `targets`, and these are written to `nats`. A target has
 * the probability 1 - smoothing, and `smoothing` is spread over all words. `room` has one for each word. */
INLINE void surprise(int64_t first, int64_t last, int64_t words, float smoothing, const int64_t *targets, float *room,
                     float *nats, void *z, int is_brief) {
    for (int64_t row = first; row < last; row++) {
        int64_t from = row * words, target = targets[row];
        float most = -INFINITY, mean = 0, sum = 0, even = smoothing / words;
#pragma omp simd reduction(max : most)
        for (int64_t k = 0; k < words; k++) {
            room[k] = number_at(z, from + k, is_brief);
            most = room[k] > most ? room[k] : most;
        }
        float expected = (1 - smoothing) * room[target];
#pragma omp simd reduction(+ : sum, mean)
        for (int64_t k = 0; k < words; k++) {
            mean += room[k];
            room[k] = exp_(room[k] - most);
            sum += room[k];
        }
        if (smoothing) expected += even * mean;
        nats[row] = most + log_(sum) - expected;
        float scale = 1 / sum, at_target = room[target] * scale - even + smoothing - 1;
        for (int64_t k = 0; k < words; k++)
            put(z, from + k, room[k] * scale - even, is_brief);
        put(z, from + target, at_target, is_brief);
    }
}

PUBLIC void surprisals(int64_t first, int64_t last, int64_t words, float smoothing, const int64_t *targets, float *room,
                float *nats, void *z, int64_t is_brief) {
    if (is_brief)
        surprise(first, last, words, smoothing, targets, room, nats, z, 1);
    else
        surprise(first, last, words, smoothing, targets, room, nats, z, 0);
}

/* Scores z (rows, heads, queries, keys) become weights y: the softmax of `scale` z over the keys that are allowed, and 0
 * for others. `sizes` are those behind the rows, and the distances of rows and of queries in `allowed`, which may be
 * NULL. `room` has one for each key, and is filled up to a multiple of 16, so that all of it becomes vector code. */
INLINE void weigh(int64_t first, int64_t last, const int64_t *sizes, float scale, const uint8_t *allowed, float *room,
                  const void *restrict z, void *restrict y, int is_brief) {
    int64_t queries = sizes[0] * sizes[1], keys = sizes[2], whole = (keys + 15) & ~(int64_t)15;
    for (int64_t i = first * queries; i < last * queries; i++) {
        const uint8_t *here = allowed ? allowed + i / queries * sizes[3] + i % sizes[1] * sizes[4] : NULL;
        float most = -INFINITY, sum = 0;
        for (int64_t k = 0; k < keys; k++)
            room[k] = scale * number_at(z, i * keys + k, is_brief);
        if (here)
            for (int64_t k = 0; k < keys; k++)
                room[k] = here[k] ? room[k] : -INFINITY;
        for (int64_t k = keys; k < whole; k++)
            room[k] = -INFINITY;
#pragma omp simd reduction(max : most)
        for (int64_t k = 0; k < whole; k++)
            most = room[k] > most ? room[k] : most;
        most = most > -INFINITY ? most : 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < whole; k++) {
            room[k] = exp_(room[k] - most);
            sum += room[k];
        }
        float factor = sum != 0 ? 1 / sum : 0;
        for (int64_t k = 0; k < keys; k++)
            put(y, i * keys + k, room[k] * factor, is_brief);
    }
}

PUBLIC void attention_weights(int64_t first, int64_t last, const int64_t *sizes, float scale, const uint8_t *allowed,
                       float *room, const void *z, void *y, int64_t is_brief) {
    if (is_brief)
        weigh(first, last, sizes, scale, allowed, room, z, y, 1);
    else
        weigh(first, last, sizes, scale, allowed, room, z, y, 0);
}

/* y = scale w (x - sum of w x), for each row of weights w and of their gradients x. */
INLINE void change(int64_t first, int64_t last, int64_t keys, float scale, const void *restrict w,
                   const void *restrict x, void *restrict y, int is_brief) {
    for (int64_t from = first * keys; from < last * keys; from += keys) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = from; k < from + keys; k++)
            sum += number_at(w, k, is_brief) * number_at(x, k, is_brief);
        for (int64_t k = from; k < from + keys; k++)
            put(y, k, scale * number_at(w, k, is_brief) * (number_at(x, k, is_brief) - sum), is_brief);
    }
}

PUBLIC void attention_changes(int64_t first, int64_t last, int64_t keys, float scale, const void *w, const void *x,
                              void *y, int64_t is_brief) {
    if (is_brief)
        change(first, last, keys, scale, w, x, y, 1);
    else
        change(first, last, keys, scale, w, x, y, 0);
}
