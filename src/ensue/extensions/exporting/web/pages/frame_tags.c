/* The function of a tagger of frames. */
EXPORTED(tag)
int pageTag(void *work, size_t frames, const NAME_series *series, size_t count, uint32_t *labels, double *probabilities) {
    return NAME_tag(&model, work, frames, series, count, labels, probabilities);
}
