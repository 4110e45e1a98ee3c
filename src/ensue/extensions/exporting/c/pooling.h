/* The pooled vector of the words of a text; zeros without words. */
enum { LAST, FIRST, MEANS, MAXIMA, ATTENTION };

typedef struct {
    int kind, d_last, wide, d_attention; /* LAST: d_last features are of the last word, the others of the first */
    size_t linear, bias, vector;
} pooling;

typedef struct {
    real attention[WIDE_ATTENTION + 1];
    double sums[D_HEAD];
} pooling_room;

static real compute_attention_score(const NAME_model *model, const pooling *of, const real *h, real *room) {
    const real *bias = reals(model, of->bias), *vector = reals(model, of->vector);
    real score = 0;
    multiply(1, of->wide, D_HEAD, h, D_HEAD, reals(model, of->linear), room, of->wide);
    for (int j = 0; j < of->d_attention; j++) room[j] = tanh_(room[j] + bias[j]);
    for (int j = 0; j < of->d_attention; j++) score += vector[j] * room[j];
    return score;
}

/* Sums are in double precision: float32 sums over 240,000 words were wrong in the fourth digit. */
static void average(const NAME_model *model, const pooling *of, const real *h, int64_t stride, int64_t words,
                    pooling_room *room, real *restrict to) {
    real max = -INFINITY;
    double sum = 0, *restrict sums = room->sums;
    for (int j = 0; j < D_HEAD; j++) sums[j] = 0;
    for (int64_t t = 0; t < words; t++, h += stride) {
        real weight = 1;
        if (of->kind == ATTENTION) { /* softmax relative to the maximum so far */
            real score = compute_attention_score(model, of, h, room->attention);
            double kept = score > max ? (double)exp_(max - score) : 1;
            max = score > max ? score : max;
            weight = exp_(score - max), sum *= kept;
            for (int j = 0; kept != 1 && j < D_HEAD; j++) sums[j] *= kept;
        }
        sum += (double)weight;
        for (int j = 0; j < D_HEAD; j++) sums[j] += (double)(weight * h[j]);
    }
    for (int j = 0; sum > 0 && j < D_HEAD; j++) to[j] = (real)(sums[j] / sum);
}

static void pool(const NAME_model *model, const pooling *of, const real *h, int64_t stride, int64_t words,
                 pooling_room *room, real *restrict to) {
    memset(to, 0, D_HEAD * sizeof *to);
    if (of->kind == MEANS || of->kind == ATTENTION) average(model, of, h, stride, words, room, to);
    else if (words) memcpy(to, h, D_HEAD * sizeof *to);
    if (of->kind == LAST && words) memcpy(to, h + (words - 1) * stride, (size_t)of->d_last * sizeof *to);
    for (int64_t t = 1; of->kind == MAXIMA && t < words; t++)
        for (int j = 0; j < D_HEAD; j++) to[j] = h[t * stride + j] > to[j] ? h[t * stride + j] : to[j];
}
