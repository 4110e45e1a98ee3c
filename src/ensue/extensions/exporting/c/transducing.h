/* The encoder-decoder: an encoder, a decoder with attention, and the beam search of ensue's `decode`. Sources are
 * batched; a step of the decoder extends the hypotheses of all sources. */
typedef struct {
    double score, total;
    uint32_t length, slot; /* the row of its ids */
    int is_complete;
} hypothesis;

/* The best hypotheses, sorted by score; hypotheses with equal scores are in the order in which they were added. */
typedef struct {
    uint32_t count;
    hypothesis best[NAME_BEAMS];
} ranking;

/* The search state of a source. */
typedef struct {
    size_t begin, count, keys; /* offset and number of its tokens, and offset of its keys */
    uint32_t limit, first, rows; /* maximum number of output tokens; first row and number of its hypotheses */
    double totals[NAME_BEAMS];
    ranking complete, incomplete;
    uint32_t *found[2];
    int is_empty; /* whether all texts are blank; then the output is empty */
} source;

struct NAME_session {
    uint64_t checksum, bytes, tokens;
    lexer reading;
    step_room step;
    source sources[ROWS];
    uint32_t parents[NAME_ROWS], ids[NAME_ROWS], of_row[NAME_ROWS]; /* of the next step: parent rows, tokens, sources */
};

/* The arrays of a session, whose sizes depend on its bytes and tokens. */
typedef struct {
    real *features, *hoisted, *outputs[2], *memory, *keys, *values, *weights, *context;
    real *x, *before, *leaves[2], *h, *joined, *fed, *scores, *work;
    uint32_t *points, *ids, *history[2], *found;
    uint8_t *texts;
    size_t width; /* the row length of `history` and `found` */
    uint64_t size;
} parts;

enum { MAX_SIZE = 1000000, MAX_LANES = 16, HOISTED = CELLS_HOISTED > SCORES_HOISTED ? CELLS_HOISTED : SCORES_HOISTED };

static uint64_t padded(uint64_t count) { return (count + MAX_LANES - 1) / MAX_LANES * MAX_LANES; }

/* The maximum number of tokens of sources with `bytes` bytes: a text adds a separator or end token, and for subwords a
 * blank. */
static uint64_t tokens_for(uint64_t bytes) { return bytes + ROWS * NAME_TEXTS * (1 + ADDS_BLANK); }

static parts lay_out_arrays(NAME_session *session, uint64_t bytes, uint64_t tokens) {
    parts of;
    char *begin = (char *)session;
    uint64_t at = (sizeof *session + 63) / 64 * 64, n = padded(tokens_for(bytes)) + ROWS * MAX_LANES;
    of.width = (size_t)tokens;
#define TAKE(part, count) (of.part = begin ? (void *)(begin + at) : NULL, at += ((count) * sizeof *of.part + 63) / 64 * 64)
    TAKE(features, n * D_SOURCE);
    TAKE(hoisted, n * MAX_HOISTED);
    TAKE(outputs[0], n * MAX_LAYER);
    TAKE(outputs[1], NUM_LAYERS > 1 ? n * MAX_LAYER : 0);
    TAKE(memory, n * WIDE_MEMORY);
    TAKE(keys, n * D_KEY);
    TAKE(values, n * D_VALUE);
    TAKE(weights, ATTENTION ? n * NAME_BEAMS : 0);
    TAKE(context, ROWS * D_ENCODED);
    TAKE(x, NAME_ROWS * D_X);
    TAKE(before, NAME_ROWS * HOISTED);
    TAKE(leaves[0], NAME_ROWS * LEAVES);
    TAKE(leaves[1], NAME_ROWS * LEAVES);
    TAKE(h, NAME_ROWS * D_STEP);
    TAKE(joined, NAME_ROWS * (D_VALUE + D_CELLS));
    TAKE(fed, NAME_ROWS * D_FED);
    TAKE(scores, NAME_ROWS * WIDE_TARGETS);
    TAKE(work, NAME_ROWS * WORK);
    TAKE(points, bytes);
    TAKE(ids, n);
    TAKE(history[0], NAME_ROWS * tokens);
    TAKE(history[1], NAME_ROWS * tokens);
    TAKE(found, 2 * NAME_ROWS * tokens);
    TAKE(texts, NAME_ROWS * tokens * MAX_WRITTEN_BYTES + 4 * bytes);
#undef TAKE
    of.size = at;
    return of;
}

