/* The function of a classifier of series. `to` needs room for all probabilities twice. */
EXPORTED(classify)
int pageClassify(void *work, size_t frames, const NAME_series *series, size_t count, double at_least, page_output *to) {
    float *all = (float *)(to + count);
    int code = NAME_classify(&model, work, frames, series, count, all);
    for (size_t k = 0; !code && k < count; k++, to++, all += NAME_LABELS) {
        memcpy(to->probabilities, all, sizeof to->probabilities);
        to->num_parts = (int32_t)series[k].count;
        to->num_labels = NAME_choose(&model, all, at_least, to->labels);
    }
    return code;
}
