/* The layers on series of frames. WINDOW series are sorted by length, and divided into batches. */
enum { WINDOW = 128 };

/* A series: its index, the number of frames of earlier series, and its length. */
typedef struct {
    size_t number, before;
    int64_t length;
} place;

/* The memory of a call; the memory of the head comes last. */
typedef struct {
    step_room *step;
    double *wave;
    real *x, *hoisted, *outputs[2];
    char *head;
} call_room;

/* The output of a call, which the head defines. */
typedef struct answers answers;
static uint64_t head_size(size_t frames);
static int answer(const NAME_model *model, const call_room *of, const batch *texts, const place *places, const real *h,
                  int64_t stride, const answers *to);

/* Places an array of `of` after its other arrays. */
#define PLACE(part, count) \
    (of->part = memory ? (void *)(memory + at) : NULL, at += ((uint64_t)(count) * sizeof *of->part + 63) / 64 * 64)

/* Assigns the arrays to `memory` and returns their size in bytes; NULL: only returns the size. */
static uint64_t lay_out(call_room *of, char *memory, size_t frames) {
    uint64_t at = 0;
    PLACE(step, 1);
    PLACE(wave, D_WAVE);
    PLACE(x, frames * (uint64_t)D_FRAME);
    PLACE(hoisted, frames * (uint64_t)MAX_HOISTED);
    PLACE(outputs[0], frames * (uint64_t)MAX_LAYER);
    PLACE(outputs[1], NUM_LAYERS > 1 ? frames * (uint64_t)MAX_LAYER : 0);
    PLACE(head, head_size(frames));
    return at;
}

size_t NAME_memory(size_t frames) {
    call_room of;
    uint64_t size = frames && frames <= MAX_FRAMES ? lay_out(&of, NULL, frames) : 0;
    return (size_t)size == size ? (size_t)size : 0; /* 0 if it exceeds a size_t of 32 bits */
}

/* Computes (x - mean) / deviation of each feature, and 0 for missing values. */
static int normalize(const NAME_model *model, const float *frames, size_t count, real *to) {
    const real *mean = reals(model, AT_MEAN), *deviation = reals(model, AT_DEVIATION);
    for (size_t t = 0; t < count; t++)
        for (int j = 0; j < D_FRAME; j++, frames++, to++) {
            int is_missing = *frames != *frames;
            if (is_missing ? !READS_MISSING : !(fabsf(*frames) < INFINITY)) return NAME_NOT_FINITE;
            real x = (*frames - mean[j]) / deviation[j];
            *to = is_missing ? 0 : x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
        }
    return NAME_OK;
}

static int read_batch(const NAME_model *model, const call_room *of, const NAME_series *series, const batch *texts,
                      const place *places, const answers *to) {
    for (int64_t r = 0; r < texts->count; r++) {
        const NAME_series *one = series + places[r].number;
        int code = normalize(model, one->frames, one->count, of->x + texts->starts[r] * D_FRAME);
        if (code) return code;
    }
    const real *x = of->x;
    int64_t stride = D_FRAME;
    for (int k = 0; k < NUM_LAYERS; k++) {
        real *y = of->outputs[k % 2];
        run_layer(model, LAYERS + k, texts, x, stride, NULL, of->hoisted, of->step, y);
        x = y, stride = LAYERS[k].directions * LAYERS[k].rightward.d_out;
    }
    return answer(model, of, texts, places, x, stride, to);
}

/* Reads the next series sorted by length, the longest first, and returns their number. */
static int next_series(const NAME_series *series, size_t count, place *next, place *to) {
    int found = 0;
    for (; found < WINDOW && next->number < count; found++) {
        int at = found;
        next->length = (int64_t)series[next->number].count;
        for (; at && to[at - 1].length < next->length; at--) to[at] = to[at - 1];
        to[at] = *next;
        next->before += series[next->number++].count;
    }
    return found;
}

/* Computes the outputs of all series, with memory for `frames` frames. */
static int read_series(const NAME_model *model, void *memory, size_t frames, const NAME_series *series, size_t count,
                       const answers *to) {
    if (!model || !memory || !NAME_memory(frames) || (!series && count)) return NAME_ARGUMENT;
    for (size_t k = 0; k < count; k++) {
        if (!series[k].frames || !series[k].count) return NAME_ARGUMENT;
        if (series[k].count > frames) return NAME_TOO_LONG;
    }
    call_room of;
    lay_out(&of, memory, frames);
    place next = {0, 0, 0}, window[WINDOW];
    for (int found; (found = next_series(series, count, &next, window));)
        for (int k = 0; k < found;) {
            batch texts = {0};
            const place *first = window + k;
            for (; k < found && texts.count < ROWS && (size_t)(texts.words + window[k].length) <= frames; k++) {
                texts.starts[texts.count] = texts.words, texts.lengths[texts.count++] = window[k].length;
                texts.words += window[k].length;
            }
            int code = read_batch(model, &of, series, &texts, first, to);
            if (code) return code;
        }
    return NAME_OK;
}
