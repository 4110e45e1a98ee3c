/* The spans of labels. */
EXPORTED(has_spans) int pageHasSpans(void) { return HAS_SPANS; }

/* The meaning of a label's letter: 1 begins a span, 2 ends it, 3 both, 0 neither. */
EXPORTED(sides) int pageSides(uint32_t id) {
#if HAS_SPANS
    int letter = id ? (int)((id - 1) % LETTERS) : -2;
    int begins = letter == FIRST_LETTER || letter == SINGLE_LETTER || letter == AFTER_LETTER;
    int ends = letter == LAST_LETTER || letter == SINGLE_LETTER || letter == BEFORE_LETTER;
    int goes_on = letter == INSIDE_LETTER || letter == LAST_LETTER, stays = letter == INSIDE_LETTER || letter == FIRST_LETTER;
    return (begins && !goes_on) + 2 * (ends && !stays);
#else
    return (void)id, 0;
#endif
}