NAME_search NAME_usual(void) {
    return (NAME_search){DEFAULT_WIDTH, DEFAULT_N_BEST, DEFAULT_PENALTY, DEFAULT_MIN_TOKENS, DEFAULT_MAX_TOKENS, DEFAULT_NO_REPEAT};
}

size_t NAME_session_size(size_t bytes, size_t tokens) {
    if (bytes > MAX_SIZE || !tokens || tokens > MAX_SIZE) return 0;
    uint64_t size = lay_out_arrays(NULL, bytes, tokens).size;
    return size > SIZE_MAX / 2 ? 0 : (size_t)size;
}

int NAME_begin(const NAME_model *model, NAME_session *session, size_t bytes, size_t tokens) {
    if (!model || !session || !NAME_session_size(bytes, tokens)) return NAME_ARGUMENT;
    memset(session, 0, sizeof *session);
    session->checksum = CHECKSUM, session->bytes = bytes, session->tokens = tokens;
    return NAME_OK;
}

/* The receiver of source tokens. Tokens beyond `room` are counted, but not stored. */
struct sink {
    uint32_t *ids;
    size_t count, room;
};

static void emit(const NAME_model *model, sink *to, uint32_t id, uint64_t begin, uint64_t end) {
    (void)model, (void)begin, (void)end;
    if (to->count < to->room) to->ids[to->count] = id;
    to->count++;
}

/* Reads a text of names; each name is a token. */
static void read_names(const NAME_model *model, const parts *of, uint32_t points, sink *to) {
    for (uint32_t k = 0, size = 0; k <= points; k++) {
        int is_between = k == points || is_inside(of->points[k], BETWEEN, (int)(sizeof BETWEEN / sizeof *BETWEEN / 2));
        if (!is_between) {
            size += (uint32_t)utf8_write(of->points[k], of->texts + size);
        } else if (size) {
            emit(model, to, UNKNOWN_NAME + find_id(model, &KNOWN_NAME, of->texts, size), 0, 0);
            size = 0;
        }
    }
}

static void read_text(const NAME_model *model, lexer *in, const parts *of, uint32_t points, sink *to) {
    memset(in, 0, sizeof *in);
    if (ADDS_BLANK && points) lexer_feed(model, in, to, ' ', 0, 0);
    for (uint32_t k = 0; k <= points; k++) {
        if (k < points) lexer_feed(model, in, to, of->points[k], 0, 0);
        else lexer_end(model, in, to);
        while (lexer_take(model, in, to)) continue;
    }
}

/* Reads the ids of the texts of a source from `begin` on. Returns their number, or 0 if they exceed the room. */
static size_t read_source(const NAME_model *model, NAME_session *session, const parts *of, const NAME_text *texts,
                          size_t begin, int *is_empty) {
    sink to = {of->ids + begin, 0, (size_t)tokens_for(session->bytes) - begin};
    *is_empty = 1;
    for (size_t text = 0; text < NAME_TEXTS; text++) {
        uint32_t points = utf8_points(texts[text].bytes, texts[text].size, of->points, NULL);
        for (uint32_t k = 0; k < points && *is_empty; k++)
            *is_empty = is_inside(of->points[k], WHITE, (int)(sizeof WHITE / sizeof *WHITE / 2));
        if (text < sizeof IS_NAME && IS_NAME[text]) {
            read_names(model, of, points, &to);
            continue;
        }
        if (text) emit(model, &to, SEPARATOR, 0, 0);
        read_text(model, &session->reading, of, points, &to);
    }
    if (MAX_TOKENS && to.count > MAX_TOKENS) to.count = MAX_TOKENS;
    emit(model, &to, SOURCE_END, 0, 0);
    return to.count > to.room ? 0 : to.count;
}

