/* The functions of a tagger. The struct of a word has the same layout in JavaScript. */
_Static_assert(offsetof(NAME_word, text) == 0 && offsetof(NAME_word, size) == 4, "as tagging.js reads them");
_Static_assert(offsetof(NAME_word, ends) == 8 && offsetof(NAME_word, id) == 12, "as tagging.js reads them");
_Static_assert(offsetof(NAME_word, probability) == 24 && sizeof(NAME_word) == 32, "as tagging.js reads them");

EXPORTED(session_size) size_t pageSessionSize(size_t words) { return NAME_session_size(words); }

EXPORTED(begin) int pageBegin(NAME_session *session, size_t words) { return NAME_begin(&model, session, words); }

EXPORTED(cut) int pageCut(NAME_session *session, const char *text, size_t size, NAME_word *words, size_t room) {
    return (int)NAME_cut(&model, session, text, size, words, room);
}

EXPORTED(label) int pageLabel(NAME_session *session, NAME_word *words, size_t count) {
    return NAME_label(&model, session, words, count, 1);
}
