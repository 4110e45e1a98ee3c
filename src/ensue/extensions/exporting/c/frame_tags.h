/* The tagger of frames. */
struct answers {
    uint32_t *labels;
    double *probabilities; /* or NULL */
};

/* The memory that the head needs. */
typedef struct {
    double *marginals, *work;
    real *emissions, *best;
    uint32_t *path;
} tag_room;

static uint64_t lay_out_tags(tag_room *of, char *memory, size_t frames) {
    uint64_t at = 0;
    PLACE(marginals, frames * (uint64_t)TAGS);
    PLACE(work, HAS_CHAIN ? TAGS * (3 + TAGS) : 0);
    PLACE(emissions, frames * (uint64_t)TAGS);
    PLACE(best, HAS_CHAIN ? frames * (uint64_t)TAGS : 0);
    PLACE(path, frames);
    return at;
}

static uint64_t head_size(size_t frames) {
    tag_room of;
    return lay_out_tags(&of, NULL, frames);
}

static int answer(const NAME_model *model, const call_room *all, const batch *texts, const place *places, const real *h,
                  int64_t stride, const answers *to) {
    tag_room of;
    lay_out_tags(&of, all->head, (size_t)texts->words);
    int code = compute_emissions(model, texts->words, h, stride, all->hoisted, of.emissions);
    for (int64_t r = 0; !code && r < texts->count; r++) {
        real *scores = of.emissions + texts->starts[r] * TAGS;
        int64_t length = texts->lengths[r];
        uint32_t *labels = to->labels + places[r].before;
        best_path(model, scores, length, of.best, of.path);
        decode_labels(of.path, length, labels);
        if (!to->probabilities) continue;
        compute_marginals(model, scores, length, of.marginals, of.work);
        for (int64_t t = 0; t < length; t++)
            to->probabilities[places[r].before + (size_t)t] = sum_label_probability(labels[t], of.marginals + t * TAGS);
    }
    return code;
}

int NAME_tag(const NAME_model *model, void *memory, size_t frames, const NAME_series *series, size_t count,
             uint32_t *labels, double *probabilities) {
    answers to = {labels, probabilities};
    if (!labels && count) return NAME_ARGUMENT;
    return read_series(model, memory, frames, series, count, &to);
}

const char *NAME_label(const NAME_model *model, uint32_t label) {
    if (!model || label >= NAME_LABELS) return NULL;
    return (const char *)words32(model, AT_LABELS) + words32(model, AT_LABEL_STARTS)[label];
}
