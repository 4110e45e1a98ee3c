/* Each character is a token. `points` are the known characters in order, and `ids` their numbers. */
typedef struct {
    uint8_t none;
} lexer;

static void emit(const NAME_model *model, NAME_state *state, sink *to, uint32_t id, uint64_t begin, uint64_t end);
static lexer *lexer_of(NAME_state *state);

static void lexer_feed(const NAME_model *model, NAME_state *state, sink *to, uint32_t point, uint64_t begin,
                       uint64_t end) {
    const uint32_t *points = words32(model, AT_POINTS), *ids = words32(model, AT_IDS);
    uint32_t low = 0, high = POINTS;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (points[middle] < point) low = middle + 1;
        else high = middle;
    }
    emit(model, state, to, low < POINTS && points[low] == point ? ids[low] : 0, begin, end);
}

static void lexer_end(const NAME_model *model, NAME_state *state, sink *to) { (void)model, (void)state, (void)to; }

static int lexer_is_whole(const lexer *in) {
    (void)in;
    return 1;
}
