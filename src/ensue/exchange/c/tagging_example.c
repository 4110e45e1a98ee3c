/* What `ensue predict --format text` prints, of the text on stdin: each line is a sentence, its words get a label each,
 * and a blank line ends it.
 *
 *     NAME < TEXT                    word, tab, label
 *     NAME --probabilities < TEXT    and behind another tab, how probable the label is
 *
 * The weights are beside the program, or where `--weights FILE` before all else says. */
static const char USAGE[] = "[--probabilities] < TEXT";

static int understands(int argc, char **argv) {
    return argc < 2 || (argc == 2 && strcmp(argv[1], "--probabilities") == 0);
}

enum { SESSION = 192, TOGETHER = 2048 }; /* words */

/* All that grows with the longest line. */
typedef struct {
    char *text;
    NAME_word *words;
    NAME_session *session;
    size_t text_room, room, session_room, count;
} buffers;

/* Room for so many words, in a sentence and altogether. */
static int make_room(const NAME_model *model, buffers *of, size_t words, size_t together) {
    if (together > of->room) {
        NAME_word *larger = realloc(of->words, together * sizeof *larger);
        if (!larger) return NAME_MEMORY;
        of->words = larger, of->room = together;
    }
    if (words <= of->session_room) return NAME_OK;
    free(of->session);
    of->session_room = 0;
    size_t size = NAME_session_size(words);
    of->session = size ? malloc(size) : NULL;
    if (!of->session) return size ? NAME_MEMORY : NAME_TOO_LONG;
    of->session_room = words;
    return NAME_begin(model, of->session, words);
}

static int flush(const NAME_model *model, buffers *of, int probabilities) {
    int code = NAME_label(model, of->session, of->words, of->count, probabilities);
    for (size_t k = 0; !code && k < of->count; k++) {
        const NAME_word *word = of->words + k;
        if (word->size) {
            fwrite(word->text, 1, word->size, stdout);
            printf(probabilities ? "\t%s\t%.6f\n" : "\t%s\n", word->label, word->probability);
        }
        if (word->ends) putchar('\n');
    }
    of->count = 0;
    return code;
}

static int label_line(const NAME_model *model, buffers *of, const char *line, size_t size, int probabilities) {
    int code = NAME_OK;
    if (size / NAME_BYTES >= of->session_room) code = make_room(model, of, size / NAME_BYTES + 1, 0);
    if (code) return code;
    int64_t count = NAME_cut(model, of->session, line, size, of->words + of->count, of->room - of->count);
    if (count > (int64_t)(of->room - of->count)) {
        code = flush(model, of, probabilities);
        if (!code) code = make_room(model, of, 0, (size_t)count);
        if (code) return code;
        count = NAME_cut(model, of->session, line, size, of->words, of->room);
    }
    if (count < 0) return (int)count;
    if ((size_t)count > of->session_room) code = make_room(model, of, (size_t)count, 0);
    of->count += (size_t)count;
    if (count || code) return code;
    code = flush(model, of, probabilities);
    putchar('\n');
    return code;
}

static int label_all(const NAME_model *model, buffers *of, int probabilities) {
    size_t have = 0, got = 1;
    int is_first = 1;
    while (got) {
        if (have == of->text_room) {
            char *larger = of->text_room > SIZE_MAX / 2 ? NULL : realloc(of->text, 2 * of->text_room);
            if (!larger) return NAME_MEMORY;
            of->text = larger, of->text_room *= 2;
        }
        got = fread(of->text + have, 1, of->text_room - have, stdin);
        have += got;
        size_t at = is_first && have >= 3 && !memcmp(of->text, "\xEF\xBB\xBF", 3) ? 3 : 0;
        while (at < have) {
            char *line = of->text + at, *end = memchr(line, '\n', have - at);
            if (!end && got) break;
            size_t size = end ? (size_t)(end - line) : have - at;
            at += size + (end != NULL);
            int code = label_line(model, of, line, size - (size && line[size - 1] == '\r'), probabilities);
            if (code) return code;
        }
        int code = flush(model, of, probabilities); /* before the text moves */
        if (code) return code;
        is_first = is_first && !at;
        memmove(of->text, of->text + at, have - at);
        have -= at;
    }
    return NAME_OK;
}

static int run(const NAME_model *model, int argc, char **argv) {
    (void)argv;
    buffers of = {malloc(1 << 15), NULL, NULL, 1 << 15, 0, 0, 0};
    int code = of.text ? make_room(model, &of, SESSION, TOGETHER) : NAME_MEMORY;
    if (!code) code = label_all(model, &of, argc > 1);
    free(of.session);
    free(of.words);
    free(of.text);
    return code ? failed(code) : 0;
}
