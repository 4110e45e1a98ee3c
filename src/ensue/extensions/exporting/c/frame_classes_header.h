/* Writes NAME_LABELS probabilities for each of `count` series. `memory` is for series of up to `frames` frames. */
int NAME_classify(const NAME_model *model, void *memory, size_t frames, const NAME_series *series, size_t count,
                  float *probabilities);

/* Writes the ids of the predicted labels for these probabilities, the most probable first, and returns their number.
 * Labels with a probability below `at_least` are left out. */
int NAME_choose(const NAME_model *model, const float probabilities[NAME_LABELS], double at_least,
                uint32_t labels[NAME_LABELS]);
