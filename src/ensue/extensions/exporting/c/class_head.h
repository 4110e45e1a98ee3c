/* The classification head: concatenated poolings, and linear maps. */
typedef struct {
    real hidden[WIDE_HIDDEN + 1], logits[WIDE_LABELS];
    pooling_room pooling;
} head_room;

/* Writes D_POOLED numbers. */
static void pool_all(const NAME_model *model, const real *h, int64_t stride, int64_t positions, head_room *room, real *to) {
    for (size_t k = 0; k < sizeof POOLINGS / sizeof *POOLINGS; k++, to += D_HEAD)
        pool(model, POOLINGS + k, h, stride, positions, &room->pooling, to);
}

static void add_scores(const NAME_model *model, const real *pooled, int64_t width, head_room *room, double *scores) {
    if (D_HIDDEN) {
        multiply(1, WIDE_HIDDEN, width, pooled, width, reals(model, AT_HIDDEN), room->hidden, WIDE_HIDDEN);
        for (int j = 0; j < D_HIDDEN; j++) {
            real a = room->hidden[j] + reals(model, AT_HIDDEN_BIAS)[j];
            room->hidden[j] = IS_TANH ? tanh_(a) : a < 0 ? 0 : a;
        }
        pooled = room->hidden, width = D_HIDDEN;
    }
    multiply(1, WIDE_LABELS, width, pooled, width, reals(model, AT_LAST), room->logits, WIDE_LABELS);
    for (int k = 0; k < NAME_LABELS; k++) scores[k] += (double)(room->logits[k] + reals(model, AT_LAST_BIAS)[k]);
}
