/* The functions of an encoder-decoder. The structs of a search and of an output have the same layout in JavaScript. */
_Static_assert(offsetof(NAME_text, size) == 4 && sizeof(NAME_text) == 8, "as memory.js writes them");
_Static_assert(offsetof(NAME_search, n_best) == 4 && offsetof(NAME_search, length_penalty) == 8, "as transducing.js reads them");
_Static_assert(offsetof(NAME_search, min_tokens) == 16 && offsetof(NAME_search, max_tokens) == 20, "as transducing.js reads them");
_Static_assert(offsetof(NAME_search, no_repeat_ngram) == 24 && sizeof(NAME_search) == 32, "as transducing.js reads them");
_Static_assert(offsetof(NAME_answer, size) == 4 && offsetof(NAME_answer, score) == 8, "as transducing.js reads them");
_Static_assert(offsetof(NAME_answer, log_probability) == 16 && offsetof(NAME_answer, is_complete) == 24, "as transducing.js reads them");
_Static_assert(sizeof(NAME_answer) == 32 && NAME_ROWS == 64, "as transducing.js has them");

/* The number of texts per source. */
EXPORTED(texts) int pageTexts(void) { return NAME_TEXTS; }

static NAME_search how;

/* The search options of the run; JavaScript writes the options of the next call there. */
EXPORTED(search) NAME_search *pageSearch(void) {
    how = NAME_usual();
    return &how;
}

EXPORTED(session_size) size_t pageSessionSize(size_t bytes, size_t tokens) { return NAME_session_size(bytes, tokens); }

EXPORTED(begin) int pageBegin(NAME_session *session, size_t bytes, size_t tokens) {
    return NAME_begin(&model, session, bytes, tokens);
}

EXPORTED(transduce) int pageTransduce(NAME_session *session, const NAME_text *texts, size_t count, NAME_answer *answers) {
    return NAME_transduce(&model, session, texts, count, &how, answers);
}
