/* A text of one line as words. */
typedef struct {
    uint32_t *points, *places, *letters; /* characters, and where each begins */
    choice *choices;
    span *spans;
} text_room;

static int64_t cut_text(const text_room *room, const char *text, size_t size, NAME_word *words, size_t most) {
    utf8 decoder = {0};
    uint32_t count = 0, found[2];
    int lengths[2];
    for (size_t k = 0; k < size; k++) {
        int characters = utf8_feed(&decoder, (uint8_t)text[k], found, lengths);
        for (int c = 0; c < characters; c++) {
            int broke_off = c == 0 && (characters == 2 || decoder.missing); /* one that broke off ended before */
            room->places[count] = (uint32_t)(k + !broke_off) - (uint32_t)lengths[c];
            room->points[count++] = found[c];
        }
    }
    int rest = utf8_end(&decoder);
    if (rest) room->places[count] = (uint32_t)size - (uint32_t)rest, room->points[count++] = REPLACEMENT;
    room->places[count] = (uint32_t)size;
    uint32_t cut = split(room->points, count, room->letters, room->choices, room->spans);
    for (uint32_t k = 0; k < cut && k < most; k++) {
        uint32_t begin = room->places[room->spans[k].begin], end = room->places[room->spans[k].end];
        words[k] = (NAME_word){text + begin, end - begin, k + 1 == cut, 0, NULL, 0};
    }
    return cut;
}
