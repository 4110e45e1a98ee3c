/* The functions of a classifier. A page has the places of a text as they are here. */
_Static_assert(offsetof(NAME_text, bytes) == 0 && offsetof(NAME_text, size) == 4, "as classes.js writes them");
_Static_assert(sizeof(NAME_text) == 8 && NAME_TOO_LONG == -7, "as classes.js has them");

EXPORTED(labels) int pageLabels(void) { return NAME_LABELS; }

EXPORTED(label_name) const char *pageLabelName(uint32_t id) { return NAME_label(&model, id); }

/* How many texts are read together: 1, or 2 of a model of pairs. */
EXPORTED(texts) int pageTexts(void) { return NAME_TEXTS; }

/* Whether a text may have several labels. */
EXPORTED(is_multiple) int pageIsMultiple(void) { return IS_MULTIPLE; }

EXPORTED(work_size) size_t pageWorkSize(size_t bytes) { return NAME_memory(bytes); }

EXPORTED(classify) int pageClassify(void *work, size_t size, const NAME_text *texts, float *probabilities) {
    return NAME_classify(&model, work, size, texts, probabilities);
}

EXPORTED(choose) int pageChoose(const float *probabilities, double at_least, uint32_t *labels) {
    return NAME_choose(&model, probabilities, at_least, labels);
}
