/* The functions of a language model. Tokens are written to an array that JavaScript reads. */
_Static_assert(offsetof(NAME_token, id) == 0 && offsetof(NAME_token, is_unknown) == 4, "as language.js reads them");
_Static_assert(offsetof(NAME_token, begin) == 8 && offsetof(NAME_token, end) == 16, "as language.js reads them");
_Static_assert(offsetof(NAME_token, nats) == 24 && offsetof(NAME_token, text) == 32, "as language.js reads them");
_Static_assert(offsetof(NAME_token, size) == 36 && offsetof(NAME_token, blank) == 40, "as language.js reads them");
_Static_assert(sizeof(NAME_token) == 48, "as language.js reads them");

enum { ROOM = 2 * NAME_ROOM };

static NAME_token tokens[ROOM];
static size_t used;

EXPORTED(tokens) const NAME_token *pageTokens(void) { return tokens; }

EXPORTED(vocabulary) int pageVocabulary(void) { return NAME_VOCABULARY; }

EXPORTED(context) int pageContext(void) { return NAME_CONTEXT; }

EXPORTED(state_size) size_t pageStateSize(void) { return NAME_state_size(); }

EXPORTED(begin) int pageBegin(NAME_state *state, uint64_t seed) { return NAME_begin(&model, state, seed); }

EXPORTED(check) int pageCheck(const NAME_state *state) { return NAME_check(&model, state); }

EXPORTED(feed) int pageFeed(NAME_state *state, const char *bytes, size_t count) {
    return NAME_feed(&model, state, bytes, count, &used, tokens, ROOM);
}

/* The number of bytes that the last `feed` has read. */
EXPORTED(used) size_t pageUsed(void) { return used; }

EXPORTED(next)
int pageNext(NAME_state *state, double temperature, uint32_t top_k, double top_p, double min_p, double penalty) {
    NAME_sampling how = {temperature, top_k, top_p, min_p, penalty};
    return NAME_next(&model, state, &how, tokens);
}