static const real *read_layers(const NAME_model *model, NAME_session *session, const parts *of, uint32_t group,
                               int64_t *stride) {
    batch texts = {0};
    const real *x = of->features;
    *stride = D_SOURCE;
    for (uint32_t k = 0; k < group; k++) { /* the longest first */
        const source *one = session->sources + k;
        int64_t at = texts.count++;
        for (; at && texts.lengths[at - 1] < (int64_t)one->count; at--)
            texts.lengths[at] = texts.lengths[at - 1], texts.starts[at] = texts.starts[at - 1];
        texts.lengths[at] = (int64_t)one->count, texts.starts[at] = (int64_t)one->begin;
        texts.words += (int64_t)one->count;
    }
    for (int64_t k = 0; k < texts.words; k++)
        read_row(reals(model, AT_SOURCES), SOURCE_TOKENS, D_SOURCE, of->ids[k], 1, of->features + k * D_SOURCE);
    for (int k = 0; k < NUM_LAYERS; k++) {
        run_layer(model, LAYERS + k, &texts, x, *stride, NULL, of->hoisted, &session->step, of->outputs[k % 2]);
        x = of->outputs[k % 2], *stride = LAYERS[k].directions * LAYERS[k].rightward.d_out;
    }
    return x;
}

#if ATTENTION
/* Stores the keys as columns, and the values by head, so that attention is two matrix products. */
static void store_encoded(const NAME_model *model, const parts *of, const real *x, int64_t stride,
                          const source *sources, uint32_t group) {
    const source *last = sources + group - 1;
    const real *keys = x, *bias = reals(model, AT_MEMORY_BIAS);
    size_t d = D_VALUE / HEADS, words = last->begin + last->count, wide = (size_t)stride, ld = wide;
    if (WIDE_MEMORY) {
        multiply((int64_t)words, WIDE_MEMORY, D_ENCODED, x, stride, reals(model, AT_MEMORY), of->memory, WIDE_MEMORY);
        for (size_t s = 0; s < words; s++)
            for (size_t j = 0; j < D_KEY + (HAS_VALUES ? D_VALUE : 0); j++) of->memory[s * WIDE_MEMORY + j] += bias[j];
        keys = of->memory, wide = WIDE_MEMORY;
    }
    if (HAS_VALUES) x = of->memory + D_KEY, ld = WIDE_MEMORY;
    for (const source *one = sources; one <= last; one++) {
        size_t n = padded(one->count), begin = one->begin;
        for (size_t j = 0; j < D_KEY; j++)
            for (size_t s = 0; s < n; s++)
                of->keys[(one->keys * D_KEY) + j * n + s] = s < one->count ? keys[(begin + s) * wide + j] : 0;
        for (size_t k = 0; k < HEADS; k++)
            for (size_t s = 0; s < one->count; s++)
                memcpy(of->values + begin * D_VALUE + (k * one->count + s) * d, x + (begin + s) * ld + k * d, d * sizeof *x);
    }
}

/* Computes the attention of the rows of a source, before the output of their cells. */
static void attend(const NAME_model *model, const parts *of, const source *one) {
    size_t count = one->count, n = padded(count), d_key = D_KEY / HEADS, d = D_VALUE / HEADS;
    int64_t rows = one->rows;
    (void)model;
    for (size_t k = 0; k < HEADS; k++) {
        const real *queries = of->h + one->first * D_STEP + AT_QUERY + k * d_key;
        const real *keys = of->keys + one->keys * D_KEY + k * d_key * n;
        memset(of->weights, 0, (size_t)rows * n * sizeof *of->weights);
#if ATTENTION == 1
        for (int64_t r = 0; r < rows; r++)
            add_products((int64_t)n, (int64_t)d_key, queries + r * D_STEP, keys, (int64_t)n, of->weights + (size_t)r * n);
#else
        const real *vector = reals(model, AT_VECTOR);
        for (int64_t r = 0; r < rows; r++)
            for (size_t j = 0; j < d_key; j++) {
                real query = queries[r * D_STEP + (int64_t)j], *to = of->weights + (size_t)r * n;
                for (size_t s = 0; s < n; s++) to[s] += vector[j] * tanh_(query + keys[j * n + s]);
            }
#endif
        for (int64_t r = 0; r < rows; r++) {
            real *weights = of->weights + (size_t)r * n, max = -INFINITY, sum = 0;
            for (size_t s = 0; s < count; s++) weights[s] *= (real)SCALE, max = weights[s] > max ? weights[s] : max;
            for (size_t s = 0; s < count; s++) weights[s] = exp_(weights[s] - max);
            for (size_t s = 0; s < count; s++) sum += weights[s];
            for (size_t s = 0; s < count; s++) weights[s] /= sum;
            real *to = of->joined + (one->first + (size_t)r) * (D_VALUE + D_CELLS) + k * d;
            memset(to, 0, d * sizeof *to);
            add_products((int64_t)d, (int64_t)count, weights, of->values + one->begin * D_VALUE + k * count * d, (int64_t)d, to);
        }
    }
}
#endif

