/* Recurrent layers over a batch of sentences, in one direction or in both. Sentences are sorted by decreasing length;
 * step t reads the sentences of more than t words. */
typedef struct {
    void (*hoist)(const NAME_model *, int64_t, const real *, int64_t, real *);
    void (*advance)(const NAME_model *, int64_t, const real *, const real *, real *, real *, real *);
    int d_in, d_out, hoisted, leaves, reads_input;
    size_t first; /* offset of the initial leaves of ROWS rows */
} pass;

enum { CONCATENATE, SUM, PRODUCT, MEAN };

typedef struct {
    pass rightward, leftward;
    int directions, merge, is_residual, d_out;
} layer;

typedef struct {
    real leaves[ROWS * MAX_LEAVES], work[ROWS * MAX_WORK], hoisted[ROWS * MAX_HOISTED], x[ROWS * MAX_INPUT],
        y[ROWS * MAX_OUTPUT];
} step_room;

/* The first word and the length of each sentence r. */
typedef struct {
    int64_t count, words;
    int64_t starts[ROWS], lengths[ROWS];
} batch;

/* `x` and `hoisted` have a row for each word, or for each value of `index`. */
static void run_pass(const NAME_model *model, const pass *of, const batch *texts, const real *x, int64_t stride,
                     const real *hoisted, int64_t ldh, const uint32_t *index, step_room *room, real *y, int64_t ldy,
                     int is_leftward) {
    memcpy(room->leaves, reals(model, of->first), (size_t)(ROWS * of->leaves) * sizeof(real));
    int64_t rows = texts->count, places[ROWS];
    for (int64_t t = 0;; t++) {
        while (rows && texts->lengths[rows - 1] <= t) rows--;
        if (!rows) return;
        for (int64_t r = 0; r < rows; r++) {
            places[r] = texts->starts[r] + (is_leftward ? texts->lengths[r] - 1 - t : t);
            int64_t at = index ? (int64_t)index[places[r]] : places[r];
            memcpy(room->hoisted + r * of->hoisted, hoisted + at * ldh, (size_t)of->hoisted * sizeof(real));
            if (of->reads_input) memcpy(room->x + r * of->d_in, x + at * stride, (size_t)of->d_in * sizeof(real));
        }
        of->advance(model, rows, room->x, room->hoisted, room->leaves, room->y, room->work);
        for (int64_t r = 0; r < rows; r++)
            memcpy(y + places[r] * ldy, room->y + r * of->d_out, (size_t)of->d_out * sizeof(real));
    }
}

/* Writes rows of `directions` * d numbers; the first `d_out` are the output. If there is an `index`, each row of `x` is
 * followed by its hoisted products, rightward before leftward; otherwise `hoisted` has room for the products. */
UNUSED static void run_layer(const NAME_model *model, const layer *of, const batch *texts, const real *x,
                             int64_t stride, const uint32_t *index, real *hoisted, step_room *room, real *y) {
    int64_t d = of->rightward.d_out, ldy = d * of->directions;
    for (int k = 0; k < of->directions; k++) {
        const pass *one = k ? &of->leftward : &of->rightward;
        if (!index) one->hoist(model, texts->words, x, stride, hoisted);
        const real *from = index ? x + one->d_in + k * of->rightward.hoisted : hoisted;
        run_pass(model, one, texts, x, stride, from, index ? stride : one->hoisted, index, room, y + k * d, ldy, k);
    }
    for (int64_t t = 0; t < texts->words; t++) {
        real *a = y + t * ldy;
        const real *b = a + d, *from = x + (index ? (int64_t)index[t] : t) * stride;
        for (int64_t j = 0; of->merge && j < d; j++)
            a[j] = of->merge == PRODUCT ? a[j] * b[j] : (a[j] + b[j]) * (of->merge == MEAN ? (real)0.5 : 1);
        for (int64_t j = 0; of->is_residual && j < of->d_out; j++) a[j] += from[j];
    }
}
