/* A bag of n-grams: `score_k = b_k + sum_g r_g w_gk / |r|` over the distinct n-grams g of a text or a pair. A stored row
 * has r and all w. A bit set marks the stored rows; each 32 bits come with the number of stored rows before them. */
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
static size_t rows_of(const int64_t *keys, size_t words, size_t n, uint64_t *sums, uint32_t *rows) {
    size_t found = 0;
    for (size_t k = 0; k + n <= words; k++) {
        sums[k] = ((n > 1 ? sums[k] : 0) + (uint64_t)keys[k + n - 1]) * UINT64_C(0x4F1BBCDCBFA53E0A);
        int is_whole = 1;
        for (size_t c = k; c < k + n; c++) is_whole &= IS_PAIR || keys[c] > 0;
        if (!is_whole) continue;
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

static void add_row(const NAME_model *model, uint32_t row, double *scores, double *squares) {
    const uint32_t *mask = words32(model, AT_KEPT) + 2 * (size_t)(row / 32);
    uint32_t bit = UINT32_C(1) << row % 32;
    if (!(mask[0] & bit)) return;
    const real *table = reals(model, AT_ROWS);
    const stored *of = stored_behind(table, ROW) + (size_t)(mask[1] + count_ones(mask[0] & (bit - 1))) * ROW;
    double found[ROW];
    for (int k = 0; k < ROW; k++) found[k] = (double)number(of[k]) * (PRECISION == 8 ? (double)table[k] : 1);
    *squares += found[0] * found[0];
    for (int k = 0; k < NAME_LABELS; k++) scores[k] += found[0] * found[1 + k];
}

static void add_weighted(const NAME_model *model, const double *sums, double squares, double *scores) {
    double norm = sqrt(squares) > 1e-6 ? sqrt(squares) : 1e-6;
    for (int k = 0; k < NAME_LABELS; k++) scores[k] += (double)reals(model, AT_BIAS)[k] + sums[k] / norm;
}

/* Adds the scores of texts with these numbers of keys. `rows` has room for NGRAMS numbers per key, `sums` for one. */
#if !IS_PAIR
static void add_bag(const NAME_model *model, const int64_t *keys, const size_t *counts, uint64_t *sums, uint32_t *rows,
                    double *scores) {
    double found[NAME_LABELS] = {0}, squares = 0;
    size_t count = 0;
    for (size_t n = 1; n <= NGRAMS; n++) count += rows_of(keys, counts[0], n, sums, rows + count);
    count = sort_distinct(rows, count);
    for (size_t k = 0; k < count; k++) add_row(model, rows[k], found, &squares);
    add_weighted(model, found, squares, scores);
}
#else
static void add_bag(const NAME_model *model, const int64_t *keys, const size_t *counts, uint64_t *sums, uint32_t *rows,
                    double *scores) {
    double found[NAME_LABELS] = {0}, squares = 0;
    for (size_t n = 1; n <= NGRAMS; n++) {
        uint32_t *others = rows + counts[0];
        size_t one = sort_distinct(rows, rows_of(keys, counts[0], n, sums, rows)), shared = 0;
        size_t other = sort_distinct(others, rows_of(keys + counts[0], counts[1], n, sums + counts[0], others));
        for (size_t a = 0, b = 0; a < one || b < other;) {
            int is_shared = a < one && b < other && rows[a] == others[b];
            int is_first = b == other || (a < one && rows[a] <= others[b]);
            uint32_t row = is_first ? rows[a] : others[b];
            add_row(model, row + (is_shared ? BUCKETS : 0), found, &squares);
            shared += (size_t)is_shared, a += (size_t)is_first, b += (size_t)(is_shared || !is_first);
        }
        size_t most = one > other ? one : other, least = one > other ? other : one;
        double small = (double)shared / (double)(most ? most : 1), large = (double)shared / (double)(least ? least : 1);
        const real *overlap = reals(model, AT_OVERLAP) + (n - 1) * 2 * NAME_LABELS;
        for (int k = 0; k < NAME_LABELS; k++)
            scores[k] += small * (double)overlap[k] + large * (double)overlap[NAME_LABELS + k];
    }
    add_weighted(model, found, squares, scores);
}
#endif
