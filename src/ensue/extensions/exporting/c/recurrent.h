/* The state of recurrent layers after the last token. */
typedef struct {
    real leaves[LEAVES];
    real work[WORK]; /* scratch memory of one call */
} reader;

static void start_reading(const NAME_model *model, reader *of) {
    memcpy(of->leaves, reals(model, AT_LEAVES), sizeof of->leaves);
}

static int reader_is_valid(const reader *of) { return (void)of, 1; }

/* Reads a token and computes the scores of the next one. */
static void read_tokens(const NAME_model *model, reader *of, const uint32_t *tokens, uint32_t count, uint32_t kept,
                    real *scores) {
    (void)count, (void)kept; /* ROWS is 1 */
    read_row(reals(model, AT_VECTORS), NAME_VOCABULARY, D_VECTOR, *tokens, (real)SCALE, of->work);
    real *hoisted = of->work + D_VECTOR;
    hoist(model, 1, of->work, D_VECTOR, hoisted);
    advance(model, 1, of->work, hoisted, of->leaves, scores, hoisted + HOISTED);
}
