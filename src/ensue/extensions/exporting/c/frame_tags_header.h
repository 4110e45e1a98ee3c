/* Writes the label of each frame of `count` series, concatenated, and its probability unless `probabilities` is NULL.
 * `memory` is for series of up to `frames` frames. */
int NAME_tag(const NAME_model *model, void *memory, size_t frames, const NAME_series *series, size_t count,
             uint32_t *labels, double *probabilities);
