/* The state of a reader, and what reads and writes with it. */
struct NAME_state {
    uint64_t size, checksum; /* of a state, and of the weights: those of another model are told from ours */
    uint64_t position;       /* bytes that were read */
    uint32_t token;          /* the last one */
    uint8_t is_due;          /* whether it still has to be read */
    uint8_t in_quotes, blank; /* how words are written */
    utf8 decoder;
    lexer words;
    twister random;
    uint8_t seen[(NAME_VOCABULARY + 7) / 8];
    real leaves[LEAVES], scores[NAME_VOCABULARY];
    /* From here on, no value stays from one call to the next. */
    real work[WORK], filtered[NAME_VOCABULARY], shares[NAME_VOCABULARY];
    uint32_t order[NAME_VOCABULARY];
};

UNUSED static lexer *lexer_of(NAME_state *state) { return &state->words; }

size_t NAME_state_size(void) { return sizeof(NAME_state); }

int NAME_begin(const NAME_model *model, NAME_state *state, uint64_t seed) {
    if (!model || !state) return NAME_ARGUMENT;
    memset(state, 0, sizeof *state);
    state->size = sizeof *state, state->checksum = CHECKSUM;
    state->token = START, state->is_due = 1;
    memcpy(state->leaves, reals(model, AT_LEAVES), sizeof state->leaves);
    twister_seed(&state->random, seed);
    return NAME_OK;
}

int NAME_check(const NAME_model *model, const NAME_state *state) {
    if (!model || !state) return NAME_ARGUMENT;
    int is_whole = state->size == sizeof *state && state->checksum == CHECKSUM && state->token < NAME_VOCABULARY &&
                   state->is_due <= 1 && state->in_quotes <= 1 && state->blank <= 1 && state->random.next <= 624 &&
                   state->decoder.missing <= 3 && state->decoder.length <= 4 &&
                   (!state->decoder.missing || state->decoder.point <= 0x10FFFF >> 6) &&
                   lexer_is_whole(&state->words);
    return is_whole ? NAME_OK : NAME_BAD_STATE;
}

/* Works out the scores of the token behind the last one. */
static void read_last(const NAME_model *model, NAME_state *state) {
    if (!state->is_due) return;
    state->is_due = 0;
    read_row(reals(model, AT_VECTORS), NAME_VOCABULARY, D_VECTOR, state->token, (real)SCALE, state->work);
    real *hoisted = state->work + D_VECTOR;
    hoist(model, 1, state->work, D_VECTOR, hoisted);
    advance(model, 1, state->work, hoisted, state->leaves, state->scores, hoisted + HOISTED);
}

static void describe(const NAME_model *model, NAME_state *state, uint32_t id, NAME_token *token) {
    const uint32_t *starts = words32(model, AT_STARTS);
    double sum = exponentials(state->scores, NAME_VOCABULARY, state->shares);
    double most = largest(state->scores, NAME_VOCABULARY);
    memset(token, 0, sizeof *token);
    token->id = id;
    token->is_unknown = HAS_UNKNOWN && id == 0;
    token->nats = log(sum) + most - (double)state->scores[id];
    token->text = (const char *)words32(model, AT_TEXTS) + starts[id];
    token->size = starts[id + 1] - starts[id];
}

static void accept(NAME_state *state, uint32_t id) {
    state->token = id, state->is_due = 1;
    state->seen[id / 8] = (uint8_t)(state->seen[id / 8] | 1u << id % 8);
}

/* Whether a blank stands before a word, and what comes behind it. */
static int write_blank(const NAME_model *model, NAME_state *state, uint32_t id) {
#if IS_WORDS
    const uint8_t *kinds = (const uint8_t *)words32(model, AT_KINDS);
    int blank = state->blank, closes = kinds[id] & 1, opens = kinds[id] & 2;
    if (kinds[id] & 8) {
        state->blank = state->in_quotes = 0;
        return 0;
    }
    if (kinds[id] & 4) {
        state->in_quotes = !state->in_quotes;
        closes = !state->in_quotes, opens = state->in_quotes;
    }
    state->blank = !opens;
    return blank && !closes;
#else
    (void)model, (void)state, (void)id;
    return 0;
#endif
}

