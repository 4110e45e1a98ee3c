/* A session, and what labels sentences with it. Of WINDOW sentences those of similar length are read side by side. */
enum { WINDOW = 128, MOST_WORDS = 1000000 };

typedef struct {
    NAME_word *words;
    size_t length;
} sentence;

struct NAME_session {
    uint64_t checksum, words;
    step_room step;
    character_room characters;
    form form;
    sentence window[WINDOW];
};

/* The parts of a session that grow with its words, one behind the other. */
typedef struct {
    real *features, *hoisted, *outputs[2], *emissions, *best;
    double *shares, *work;
    uint32_t *index, *path, *labels, *slots;
    const NAME_word **firsts;
    text_room text;
    uint64_t size;
} parts;

static uint64_t round_up(uint64_t size) { return (size + 63) & ~(uint64_t)63; }

static uint64_t slots_for(uint64_t words) {
    uint64_t slots = 4;
    while (slots < 2 * words) slots *= 2;
    return slots;
}

static parts parts_of(NAME_session *session, uint64_t words) {
    parts of;
    char *begin = (char *)session;
    uint64_t at = round_up(sizeof *session), n = words;
#define TAKE(part, count) (of.part = begin ? (void *)(begin + at) : NULL, at += round_up((count) * sizeof *of.part))
    TAKE(features, n * D_FEATURES);
    TAKE(hoisted, n * MOST_HOISTED);
    TAKE(outputs[0], n * MOST_LAYER);
    TAKE(outputs[1], NUM_LAYERS > 1 ? n * MOST_LAYER : 0);
    TAKE(emissions, n * TAGS);
    TAKE(best, HAS_CHAIN ? n * TAGS : 0);
    TAKE(shares, n * TAGS);
    TAKE(work, HAS_CHAIN ? TAGS * (3 + TAGS) : 0);
    TAKE(index, n);
    TAKE(path, n);
    TAKE(labels, n);
    TAKE(slots, slots_for(words));
    TAKE(firsts, n);
    TAKE(text.points, n * NAME_BYTES);
    TAKE(text.places, n * NAME_BYTES + 1);
    TAKE(text.letters, n * NAME_BYTES);
    TAKE(text.choices, n * NAME_BYTES + EXPRESSION_ROOM);
    TAKE(text.spans, n * NAME_BYTES);
#undef TAKE
    of.size = at;
    return of;
}

size_t NAME_session_size(size_t words) {
    uint64_t size = words && words <= MOST_WORDS ? parts_of(NULL, words).size : 0;
    return (size_t)size == size ? (size_t)size : 0; /* where addresses have 32 bits */
}

int NAME_begin(const NAME_model *model, NAME_session *session, size_t words) {
    if (!model || !session || !NAME_session_size(words)) return NAME_ARGUMENT;
    memset(session, 0, sizeof *session);
    session->checksum = CHECKSUM, session->words = words;
    return NAME_OK;
}

static int is_ours(const NAME_session *session) {
    return session->checksum == CHECKSUM && session->words && session->words <= MOST_WORDS;
}

int64_t NAME_cut(const NAME_model *model, NAME_session *session, const char *text, size_t size, NAME_word *words,
                 size_t room) {
    if (!model || !session || (!text && size) || (!words && room)) return NAME_ARGUMENT;
    if (!is_ours(session)) return NAME_BAD_STATE;
    if (size > NAME_BYTES * (size_t)session->words) return NAME_TOO_LONG;
    parts of = parts_of(session, session->words);
    return cut_text(&of.text, text, size, words, room);
}

/* Numbers the distinct forms of a batch and works out the features of each. Returns how many there are. */
static int64_t read_forms(const NAME_model *model, NAME_session *session, parts *of, NAME_word *const *sentences,
                          const batch *texts) {
    uint32_t mask = (uint32_t)slots_for((uint64_t)texts->words) - 1, forms = 0;
    memset(of->slots, 0, ((size_t)mask + 1) * sizeof *of->slots);
    for (int64_t r = 0; r < texts->count; r++)
        for (int64_t t = 0; t < texts->lengths[r]; t++) {
            const NAME_word *word = sentences[r] + t;
            uint32_t at = hash_of(word->text, word->size) & mask;
            for (; of->slots[at]; at = (at + 1) & mask) {
                const NAME_word *known = of->firsts[of->slots[at] - 1];
                if (known->size == word->size && (!word->size || !memcmp(known->text, word->text, word->size))) break;
            }
            if (!of->slots[at]) {
                features_of(model, &session->form, word->text, word->size, &session->characters,
                            of->features + (size_t)forms * D_FEATURES);
                of->firsts[forms] = word;
                of->slots[at] = ++forms;
            }
            of->index[texts->starts[r] + t] = of->slots[at] - 1;
        }
    return forms;
}

