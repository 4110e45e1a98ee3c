/* Words as in ensue's splitters "whitespace" and "simple". With "simple" (IS_SIMPLE) punctuation marks are tokens,
 * except apostrophes and hyphens in a word, and points and commas between digits.
 *
 * A word that is longer than all known words is unknown, so a text without blanks needs no more memory. */
typedef struct {
    uint64_t begin, end, mark_begin; /* of the current word, and of the mark after it */
    uint32_t last, mark;             /* the word's last character; a mark that the next one may join to the word, or 0 */
    uint32_t length;                 /* bytes of the word, at most MAX_TOKEN_BYTES + 1, which marks a longer word */
    uint8_t is_open, matched;        /* whether a word has begun; the number of matched characters of "<unk>" */
    uint8_t bytes[MAX_TOKEN_BYTES + 4];
} lexer;

static int is_blank(uint32_t point) { return point == ' ' || (point >= '\t' && point <= '\r'); }

static int is_mark(uint32_t point) {
    return IS_SIMPLE && is_inside(point, MARKS, (int)(sizeof MARKS / sizeof *MARKS / 2));
}

static int is_digit(uint32_t point) { return is_inside(point, DIGITS, (int)(sizeof DIGITS / sizeof *DIGITS / 2)); }

static void word_append(lexer *in, uint32_t point, uint64_t end) {
    uint8_t bytes[4];
    uint32_t count = (uint32_t)utf8_write(point, bytes);
    if (in->length + count > MAX_TOKEN_BYTES) in->length = MAX_TOKEN_BYTES + 1;
    else memcpy(in->bytes + in->length, bytes, count), in->length += count;
    in->last = point, in->end = end;
}

static void emit_mark(const NAME_model *model, sink *to, uint32_t point, uint64_t begin, uint64_t end) {
    uint8_t bytes[4];
    emit(model, to, find_id(model, &KNOWN_TOKEN, bytes, (size_t)utf8_write(point, bytes)), begin, end);
}

static void word_end(const NAME_model *model, lexer *in, sink *to) {
    if (in->is_open) {
        in->is_open = 0;
        uint32_t id = in->length > MAX_TOKEN_BYTES ? 0 : find_id(model, &KNOWN_TOKEN, in->bytes, in->length);
        emit(model, to, id, in->begin, in->end);
    }
    if (in->mark) {
        uint32_t mark = in->mark;
        in->mark = 0;
        emit_mark(model, to, mark, in->mark_begin, in->mark_begin + (mark == 0x2019 ? 3 : 1));
    }
}

static void word_feed(const NAME_model *model, lexer *in, sink *to, uint32_t point, uint64_t begin, uint64_t end) {
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
        word_end(model, in, to);
    }
    if (point == '\n') {
        emit(model, to, LINE_END, begin, end);
    } else if (IS_SIMPLE && point == '<') {
        in->matched = 1, in->mark_begin = begin;
    } else if (is_part) {
        in->is_open = 1, in->length = 0, in->begin = begin;
        word_append(in, point, end);
    } else if (!is_blank(point)) {
        emit_mark(model, to, point, begin, end);
    }
}

static const char UNKNOWN_WORD[] = "<unk>";

/* Reads the matched part of "<unk>" as ordinary characters. */
static void reject_unknown(const NAME_model *model, lexer *in, sink *to) {
    int matched = in->matched;
    uint64_t begin = in->mark_begin;
    in->matched = 0;
    if (matched) emit_mark(model, to, '<', begin, begin + 1);
    for (int k = 1; k < matched; k++)
        word_feed(model, in, to, (uint32_t)UNKNOWN_WORD[k], begin + (uint64_t)k, begin + (uint64_t)k + 1);
}

static void lexer_feed(const NAME_model *model, lexer *in, sink *to, uint32_t point, uint64_t begin, uint64_t end) {
    if (in->matched) {
        if (point == (uint32_t)UNKNOWN_WORD[in->matched]) {
            if (++in->matched < 5) return;
            in->matched = 0;
            emit(model, to, 0, in->mark_begin, end);
            return;
        }
        reject_unknown(model, in, to);
    }
    word_feed(model, in, to, point, begin, end);
}

static void lexer_end(const NAME_model *model, lexer *in, sink *to) {
    reject_unknown(model, in, to);
    word_end(model, in, to);
}

static int lexer_take(const NAME_model *model, lexer *in, sink *to) {
    return (void)model, (void)in, (void)to, 0;
}

UNUSED static int lexer_is_valid(const NAME_model *model, const lexer *in) {
    (void)model;
    return in->length <= MAX_TOKEN_BYTES + 1 && in->is_open <= 1 && in->matched < 5;
}
