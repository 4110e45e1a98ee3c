/* The spans of labels. */
EXPORTED(has_spans) int pageHasSpans(void) { return HAS_SPANS; }

/* The meaning of a label's letter: 1 if it begins a span, 2 if it ends a span, 3 for both, 0 for neither. */
EXPORTED(sides) int pageSides(uint32_t id) {
#if HAS_SPANS
    int letter = id ? (int)((id - 1) % LETTERS) : -2;
    int begins = letter == FIRST_LETTER || letter == SINGLE_LETTER || letter == AFTER_LETTER;
    int ends = letter == LAST_LETTER || letter == SINGLE_LETTER || letter == BEFORE_LETTER;
    int continues = letter == INSIDE_LETTER || letter == LAST_LETTER, is_continued = letter == INSIDE_LETTER || letter == FIRST_LETTER;
    return (begins && !continues) + 2 * (ends && !is_continued);
#else
    return (void)id, 0;
#endif
}
