/* The state of a text, reading and generation. */
struct NAME_state {
    uint64_t size, checksum; /* of the state, and of the weights, to reject states of other models */
    uint64_t position;       /* bytes read so far */
    uint32_t token;          /* the last token */
    uint8_t is_due;          /* whether the last token has not been read */
    spacing words;
    utf8 decoder;
    lexer reading;
    twister random;
    uint8_t seen[(NAME_VOCABULARY + 7) / 8];
    uint32_t num_read; /* tokens read since the last generated one, at most CONTEXT + 1 */
    uint32_t num_waiting, waiting[ROWS]; /* tokens without surprisal in the current call of NAME_feed */
    real scores[ROWS * NAME_VOCABULARY];
    reader read;
    /* The following members are scratch memory of one call. */
    real filtered[NAME_VOCABULARY], probabilities[NAME_VOCABULARY];
    uint32_t order[NAME_VOCABULARY];
};

/* The array of output tokens. */
struct sink {
    NAME_state *state;
    NAME_token *tokens;
    size_t room, found;
};

size_t NAME_state_size(void) { return sizeof(NAME_state); }

int NAME_begin(const NAME_model *model, NAME_state *state, uint64_t seed) {
    if (!model || !state) return NAME_ARGUMENT;
    memset(state, 0, sizeof *state);
    state->size = sizeof *state, state->checksum = CHECKSUM;
    state->token = START, state->is_due = 1;
    start_reading(model, &state->read);
    twister_seed(&state->random, seed);
    return NAME_OK;
}

int NAME_check(const NAME_model *model, const NAME_state *state) {
    if (!model || !state) return NAME_ARGUMENT;
    int is_valid = state->size == sizeof *state && state->checksum == CHECKSUM && state->token < NAME_VOCABULARY &&
                   state->is_due <= 1 && state->words.in_quotes <= 1 && state->words.blank <= 1 &&
                   state->random.next <= 624 &&
                   state->decoder.missing <= 3 && state->decoder.length <= 4 &&
                   (!state->decoder.missing || state->decoder.point <= 0x10FFFF >> 6) &&
                   lexer_is_valid(model, &state->reading) && state->num_read <= CONTEXT + 1 && !state->num_waiting &&
                   reader_is_valid(&state->read);
    return is_valid ? NAME_OK : NAME_BAD_STATE;
}

/* The number of tokens that a full window passes to the next window: half of its tokens, like `TextScorer` and `Reader`
 * of ensue, but all tokens of a prompt that fills the context. */
static uint32_t num_passed(const NAME_state *state, int is_drawn) {
    uint32_t half = CONTEXT > 1 ? CONTEXT / 2 : 1;
    return is_drawn ? (state->num_read == CONTEXT ? CONTEXT : half) - 1 : CONTEXT - half;
}

static void describe(const NAME_model *model, const real *scores, uint32_t id, real *probabilities, NAME_token *token) {
    const uint32_t *starts = words32(model, AT_STARTS);
    double sum = exponentials(scores, NAME_VOCABULARY, probabilities);
    double max = largest(scores, NAME_VOCABULARY);
    token->id = id;
    token->is_unknown = HAS_UNKNOWN && id == 0;
    token->nats = log_64(sum) + max - (double)scores[id];
    token->text = (const char *)words32(model, AT_TEXTS) + starts[id];
    token->size = starts[id + 1] - starts[id];
}

static void accept(NAME_state *state, uint32_t id) {
    state->token = id, state->is_due = 1;
    state->seen[id / 8] = (uint8_t)(state->seen[id / 8] | 1u << id % 8);
}

/* Reads the waiting tokens. If `to` has room, they are its last tokens, and their surprisals are written. */
static void score_waiting(const NAME_model *model, sink *to) {
    NAME_state *state = to->state;
    uint32_t count = state->num_waiting, read[ROWS] = {state->token};
    state->num_waiting = 0;
    for (uint32_t k = 1; k < count && k < ROWS; k++) read[k] = state->waiting[k - 1];
    if (count && state->is_due) read_tokens(model, &state->read, read, count, num_passed(state, 0), state->scores);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t id = state->waiting[k];
        if (to->room) describe(model, state->scores + (size_t)k * NAME_VOCABULARY, id, state->probabilities,
                               to->tokens + (to->found - count + k));
        accept(state, id);
    }
}

