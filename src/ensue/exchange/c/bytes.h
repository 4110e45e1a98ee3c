/* Each byte of the text is a token. */
typedef struct {
    uint8_t none;
} lexer;

static void emit(const NAME_model *model, NAME_state *state, sink *to, uint32_t id, uint64_t begin, uint64_t end);

static void lexer_feed(const NAME_model *model, NAME_state *state, sink *to, uint32_t point, uint64_t begin,
                       uint64_t end) {
    uint8_t bytes[4];
    int count = utf8_write(point, bytes);
    int is_whole = end - begin == (uint64_t)count; /* U+FFFD stands for bytes that are none of its own */
    for (int k = 0; k < count; k++)
        emit(model, state, to, bytes[k], is_whole ? begin + (uint64_t)k : begin, is_whole ? begin + (uint64_t)k + 1 : end);
}

static void lexer_end(const NAME_model *model, NAME_state *state, sink *to) { (void)model, (void)state, (void)to; }

static int lexer_is_whole(const lexer *in) {
    (void)in;
    return 1;
}
