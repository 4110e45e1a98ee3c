/* Layers over the words of a text, and the scores of labels from its pooled vector u; for a pair of texts, from the
 * vector [u; v; |u - v|; u v]. */
typedef struct {
    step_room step;
    character_room characters;
    form form;
    head_room head;
    real vectors[(IS_PAIR ? 4 : 1) * D_POOLED];
} reading_room;

enum { WORD_COST = sizeof(real) * (D_FEATURES + MAX_HOISTED + 2 * MAX_LAYER) };

static size_t layers_room(size_t words) { return (sizeof(reading_room) + 15) / 16 * 16 + words * WORD_COST; }

/* Computes the vector of a text; the second text of a pair has the number 1. */
static void read_layers(const NAME_model *model, char *memory, const char *text, const uint32_t *places,
                        const span *words, size_t count, int number) {
    reading_room *room = (void *)memory;
    real *features = (void *)(memory + layers_room(0)), *hoisted = features + count * D_FEATURES;
    real *outputs = hoisted + count * MAX_HOISTED, *to = room->vectors + number * D_POOLED;
    for (size_t k = 0; k < count; k++) {
        uint32_t begin = places[words[k].begin], end = places[words[k].end];
        compute_features(model, &room->form, text + begin, end - begin, &room->characters, features + k * D_FEATURES);
    }
    batch texts = {1, (int64_t)count, {0}, {(int64_t)count}};
    const real *x = features;
    int64_t stride = D_FEATURES;
    for (int k = 0; k < NUM_LAYERS && count; k++) {
        real *y = outputs + (k % 2 ? count * MAX_LAYER : 0);
        run_layer(model, LAYERS + k, &texts, x, stride, NULL, hoisted, &room->step, y);
        x = y, stride = LAYERS[k].directions * LAYERS[k].rightward.d_out;
    }
    pool_all(model, x, stride, texts.words, &room->head, to);
}

static void add_layers(const NAME_model *model, char *memory, double *scores) {
    reading_room *room = (void *)memory;
    real *u = room->vectors, *v = u + (IS_PAIR ? D_POOLED : 0);
    int64_t width = (IS_PAIR ? 4 : 1) * D_POOLED;
    for (int j = 0; IS_PAIR && j < D_POOLED; j++) {
        v[D_POOLED + j] = u[j] > v[j] ? u[j] - v[j] : v[j] - u[j];
        v[2 * D_POOLED + j] = u[j] * v[j];
    }
    add_scores(model, u, width, &room->head, scores);
}
