/* A word form as characters. A form of more than MAX_POINTS characters is longer than all known forms; its middle, which
 * no feature reads, is left out. */
typedef struct {
    uint32_t points[MAX_POINTS], lowered[MAX_LOWER_POINTS * MAX_POINTS];
    uint8_t bytes[4 * MAX_LOWER_POINTS * MAX_POINTS + 4]; /* the lowercase form in UTF-8, with folded digits */
    uint32_t ends[MAX_LOWER_POINTS * MAX_POINTS + 1]; /* the byte offsets of its characters */
    uint8_t others[4 * MAX_LOWER_POINTS * MAX_POINTS + 4];
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
        for (int c = 0; c < characters; c++, total++) /* the last characters are in a ring buffer after the first half */
            of->points[total < MAX_POINTS ? total : MAX_POINTS / 2 + total % (MAX_POINTS / 2)] = found[c];
    }
    of->count = total < MAX_POINTS ? (int)total : MAX_POINTS;
    int begin = total > MAX_POINTS ? (int)(total % (MAX_POINTS / 2)) : 0;
    if (begin) {
        uint32_t *last = of->points + MAX_POINTS / 2, *copy = of->lowered;
        memcpy(copy, last, MAX_POINTS / 2 * sizeof *last);
        for (int k = 0; k < MAX_POINTS / 2; k++) last[k] = copy[(begin + k) % (MAX_POINTS / 2)];
    }
}

/* Writes characters in UTF-8; `ends` may be NULL. */
UNUSED static size_t write_points(const uint32_t *points, int count, uint8_t *to, uint32_t *ends) {
    size_t size = 0;
    for (int k = 0; k < count; k++) {
        if (ends) ends[k] = (uint32_t)size;
        size += (size_t)utf8_write(points[k], to + size);
    }
    if (ends) ends[count] = (uint32_t)size;
    return size;
}