/* Initializes the decoder from the last rightward and the first leftward output. */
static void begin_cells(const NAME_model *model, const parts *of, const real *x, int64_t stride, source *sources,
                        uint32_t group) {
    size_t half = IS_IN_HALVES ? D_ENCODED / 2 : D_ENCODED;
    for (uint32_t r = 0; r < group; r++) {
        const real *first = x + sources[r].begin * (size_t)stride, *last = first + (sources[r].count - 1) * (size_t)stride;
        memcpy(of->context + r * D_ENCODED, last, half * sizeof *x);
        memcpy(of->context + r * D_ENCODED + half, first + half, (D_ENCODED - half) * sizeof *x);
    }
    multiply(group, WIDE_STARTS, D_ENCODED, of->context, D_ENCODED, reals(model, AT_BEGIN), of->work, WIDE_STARTS);
    memset(of->fed, 0, group * D_FED * sizeof *of->fed);
    for (uint32_t r = 0; r < group; r++) {
        const real *from = of->work + r * WIDE_STARTS, *bias = reals(model, AT_BEGIN_BIAS);
        real *to = of->leaves[0];
        for (size_t k = 0; k < sizeof LEAF_WIDTHS / sizeof *LEAF_WIDTHS; k++) {
            size_t width = (size_t)LEAF_WIDTHS[k];
            for (size_t j = 0; j < width; j++) to[r * width + j] = tanh_(from[j] + bias[j]);
            to += NAME_ROWS * width, from += width, bias += width;
        }
    }
}

/* Computes the states of all rows from the states of their parents and their last tokens, and the next scores. */
static void step(const NAME_model *model, const NAME_session *session, parts *of, uint32_t group, int64_t rows) {
    real *leaves = of->leaves[1];
    for (int64_t r = 0; r < rows; r++) {
        real *x = of->x + r * D_X, *to = leaves;
        const real *from = of->leaves[0];
        size_t parent = session->parents[r];
        read_row(reals(model, AT_TARGETS), TARGETS, D_TARGET, session->ids[r], 1, x);
        if (FEEDS) memcpy(x + D_TARGET, of->fed + parent * D_FED, (D_X - D_TARGET) * sizeof *x);
        if (READS_CONTEXT)
            memcpy(x + D_TARGET, of->context + session->of_row[r] * D_ENCODED, (D_X - D_TARGET) * sizeof *x);
        for (size_t k = 0; k < sizeof LEAF_WIDTHS / sizeof *LEAF_WIDTHS; k++) {
            size_t width = (size_t)LEAF_WIDTHS[k];
            memcpy(to + (size_t)r * width, from + parent * width, width * sizeof *x);
            to += NAME_ROWS * width, from += NAME_ROWS * width;
        }
    }
    of->leaves[1] = of->leaves[0], of->leaves[0] = leaves;
    hoist_cells(model, rows, of->x, D_X, of->before);
    advance_cells(model, rows, of->x, of->before, leaves, of->h, of->work);
    for (int64_t r = 0; r < rows; r++)
        memcpy(of->joined + r * (D_VALUE + D_CELLS) + D_VALUE, of->h + r * D_STEP, D_CELLS * sizeof *of->h);
#if ATTENTION
    for (uint32_t k = 0; k < group; k++)
        if (session->sources[k].rows) attend(model, of, session->sources + k);
#endif
    (void)group;
    hoist_scores(model, rows, of->joined, D_VALUE + D_CELLS, of->before);
    advance_scores(model, rows, of->joined, of->before, of->fed, of->scores, of->work);
}

