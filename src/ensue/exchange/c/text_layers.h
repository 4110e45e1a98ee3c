/* Layers over the words of a text, and the scores of labels from what is pooled: of a pair, of [u; v; |u - v|; u v]. */
typedef struct {
    step_room step;
    character_room characters;
    form form;
    real vectors[(IS_PAIR ? 4 : 1) * D_POOLED], hidden[WIDE_HIDDEN + 1], attention[WIDE_ATTENTION + 1],
        logits[WIDE_LABELS];
} head_room;

enum { WORD_COST = sizeof(real) * (D_FEATURES + MOST_HOISTED + 2 * MOST_LAYER) };

static size_t layers_room(size_t words) { return (sizeof(head_room) + 15) / 16 * 16 + words * WORD_COST; }

/* Works out the vector of a text, of which there is one, or number 0 and 1 of a pair. */
static void read_layers(const NAME_model *model, char *memory, const char *text, const uint32_t *places,
                        const span *words, size_t count, int number) {
    head_room *room = (void *)memory;
    real *features = (void *)(memory + layers_room(0)), *hoisted = features + count * D_FEATURES;
    real *outputs = hoisted + count * MOST_HOISTED, *to = room->vectors + number * D_POOLED;
    for (size_t k = 0; k < count; k++) {
        uint32_t begin = places[words[k].begin], end = places[words[k].end];
        features_of(model, &room->form, text + begin, end - begin, &room->characters, features + k * D_FEATURES);
    }
    batch texts = {1, (int64_t)count, {0}, {(int64_t)count}};
    const real *x = features;
    int64_t stride = D_FEATURES;
    for (int k = 0; k < NUM_LAYERS && count; k++) {
        real *y = outputs + (k % 2 ? count * MOST_LAYER : 0);
        run_layer(model, LAYERS + k, &texts, x, stride, texts.words, NULL, hoisted, &room->step, y);
        x = y, stride = LAYERS[k].directions * LAYERS[k].rightward.d_out;
    }
    for (size_t k = 0; k < sizeof POOLINGS / sizeof *POOLINGS; k++, to += D_HEAD)
        pool(model, POOLINGS + k, x, stride, texts.words, room->attention, to);
}

static void add_layers(const NAME_model *model, char *memory, double *scores) {
    head_room *room = (void *)memory;
    real *u = room->vectors, *v = u + (IS_PAIR ? D_POOLED : 0);
    int64_t width = (IS_PAIR ? 4 : 1) * D_POOLED;
    for (int j = 0; IS_PAIR && j < D_POOLED; j++) {
        v[D_POOLED + j] = u[j] > v[j] ? u[j] - v[j] : v[j] - u[j];
        v[2 * D_POOLED + j] = u[j] * v[j];
    }
    if (D_HIDDEN) {
        multiply(1, WIDE_HIDDEN, width, u, width, reals(model, AT_HIDDEN), room->hidden, WIDE_HIDDEN);
        u = room->hidden, width = D_HIDDEN;
        for (int j = 0; j < D_HIDDEN; j++) {
            real a = u[j] + reals(model, AT_HIDDEN_BIAS)[j];
            u[j] = IS_TANH ? tanh_(a) : a > 0 ? a : 0;
        }
    }
    multiply(1, WIDE_LABELS, width, u, width, reals(model, AT_LAST), room->logits, WIDE_LABELS);
    for (int k = 0; k < NAME_LABELS; k++) scores[k] += (double)(room->logits[k] + reals(model, AT_LAST_BIAS)[k]);
}
