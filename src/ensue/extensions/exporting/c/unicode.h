/* What Python says of characters: the printed tables SETS, RANGES, LOWER and LONGER are its own.
 *
 * A set is bits for ASCII, and ranges (first, last) for the others. */
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

/* A sigma at the end of a word: the next character before it that counts has a case, and none behind it has one. */
static int is_final_sigma(const uint32_t *text, uint32_t count, uint32_t at) {
    uint32_t before = at, behind = at + 1;
    while (before > 0 && set_has(SET_CASE_IGNORABLE, text[before - 1])) before--;
    if (!before || !set_has(SET_CASED, text[before - 1])) return 0;
    while (behind < count && set_has(SET_CASE_IGNORABLE, text[behind])) behind++;
    return behind == count || !set_has(SET_CASED, text[behind]);
}

/* The character `at` of a text as Python's `lower` writes it: up to LOWER_LONGEST characters, whose number it returns. */
UNUSED static uint32_t lower_at(const uint32_t *text, uint32_t count, uint32_t at, uint32_t to[LOWER_LONGEST]) {
    uint32_t point = text[at], low = 0, high = LOWER_COUNT;
    to[0] = point;
    if (point < 128) return to[0] += point >= 'A' && point <= 'Z' ? 32 : 0, 1;
    if (point == 0x3A3) return to[0] = is_final_sigma(text, count, at) ? 0x3C2 : 0x3C3, 1;
    for (uint32_t k = 0; k < LONGER_COUNT; k++)
        if (LONGER[k][0] == point) {
            for (uint32_t c = 0; c < LONGER[k][1]; c++) to[c] = LONGER[k][2 + c];
            return LONGER[k][1];
        }
    while (low < high) { /* ranges, in some of which every second character changes */
        uint32_t middle = low + (high - low) / 2;
        if (LOWER[middle].last < point) low = middle + 1;
        else high = middle;
    }
    if (low < LOWER_COUNT && LOWER[low].first <= point && (point - LOWER[low].first) % LOWER[low].step == 0)
        to[0] += LOWER[low].change;
    return 1;
}