/* Adds a token of the text; without room the token is read but not written. */
static void emit(const NAME_model *model, sink *to, uint32_t id, uint64_t begin, uint64_t end) {
    NAME_state *state = to->state;
    if (to->room) to->tokens[to->found++] = (NAME_token){.begin = begin, .end = end};
    state->waiting[state->num_waiting++] = id;
    state->num_read += state->num_read <= CONTEXT;
    state->words = (spacing){0, 0}; /* the blank before a generated word depends on the last word of a prompt only */
    write_blank(model, &state->words, id);
    if (state->num_waiting == ROWS || !state->is_due) score_waiting(model, to);
}

/* Takes the complete tokens from the lexer. */
static void take_tokens(const NAME_model *model, sink *to) {
    while ((to->found < to->room || !to->room) && lexer_take(model, &to->state->reading, to)) continue;
}

static void end_text(const NAME_model *model, sink *to) {
    NAME_state *state = to->state;
    int length = utf8_end(&state->decoder);
    if (length) lexer_feed(model, &state->reading, to, REPLACEMENT, state->position - (uint64_t)length, state->position);
    lexer_end(model, &state->reading, to);
    take_tokens(model, to);
}

int NAME_feed(const NAME_model *model, NAME_state *state, const char *bytes, size_t count, size_t *used,
              NAME_token *tokens, size_t room) {
    if (!model || !state || !used || !tokens || room < NAME_ROOM || (!bytes && count)) return NAME_ARGUMENT;
    sink to = {state, tokens, room < 0x40000000 ? room : 0x40000000, 0};
    size_t k = 0;
    take_tokens(model, &to);
    for (; k < count && to.room - to.found >= NAME_ROOM; k++) {
        uint32_t found[2];
        int lengths[2], characters = utf8_feed(&state->decoder, (uint8_t)bytes[k], found, lengths);
        uint64_t begin = state->position++;
        for (int c = 0; c < characters; c++) {
            /* a complete character ends with this byte; an incomplete character ended before it */
            int is_truncated = c == 0 && (characters == 2 || state->decoder.missing);
            uint64_t end = is_truncated ? begin : begin + 1;
            lexer_feed(model, &state->reading, &to, found[c], end - (uint64_t)lengths[c], end);
        }
        take_tokens(model, &to);
    }
    if (!bytes) end_text(model, &to);
    score_waiting(model, &to);
    *used = k;
    return (int)to.found;
}

int NAME_next(const NAME_model *model, NAME_state *state, const NAME_sampling *sampling, NAME_token *token) {
    NAME_sampling how = {1, 0, 0, 0, 0};
    if (sampling) how = *sampling;
    int is_right = how.temperature >= 0 && how.temperature <= 1e30 && how.top_p >= 0 && how.top_p <= 1 &&
                   how.min_p >= 0 && how.min_p <= 1 && how.repetition_penalty >= 0 && how.repetition_penalty <= 1e30;
    if (!model || !state || !token || !is_right) return NAME_ARGUMENT;
    sink nowhere = {state, NULL, 0, 0};
    end_text(model, &nowhere);
    score_waiting(model, &nowhere);
    if (CONTEXT && state->num_read > CONTEXT) return NAME_TOO_LONG;
    if (state->is_due) read_tokens(model, &state->read, &state->token, 1, num_passed(state, 1), state->scores);
    state->is_due = 0;
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
        id = draw(x, NAME_VOCABULARY, draw_uniform(&state->random), state->probabilities);
    }
    memset(token, 0, sizeof *token);
    describe(model, state->scores, id, state->probabilities, token);
    accept(state, id);
    state->num_read = 0;
    token->blank = write_blank(model, &state->words, id);
    if (!IS_WORDS && token->is_unknown) token->text = "\xEF\xBF\xBD", token->size = 3;
#if IS_WORDS
    if (id == LINE_END) token->text = "\n", token->size = 1;
#endif
    return NAME_OK;
}
