/* A bag of n-grams: `score_k = b_k + sum_g r_g w_gk / |r|` over the distinct n-grams g of a text or a pair. N-grams of
 * words and of characters have a norm |r| each, divided by the square root of their share. A stored row has r and all w.
 * A bit set marks the stored rows; each 32 bits come with the number of stored rows before them. */
enum { ROW = 1 + NAME_LABELS };

static void sift_number(uint32_t *x, size_t root, size_t count) {
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && x[child + 1] > x[child]) child++;
        if (x[root] >= x[child]) return;
        uint32_t held = x[root];
        x[root] = x[child], x[child] = held;
    }
}

/* Sorts the distinct numbers above 0 in place by heap sort; returns their number. */
static size_t sort_distinct(uint32_t *x, size_t count) {
    for (size_t k = count / 2; k-- > 0;) sift_number(x, k, count);
    for (size_t k = count; k-- > 1;) {
        uint32_t held = x[0];
        x[0] = x[k], x[k] = held;
        sift_number(x, 0, k);
    }
    size_t found = 0;
    for (size_t k = 0; k < count; k++)
        if (x[k] && (!found || x[found - 1] != x[k])) x[found++] = x[k];
    return found;
}

/* Writes the rows of the n-grams of length n, without n-grams that contain unknown words if the model reads single
 * texts. `sums` has the hashes of the n-grams of length n - 1, and is updated. */
static size_t write_ngram_rows(const int64_t *keys, size_t words, size_t n, uint64_t *sums, uint32_t *rows) {
    size_t found = 0;
    for (size_t k = 0; k + n <= words; k++) {
        sums[k] = ((n > 1 ? sums[k] : 0) + (uint64_t)keys[k + n - 1]) * UINT64_C(0x4F1BBCDCBFA53E0A);
        int is_known = 1;
        for (size_t c = k; c < k + n; c++) is_known &= IS_PAIR || keys[c] > 0;
        if (!is_known) continue;
        int is_negative = (int)(sums[k] >> 63);
        int64_t high = (int64_t)((is_negative ? ~sums[k] : sums[k]) >> 20); /* arithmetic shift of a signed number */
        int64_t rest = (is_negative ? -1 - high : high) % (BUCKETS - 1);
        rows[found++] = (uint32_t)(rest < 0 ? rest + BUCKETS : rest + 1);
    }
    return found;
}

