/* A buffer of lines of stdin. */
typedef struct {
    char *text;
    size_t size, room;
    int is_further; /* whether an optional byte-order mark at the beginning has been read */
} lines;

/* Appends the next line and writes the length of its line end. Returns 1, or 0 at the end of the input. */
static int next_line(lines *to, size_t *end) {
    size_t begin = to->size;
    for (int sign = 0; sign != '\n' && sign != EOF;) {
        if (to->size == to->room) {
            size_t room = to->room ? 2 * to->room : 1 << 12;
            char *larger = room > to->room ? realloc(to->text, room) : NULL;
            if (!larger) return NAME_MEMORY;
            to->text = larger, to->room = room;
        }
        sign = getc(stdin);
        if (sign != EOF) to->text[to->size++] = (char)sign;
        if (to->size == 3 && !to->is_further && !memcmp(to->text, "\xEF\xBB\xBF", 3)) to->size = 0, to->is_further = 1;
    }
    to->is_further = 1;
    *end = to->size > begin && to->text[to->size - 1] == '\n';
    *end += *end && to->size - begin > 1 && to->text[to->size - 2] == '\r';
    return to->size > begin;
}
