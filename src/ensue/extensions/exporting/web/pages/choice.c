/* The predicted labels of a classifier. */
/* Whether the model is multi-label. */
EXPORTED(is_multiple) int pageIsMultiple(void) { return IS_MULTIPLE; }

/* The output for a text or a series: its number of words or frames, its labels, and the probabilities of all labels. */
typedef struct {
    int32_t num_parts, num_labels;
    uint32_t labels[NAME_LABELS];
    float probabilities[NAME_LABELS];
} page_output;

_Static_assert(sizeof(page_output) == 8 + 8 * NAME_LABELS, "as choice.js reads it");
