/* Writes the label of each frame of `count` series, those of one series behind those of the other, and where
 * `probabilities` is not NULL, how probable it is. `memory` is for series of up to so many `frames`. */
int NAME_tag(const NAME_model *model, void *memory, size_t frames, const NAME_series *series, size_t count,
             uint32_t *labels, double *probabilities);
