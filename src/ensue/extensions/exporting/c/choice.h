/* The labels of a classifier: their names, their probabilities, and the choice of the predicted labels. */
const char *NAME_label(const NAME_model *model, uint32_t label) {
    if (!model || label >= NAME_LABELS) return NULL;
    return (const char *)words32(model, AT_LABELS) + words32(model, AT_LABEL_STARTS)[label];
}

/* Computes probabilities from scores; overwrites the scores. */
static int compute_probabilities(double *scores, float *probabilities) {
    double max = -INFINITY, sum = 0;
    for (int k = 0; k < NAME_LABELS; k++) {
        scores[k] /= TEMPERATURE;
        if (!(fabs(scores[k]) < INFINITY)) return NAME_NUMBERS;
        max = scores[k] > max ? scores[k] : max;
    }
    for (int k = 0; k < NAME_LABELS; k++) sum += exp_64(scores[k] - max);
    for (int k = 0; k < NAME_LABELS; k++)
        probabilities[k] = (float)(IS_MULTIPLE ? 1 / (1 + exp_64(-scores[k])) : exp_64(scores[k] - max) / sum);
    return NAME_OK;
}

int NAME_choose(const NAME_model *model, const float probabilities[NAME_LABELS], double at_least,
                uint32_t labels[NAME_LABELS]) {
    if (!model || !probabilities || !labels) return NAME_ARGUMENT;
    float min = (float)(IS_MULTIPLE && at_least < THRESHOLD ? THRESHOLD : at_least);
    int count = 0;
    for (uint32_t k = 0; k < NAME_LABELS; k++) {
        if (!(probabilities[k] >= min)) continue;
        int place = count;
        if (!IS_MULTIPLE) place = count && !(probabilities[k] > probabilities[labels[0]]) ? -1 : 0, count = 1;
        else count++;
        if (IS_MULTIPLE)
            for (; place && probabilities[labels[place - 1]] < probabilities[k]; place--) labels[place] = labels[place - 1];
        if (place >= 0) labels[place] = k;
    }
    return count;
}
