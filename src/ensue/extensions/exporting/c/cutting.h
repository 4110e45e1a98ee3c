/* A line of text as words. */
typedef struct {
    uint32_t *points, *places, *letters; /* characters, and the byte offset of each */
    choice *choices;
    span *spans;
} text_room;

static int64_t cut_text(const text_room *room, const char *text, size_t size, NAME_word *words, size_t max) {
    uint32_t count = utf8_points(text, size, room->points, room->places);
    uint32_t cut = split(room->points, count, room->letters, room->choices, room->spans);
    for (uint32_t k = 0; k < cut && k < max; k++) {
        uint32_t begin = room->places[room->spans[k].begin], end = room->places[room->spans[k].end];
        words[k] = (NAME_word){text + begin, end - begin, k + 1 == cut, 0, NULL, 0};
    }
    return cut;
}
