/* A session and the labeling of sentences. WINDOW sentences are sorted by length, and divided into batches. */
enum { WINDOW = 128, MAX_WORDS = 1000000 };
/* The number of forms read at once, and the bytes and features of a cached form. */
enum { NEW_FORMS = PRECISION == 8 ? 16 : 96, MAX_FORM_BYTES = 20, WIDE_FORM = D_FEATURES + FIRST_HOISTED };

/* A word form whose features the session caches. Longer forms are read each time. */
typedef struct {
    uint32_t hash, next; /* the index + 1 of the next form in the bucket, or 0 */
    uint64_t batch;      /* the last batch with this form */
    uint8_t is_known;    /* whether its bucket contains the form */
    uint8_t is_met;      /* whether a batch used it since the clock hand passed */
    uint8_t size, text[MAX_FORM_BYTES];
} known_form;

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
    line_reader line;
    uint64_t batch; /* the number of the last batch; 64 bits do not wrap around */
    uint32_t hand;  /* the clock hand of cache eviction */
};

/* The arrays of a session, whose sizes depend on its number of words. */
typedef struct {
    real *forms, *features, *hoisted, *outputs[2], *emissions, *best;
    double *marginals, *work;
    uint32_t *index, *path, *labels, *slots;
    known_form *known;
    text_room text;
    char *line;
    uint64_t size;
} parts;

static uint64_t round_up(uint64_t size) { return (size + 63) & ~(uint64_t)63; }

static uint64_t slots_for(uint64_t words) {
    uint64_t slots = 4;
    while (slots < 2 * words) slots *= 2;
    return slots;
}

static parts lay_out_arrays(NAME_session *session, uint64_t words) {
    parts of;
    char *begin = (char *)session;
    uint64_t at = round_up(sizeof *session), n = words;
#define TAKE(part, count) (of.part = begin ? (void *)(begin + at) : NULL, at += round_up((count) * sizeof *of.part))
    TAKE(forms, n * WIDE_FORM);
    TAKE(features, (n < NEW_FORMS ? n : NEW_FORMS) * D_FEATURES);
    TAKE(hoisted, n < NEW_FORMS || NUM_LAYERS > 1 ? n * MAX_HOISTED : NEW_FORMS * MAX_HOISTED + n * WIDE_TAGS);
    TAKE(outputs[0], n * MAX_LAYER);
    TAKE(outputs[1], NUM_LAYERS > 1 ? n * MAX_LAYER : 0);
    TAKE(emissions, n * TAGS);
    TAKE(best, HAS_CHAIN ? n * TAGS : 0);
    TAKE(marginals, n * TAGS);
    TAKE(work, HAS_CHAIN ? TAGS * (3 + TAGS) : 0);
    TAKE(index, n);
    TAKE(path, n);
    TAKE(labels, n);
    TAKE(slots, slots_for(words));
    TAKE(known, n);
    TAKE(text.points, n * NAME_BYTES);
    TAKE(text.places, n * NAME_BYTES + 1);
    TAKE(text.letters, n * NAME_BYTES);
    TAKE(text.choices, n * NAME_BYTES + EXPRESSION_ROOM);
    TAKE(text.spans, n * NAME_BYTES);
    TAKE(line, n * NAME_BYTES + 3);
#undef TAKE
    of.size = at;
    return of;
}

size_t NAME_session_size(size_t words) {
    uint64_t size = words && words <= MAX_WORDS ? lay_out_arrays(NULL, words).size : 0;
    return (size_t)size == size ? (size_t)size : 0; /* 0 if it exceeds a size_t of 32 bits */
}

int NAME_begin(const NAME_model *model, NAME_session *session, size_t words) {
    if (!model || !session || !NAME_session_size(words)) return NAME_ARGUMENT;
    memset(session, 0, sizeof *session);
    session->checksum = CHECKSUM, session->words = words;
    parts of = lay_out_arrays(session, words);
    memset(of.slots, 0, slots_for(words) * sizeof *of.slots);
    memset(of.known, 0, words * sizeof *of.known);
    return NAME_OK;
}

