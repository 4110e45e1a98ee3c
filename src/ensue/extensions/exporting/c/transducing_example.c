/* The output of `ensue predict` for the texts on stdin, one on each line, or several with tabs between them:
 *
 *     NAME < TEXTS                        the best output of each line
 *     NAME --beams N < TEXTS              with another beam size, up to NAME_BEAMS; 1: greedy
 *     NAME --length-penalty A < TEXTS     ranked by ln P / length^A
 *     NAME --n-best N < TEXTS             several outputs, each on a line: number of the text, score, output
 */
static const char USAGE[] = "[--beams N] [--n-best N] [--length-penalty A] < TEXTS";

/* Parses the options; returns 0 for invalid options. */
static int read_options(int argc, char **argv, NAME_search *how) {
    for (int k = 1; k < argc; k += 2) {
        char *end = NULL;
        double x = k + 1 < argc ? strtod(argv[k + 1], &end) : -1;
        int is_integer = x >= 1 && x <= NAME_BEAMS && x == (double)(int)x;
        if (!end || end == argv[k + 1] || *end) return 0;
        if (is_integer && !strcmp(argv[k], "--beams")) how->beams = (uint32_t)x;
        else if (is_integer && !strcmp(argv[k], "--n-best")) how->n_best = (uint32_t)x;
        else if (x >= 0 && x <= 10 && !strcmp(argv[k], "--length-penalty")) how->length_penalty = x;
        else return 0;
    }
    return how->n_best <= how->beams;
}

static int is_usage_valid(int argc, char **argv) {
    NAME_search how = NAME_usual();
    return read_options(argc, argv, &how);
}

/* Returns whether Python's `strip` would leave an empty text. */
static int is_blank(const char *line, size_t size) {
    static const char *const BLANKS[] = {
        "\t", "\n", "\v", "\f", "\r", "\x1C", "\x1D", "\x1E", "\x1F", " ", "\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80",
        "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
    for (size_t at = 0, length; at < size; at += length) {
        length = 0;
        if (size - at >= 3 && !memcmp(line + at, "\xE2\x80", 2) && (uint8_t)line[at + 2] - 0x80 < 11) length = 3;
        for (size_t k = 0; k < sizeof BLANKS / sizeof *BLANKS; k++)
            if (size - at >= strlen(BLANKS[k]) && !memcmp(line + at, BLANKS[k], strlen(BLANKS[k]))) length = strlen(BLANKS[k]);
        if (!length) return 0;
    }
    return 1;
}

/* Splits a line into its texts; returns 0 if their number is not NAME_TEXTS. */
static int cut_line(const char *line, size_t size, NAME_text *texts) {
    if (is_blank(line, size)) {
        for (int k = 0; k < NAME_TEXTS; k++) texts[k] = (NAME_text){line, 0};
        return 1;
    }
    for (int k = 0; k < NAME_TEXTS; k++) {
        const char *tab = NAME_TEXTS > 1 ? memchr(line, '\t', size) : NULL;
        if ((tab != NULL) != (k + 1 < NAME_TEXTS)) return 0;
        texts[k] = (NAME_text){line, tab ? (size_t)(tab - line) : size};
        if (tab) size -= (size_t)(tab + 1 - line), line = tab + 1;
    }
    return 1;
}

static void print_line(const char *text, size_t size) {
    for (size_t k = 0; k < size; k++) putchar(text[k] == '\r' || text[k] == '\n' || text[k] == '\t' ? ' ' : text[k]);
    putchar('\n');
}

@READ_LINES@
enum { WINDOW = 64, NOT_CUT = 1 };

/* A buffer of lines, and the memory of their outputs. */
typedef struct {
    lines waiting;
    size_t ends[WINDOW], count, room;
    NAME_session *session;
    unsigned long answered;
    NAME_search how;
} buffers;

/* Allocates a session for lines of up to `longest` bytes, with more room if possible. */
static int make_room(const NAME_model *model, buffers *of, size_t longest) {
    for (of->room = 1 << 10; of->room < longest;) of->room *= 2;
    size_t needed = NAME_session_size(of->room, of->how.max_tokens);
    if (!needed) needed = NAME_session_size(of->room = longest, of->how.max_tokens);
    free(of->session);
    of->session = needed ? malloc(needed) : NULL;
    if (!of->session) return needed ? NAME_MEMORY : NAME_TOO_LONG;
    return NAME_begin(model, of->session, of->room, of->how.max_tokens);
}

/* Prints the outputs of the lines. The session grows with the longest line. */
static int answer(const NAME_model *model, buffers *of) {
    static NAME_text texts[WINDOW * NAME_TEXTS];
    NAME_answer answers[NAME_ROWS];
    size_t cut = 0, longest = 0;
    for (size_t begin = 0; cut < of->count; begin = of->ends[cut++]) {
        size_t size = of->ends[cut] - begin;
        if (!cut_line(of->waiting.text + begin, size, texts + cut * NAME_TEXTS)) break;
        longest = size > longest ? size : longest;
    }
    int code = !of->session || longest > of->room ? make_room(model, of, longest) : NAME_OK;
    for (size_t done = 0; !code && done < cut;) {
        int count = NAME_transduce(model, of->session, texts + done * NAME_TEXTS, cut - done, &of->how, answers);
        if (count == NAME_TOO_LONG && of->room < 3 * longest) { /* invalid bytes count as three */
            code = make_room(model, of, 3 * longest);
            continue;
        }
        if (count < 0) return count;
        for (size_t k = 0; k < (size_t)count * of->how.n_best; k++) {
            if (!answers[k].text) continue;
            if (of->how.n_best > 1) printf("%lu\t%.4f\t", of->answered + (unsigned long)(k / of->how.n_best) + 1, answers[k].score);
            print_line(answers[k].text, answers[k].size);
        }
        done += (size_t)count, of->answered += (size_t)count;
    }
    if (!code && cut < of->count) return NOT_CUT;
    of->waiting.size = of->count = 0;
    return code;
}

static int run(const NAME_model *model, int argc, char **argv) {
    buffers of = {.how = NAME_usual()};
    size_t end;
    int code = NAME_OK, found = 1;
    read_options(argc, argv, &of.how);
    while (!code && found > 0) {
        found = next_line(&of.waiting, &end);
        if (found > 0) of.ends[of.count++] = of.waiting.size -= end;
        if (of.count == WINDOW || !found) code = answer(model, &of);
    }
    if (found < 0) code = found;
    free(of.session);
    free(of.waiting.text);
    if (code != NOT_CUT) return code ? print_error(code) : 0;
    fprintf(stderr, "NAME: line %lu: expected %d texts with tabs between them\n", of.answered + 1, NAME_TEXTS);
    return 2;
}
