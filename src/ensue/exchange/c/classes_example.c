/* What `ensue predict` prints, of the texts on stdin, one in each line; of a model of pairs, two with a tab between them:
 *
 *     NAME < TEXTS                    label, probability, text; of a pair, behind its texts
 *     NAME --at-least P < TEXTS       no label that is less probable
 */
static const char USAGE[] = "[--at-least P] < TEXTS";

static int is_probability(const char *text) {
    char *end;
    double x = strtod(text, &end);
    return x >= 0 && x <= 1 && end != text && !*end;
}

static int understands(int argc, char **argv) {
    return argc < 2 || (argc == 3 && strcmp(argv[1], "--at-least") == 0 && is_probability(argv[2]));
}

static void print_labels(const NAME_model *model, const float *probabilities, double at_least) {
    uint32_t labels[NAME_LABELS];
    int count = NAME_choose(model, probabilities, at_least, labels);
    float most = 0;
    for (int k = 0; k < NAME_LABELS; k++) most = probabilities[k] > most ? probabilities[k] : most;
    for (int k = 0; k < count; k++) printf(k ? ",%s" : "%s", NAME_label(model, labels[k]));
    putchar('\t');
    for (int k = 0; k < count; k++) printf(k ? ",%.4f" : "%.4f", (double)probabilities[labels[k]]);
    if (!count) printf("%.4f", (double)most);
}

enum { NO_TAB = 1 };

/* One line without its end. */
static int answer(const NAME_model *model, void **memory, size_t *room, const char *line, size_t size, double at_least) {
    NAME_text texts[NAME_TEXTS] = {{line, size}};
    float probabilities[NAME_LABELS];
    if (NAME_TEXTS > 1) {
        const char *tab = memchr(line, '\t', size), *end = line + size;
        if (!tab) return NO_TAB;
        const char *second = memchr(tab + 1, '\t', (size_t)(end - tab) - 1);
        texts[0].size = (size_t)(tab - line);
        texts[NAME_TEXTS - 1] = (NAME_text){tab + 1, (size_t)((second ? second : end) - tab) - 1};
    }
    int code = NAME_TOO_LONG;
    for (size_t times = 1; code == NAME_TOO_LONG && times <= 4; times *= 4) {
        size_t needed = NAME_memory(times * size);
        if (needed > *room) {
            free(*memory);
            *memory = malloc(*room = needed);
            if (!*memory) return *room = 0, NAME_MEMORY;
        }
        if (needed) code = NAME_classify(model, *memory, *room, texts, probabilities);
    }
    if (code < 0) return code;
    if (NAME_TEXTS > 1) fwrite(line, 1, size, stdout), putchar('\t');
    print_labels(model, probabilities, at_least);
    if (NAME_TEXTS == 1) putchar('\t'), fwrite(line, 1, size, stdout);
    return NAME_OK;
}

static int run(const NAME_model *model, int argc, char **argv) {
    double at_least = argc > 2 ? strtod(argv[2], NULL) : 0;
    unsigned long lines = 0;
    size_t size = 0, text_room = 1 << 12, room = NAME_memory(1 << 12);
    char *text = malloc(text_room);
    void *memory = malloc(room);
    int code = text && memory ? NAME_OK : NAME_MEMORY;
    for (int sign = 0, is_first = 1; !code && sign != EOF;) {
        sign = getc(stdin);
        if (sign != EOF) text[size++] = (char)sign;
        if (size == 3 && is_first && !memcmp(text, "\xEF\xBB\xBF", 3)) size = 0, is_first = 0;
        if (sign == '\n' || (sign == EOF && size)) {
            size_t shown = size - (sign == '\n');
            shown -= sign == '\n' && shown && text[shown - 1] == '\r';
            code = answer(model, &memory, &room, text, shown, at_least);
            if (!code) fwrite(text + shown, 1, size - shown, stdout);
            size = 0, is_first = 0, lines++;
        }
        if (size == text_room) {
            char *larger = text_room > SIZE_MAX / 2 ? NULL : realloc(text, 2 * text_room);
            if (!larger) code = NAME_MEMORY;
            else text = larger, text_room *= 2;
        }
    }
    free(memory);
    free(text);
    if (code != NO_TAB) return code ? failed(code) : 0;
    fprintf(stderr, "NAME: line %lu has no tab between its two texts\n", lines);
    return 2;
}
