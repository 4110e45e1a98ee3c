/* Words, as the splitters "whitespace" and "simple" of ensue find them: with "simple" (IS_SIMPLE), marks are tokens of
 * their own, but not apostrophes and hyphens between two parts of a word, nor points and commas between digits.
 *
 * A word that is longer than all known ones is unknown, so that a text without blanks takes no more memory. */
typedef struct {
    uint64_t begin, end, mark_begin; /* of the word so far, and of the mark behind it */
    uint32_t last, mark;             /* the last character of the word; a mark that may be inside of it, or 0 */
    uint32_t length;                 /* bytes of the word; LONGEST + 1 if they are too many */
    uint8_t is_open, matched;        /* whether a word has begun; how many characters of "<unk>" were seen */
    uint8_t bytes[LONGEST + 4];
} lexer;

static void emit(const NAME_model *model, NAME_state *state, sink *to, uint32_t id, uint64_t begin, uint64_t end);
static lexer *lexer_of(NAME_state *state);

static int is_blank(uint32_t point) { return point == ' ' || (point >= '\t' && point <= '\r'); }

static int is_mark(uint32_t point) {
    return IS_SIMPLE && is_inside(point, MARKS, (int)(sizeof MARKS / sizeof *MARKS / 2));
}

static int is_digit(uint32_t point) { return is_inside(point, DIGITS, (int)(sizeof DIGITS / sizeof *DIGITS / 2)); }

static uint32_t id_of(const NAME_model *model, const uint8_t *bytes, size_t length) {
    const uint32_t *order = words32(model, AT_ORDER), *starts = words32(model, AT_STARTS);
    const uint8_t *texts = (const uint8_t *)words32(model, AT_TEXTS);
    uint32_t low = 0, high = NAME_VOCABULARY;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, id = order[middle];
        size_t size = starts[id + 1] - starts[id];
        int sign = memcmp(texts + starts[id], bytes, size < length ? size : length);
        if (sign == 0 && size == length) return id;
        if (sign < 0 || (sign == 0 && size < length)) low = middle + 1;
        else high = middle;
    }
    return 0;
}

static void word_append(lexer *in, uint32_t point, uint64_t end) {
    uint8_t bytes[4];
    uint32_t count = (uint32_t)utf8_write(point, bytes);
    if (in->length + count > LONGEST) in->length = LONGEST + 1;
    else memcpy(in->bytes + in->length, bytes, count), in->length += count;
    in->last = point, in->end = end;
}

static void one_mark(const NAME_model *model, NAME_state *state, sink *to, uint32_t point, uint64_t begin, uint64_t end) {
    uint8_t bytes[4];
    emit(model, state, to, id_of(model, bytes, (size_t)utf8_write(point, bytes)), begin, end);
}

static void word_end(const NAME_model *model, NAME_state *state, sink *to) {
    lexer *in = lexer_of(state);
    if (in->is_open) {
        in->is_open = 0;
        emit(model, state, to, in->length > LONGEST ? 0 : id_of(model, in->bytes, in->length), in->begin, in->end);
    }
    if (in->mark) {
        uint32_t mark = in->mark;
        in->mark = 0;
        one_mark(model, state, to, mark, in->mark_begin, in->mark_begin + (mark == 0x2019 ? 3 : 1));
    }
}

static void word_feed(const NAME_model *model, NAME_state *state, sink *to, uint32_t point, uint64_t begin,
                      uint64_t end) {
    lexer *in = lexer_of(state);
    int is_part = !is_blank(point) && !is_mark(point);
    if (in->is_open) {
        int of_number = in->mark == '.' || in->mark == ',';
        if (in->mark && is_part && (!of_number || is_digit(point))) {
            word_append(in, in->mark, begin);
            in->mark = 0;
        }
        if (is_part && !in->mark) {
            word_append(in, point, end);
            return;
        }
        int joins = point == '\'' || point == 0x2019 || point == '-';
        joins |= (point == '.' || point == ',') && is_digit(in->last);
        if (IS_SIMPLE && joins && !in->mark) {
            in->mark = point, in->mark_begin = begin;
            return;
        }
        word_end(model, state, to);
    }
    if (point == '\n') {
        emit(model, state, to, LINE_END, begin, end);
    } else if (IS_SIMPLE && point == '<') {
        in->matched = 1, in->mark_begin = begin;
    } else if (is_part) {
        in->is_open = 1, in->length = 0, in->begin = begin;
        word_append(in, point, end);
    } else if (!is_blank(point)) {
        one_mark(model, state, to, point, begin, end);
    }
}

static const char UNKNOWN_WORD[] = "<unk>";

/* What was seen of "<unk>" is something else. */
static void not_unknown(const NAME_model *model, NAME_state *state, sink *to) {
    lexer *in = lexer_of(state);
    int matched = in->matched;
    uint64_t begin = in->mark_begin;
    in->matched = 0;
    if (matched) one_mark(model, state, to, '<', begin, begin + 1);
    for (int k = 1; k < matched; k++)
        word_feed(model, state, to, (uint32_t)UNKNOWN_WORD[k], begin + (uint64_t)k, begin + (uint64_t)k + 1);
}

static void lexer_feed(const NAME_model *model, NAME_state *state, sink *to, uint32_t point, uint64_t begin,
                       uint64_t end) {
    lexer *in = lexer_of(state);
    if (in->matched) {
        if (point == (uint32_t)UNKNOWN_WORD[in->matched]) {
            if (++in->matched < 5) return;
            in->matched = 0;
            emit(model, state, to, 0, in->mark_begin, end);
            return;
        }
        not_unknown(model, state, to);
    }
    word_feed(model, state, to, point, begin, end);
}

static void lexer_end(const NAME_model *model, NAME_state *state, sink *to) {
    not_unknown(model, state, to);
    word_end(model, state, to);
}

static int lexer_is_whole(const lexer *in) { return in->length <= LONGEST + 1 && in->is_open <= 1 && in->matched < 5; }
