/* The functions of a tagger. A page has the places of a word as they are here. */
_Static_assert(offsetof(NAME_word, text) == 0 && offsetof(NAME_word, size) == 4, "as tagging.js reads them");
_Static_assert(offsetof(NAME_word, ends) == 8 && offsetof(NAME_word, id) == 12, "as tagging.js reads them");
_Static_assert(offsetof(NAME_word, probability) == 24 && sizeof(NAME_word) == 32, "as tagging.js reads them");

EXPORTED(labels) int pageLabels(void) { return NAME_LABELS; }

EXPORTED(label_name) const char *pageLabelName(uint32_t id) {
    return (const char *)words32(&model, AT_LABELS) + words32(&model, AT_LABEL_STARTS)[id];
}

/* Whether labels are of spans. */
EXPORTED(has_spans) int pageHasSpans(void) { return HAS_SPANS; }

/* What the letter of a label says by itself: 1 that a span begins, 2 that it ends, 3 both, 0 neither. */
EXPORTED(sides) int pageSides(uint32_t id) {
#if HAS_SPANS
    int letter = id ? (int)((id - 1) % LETTERS) : -2;
    int begins = letter == FIRST_LETTER || letter == SINGLE_LETTER || letter == AFTER_LETTER;
    int ends = letter == LAST_LETTER || letter == SINGLE_LETTER || letter == BEFORE_LETTER;
    int goes_on = letter == INSIDE_LETTER || letter == LAST_LETTER, stays = letter == INSIDE_LETTER || letter == FIRST_LETTER;
    return (begins && !goes_on) + 2 * (ends && !stays);
#else
    return (void)id, 3;
#endif
}

EXPORTED(session_size) size_t pageSessionSize(size_t words) { return NAME_session_size(words); }

EXPORTED(begin) int pageBegin(NAME_session *session, size_t words) { return NAME_begin(&model, session, words); }

EXPORTED(cut) int pageCut(NAME_session *session, const char *text, size_t size, NAME_word *words, size_t room) {
    return (int)NAME_cut(&model, session, text, size, words, room);
}

EXPORTED(label) int pageLabel(NAME_session *session, NAME_word *words, size_t count) {
    return NAME_label(&model, session, words, count, 1);
}