/* A token of the text. Without room for it, it is read all the same. */
static void emit(const NAME_model *model, NAME_state *state, sink *to, uint32_t id, uint64_t begin, uint64_t end) {
    read_last(model, state);
    if (to->found < to->room) {
        NAME_token *token = to->tokens + to->found++;
        describe(model, state, id, token);
        token->begin = begin, token->end = end;
    }
    accept(state, id);
    state->blank = state->in_quotes = 0; /* as behind a prompt, of which the last word alone counts */
    write_blank(model, state, id);
}

static void end_text(const NAME_model *model, NAME_state *state, sink *to) {
    int length = utf8_end(&state->decoder);
    if (length) lexer_feed(model, state, to, REPLACEMENT, state->position - (uint64_t)length, state->position);
    lexer_end(model, state, to);
}

int NAME_feed(const NAME_model *model, NAME_state *state, const char *bytes, size_t count, size_t *used,
              NAME_token *tokens, size_t room) {
    if (!model || !state || !used || !tokens || room < NAME_ROOM || (!bytes && count)) return NAME_ARGUMENT;
    sink to = {tokens, room < 0x40000000 ? room : 0x40000000, 0};
    size_t k = 0;
    for (; k < count && to.room - to.found >= NAME_ROOM; k++) {
        uint32_t found[2];
        int lengths[2], characters = utf8_feed(&state->decoder, (uint8_t)bytes[k], found, lengths);
        uint64_t begin = state->position++;
        for (int c = 0; c < characters; c++) {
            /* one that ends with this byte began before it; one that broke off ended before it */
            int broke_off = c == 0 && (characters == 2 || state->decoder.missing);
            uint64_t end = broke_off ? begin : begin + 1;
            lexer_feed(model, state, &to, found[c], end - (uint64_t)lengths[c], end);
        }
    }
    if (!bytes) end_text(model, state, &to);
    *used = k;
    return (int)to.found;
}

int NAME_next(const NAME_model *model, NAME_state *state, const NAME_sampling *sampling, NAME_token *token) {
    NAME_sampling how = {1, 0, 0, 0, 0};
    if (sampling) how = *sampling;
    int is_right = how.temperature >= 0 && how.temperature <= 1e30 && how.top_p >= 0 && how.top_p <= 1 &&
                   how.min_p >= 0 && how.min_p <= 1 && how.repetition_penalty >= 0 && how.repetition_penalty <= 1e30;
    if (!model || !state || !token || !is_right) return NAME_ARGUMENT;
    sink nowhere = {NULL, 0, 0};
    end_text(model, state, &nowhere);
    read_last(model, state);
    real *x = state->filtered;
    real penalty = how.repetition_penalty > 0 ? (real)how.repetition_penalty : 1;
    int is_finite = 1;
    for (uint32_t k = 0; k < NAME_VOCABULARY; k++) {
        is_finite &= state->scores[k] < INFINITY;
        x[k] = state->scores[k];
        if (penalty != 1 && state->seen[k / 8] >> k % 8 & 1) x[k] = x[k] > 0 ? x[k] / penalty : x[k] * penalty;
    }
    if (!is_finite) return NAME_NUMBERS;
    uint32_t id = 0;
    if (how.temperature < 1e-6) {
        for (uint32_t k = 1; k < NAME_VOCABULARY; k++) id = x[k] > x[id] ? k : id;
    } else {
        filter(x, NAME_VOCABULARY, &how, state->order);
        id = draw(x, NAME_VOCABULARY, twister_share(&state->random), state->shares);
    }
    describe(model, state, id, token);
    accept(state, id);
    token->blank = write_blank(model, state, id);
    if (!IS_WORDS && token->is_unknown) token->text = "\xEF\xBF\xBD", token->size = 3;
#if IS_WORDS
    if (id == LINE_END) token->text = "\n", token->size = 1;
#endif
    return NAME_OK;
}
