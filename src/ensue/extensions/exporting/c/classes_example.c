/* The output of `ensue predict` for the texts on stdin, one on each line, or two with a tab between them for pairs:
 *
 *     NAME < TEXTS                    label, probability, text; for pairs both texts first
 *     NAME --at-least P < TEXTS       labels with at least this probability
 */
static const char USAGE[] = "[--at-least P] < TEXTS";

static int is_probability(const char *text) {
    char *end;
    double x = strtod(text, &end);
    return x >= 0 && x <= 1 && end != text && !*end;
}

static int is_usage_valid(int argc, char **argv) {
    return argc < 2 || (argc == 3 && strcmp(argv[1], "--at-least") == 0 && is_probability(argv[2]));
}

static void print_labels(const NAME_model *model, const float *probabilities, double at_least) {
    uint32_t labels[NAME_LABELS];
    int count = NAME_choose(model, probabilities, at_least, labels);
    float max = 0;
    for (int k = 0; k < NAME_LABELS; k++) max = probabilities[k] > max ? probabilities[k] : max;
    for (int k = 0; k < count; k++) printf(k ? ",%s" : "%s", NAME_label(model, labels[k]));
    putchar('\t');
    for (int k = 0; k < count; k++) printf(k ? ",%.4f" : "%.4f", (double)probabilities[labels[k]]);
    if (!count) printf("%.4f", (double)max);
}

@READ_LINES@
/* A line without its end. */
static int answer(const NAME_model *model, void **memory, size_t *room, const char *line, size_t size, double at_least) {
    NAME_text texts[NAME_TEXTS] = {{line, size}};
    float probabilities[NAME_LABELS];
    if (NAME_TEXTS > 1) {
        const char *tab = memchr(line, '\t', size), *end = line + size;
        if (!tab) return NAME_NO_TAB;
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
    unsigned long count = 0;
    size_t room = 0, end;
    lines of = {0};
    void *memory = NULL;
    int code;
    while ((code = next_line(&of, &end)) > 0) {
        count++;
        code = answer(model, &memory, &room, of.text, of.size - end, at_least);
        if (code) break;
        fwrite(of.text + of.size - end, 1, end, stdout);
        of.size = 0;
    }
    free(memory);
    free(of.text);
    if (code != NAME_NO_TAB) return code ? print_error(code) : 0;
    fprintf(stderr, "NAME: line %lu has no tab between its two texts\n", count);
    return 2;
}
