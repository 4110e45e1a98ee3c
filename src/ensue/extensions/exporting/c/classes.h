/* The classifier of texts. The caller's memory has all intermediate results of a call. */
typedef struct {
    size_t bytes;
    double *scores;
    int64_t *keys;
    uint64_t *sums;
    span *words;
    choice *choices;
    uint32_t *points, *places, *letters, *rows, *spelled;
} work;

/* The maximum number of n-grams of characters per byte, reached by a word of one byte between < and >. */
enum { SPELLED_PER_BYTE = 3 * CHARACTER_NGRAMS };

/* Assigns the arrays of `work` to `memory` and returns their size in bytes; NULL: only returns the size. */
static size_t lay_out(work *of, char *memory, size_t bytes) {
    size_t at = 0;
    of->bytes = bytes;
#define PLACE(part, count) of->part = memory ? (void *)(memory + at) : NULL, at += ((count) * sizeof *of->part + 15) / 16 * 16
    PLACE(scores, NAME_LABELS);
    PLACE(keys, NGRAMS ? bytes : 0);
    PLACE(sums, NGRAMS ? bytes : 0);
    PLACE(words, bytes);
    PLACE(choices, bytes + EXPRESSION_ROOM);
    PLACE(points, bytes);
    PLACE(places, bytes + 1);
    PLACE(letters, SPLITS_MARKS ? bytes : 0);
    PLACE(rows, NGRAMS * bytes);
    PLACE(spelled, SPELLED_PER_BYTE * bytes);
#undef PLACE
    return at;
}

enum { MAX_BYTES = 1 << 28, MAX_BYTE_COST = 64 + 4 * (NGRAMS + SPELLED_PER_BYTE), BYTES_OF_WORD = 4 };

/* Returns whether the memory of the layers for a number of words fits into size_t. */
static int has_size(size_t words) { return words <= (SIZE_MAX >> 1) / (WORD_COST + 1); }

size_t NAME_memory(size_t bytes) {
    work of;
    size_t words = bytes / BYTES_OF_WORD + 1;
    if (MAX_WORDS && words > MAX_WORDS) words = MAX_WORDS; /* the layers read one text at a time */
    if (bytes > MAX_BYTES || bytes > (SIZE_MAX >> 2) / MAX_BYTE_COST || !has_size(words)) return 0;
    return lay_out(&of, NULL, bytes) + layers_room(words);
}

/* Splits a text into words and truncates it to MAX_WORDS: the first, the last, or half of each. */
static uint32_t read_words(const NAME_text *text, const work *in) {
    uint32_t count = utf8_points(text->bytes, text->size, in->points, in->places);
    uint32_t words = split(in->points, count, in->letters, in->choices, in->words);
    uint32_t max = MAX_WORDS ? MAX_WORDS : words, skipped = words > max ? words - max : 0;
    for (uint32_t k = FIRST_WORDS; skipped && k < max; k++) in->words[k] = in->words[k + skipped];
    return words - skipped;
}

int NAME_classify(const NAME_model *model, void *memory, size_t size, const NAME_text *texts,
                  float probabilities[NAME_LABELS]) {
    if (!model || !memory || !texts || !probabilities) return NAME_ARGUMENT;
    size_t bytes = 0, counts[NAME_TEXTS], spelled[NAME_TEXTS];
    for (int k = 0; k < NAME_TEXTS; k++) {
        if (!texts[k].bytes && texts[k].size) return NAME_ARGUMENT;
        if (texts[k].size > MAX_BYTES) return NAME_TOO_LONG;
        bytes += texts[k].size;
    }
    work of;
    if (bytes > MAX_BYTES || !NAME_memory(bytes) || lay_out(&of, NULL, bytes) > size) return NAME_TOO_LONG;
    size_t begin = lay_out(&of, memory, bytes), found = 0, hashes = 0;
    memset(of.scores, 0, NAME_LABELS * sizeof *of.scores);
    for (int k = 0; k < NAME_TEXTS; k++) {
        counts[k] = read_words(texts + k, &of);
        if (counts[k] > MAX_TEXT_WORDS || !has_size(counts[k]) || begin + layers_room(counts[k]) > size) return NAME_TOO_LONG;
        read_layers(model, (char *)memory + begin, texts[k].bytes, of.places, of.words, counts[k], k);
        int64_t *keys = of.keys + (NGRAMS ? found : 0);
        spelled[k] = read_keys(model, of.points, of.words, counts[k], keys, of.spelled + hashes);
        found += counts[k], hashes += spelled[k];
    }
    add_layers(model, (char *)memory + begin, of.scores);
    add_bag(model, of.keys, counts, of.sums, of.rows, of.spelled, spelled, of.scores);
    int code = compute_probabilities(of.scores, probabilities);
    return code ? code : (int)found;
}

/* The bytes of a line follow the struct. */
struct NAME_session {
    uint64_t checksum, bytes;
    line_reader line;
};

size_t NAME_session_size(size_t bytes) { return bytes > MAX_BYTES ? 0 : sizeof(NAME_session) + bytes + 3; }

int NAME_begin(const NAME_model *model, NAME_session *session, size_t bytes) {
    if (!model || !session || !NAME_session_size(bytes)) return NAME_ARGUMENT;
    *session = (NAME_session){CHECKSUM, bytes, {0, 0, 0}};
    return NAME_OK;
}

int NAME_feed(const NAME_model *model, NAME_session *session, const char *bytes, size_t count, size_t *used,
              NAME_text texts[NAME_TEXTS]) {
    if (!model || !session || !used || !texts || (!bytes && count)) return NAME_ARGUMENT;
    if (session->checksum != CHECKSUM || session->bytes > MAX_BYTES) return NAME_BAD_STATE;
    char *line = (char *)(session + 1);
    int code = read_line(&session->line, line, session->bytes, bytes, count, used);
    if (code < 1) return code;
    const char *end = line + session->line.size;
    for (int k = 0; k < NAME_TEXTS; k++) {
        char *tab = IS_PAIR ? memchr(line, '\t', (size_t)(end - line)) : NULL;
        if (!tab && k + 1 < NAME_TEXTS) return NAME_NO_TAB;
        texts[k] = (NAME_text){line, (size_t)((tab ? tab : end) - line)};
        if (tab) line = tab + 1;
    }
    return code;
}