/* Computes log-probabilities in place. Compilers vectorize the parallel sums; they would not vectorize a single sum. */
static int normalize(real *x) {
    enum { NUM_SUMS = 16 };
    real tops[NUM_SUMS], max = -INFINITY;
    double sums[NUM_SUMS] = {0}, sum = 0;
    for (int k = TARGETS; k < WIDE_TARGETS; k++) x[k] = -INFINITY;
    memcpy(tops, x, sizeof tops);
    for (int k = NUM_SUMS; k < WIDE_TARGETS; k += NUM_SUMS)
        for (int w = 0; w < NUM_SUMS; w++) tops[w] = x[k + w] > tops[w] ? x[k + w] : tops[w];
    for (int w = 0; w < NUM_SUMS; w++) max = tops[w] > max ? tops[w] : max;
    for (int k = 0; k < WIDE_TARGETS; k += NUM_SUMS)
        for (int w = 0; w < NUM_SUMS; w++) sums[w] += (double)exp_(x[k + w] - max);
    for (int w = 0; w < NUM_SUMS; w++) sum += sums[w];
    if (!(sum < INFINITY)) return NAME_NUMBERS;
    const real total = (real)log_64(sum);
    for (int k = 0; k < TARGETS; k++) x[k] = x[k] - max - total;
    return NAME_OK;
}

/* Sets the scores of forbidden tokens to -infinity; the row has `count` tokens so far. */
static void block(real *x, const uint32_t *row, uint32_t count, const NAME_search *how) {
    uint32_t n = how->no_repeat_ngram;
    for (size_t k = 0; k < sizeof FORBIDDEN / sizeof *FORBIDDEN; k++) x[FORBIDDEN[k]] = -INFINITY;
    if (count < how->min_tokens) x[END] = -INFINITY;
    for (uint32_t k = 0; n && k + n <= count; k++)
        if (!memcmp(row + k, row + count - (n - 1), (n - 1) * sizeof *row)) x[row[k + n - 1]] = -INFINITY;
}

static void add_hypothesis(ranking *in, uint32_t max, hypothesis new, const uint32_t *row, uint32_t *rows, size_t width) {
    uint32_t at = in->count;
    while (at && in->best[at - 1].score < new.score) at--;
    if (at == max) return;
    new.slot = in->count < max ? in->count++ : in->best[max - 1].slot;
    memmove(in->best + at + 1, in->best + at, (in->count - 1 - at) * sizeof new);
    in->best[at] = new;
    memcpy(rows + new.slot * width, row, new.length * sizeof *row);
}

typedef struct {
    double total;
    uint32_t parent, id;
} choice;

/* Finds the best continuations of all rows; equal scores are ordered by parent, then by id. */
static uint32_t choose(const real *scores, uint32_t rows, const double *totals, uint32_t max, choice *chosen) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < TARGETS; k++) {
            double total = totals[r] + (double)scores[r * WIDE_TARGETS + k];
            if (!(total > -INFINITY) || (count == max && !(total > chosen[count - 1].total))) continue;
            uint32_t at = count < max ? count++ : count - 1;
            for (; at && chosen[at - 1].total < total; at--) chosen[at] = chosen[at - 1];
            chosen[at] = (choice){total, r, k};
        }
    return count;
}

static double penalty(const NAME_search *how, uint32_t length) { return exp_64(how->length_penalty * log_64(length ? length : 1)); }

/* Extends the hypotheses of a source by its best continuations. Open hypotheses get the rows from `next` on; returns
 * the row after these rows. */
