/* The words of a text as in `text/tokens.py`: the matches of the expression SPLITTER without line ends, and without
 * cuts in a grapheme (the rules of Unicode's UAX 29 that can apply between words). */
typedef struct {
    uint32_t begin, end; /* offsets in characters */
} span;

static int is_flag(uint32_t point) { return point >= 0x1F1E6 && point <= 0x1F1FF; }

static int is_cut_allowed(const uint32_t *text, uint32_t place, uint32_t start) {
    uint32_t before = text[place - 1], behind = text[place], run = place;
    if (before == 0x200D) return 0;
    if (behind < 0x300) return 1;
    if (set_has(SET_EXTENDING, behind)) return 0;
    if (!is_flag(before) || !is_flag(behind)) return 1;
    while (run > start && is_flag(text[run - 1])) run--;
    return (place - run) % 2 == 0;
}

/* Writes at most `count` words and returns their number. `letters` has room for `count` numbers, and `choices` for
 * `count + EXPRESSION_ROOM`. */
static uint32_t split(const uint32_t *text, uint32_t count, uint32_t *letters, choice *choices, span *words) {
    const uint32_t *read = text;
    if (SPLITS_MARKS) { /* combining marks and joiners after a letter count as letters */
        uint32_t before = ' ';
        for (uint32_t k = 0; k < count; k++) {
            int extends = text[k] >= 0x300 && set_has(SET_MARKS, text[k]);
            before = extends && (before == '_' || set_has(SET_ALPHANUMERIC, before)) ? 0x250 : text[k];
            letters[k] = before;
        }
        read = letters;
    }
    matcher in = {read, count, choices, 0, 0};
    uint32_t found = 0;
    for (uint32_t at = 0; at < count;) {
        uint32_t end = match(&in, SPLITTER, 0, at), begin = at;
        at = end == NO_MATCH ? at + 1 : end;
        if (end == NO_MATCH || (end == begin + 1 && read[begin] == '\n')) continue;
        if (found && words[found - 1].end == begin) {
            while (begin < end && !is_cut_allowed(text, begin, words[found - 1].begin)) begin++;
            words[found - 1].end = begin;
        }
        if (begin < end) words[found++] = (span){begin, end};
    }
    return found;
}
