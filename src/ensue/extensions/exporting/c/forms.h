/* A word form as characters. Of one of more than MOST_POINTS characters, which is longer than all known ones, the middle
 * is left out: nothing reads it. */
typedef struct {
    uint32_t points[MOST_POINTS], lowered[LOWER_LONGEST * MOST_POINTS];
    uint8_t bytes[4 * LOWER_LONGEST * MOST_POINTS + 4]; /* the lowered form in UTF-8, digits folded */
    uint32_t ends[LOWER_LONGEST * MOST_POINTS + 1]; /* where its characters begin and end */
    uint8_t others[4 * LOWER_LONGEST * MOST_POINTS + 4];
    int count, lowered_count;
} form;

static void read_form(form *of, const char *text, size_t size) {
    utf8 decoder = {0};
    uint32_t found[2];
    int lengths[2];
    int64_t total = 0;
    for (size_t k = 0; k <= size; k++) {
        int characters = k < size ? utf8_feed(&decoder, (uint8_t)text[k], found, lengths) : utf8_end(&decoder) > 0;
        if (k == size) found[0] = REPLACEMENT;
        for (int c = 0; c < characters; c++, total++) /* behind the first half, the last characters in a ring */
            of->points[total < MOST_POINTS ? total : MOST_POINTS / 2 + total % (MOST_POINTS / 2)] = found[c];
    }
    of->count = total < MOST_POINTS ? (int)total : MOST_POINTS;
    int begin = total > MOST_POINTS ? (int)(total % (MOST_POINTS / 2)) : 0;
    if (begin) {
        uint32_t *last = of->points + MOST_POINTS / 2, *copy = of->lowered;
        memcpy(copy, last, MOST_POINTS / 2 * sizeof *last);
        for (int k = 0; k < MOST_POINTS / 2; k++) last[k] = copy[(begin + k) % (MOST_POINTS / 2)];
    }
}

/* In UTF-8; `ends` may be NULL. */
UNUSED static size_t write_points(const uint32_t *points, int count, uint8_t *to, uint32_t *ends) {
    size_t size = 0;
    for (int k = 0; k < count; k++) {
        if (ends) ends[k] = (uint32_t)size;
        size += (size_t)utf8_write(points[k], to + size);
    }
    if (ends) ends[count] = (uint32_t)size;
    return size;
}
