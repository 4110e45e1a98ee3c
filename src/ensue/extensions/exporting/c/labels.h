/* Labels from tags, in the scheme of the training data. Spans are read as by conlleval, also from invalid tag
 * sequences. Label 0 is O; for each class, the labels with the letters of the scheme follow. */
enum { OUTSIDE, BEGINS, INSIDE, ENDS, SINGLE };

#if HAS_SPANS
static int continues(uint32_t before, uint32_t here) {
    return (KINDS[before] == BEGINS || KINDS[before] == INSIDE) && (KINDS[here] == INSIDE || KINDS[here] == ENDS) &&
           CLASSES[before] == CLASSES[here];
}

static uint32_t label_id(uint32_t tag, int letter) { return 1 + CLASSES[tag] * LETTERS + (uint32_t)letter; }

static void decode_labels(const uint32_t *path, int64_t words, uint32_t *labels) {
    int64_t last = -1; /* the end of the previous span */
    for (int64_t start = 0, end; start < words; start = end) {
        for (end = start + 1; end < words && continues(path[end - 1], path[end]);) end++;
        uint32_t tag = path[start];
        labels[start] = 0;
        if (KINDS[tag] == OUTSIDE) continue; /* the word is outside of spans */
        labels[start] = label_id(tag, end - start == 1 ? SINGLE_LETTER : FIRST_LETTER);
        for (int64_t t = start + 1; t < end; t++)
            labels[t] = label_id(tag, t == end - 1 ? LAST_LETTER : INSIDE_LETTER);
        int touches = last == start && start && CLASSES[path[start - 1]] == CLASSES[tag];
        int is_touched = end < words && KINDS[path[end]] != OUTSIDE && CLASSES[path[end]] == CLASSES[tag];
        if (AFTER_LETTER >= 0 && touches) labels[start] = label_id(tag, AFTER_LETTER);
        if (BEFORE_LETTER >= 0 && is_touched) labels[end - 1] = label_id(tag, BEFORE_LETTER);
        last = end;
    }
}
#else
static void decode_labels(const uint32_t *path, int64_t words, uint32_t *labels) {
    memcpy(labels, path, (size_t)words * sizeof *path);
}
#endif

static double sum_label_probability(uint32_t label, const double *marginals) {
    double sum = 0;
    for (int k = 0; k < TAGS; k++)
        if (TAG_GROUPS[k] == LABEL_GROUPS[label]) sum += marginals[k];
    return sum;
}
