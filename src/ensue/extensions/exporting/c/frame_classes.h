/* The classifier of series. */
struct answers {
    float *probabilities;
};

typedef struct {
    head_room scoring;
    double scores[NAME_LABELS];
    real pooled[D_POOLED];
} series_room;

static uint64_t head_size(size_t frames) { return (void)frames, sizeof(series_room); }

static int answer(const NAME_model *model, const call_room *of, const batch *texts, const place *places, const real *h,
                  int64_t stride, const answers *to) {
    series_room *one = (void *)of->head;
    for (int64_t r = 0; r < texts->count; r++) {
        memset(one->scores, 0, sizeof one->scores);
        pool_all(model, h + texts->starts[r] * stride, stride, texts->lengths[r], &one->scoring, one->pooled);
        add_scores(model, one->pooled, D_POOLED, &one->scoring, one->scores);
        int code = compute_probabilities(one->scores, to->probabilities + places[r].number * NAME_LABELS);
        if (code) return code;
    }
    return NAME_OK;
}

int NAME_classify(const NAME_model *model, void *memory, size_t frames, const NAME_series *series, size_t count,
                  float *probabilities) {
    answers to = {probabilities};
    if (!probabilities && count) return NAME_ARGUMENT;
    return read_series(model, memory, frames, series, count, &to);
}