static int session_is_valid(const NAME_session *session) {
    return session->checksum == CHECKSUM && session->words && session->words <= MAX_WORDS;
}

int64_t NAME_cut(const NAME_model *model, NAME_session *session, const char *text, size_t size, NAME_word *words,
                 size_t room) {
    if (!model || !session || (!text && size) || (!words && room)) return NAME_ARGUMENT;
    if (!session_is_valid(session)) return NAME_BAD_STATE;
    if (size > NAME_BYTES * (size_t)session->words) return NAME_TOO_LONG;
    parts of = lay_out_arrays(session, session->words);
    return cut_text(&of.text, text, size, words, room);
}

/* The bucket of a form. */
static uint32_t *find_bucket(const NAME_session *session, const parts *of, uint32_t hash) {
    return of->slots + (hash & ((uint32_t)slots_for(session->words) - 1));
}

/* The index + 1 of a cached form, or 0. */
static uint32_t find_form(const NAME_session *session, const parts *of, uint32_t hash, const char *text, size_t size) {
    uint32_t at = *find_bucket(session, of, hash);
    for (; at; at = of->known[at - 1].next) {
        const known_form *one = of->known + at - 1;
        if (one->hash == hash && one->size == size && !memcmp(one->text, text, size)) break;
    }
    return at;
}

/* Evicts a form that is not in this batch and was not used since the hand passed (clock algorithm). */
static uint32_t evict_form(NAME_session *session, const parts *of) {
    for (;;) {
        uint32_t place = session->hand;
        known_form *one = of->known + place;
        session->hand = place + 1 < session->words ? place + 1 : 0;
        if (one->batch == session->batch) continue;
        if (one->is_met) {
            one->is_met = 0;
            continue;
        }
        uint32_t *link = find_bucket(session, of, one->hash);
        if (one->is_known) {
            while (*link != place + 1) link = &of->known[*link - 1].next;
            *link = one->next;
        }
        return place;
    }
}

/* Caches the inputs of the first layer for some forms. */
static void cache_forms(const NAME_model *model, const parts *of, const uint32_t *places, int count) {
    for (int k = 0; k < count; k++)
        memcpy(of->forms + (size_t)places[k] * WIDE_FORM, of->features + k * D_FEATURES, D_FEATURES * sizeof(real));
    int64_t begin = D_FEATURES;
    for (int d = 0; d < LAYERS[0].directions; d++) {
        const pass *one = d ? &LAYERS[0].leftward : &LAYERS[0].rightward;
        one->hoist(model, count, of->features, D_FEATURES, of->hoisted);
        for (int k = 0; k < count; k++)
            memcpy(of->forms + (size_t)places[k] * WIDE_FORM + begin, of->hoisted + k * one->hoisted,
                   (size_t)one->hoisted * sizeof(real));
        begin += one->hoisted;
    }
}

/* Writes the indices of the forms of a batch; computes the features of forms that are not cached. */
static void read_forms(const NAME_model *model, NAME_session *session, const parts *of, NAME_word *const *sentences,
                       const batch *texts) {
    uint32_t places[NEW_FORMS];
    int count = 0;
    session->batch++;
    for (int64_t r = 0; r < texts->count; r++)
        for (int64_t t = 0; t < texts->lengths[r]; t++) {
            const char *text = sentences[r][t].text;
            size_t size = sentences[r][t].size;
            int is_short = size && size <= MAX_FORM_BYTES;
            uint32_t hash = is_short ? hash_symbol(text, size) : 0, number = 0;
            if (is_short) number = find_form(session, of, hash, text, size);
            if (number) {
                of->known[number - 1].is_met = 1, of->known[number - 1].batch = session->batch;
            } else {
                uint32_t place = places[count] = evict_form(session, of), *slot = find_bucket(session, of, hash);
                known_form *one = of->known + place;
                *one = (known_form){.hash = hash, .next = is_short ? *slot : 0, .batch = session->batch,
                                    .is_known = (uint8_t)is_short, .size = (uint8_t)size};
                if (is_short) memcpy(one->text, text, size), *slot = place + 1;
                compute_features(model, &session->form, text, size, &session->characters, of->features + count * D_FEATURES);
                if (++count == NEW_FORMS) cache_forms(model, of, places, count), count = 0;
                number = place + 1;
            }
            of->index[texts->starts[r] + t] = number - 1;
        }
    cache_forms(model, of, places, count);
}

