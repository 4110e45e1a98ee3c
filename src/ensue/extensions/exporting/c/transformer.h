/* The window of a Transformer, with keys and values. */
enum { D_FIRST = D_VECTOR + D_POSITION };

typedef struct {
    uint32_t tokens[CONTEXT], length;
    attended blocks[BLOCKS];
    /* scratch memory of one call */
    real x[ROWS * D_READ], past[ROWS * D_HEADS], y[ROWS * 3 * D_HEADS], weights[CONTEXT];
    real hoisted[ROWS * HOISTED], work[ROWS * WORK];
} reader;

static void start_reading(const NAME_model *model, reader *of) { (void)model, of->length = 0; }

static int reader_is_valid(const reader *of) {
    int is_valid = of->length <= CONTEXT;
    for (uint32_t k = 0; k < CONTEXT; k++) is_valid &= of->tokens[k] < NAME_VOCABULARY;
    return is_valid;
}

/* Reads up to ROWS tokens that fit into the window. If `scores` is NULL, no scores are computed. */
static void read_within(const NAME_model *model, reader *of, const uint32_t *tokens, uint32_t count, real *scores) {
    const uint32_t begin = of->length;
    for (uint32_t r = 0; r < count; r++) {
        real *x = of->x + r * D_FIRST;
        read_row(reals(model, AT_VECTORS), NAME_VOCABULARY, D_VECTOR, tokens[r], (real)SCALE, x);
        if (D_POSITION) read_row(reals(model, AT_POSITIONS), CONTEXT, D_POSITION, begin + r, 1, x + D_VECTOR);
        of->tokens[of->length++] = tokens[r];
    }
    for (int k = 0; k < BLOCKS + (scores != NULL); k++) {
        const NAME_model here = {model->weights + SEGMENTS[k].weights, NULL};
        SEGMENTS[k].hoist(&here, count, of->x, k ? D_HEADS : D_FIRST, of->hoisted);
        SEGMENTS[k].advance(&here, count, of->x, of->hoisted, of->past, k < BLOCKS ? of->y : scores, of->work);
        for (uint32_t r = 0; k < BLOCKS && r < count; r++) {
            const real *angles = IS_ROTARY ? reals(model, AT_ANGLES) + (size_t)(begin + r) * D_HEAD : NULL;
            attend(of->blocks + k, begin + r, angles, of->y + r * 3 * D_HEADS, of->weights, of->x + r * D_HEADS);
        }
    }
}

/* Reads up to ROWS tokens, and computes the scores of the token after each of them. A full window passes its `kept`
 * newest tokens to the next window. */
static void read_tokens(const NAME_model *model, reader *of, const uint32_t *tokens, uint32_t count, uint32_t kept,
                    real *scores) {
    while (count) {
        if (of->length >= CONTEXT) {
            memmove(of->tokens, of->tokens + CONTEXT - kept, kept * sizeof *tokens);
            for (of->length = 0; of->length < kept;) {
                uint32_t left = kept - of->length;
                read_within(model, of, of->tokens + of->length, left < ROWS ? left : ROWS, NULL);
            }
        }
        uint32_t room = CONTEXT - of->length, now = count < room ? count : room;
        read_within(model, of, tokens, now, scores);
        tokens += now, count -= now, scores += (size_t)now * NAME_VOCABULARY;
    }
}
