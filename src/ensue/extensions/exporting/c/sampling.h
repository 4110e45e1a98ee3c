/* The Mersenne Twister (Matsumoto & Nishimura 1998) as in torch: 53 bits from two numbers. */
typedef struct {
    uint32_t numbers[624], next;
} twister;

static void twister_seed(twister *of, uint64_t seed) {
    of->numbers[0] = (uint32_t)seed;
    for (uint32_t k = 1; k < 624; k++)
        of->numbers[k] = 1812433253u * (of->numbers[k - 1] ^ of->numbers[k - 1] >> 30) + k;
    of->next = 624;
}

static uint32_t draw_bits(twister *of) {
    if (of->next >= 624) {
        for (uint32_t k = 0; k < 624; k++) {
            uint32_t both = (of->numbers[k] & 0x80000000u) | (of->numbers[(k + 1) % 624] & 0x7FFFFFFFu);
            of->numbers[k] = of->numbers[(k + 397) % 624] ^ both >> 1 ^ (both & 1 ? 0x9908B0DFu : 0);
        }
        of->next = 0;
    }
    uint32_t y = of->numbers[of->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680u;
    y ^= y << 15 & 0xEFC60000u;
    return y ^ y >> 18;
}

/* A number in (0, 1]. */
static double draw_uniform(twister *of) {
    uint64_t high = draw_bits(of);
    uint64_t both = high << 32 | draw_bits(of);
    return 1 - (double)(both & 0x1FFFFFFFFFFFFF) * 0x1p-53;
}

static real largest(const real *x, uint32_t count) {
    real max = x[0];
    for (uint32_t k = 1; k < count; k++) max = x[k] > max ? x[k] : max;
    return max;
}

/* Writes exp(x - max x) and returns the sum. */
static double exponentials(const real *restrict x, uint32_t count, real *restrict to) {
    real max = largest(x, count);
    for (uint32_t k = 0; k < count; k++) to[k] = exp_(x[k] - max);
    double sum = 0;
    for (uint32_t k = 0; k < count; k++) sum += to[k];
    return sum;
}

/* Returns whether token a precedes token b: higher score, or equal score and lower id. */
static int is_before(const real *x, uint32_t a, uint32_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); }

static void sift(const real *x, uint32_t *order, uint32_t root, uint32_t count) {
    for (;;) {
        uint32_t child = 2 * root + 1;
        if (child >= count) return;
        if (child + 1 < count && is_before(x, order[child], order[child + 1])) child++;
        if (!is_before(x, order[root], order[child])) return;
        uint32_t held = order[root];
        order[root] = order[child], order[child] = held;
        root = child;
    }
}

/* Sorts the ids of tokens by decreasing score (heap sort in place). */
static void sort_tokens(const real *x, uint32_t count, uint32_t *order) {
    for (uint32_t k = 0; k < count; k++) order[k] = k;
    for (uint32_t k = count / 2; k-- > 0;) sift(x, order, k, count);
    for (uint32_t k = count; k-- > 1;) {
        uint32_t held = order[0];
        order[0] = order[k], order[k] = held;
        sift(x, order, 0, k);
    }
}

/* The filters of ensue's `decode/generation.py` on the logits `x`; excluded tokens become -infinity. */
static void filter(real *x, uint32_t count, const NAME_sampling *how, uint32_t *order) {
    if (how->temperature != 1) {
        real max = largest(x, count), heat = (real)how->temperature;
        for (uint32_t k = 0; k < count; k++) x[k] = (x[k] - max) / heat;
    }
    int cuts_rank = how->top_k && how->top_k < count, cuts_sum = how->top_p > 0 && how->top_p < 1;
    if (cuts_rank || cuts_sum) sort_tokens(x, count, order);
    if (cuts_rank)
        for (uint32_t k = how->top_k; k < count; k++) x[order[k]] = -INFINITY;
    if (cuts_sum) {
        double max = x[order[0]], sum = 0, before = 0;
        for (uint32_t k = 0; k < count; k++) sum += exp_64(x[order[k]] - max);
        for (uint32_t k = 0; k < count; k++) {
            double share = exp_64(x[order[k]] - max) / sum;
            if (k && before >= how->top_p) x[order[k]] = -INFINITY;
            before += share;
        }
    }
    if (how->min_p > 0) {
        real min = largest(x, count) + (real)log_64(how->min_p);
        for (uint32_t k = 0; k < count; k++) x[k] = x[k] < min ? -(real)INFINITY : x[k];
    }
}

/* Returns the first token at which the cumulative probability reaches `share` of the total. */
static uint32_t draw(const real *x, uint32_t count, double share, real *work) {
    real sum = (real)exponentials(x, count, work);
    double total = 0, reached = 0;
    for (uint32_t k = 0; k < count; k++) total += work[k] /= sum;
    uint32_t last = 0;
    for (uint32_t k = 0; k < count; k++) {
        reached += work[k];
        if (work[k] > 0) last = k;
        if (reached >= share * total) return k;
    }
    return last;
}