static uint32_t count_ones(uint32_t x) {
    x -= x >> 1 & 0x55555555;
    x = (x & 0x33333333) + (x >> 2 & 0x33333333);
    return ((x + (x >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24;
}

/* The weighted sums of the weights of n-grams, and the squares of their norm: of words, and of characters. */
typedef struct {
    double scores[2][NAME_LABELS], squares[2];
} sums_of_rows;

static void add_row(const NAME_model *model, uint32_t row, sums_of_rows *to) {
    const uint32_t *mask = words32(model, AT_STORED) + 2 * (size_t)(row / 32);
    uint32_t bit = UINT32_C(1) << row % 32;
    if (!(mask[0] & bit)) return;
    const real *table = reals(model, AT_ROWS);
    const stored *of = skip_scales(table, ROW) + (size_t)(mask[1] + count_ones(mask[0] & (bit - 1))) * ROW;
    double found[ROW];
    for (int k = 0; k < ROW; k++) found[k] = (double)number(of[k]) * (PRECISION == 8 ? (double)table[k] : 1);
    int of_characters = CHARACTER_NGRAMS && row % TABLE_SIZE >= BUCKETS;
    to->squares[of_characters] += found[0] * found[0];
    for (int k = 0; k < NAME_LABELS; k++) to->scores[of_characters][k] += found[0] * found[1 + k];
}

static void add_weighted(const NAME_model *model, const sums_of_rows *sums, double *scores) {
    for (int k = 0; k < NAME_LABELS; k++) scores[k] += (double)reals(model, AT_BIAS)[k];
    for (int kind = 0; kind < 1 + (CHARACTER_NGRAMS > 0); kind++) {
        double norm = sqrt(sums->squares[kind]) > 1e-6 ? sqrt(sums->squares[kind]) : 1e-6;
        if (CHARACTER_NGRAMS) norm /= sqrt(kind ? CHARACTER_SHARE : 1 - CHARACTER_SHARE);
        for (int k = 0; k < NAME_LABELS; k++) scores[k] += sums->scores[kind][k] / norm;
    }
}

/* Replaces the hashes of n-grams of characters by their rows. */
static void convert_hashes_to_rows(uint32_t *hashes, size_t count) {
    for (size_t k = 0; k < count; k++) hashes[k] = (uint32_t)((1 + (uint64_t)hashes[k]) % (BUCKETS - 1) + 1 + BUCKETS);
}

/* Adds the scores of texts of `counts` keys and `spelled_counts` hashes. `rows` has room for NGRAMS numbers per key, and
 * `sums` has room for the numbers of one key. */
#if !IS_PAIR
static void add_bag(const NAME_model *model, const int64_t *keys, const size_t *counts, uint64_t *sums, uint32_t *rows,
                    uint32_t *spelled, const size_t *spelled_counts, double *scores) {
    sums_of_rows found = {0};
    size_t count = 0;
    for (size_t n = 1; n <= NGRAMS; n++) count += write_ngram_rows(keys, counts[0], n, sums, rows + count);
    count = sort_distinct(rows, count);
    for (size_t k = 0; k < count; k++) add_row(model, rows[k], &found);
    convert_hashes_to_rows(spelled, spelled_counts[0]);
    count = sort_distinct(spelled, spelled_counts[0]);
    for (size_t k = 0; k < count; k++) add_row(model, spelled[k], &found);
    add_weighted(model, &found, scores);
}
#else
static void add_bag(const NAME_model *model, const int64_t *keys, const size_t *counts, uint64_t *sums, uint32_t *rows,
                    uint32_t *spelled, const size_t *spelled_counts, double *scores) {
    sums_of_rows found = {0};
    convert_hashes_to_rows(spelled, spelled_counts[0] + spelled_counts[1]);
    for (size_t n = 1; n <= NGRAMS + (CHARACTER_NGRAMS > 0); n++) {
        uint32_t *firsts = n > NGRAMS ? spelled : rows, *others = firsts + (n > NGRAMS ? spelled_counts : counts)[0];
        size_t one = n > NGRAMS ? spelled_counts[0] : write_ngram_rows(keys, counts[0], n, sums, firsts), shared = 0;
        size_t other = n > NGRAMS ? spelled_counts[1] : write_ngram_rows(keys + counts[0], counts[1], n, sums + counts[0], others);
        one = sort_distinct(firsts, one), other = sort_distinct(others, other);
        for (size_t a = 0, b = 0; a < one || b < other;) {
            int is_shared = a < one && b < other && firsts[a] == others[b];
            int is_first = b == other || (a < one && firsts[a] <= others[b]);
            uint32_t row = is_first ? firsts[a] : others[b];
            add_row(model, row + (is_shared ? TABLE_SIZE : 0), &found);
            shared += (size_t)is_shared, a += (size_t)is_first, b += (size_t)(is_shared || !is_first);
        }
        size_t max = one > other ? one : other, min = one > other ? other : one;
        double small = (double)shared / (double)(max ? max : 1), large = (double)shared / (double)(min ? min : 1);
        const real *overlap = reals(model, AT_OVERLAP) + (n - 1) * 2 * NAME_LABELS;
        for (int k = 0; k < NAME_LABELS; k++)
            scores[k] += small * (double)overlap[k] + large * (double)overlap[NAME_LABELS + k];
    }
    add_weighted(model, &found, scores);
}
#endif