static uint32_t extend(NAME_session *session, const parts *of, uint32_t number, const NAME_search *how, uint32_t length,
                       uint32_t next) {
    source *one = session->sources + number;
    ranking *complete = &one->complete;
    choice chosen[NAME_BEAMS];
    const real *scores = of->scores + one->first * WIDE_TARGETS;
    const uint32_t *history = of->history[0] + one->first * of->width;
    uint32_t count = choose(scores, one->rows, one->totals, how->beams, chosen), first = next;
    uint8_t has_ended[NAME_BEAMS] = {0};
    for (uint32_t k = 0; k < count; k++)
        if (chosen[k].id == END) {
            double total = chosen[k].total;
            has_ended[chosen[k].parent] = 1;
            add_hypothesis(complete, how->n_best, (hypothesis){total / penalty(how, length), total, length - 1, 0, 1},
                           history + chosen[k].parent * of->width, one->found[0], of->width);
        }
    for (uint32_t r = 0; r < one->rows; r++) {
        double total = one->totals[r];
        int is_stuck = 1;
        for (int k = 0; k < TARGETS && is_stuck; k++) is_stuck = !(scores[r * WIDE_TARGETS + k] > -INFINITY);
        if (is_stuck || (length > one->limit && !has_ended[r]))
            add_hypothesis(&one->incomplete, how->n_best, (hypothesis){total / penalty(how, length - 1), total, length - 1, 0, 0},
                           history + r * of->width, one->found[1], of->width);
    }
    for (uint32_t k = 0; k < count && length <= one->limit; k++) {
        if (chosen[k].id == END) continue;
        if (next == first && complete->count == how->n_best &&
            !(chosen[k].total / penalty(how, one->limit + 1) > complete->best[how->n_best - 1].score))
            break; /* no open hypothesis can become better than the last complete one */
        uint32_t *row = of->history[1] + next * of->width;
        memcpy(row, history + chosen[k].parent * of->width, (length - 1) * sizeof *row);
        row[length - 1] = chosen[k].id, one->totals[next - first] = chosen[k].total;
        session->parents[next] = one->first + chosen[k].parent, session->ids[next] = chosen[k].id;
        session->of_row[next++] = number;
    }
    one->first = first, one->rows = next - first;
    return next;
}

static int search_all(const NAME_model *model, NAME_session *session, parts *of, uint32_t group, const NAME_search *how) {
    for (uint32_t k = 0; k < group; k++) {
        source *one = session->sources + k;
        session->parents[k] = session->of_row[k] = one->first = k, session->ids[k] = BEGIN;
        one->rows = 1, one->totals[0] = 0, one->complete.count = one->incomplete.count = 0;
        one->found[0] = of->found + k * how->beams * of->width;
        one->found[1] = one->found[0] + NAME_ROWS * of->width;
    }
    for (uint32_t length = 1, rows = group; rows; length++) {
        step(model, session, of, group, rows);
        for (uint32_t r = 0; r < rows; r++) {
            if (normalize(of->scores + r * WIDE_TARGETS)) return NAME_NUMBERS;
            block(of->scores + r * WIDE_TARGETS, of->history[0] + r * of->width, length - 1, how);
        }
        rows = 0;
        for (uint32_t k = 0; k < group; k++)
            if (session->sources[k].rows) rows = extend(session, of, k, how, length, rows);
        uint32_t *held = of->history[0];
        of->history[0] = of->history[1], of->history[1] = held;
    }
    return NAME_OK;
}

/* Writes the text of tokens. Bytes that are not UTF-8 become U+FFFD. */
static size_t write_symbols(const NAME_model *model, const uint32_t *ids, uint32_t count, uint8_t *to) {
    const uint32_t *starts = words32(model, AT_STARTS);
    const uint8_t *texts = (const uint8_t *)words32(model, AT_TEXTS);
    spacing words = {0, 0};
    utf8 decoder = {0, 0, 0, 0, 0};
    size_t size = 0;
    for (uint32_t k = 0; k < count; k++) {
        if (write_blank(model, &words, ids[k])) to[size++] = ' ';
        for (uint32_t at = starts[ids[k]]; at < starts[ids[k] + 1]; at++) {
            uint32_t found[2];
            int lengths[2], characters = utf8_feed(&decoder, texts[at], found, lengths);
            for (int c = 0; c < characters; c++) size += (size_t)utf8_write(found[c], to + size);
        }
    }
    if (utf8_end(&decoder)) size += (size_t)utf8_write(REPLACEMENT, to + size);
    if (TAKES_BLANK && size && *to == ' ') memmove(to, to + 1, --size);
    return size;
}

