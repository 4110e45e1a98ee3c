/* Byte-level subwords: the splitter of GPT-2 (Radford et al. 2019), with merges in each word:
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * The last blank of a run is held back, since it may begin a word, and so is a letter of a possible contraction. */
enum { NO_WORD, OF_LETTERS, OF_DIGITS, OF_OTHERS, OF_BLANKS, OF_QUOTE };

typedef struct {
    merger merges;
    uint64_t position, pending_from, pending_to;
    uint32_t pending; /* a character that is held back, or 0 */
    uint8_t kind;  /* the kind of the current word */
} subwords;

static uint8_t classify_character(uint32_t point) {
    return is_inside(point, LETTERS, (int)(sizeof LETTERS / sizeof *LETTERS / 2))   ? OF_LETTERS
           : is_inside(point, BLANKS, (int)(sizeof BLANKS / sizeof *BLANKS / 2))    ? OF_BLANKS
           : is_inside(point, NUMBERS, (int)(sizeof NUMBERS / sizeof *NUMBERS / 2)) ? OF_DIGITS
                                                                                    : OF_OTHERS;
}

static void subwords_append(const NAME_model *model, subwords *in, uint32_t point, uint64_t begin, uint64_t end) {
    uint8_t bytes[4];
    int count = utf8_write(point, bytes);
    int is_complete = end - begin == (uint64_t)count; /* U+FFFD replaces invalid bytes */
    for (int k = 0; k < count; k++)
        merges_append(model, &in->merges, bytes[k], is_complete ? begin + (uint64_t)k : begin,
                      is_complete ? begin + (uint64_t)k + 1 : end);
}

static void append_pending(const NAME_model *model, subwords *in) {
    if (in->pending) subwords_append(model, in, in->pending, in->pending_from, in->pending_to);
    in->pending = 0;
}

static void hold(subwords *in, uint32_t point, uint64_t begin, uint64_t end) {
    in->pending = point, in->pending_from = begin, in->pending_to = end;
}

/* Handles a character after an apostrophe that begins a word; returns whether it belongs to a contraction. */
static int read_contraction(const NAME_model *model, subwords *in, uint32_t point, uint64_t begin, uint64_t end) {
    uint32_t letter = in->pending;
    if (!letter && (point == 'r' || point == 'v' || point == 'l')) return hold(in, point, begin, end), 1;
    int ends = letter ? point == (letter == 'l' ? 'l' : 'e') : point == 's' || point == 't' || point == 'm' || point == 'd';
    if (letter && !ends) merges_end(model, &in->merges);
    append_pending(model, in);
    in->kind = letter ? OF_LETTERS : OF_OTHERS;
    if (!ends) return 0;
    subwords_append(model, in, point, begin, end);
    merges_end(model, &in->merges);
    in->kind = NO_WORD;
    return 1;
}

static void subwords_feed(const NAME_model *model, subwords *in, uint32_t point, uint64_t begin, uint64_t end) {
    uint8_t kind = classify_character(point);
    in->position = end;
    if (in->merges.count > WORD_ROOM) merges_make_room(model, &in->merges);
    if (in->kind == OF_QUOTE && read_contraction(model, in, point, begin, end)) return;
    if (in->kind == OF_BLANKS && kind != OF_BLANKS) { /* the last blank begins the next word, or is a word */
        int joins = in->pending == ' ';
        merges_end(model, &in->merges);
        append_pending(model, in);
        in->kind = joins ? kind : NO_WORD;
    }
    if (kind != in->kind) {
        merges_end(model, &in->merges);
        in->kind = point == '\'' ? OF_QUOTE : kind;
    }
    append_pending(model, in);
    if (kind == OF_BLANKS) hold(in, point, begin, end);
    else subwords_append(model, in, point, begin, end);
}

static void subwords_end(const NAME_model *model, subwords *in) {
    if (in->kind == OF_QUOTE) merges_end(model, &in->merges);
    append_pending(model, in);
    merges_end(model, &in->merges);
    in->kind = NO_WORD;
}

static int subwords_take(const NAME_model *model, subwords *in, uint32_t *id, uint64_t *begin, uint64_t *end) {
    return merges_take(model, &in->merges, in->position, id, begin, end);
}

static int subwords_are_valid(const NAME_model *model, const subwords *in) {
    return in->kind <= OF_QUOTE && in->pending <= 0x10FFFF && merges_are_valid(model, &in->merges);
}
