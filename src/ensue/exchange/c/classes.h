/* The labels of texts. The memory of a call has all that is worked out of them. */
typedef struct {
    size_t bytes;
    double *scores;
    int64_t *keys;
    uint64_t *sums;
    span *words;
    choice *choices;
    uint32_t *points, *letters, *rows;
} work;

/* Puts the parts of the memory behind each other, and returns how many bytes they are; of no memory, this alone. */
static size_t placed(work *of, char *memory, size_t bytes) {
    size_t at = 0;
    of->bytes = bytes;
#define PLACE(part, count) of->part = memory ? (void *)(memory + at) : NULL, at += ((count) * sizeof *of->part + 15) / 16 * 16
    PLACE(scores, NAME_LABELS);
    PLACE(keys, bytes);
    PLACE(sums, bytes);
    PLACE(words, bytes);
    PLACE(choices, bytes + EXPRESSION_ROOM);
    PLACE(points, bytes);
    PLACE(letters, SPLITS_MARKS ? bytes : 0);
    PLACE(rows, NGRAMS * bytes);
#undef PLACE
    return at;
}

enum { MOST_BYTES = 1 << 28, MOST_BYTE_COST = 8 + 8 + 8 + 12 + 4 + 4 + 4 * NGRAMS };

size_t NAME_memory(size_t bytes) {
    work of;
    if (bytes > MOST_BYTES || bytes > (SIZE_MAX >> 1) / MOST_BYTE_COST) return 0;
    return placed(&of, NULL, bytes);
}

const char *NAME_label(const NAME_model *model, uint32_t label) {
    if (!model || label >= NAME_LABELS) return NULL;
    return (const char *)words32(model, AT_LABELS) + words32(model, AT_LABEL_STARTS)[label];
}

static uint32_t decoded(const NAME_text *text, uint32_t *points) {
    utf8 in = {0, 0, 0, 0, 0};
    uint32_t count = 0, found[2];
    int lengths[2];
    for (size_t k = 0; k < text->size; k++) {
        uint8_t byte = (uint8_t)text->bytes[k];
        if (byte < 0x80 && !in.missing) points[count++] = byte;
        else for (int c = 0, n = utf8_feed(&in, byte, found, lengths); c < n; c++) points[count++] = found[c];
    }
    if (utf8_end(&in)) points[count++] = REPLACEMENT;
    return count;
}

/* Where the words that are read begin: at the start, at the end, or half at each. */
static uint32_t read_words(const uint32_t *points, uint32_t count, const work *in, int64_t *keys, const NAME_model *model) {
    uint32_t words = split(points, count, in->letters, in->choices, in->words);
    uint32_t first = words, skipped = 0;
    if (MOST_WORDS && words > MOST_WORDS) first = FIRST_WORDS, skipped = words - MOST_WORDS;
    for (uint32_t k = 0; k + skipped < words; k++) {
        span word = in->words[k < first ? k : k + skipped];
        keys[k] = key_of(model, points + word.begin, word.end - word.begin);
    }
    return words - skipped;
}

int NAME_classify(const NAME_model *model, void *memory, size_t size, const NAME_text *texts,
                  float probabilities[NAME_LABELS]) {
    if (!model || !memory || !texts || !probabilities) return NAME_ARGUMENT;
    size_t bytes = 0, counts[NAME_TEXTS], found = 0;
    for (int k = 0; k < NAME_TEXTS; k++) {
        if (!texts[k].bytes && texts[k].size) return NAME_ARGUMENT;
        if (texts[k].size > MOST_BYTES) return NAME_TOO_LONG;
        bytes += texts[k].size;
    }
    if (!NAME_memory(bytes) || NAME_memory(bytes) > size) return NAME_TOO_LONG;
    work of;
    placed(&of, memory, bytes);
    for (int k = 0; k < NAME_TEXTS; k++) {
        uint32_t count = decoded(texts + k, of.points);
        counts[k] = read_words(of.points, count, &of, of.keys + found, model);
        if (counts[k] > LONGEST_TEXT) return NAME_TOO_LONG;
        found += counts[k];
    }
    memset(of.scores, 0, NAME_LABELS * sizeof *of.scores);
    add_bag(model, of.keys, counts, of.sums, of.rows, of.scores);
    double most = -INFINITY, sum = 0;
    for (int k = 0; k < NAME_LABELS; k++) {
        of.scores[k] /= TEMPERATURE;
        if (!(fabs(of.scores[k]) < INFINITY)) return NAME_NUMBERS;
        most = of.scores[k] > most ? of.scores[k] : most;
    }
    for (int k = 0; k < NAME_LABELS; k++) sum += exp(of.scores[k] - most);
    for (int k = 0; k < NAME_LABELS; k++)
        probabilities[k] = (float)(IS_MULTIPLE ? 1 / (1 + exp(-of.scores[k])) : exp(of.scores[k] - most) / sum);
    return (int)found;
}

int NAME_choose(const NAME_model *model, const float probabilities[NAME_LABELS], double at_least,
                uint32_t labels[NAME_LABELS]) {
    if (!model || !probabilities || !labels) return NAME_ARGUMENT;
    float least = (float)(IS_MULTIPLE && at_least < THRESHOLD ? THRESHOLD : at_least);
    int count = 0;
    for (uint32_t k = 0; k < NAME_LABELS; k++) {
        if (!(probabilities[k] >= least)) continue;
        int place = count;
        if (!IS_MULTIPLE) place = count && !(probabilities[k] > probabilities[labels[0]]) ? -1 : 0, count = 1;
        else count++;
        if (IS_MULTIPLE)
            for (; place && probabilities[labels[place - 1]] < probabilities[k]; place--) labels[place] = labels[place - 1];
        if (place >= 0) labels[place] = k;
    }
    return count;
}
