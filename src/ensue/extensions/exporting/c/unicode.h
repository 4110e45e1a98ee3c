/* Python's properties of characters: the printed tables SETS, RANGES, LOWER and LONGER.
 *
 * A set has a bit mask for ASCII, and ranges (first, last) for other characters. */
INLINE int set_has(uint32_t set, uint32_t point) {
    if (point < 128) return (int)(SETS[set].ascii[point / 32] >> point % 32 & 1);
    const uint32_t *ranges = RANGES + 2 * SETS[set].begin;
    uint32_t low = 0, high = SETS[set].count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ranges[2 * middle + 1] < point) low = middle + 1;
        else high = middle;
    }
    return low < SETS[set].count && ranges[2 * low] <= point;
}

/* Returns whether a sigma ends a word: a cased character precedes it, and no cased character follows it, apart from
 * case-ignorable characters. */
static int is_final_sigma(const uint32_t *text, uint32_t count, uint32_t at) {
    uint32_t before = at, behind = at + 1;
    while (before > 0 && set_has(SET_CASE_IGNORABLE, text[before - 1])) before--;
    if (!before || !set_has(SET_CASED, text[before - 1])) return 0;
    while (behind < count && set_has(SET_CASE_IGNORABLE, text[behind])) behind++;
    return behind == count || !set_has(SET_CASED, text[behind]);
}

/* Writes the lowercase of a character, like Python's `lower`; returns its length, at most MAX_LOWER_POINTS. */
UNUSED static uint32_t lower_at(const uint32_t *text, uint32_t count, uint32_t at, uint32_t to[MAX_LOWER_POINTS]) {
    uint32_t point = text[at], low = 0, high = LOWER_COUNT;
    to[0] = point;
    if (point < 128) return to[0] += point >= 'A' && point <= 'Z' ? 32 : 0, 1;
    if (point == 0x3A3) return to[0] = is_final_sigma(text, count, at) ? 0x3C2 : 0x3C3, 1;
    for (uint32_t k = 0; k < LONGER_COUNT; k++)
        if (LONGER[k][0] == point) {
            for (uint32_t c = 0; c < LONGER[k][1]; c++) to[c] = LONGER[k][2 + c];
            return LONGER[k][1];
        }
    while (low < high) { /* ranges; in some of them every second character changes */
        uint32_t middle = low + (high - low) / 2;
        if (LOWER[middle].last < point) low = middle + 1;
        else high = middle;
    }
    if (low < LOWER_COUNT && LOWER[low].first <= point && (point - LOWER[low].first) % LOWER[low].step == 0)
        to[0] += LOWER[low].change;
    return 1;
}
