/* The lines of a text that comes in pieces. */
typedef struct {
    uint64_t size;                /* the bytes of the line so far, also if they exceed the room */
    uint8_t is_complete, is_further; /* whether the line has ended; whether the beginning of the text has been read */
} line_reader;

/* Reads up to the end of a line, and sets `*used` to the number of bytes read. `line` has `room` + 3 bytes. Returns 1 if
 * the line is complete, 0 if more bytes are needed, NAME_TOO_LONG if the line exceeds `room`. */
static int read_line(line_reader *in, char *line, uint64_t room, const char *bytes, size_t count, size_t *used) {
    int ends = !bytes && in->size && !in->is_complete;
    if (in->is_complete) in->size = in->is_complete = 0;
    size_t k = 0;
    for (; k < count && !ends; k++) {
        if (bytes[k] == '\n') ends = 1;
        else if (in->size++ < room + 3) line[in->size - 1] = bytes[k];
        if (in->size == 3 && !in->is_further && !memcmp(line, "\xEF\xBB\xBF", 3)) in->size = 0;
        in->is_further |= ends || in->size == 0 || in->size > 2;
    }
    *used = k;
    if (!bytes) in->is_further = 0;
    if (!ends) return 0;
    if (in->size && in->size <= room + 1 && line[in->size - 1] == '\r') in->size--;
    if (in->size > room) return in->size = 0, NAME_TOO_LONG;
    return in->is_complete = 1;
}
