/* A vector of a text from those of its words; zeros of no words. */
enum { LAST, FIRST, MEANS, MAXIMA, ATTENTION };

typedef struct {
    int kind, d_last, wide, d_attention; /* of the last position d_last features, the others of the first */
    size_t linear, bias, vector;
} pooling;

static void pool(const NAME_model *model, const pooling *of, const real *h, int64_t stride, int64_t words, real *room,
                 real *to) {
    real most = -INFINITY, sum = 0;
    for (int j = 0; j < D_HEAD; j++) to[j] = words && of->kind <= FIRST ? h[j] : 0;
    if (of->kind == LAST)
        for (int j = 0; words && j < of->d_last; j++) to[j] = h[(words - 1) * stride + j];
    for (int64_t t = 0; t < words && of->kind > FIRST; t++, h += stride) {
        real weight = 1, score = 0;
        if (of->kind == ATTENTION) { /* a softmax, relative to the largest score so far */
            multiply(1, of->wide, D_HEAD, h, D_HEAD, reals(model, of->linear), room, of->wide);
            for (int j = 0; j < of->d_attention; j++)
                score += reals(model, of->vector)[j] * tanh_(room[j] + reals(model, of->bias)[j]);
            real kept = score > most ? exp_(most - score) : 1;
            most = score > most ? score : most;
            weight = exp_(score - most), sum = sum * kept + weight;
            for (int j = 0; kept != 1 && j < D_HEAD; j++) to[j] *= kept;
        }
        for (int j = 0; j < D_HEAD; j++)
            to[j] = of->kind != MAXIMA ? to[j] + weight * h[j] : t == 0 || h[j] > to[j] ? h[j] : to[j];
    }
    if (of->kind == MEANS) sum = (real)words;
    for (int j = 0; sum > 0 && j < D_HEAD; j++) to[j] /= sum;
}
