/* The predicted labels of a classifier. */
/* Whether the model is multi-label. */
EXPORTED(is_multiple) int pageIsMultiple(void) { return IS_MULTIPLE; }

/* The output of a text or a series: its number of words or frames, its labels, and all probabilities. */
typedef struct {
    int32_t read, given;
    uint32_t labels[NAME_LABELS];
    float probabilities[NAME_LABELS];
} said;

_Static_assert(sizeof(said) == 8 + 8 * NAME_LABELS, "as choice.js reads it");
