/* An incremental UTF-8 decoder like Python's errors="replace": the maximal subpart of an invalid sequence becomes one
 * U+FFFD (Unicode 15, section 3.9). */
typedef struct {
    uint32_t point;          /* the bits so far */
    uint8_t missing, length; /* missing bytes, and bytes read */
    uint8_t min, max;     /* the valid range of the next byte */
} utf8;

enum { REPLACEMENT = 0xFFFD, NOTHING = 0x110000 };

/* Reads a byte. Writes up to two characters: `found[0]`, and `found[1]` after an invalid sequence, each with its length
 * in bytes. Returns their number. */
static int utf8_feed(utf8 *in, uint8_t byte, uint32_t found[2], int lengths[2]) {
    int count = 0;
    if (in->missing) {
        if (byte >= in->min && byte <= in->max) {
            in->point = in->point << 6 | (byte & 0x3Fu);
            in->length++;
            in->min = 0x80, in->max = 0xBF;
            if (--in->missing) return 0;
            found[0] = in->point, lengths[0] = in->length;
            return 1;
        }
        found[0] = REPLACEMENT, lengths[0] = in->length;
        count = 1;
        in->missing = 0;
    }
    in->length = 1, in->min = 0x80, in->max = 0xBF;
    if (byte < 0x80) {
        found[count] = byte;
    } else if (byte >= 0xC2 && byte <= 0xDF) {
        in->missing = 1, in->point = byte & 0x1Fu;
        return count;
    } else if (byte >= 0xE0 && byte <= 0xEF) {
        in->missing = 2, in->point = byte & 0x0Fu;
        if (byte == 0xE0) in->min = 0xA0;
        if (byte == 0xED) in->max = 0x9F;
        return count;
    } else if (byte >= 0xF0 && byte <= 0xF4) {
        in->missing = 3, in->point = byte & 0x07u;
        if (byte == 0xF0) in->min = 0x90;
        if (byte == 0xF4) in->max = 0x8F;
        return count;
    } else {
        found[count] = REPLACEMENT;
    }
    lengths[count] = 1;
    return count + 1;
}

/* Ends the text; returns the length of a truncated character, or 0. */
static int utf8_end(utf8 *in) {
    int length = in->missing ? in->length : 0;
    in->missing = 0;
    return length;
}

UNUSED static int utf8_write(uint32_t point, uint8_t to[4]) {
    if (point < 0x80) return to[0] = (uint8_t)point, 1;
    if (point < 0x800) return to[0] = (uint8_t)(0xC0 | point >> 6), to[1] = (uint8_t)(0x80 | (point & 63)), 2;
    if (point < 0x10000)
        return to[0] = (uint8_t)(0xE0 | point >> 12), to[1] = (uint8_t)(0x80 | (point >> 6 & 63)),
               to[2] = (uint8_t)(0x80 | (point & 63)), 3;
    return to[0] = (uint8_t)(0xF0 | point >> 18), to[1] = (uint8_t)(0x80 | (point >> 12 & 63)),
           to[2] = (uint8_t)(0x80 | (point >> 6 & 63)), to[3] = (uint8_t)(0x80 | (point & 63)), 4;
}

/* Writes the characters of a text. If `places` is not NULL, writes their byte offsets and the size of the text there. */
UNUSED static uint32_t utf8_points(const char *text, size_t size, uint32_t *points, uint32_t *places) {
    utf8 decoder = {0, 0, 0, 0, 0};
    uint32_t count = 0, found[2];
    int lengths[2];
    for (size_t k = 0; k <= size; k++) {
        int characters = k < size ? utf8_feed(&decoder, (uint8_t)text[k], found, lengths) : 0;
        int rest = k < size ? 0 : utf8_end(&decoder);
        if (rest) found[0] = REPLACEMENT, lengths[0] = rest, characters = 1;
        for (int c = 0; c < characters; c++) {
            int is_truncated = c == 0 && (rest || characters == 2 || decoder.missing); /* an incomplete character */
            if (places) places[count] = (uint32_t)(k + !is_truncated) - (uint32_t)lengths[c];
            points[count++] = found[c];
        }
    }
    if (places) places[count] = (uint32_t)size;
    return count;
}

/* Returns whether a character is in one of `count` ranges (first, last). */
UNUSED static int is_inside(uint32_t point, const uint32_t *ranges, int count) {
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (ranges[2 * middle + 1] < point) low = middle + 1;
        else high = middle;
    }
    return low < count && ranges[2 * low] <= point;
}
