/* The output of `ensue score` and `ensue generate` for the text on stdin:
 *
 *     NAME < TEXT                                             each token with its surprisal in nats
 *     NAME --generate TOKENS [SEED [TEMPERATURE]] < PROMPT    the prompt and its continuation
 *
 * The weights are in the folder of the program, or in the file of `--weights FILE`, which comes first. */
/* The length in bytes of the first character of a text; 0 if it is incomplete. */
static size_t character_size(const unsigned char *text, size_t size) {
    size_t found = *text < 0x80 ? 1 : *text < 0xC2 ? 0 : *text < 0xE0 ? 2 : *text < 0xF0 ? 3 : 4;
    for (size_t k = 1; k < found; k++)
        if (k == size || text[k] >> 6 != 2) return 0;
    return found;
}

/* Prints text with JSON's escapes; bytes of incomplete characters in hexadecimal. */
static void print_quoted(const char *text, size_t size) {
    static const char SIGNS[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (size_t k = 0, length; k < size; k += length ? length : 1) {
        const char *sign = text[k] ? strchr(SIGNS, text[k]) : NULL;
        length = character_size((const unsigned char *)text + k, size - k);
        if (sign && ((sign - SIGNS) % 2 == 0 || text[k] == '"' || text[k] == '\\'))
            printf("\\%c", SIGNS[(sign - SIGNS) / 2 * 2 + 1]);
        else if ((unsigned char)text[k] < 0x20) printf("\\u%04x", (unsigned)text[k]);
        else if (!length) printf("\\\\x%02x", (unsigned)(unsigned char)text[k]);
        else fwrite(text + k, 1, length, stdout);
    }
}

static char *read_all(FILE *file, size_t *size) {
    size_t room = 1 << 16;
    char *text = malloc(room);
    *size = 0;
    while (text) {
        *size += fread(text + *size, 1, room - *size, file);
        if (*size < room) break;
        char *larger = room > SIZE_MAX / 2 ? NULL : realloc(text, room *= 2);
        if (!larger) free(text);
        text = larger;
    }
    return text;
}

static int score(const NAME_model *model, NAME_state *state, const char *text, size_t size) {
    NAME_token tokens[256];
    for (size_t at = 0, used = 0;; at += used) {
        int is_end = at == size;
        int count = NAME_feed(model, state, is_end ? NULL : text + at, size - at, &used, tokens, 256);
        if (count < 0) return print_error(count);
        for (int k = 0; k < count; k++) {
            printf("%9.4f\t", tokens[k].nats > 0 ? tokens[k].nats : 0);
            print_quoted(tokens[k].text, tokens[k].size);
            if (tokens[k].is_unknown) {
                putchar('\t');
                print_quoted(text + tokens[k].begin, tokens[k].end - tokens[k].begin);
            }
            putchar('\n');
        }
        if (is_end && !count) return 0;
    }
}

static int generate(const NAME_model *model, NAME_state *state, const char *prompt, size_t size, long count,
                    double temperature) {
    NAME_token tokens[256];
    for (size_t at = 0, used = 0; at < size; at += used) {
        int code = NAME_feed(model, state, prompt + at, size - at, &used, tokens, 256);
        if (code < 0) return print_error(code);
    }
    fwrite(prompt, 1, size, stdout);
    NAME_sampling how = {0};
    how.temperature = temperature;
    while (count-- > 0) {
        int code = NAME_next(model, state, &how, tokens);
        if (code < 0) return print_error(code);
        if (tokens->blank) putchar(' ');
        fwrite(tokens->text, 1, tokens->size, stdout);
    }
    putchar('\n');
    return 0;
}

static const char USAGE[] = "[--generate TOKENS [SEED [TEMPERATURE]]] < TEXT";

static int is_generation(int argc, char **argv) { return argc > 2 && argc < 6 && strcmp(argv[1], "--generate") == 0; }

static int is_integer(const char *text) { return *text && !text[strspn(text, "0123456789")]; }

static int is_number(const char *text) {
    char *end;
    return strtod(text, &end) >= 0 && end != text && !*end;
}

static int is_usage_valid(int argc, char **argv) {
    return argc < 2 || (is_generation(argc, argv) && is_integer(argv[2]) && (argc < 4 || is_integer(argv[3])) &&
                        (argc < 5 || is_number(argv[4])));
}

static int run(const NAME_model *model, int argc, char **argv) {
    size_t size;
    char *text = read_all(stdin, &size);
    NAME_state *state = malloc(NAME_state_size());
    int code = NAME_MEMORY;
    if (text && state) {
        NAME_begin(model, state, argc > 3 ? strtoull(argv[3], NULL, 10) : 1);
        double temperature = argc > 4 ? strtod(argv[4], NULL) : 1;
        code = is_generation(argc, argv) ? generate(model, state, text, size, strtol(argv[2], NULL, 10), temperature)
                                     : score(model, state, text, size);
    }
    free(state);
    free(text);
    return code == NAME_MEMORY ? print_error(code) : code;
}