/* Computes the emissions of a batch. */
static int read_batch(const NAME_model *model, NAME_session *session, parts *of, NAME_word *const *sentences,
                      const batch *texts) {
    read_forms(model, session, of, sentences, texts);
    const real *x = of->forms;
    const uint32_t *index = of->index;
    int64_t stride = WIDE_FORM;
    for (int k = 0; k < NUM_LAYERS; k++) {
        real *y = of->outputs[k % 2];
        run_layer(model, LAYERS + k, texts, x, stride, index, of->hoisted, &session->step, y);
        x = y, index = NULL, stride = LAYERS[k].directions * LAYERS[k].rightward.d_out;
    }
    return compute_emissions(model, texts->words, x, stride, of->hoisted, of->emissions);
}

/* Labels a batch of sentences, the longest first. */
static int label_batch(const NAME_model *model, NAME_session *session, parts *of, NAME_word *const *sentences,
                       const batch *texts, int probabilities) {
    int code = read_batch(model, session, of, sentences, texts);
    if (code) return code;
    const uint32_t *starts = words32(model, AT_LABEL_STARTS);
    const char *names = (const char *)words32(model, AT_LABELS);
    for (int64_t r = 0; r < texts->count; r++) {
        real *scores = of->emissions + texts->starts[r] * TAGS;
        int64_t length = texts->lengths[r];
        best_path(model, scores, length, of->best, of->path);
        decode_labels(of->path, length, of->labels);
        if (probabilities) compute_marginals(model, scores, length, of->marginals, of->work);
        for (int64_t t = 0; t < length; t++) {
            NAME_word *word = sentences[r] + t;
            word->id = of->labels[t];
            word->label = names + starts[word->id];
            word->probability = probabilities ? sum_label_probability(word->id, of->marginals + t * TAGS) : 0;
        }
    }
    return NAME_OK;
}

/* Reads the next sentences sorted by decreasing length; returns their number of words. */
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
    if (!session_is_valid(session)) return NAME_BAD_STATE;
    size_t room = (size_t)session->words, length = 0;
    for (size_t k = 0; k < count; k++) {
        if (!words[k].text && words[k].size) return NAME_ARGUMENT;
        if (++length > room) return NAME_TOO_LONG;
        if (words[k].ends) length = 0;
    }
    parts of = lay_out_arrays(session, session->words);
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

int NAME_feed(const NAME_model *model, NAME_session *session, const char *bytes, size_t count, size_t *used) {
    if (!model || !session || !used || (!bytes && count)) return NAME_ARGUMENT;
    if (!session_is_valid(session)) return NAME_BAD_STATE;
    char *line = lay_out_arrays(session, session->words).line;
    return read_line(&session->line, line, NAME_BYTES * session->words, bytes, count, used);
}

int64_t NAME_take(const NAME_model *model, NAME_session *session, NAME_word *words, size_t room, int probabilities) {
    if (!model || !session || (!words && room)) return NAME_ARGUMENT;
    if (!session_is_valid(session)) return NAME_BAD_STATE;
    if (!session->line.is_complete) return 0;
    parts of = lay_out_arrays(session, session->words);
    int64_t count = cut_text(&of.text, of.line, (size_t)session->line.size, words, room);
    if (count > (int64_t)room) return count;
    int code = NAME_label(model, session, words, (size_t)count, probabilities);
    return code ? code : count;
}
