/* Each byte of the text is a token. */
typedef struct {
    uint8_t none;
} lexer;

static void lexer_feed(const NAME_model *model, lexer *in, sink *to, uint32_t point, uint64_t begin, uint64_t end) {
    (void)in;
    uint8_t bytes[4];
    int count = utf8_write(point, bytes);
    int is_complete = end - begin == (uint64_t)count; /* U+FFFD replaces invalid bytes */
    for (int k = 0; k < count; k++)
        emit(model, to, bytes[k], is_complete ? begin + (uint64_t)k : begin, is_complete ? begin + (uint64_t)k + 1 : end);
}
