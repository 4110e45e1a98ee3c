/* Each character is a token. */
typedef struct {
    uint8_t none;
} lexer;

static void emit(const NAME_model *model, NAME_state *state, sink *to, uint32_t id, uint64_t begin, uint64_t end);
static lexer *lexer_of(NAME_state *state);

static void lexer_feed(const NAME_model *model, NAME_state *state, sink *to, uint32_t point, uint64_t begin,
                       uint64_t end) {
    emit(model, state, to, id_of_point(model, point), begin, end);
}

static void lexer_end(const NAME_model *model, NAME_state *state, sink *to) { (void)model, (void)state, (void)to; }

static int lexer_is_whole(const lexer *in) {
    (void)in;
    return 1;
}
