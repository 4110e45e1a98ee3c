/* The labels that a classifier gives. */
/* Whether several labels may be given. */
EXPORTED(is_multiple) int pageIsMultiple(void) { return IS_MULTIPLE; }

/* What is said: how many words or frames were read, and the labels that are given, with the probabilities of all. */
typedef struct {
    int32_t read, given;
    uint32_t labels[NAME_LABELS];
    float probabilities[NAME_LABELS];
} said;

_Static_assert(sizeof(said) == 8 + 8 * NAME_LABELS, "as choice.js reads it");
