/* Writes NAME_LABELS probabilities for each of `count` series. `memory` is for series of up to so many `frames`. */
int NAME_classify(const NAME_model *model, void *memory, size_t frames, const NAME_series *series, size_t count,
                  float *probabilities);

/* Writes the numbers of the labels that a series with these probabilities has, the most probable first, and returns how
 * many. No label is given whose probability is below `at_least`. */
int NAME_choose(const NAME_model *model, const float probabilities[NAME_LABELS], double at_least,
                uint32_t labels[NAME_LABELS]);
