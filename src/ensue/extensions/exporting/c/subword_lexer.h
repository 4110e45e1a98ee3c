/* The tokens of a text are its subwords. */
typedef subwords lexer;

static void lexer_feed(const NAME_model *model, lexer *in, sink *to, uint32_t point, uint64_t begin, uint64_t end) {
    (void)to;
    subwords_feed(model, in, point, begin, end);
}

static void lexer_end(const NAME_model *model, lexer *in, sink *to) {
    (void)to;
    subwords_end(model, in);
}

static int lexer_take(const NAME_model *model, lexer *in, sink *to) {
    uint32_t id;
    uint64_t begin, end;
    int found = subwords_take(model, in, &id, &begin, &end);
    if (found) emit(model, to, id, begin, end);
    return found;
}

UNUSED static int lexer_is_valid(const NAME_model *model, const lexer *in) { return subwords_are_valid(model, in); }
