/* The functions of a classifier. The struct of a text has the same layout in JavaScript. */
_Static_assert(offsetof(NAME_text, size) == 4 && sizeof(NAME_text) == 8, "as memory.js writes them");
_Static_assert(NAME_TOO_LONG == -7, "as classes.js has it");

/* The number of texts per input: 2 for a model of pairs, otherwise 1. */
EXPORTED(texts) int pageTexts(void) { return NAME_TEXTS; }

EXPORTED(work_size) size_t pageWorkSize(size_t bytes) { return NAME_memory(bytes); }

/* Classifies inputs until one fails, and returns the number of classified inputs; an error code if the first fails. */
EXPORTED(classify) int pageClassify(void *work, size_t size, const NAME_text *texts, int count, double at_least, page_output *to) {
    for (int k = 0; k < count; k++, texts += NAME_TEXTS, to++) {
        to->num_parts = NAME_classify(&model, work, size, texts, to->probabilities);
        if (to->num_parts < 0) return k ? k : to->num_parts;
        to->num_labels = NAME_choose(&model, to->probabilities, at_least, to->labels);
    }
    return count;
}