static int is_possible(const NAME_search *how) {
    return how->beams && how->beams <= NAME_BEAMS && how->n_best && how->n_best <= how->beams &&
           how->length_penalty >= 0 && how->length_penalty <= 10 && how->max_tokens && how->max_tokens <= MAX_SIZE &&
           how->min_tokens <= how->max_tokens && how->no_repeat_ngram <= MAX_SIZE;
}

/* Writes the outputs of a source, and their texts to `texts`. */
static void write_answers(const NAME_model *model, const parts *of, const source *one, const NAME_search *how,
                          uint8_t *texts, NAME_answer *answers) {
    for (uint32_t k = 0; k < how->n_best; k++, texts += of->width * MAX_WRITTEN_BYTES) {
        int is_complete = k < one->complete.count;
        uint32_t at = is_complete ? k : k - one->complete.count;
        const hypothesis *best = (is_complete ? &one->complete : &one->incomplete)->best + at;
        answers[k] = (NAME_answer){one->is_empty && !k ? "" : NULL, 0, 0, 0, one->is_empty && !k};
        if (one->is_empty || (!is_complete && at >= one->incomplete.count)) continue;
        size_t size = write_symbols(model, one->found[!is_complete] + best->slot * of->width, best->length, texts);
        answers[k] = (NAME_answer){(const char *)texts, size, best->score, best->total, best->is_complete};
    }
}

int NAME_transduce(const NAME_model *model, NAME_session *session, const NAME_text *texts, size_t count,
                   const NAME_search *search, NAME_answer *answers) {
    NAME_search how = search ? *search : NAME_usual();
    if (!model || !session || (count && (!texts || !answers)) || !is_possible(&how)) return NAME_ARGUMENT;
    if (session->checksum != CHECKSUM || !NAME_session_size(session->bytes, session->tokens)) return NAME_BAD_STATE;
    parts of = lay_out_arrays(session, session->bytes, session->tokens);
    size_t bytes = 0, at = 0, keys = 0;
    uint32_t group = 0;
    int code = NAME_OK;
    for (; group < count && group < ROWS && (group + 1) * how.beams <= NAME_ROWS; group++, texts += NAME_TEXTS) {
        for (int k = 0; k < NAME_TEXTS && !code; bytes += texts[k++].size) {
            if (!texts[k].bytes && texts[k].size) code = NAME_ARGUMENT;
            else if (texts[k].size > session->bytes - bytes) code = NAME_TOO_LONG;
        }
        if (code) break;
        source *one = session->sources + group;
        one->begin = at, one->keys = keys, one->count = read_source(model, session, &of, texts, at, &one->is_empty);
        double max = ceil((double)one->count * RATIO) + MORE_TOKENS + how.min_tokens;
        one->limit = max < how.max_tokens ? (uint32_t)max : how.max_tokens;
        if (!one->count || one->count > MAX_READ || one->limit > session->tokens) code = NAME_TOO_LONG;
        if (code) break;
        at += one->count, keys += padded(one->count);
    }
    if (!group) return code;
    int64_t stride;
    const real *x = read_layers(model, session, &of, group, &stride);
#if ATTENTION
    store_encoded(model, &of, x, stride, session->sources, group);
#endif
    begin_cells(model, &of, x, stride, session->sources, group);
    code = search_all(model, session, &of, group, &how);
    for (uint32_t k = 0; !code && k < group; k++)
        write_answers(model, &of, session->sources + k, &how, of.texts + k * how.n_best * of.width * MAX_WRITTEN_BYTES,
                      answers + k * how.n_best);
    return code ? code : (int)group;
}
