/* The output of `ensue predict --format text` for the text on stdin: each line is a sentence, each word has a line with
 * its label, and a blank line ends the sentence.
 *
 *     NAME < TEXT                    word, tab, label
 *     NAME --probabilities < TEXT    and, after another tab, the probability of the label
 *
 * The weights are in the folder of the program, or in the file of `--weights FILE`, which comes first. */
static const char USAGE[] = "[--probabilities] < TEXT";

static int is_usage_valid(int argc, char **argv) {
    return argc < 2 || (argc == 2 && strcmp(argv[1], "--probabilities") == 0);
}

enum { SESSION = @SESSION@, MAX_SENTENCES = 2048, READ = 1 << 15 }; /* words of a session; sentences per call */

@READ_LINES@
/* The buffers that grow with the longest line. */
typedef struct {
    lines waiting;
    NAME_word *words;
    NAME_session *session;
    size_t room, session_room, count;
} buffers;

/* Grows the buffers for sentences of up to `words` words, and for `total` words in all. */
static int make_room(const NAME_model *model, buffers *of, size_t words, size_t total) {
    if (total > of->room) {
        NAME_word *larger = realloc(of->words, total * sizeof *larger);
        if (!larger) return NAME_MEMORY;
        of->words = larger, of->room = total;
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
    size_t end;
    for (int found = 1; found;) {
        while (of->waiting.size < READ && (found = next_line(&of->waiting, &end)) > 0) continue;
        if (found < 0) return found;
        const char *line = of->waiting.text, *behind = line + of->waiting.size;
        for (size_t size; line < behind; line += size + (line + size < behind)) {
            const char *at = memchr(line, '\n', (size_t)(behind - line));
            size = (size_t)((at ? at : behind) - line);
            int code = label_line(model, of, line, size - (size && line[size - 1] == '\r'), probabilities);
            if (code) return code;
        }
        int code = flush(model, of, probabilities);
        if (code) return code;
        of->waiting.size = 0;
    }
    return NAME_OK;
}

static int run(const NAME_model *model, int argc, char **argv) {
    (void)argv;
    buffers of = {0};
    int code = make_room(model, &of, SESSION, MAX_SENTENCES);
    if (!code) code = label_all(model, &of, argc > 1);
    free(of.session);
    free(of.words);
    free(of.waiting.text);
    return code ? print_error(code) : 0;
}
