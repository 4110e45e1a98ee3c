/* The functions of a classifier. The struct of a text has the same layout in JavaScript. */
_Static_assert(offsetof(NAME_text, size) == 4 && sizeof(NAME_text) == 8, "as memory.js writes them");
_Static_assert(NAME_TOO_LONG == -7, "as classes.js has it");

/* The number of texts per input: 1, or 2 of a model of pairs. */
EXPORTED(texts) int pageTexts(void) { return NAME_TEXTS; }

EXPORTED(work_size) size_t pageWorkSize(size_t bytes) { return NAME_memory(bytes); }

/* Classifies the first of `count` inputs and returns their number: up to an input that needs more memory. Returns an
 * error code if that is the first one. */
EXPORTED(classify) int pageClassify(void *work, size_t size, const NAME_text *texts, int count, double at_least, said *to) {
    for (int k = 0; k < count; k++, texts += NAME_TEXTS, to++) {
        to->read = NAME_classify(&model, work, size, texts, to->probabilities);
        if (to->read < 0) return k ? k : to->read;
        to->given = NAME_choose(&model, to->probabilities, at_least, to->labels);
    }
    return count;
}