/* The emissions of a batch. */
static void read_batch(const NAME_model *model, NAME_session *session, parts *of, NAME_word *const *sentences,
                       const batch *texts) {
    int64_t forms = read_forms(model, session, of, sentences, texts), stride = D_FEATURES;
    const real *x = of->features, *bias = reals(model, AT_BIAS);
    const uint32_t *index = of->index;
    for (int k = 0; k < NUM_LAYERS; k++) {
        real *y = of->outputs[k % 2];
        run_layer(model, LAYERS + k, texts, x, stride, forms, index, of->hoisted, &session->step, y);
        x = y, index = NULL, forms = texts->words, stride = LAYERS[k].directions * LAYERS[k].rightward.d_out;
    }
    multiply(texts->words, WIDE_TAGS, D_HEAD, x, stride, reals(model, AT_HEAD), of->hoisted, WIDE_TAGS);
    for (int64_t t = 0; t < texts->words; t++)
        for (int k = 0; k < TAGS; k++) of->emissions[t * TAGS + k] = of->hoisted[t * WIDE_TAGS + k] + bias[k];
}

/* Labels some sentences, the longest first. */
static int label_batch(const NAME_model *model, NAME_session *session, parts *of, NAME_word *const *sentences,
                       const batch *texts, int probabilities) {
    read_batch(model, session, of, sentences, texts);
    for (int64_t k = 0; k < texts->words * TAGS; k++)
        if (!(of->emissions[k] < INFINITY && of->emissions[k] > -INFINITY)) return NAME_NUMBERS;
    const uint32_t *starts = words32(model, AT_LABEL_STARTS);
    const char *names = (const char *)words32(model, AT_LABELS);
    for (int64_t r = 0; r < texts->count; r++) {
        real *scores = of->emissions + texts->starts[r] * TAGS;
        int64_t length = texts->lengths[r];
        best_path(model, scores, length, of->best, of->path);
        labels_of(of->path, length, of->labels);
        if (probabilities) marginals_of(model, scores, length, of->shares, of->work);
        for (int64_t t = 0; t < length; t++) {
            NAME_word *word = sentences[r] + t;
            word->id = of->labels[t];
            word->label = names + starts[word->id];
            word->probability = probabilities ? probability_of(word->id, of->shares + t * TAGS) : 0;
        }
    }
    return NAME_OK;
}

/* The next sentences, sorted, the longest first. Returns the words that they have together. */
static size_t next_sentences(NAME_word *words, size_t count, sentence *to, int *found) {
    size_t begin = 0;
    for (*found = 0; *found < WINDOW && begin < count; ++*found) {
        size_t end = begin + 1;
        while (end < count && !words[end - 1].ends) end++;
        int at = *found;
        for (; at && to[at - 1].length < end - begin; at--) to[at] = to[at - 1];
        to[at] = (sentence){words + begin, end - begin};
        begin = end;
    }
    return begin;
}

int NAME_label(const NAME_model *model, NAME_session *session, NAME_word *words, size_t count, int probabilities) {
    if (!model || !session || (!words && count)) return NAME_ARGUMENT;
    if (!is_ours(session)) return NAME_BAD_STATE;
    size_t room = (size_t)session->words, length = 0;
    for (size_t k = 0; k < count; k++) {
        if (!words[k].text && words[k].size) return NAME_ARGUMENT;
        if (++length > room) return NAME_TOO_LONG;
        if (words[k].ends) length = 0;
    }
    parts of = parts_of(session, session->words);
    for (size_t begin = 0; begin < count;) {
        int found;
        begin += next_sentences(words + begin, count - begin, session->window, &found);
        for (int next = 0; next < found;) {
            batch texts = {0};
            NAME_word *sentences[ROWS];
            for (; next < found && texts.count < ROWS; next++) {
                int64_t size = (int64_t)session->window[next].length;
                if ((size_t)(texts.words + size) > room) break;
                sentences[texts.count] = session->window[next].words;
                texts.starts[texts.count] = texts.words, texts.lengths[texts.count++] = size;
                texts.words += size;
            }
            int code = label_batch(model, session, &of, sentences, &texts, probabilities);
            if (code) return code;
        }
    }
    return NAME_OK;
}
