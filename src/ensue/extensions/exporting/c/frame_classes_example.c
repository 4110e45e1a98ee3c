/* Parses the options; returns the index of the first file argument, or 0 for invalid options. */
static int parse_options(int argc, char **argv, double *at_least) {
    *at_least = 0;
    if (argc < 2 || *argv[1] != '-') return 1;
    char *end = NULL;
    if (argc > 2 && !strcmp(argv[1], "--at-least")) *at_least = strtod(argv[2], &end);
    return end && end != argv[2] && !*end && *at_least >= 0 && *at_least <= 1 ? 3 : 0;
}

static int answer(const NAME_model *model, waiting *of) {
    int code = grow(&of->results, &of->results_for, of->count, NAME_LABELS * sizeof(float));
    float *probabilities = of->results;
    if (!code) code = NAME_classify(model, of->memory, of->memory_for, of->series, of->count, probabilities);
    for (size_t n = 0; !code && n < of->count; n++, probabilities += NAME_LABELS) {
        uint32_t labels[NAME_LABELS];
        int count = NAME_choose(model, probabilities, of->option, labels);
        float max = 0;
        for (int k = 0; k < NAME_LABELS; k++) max = probabilities[k] > max ? probabilities[k] : max;
        printf("%s\t", of->names[n]);
        for (int k = 0; k < count; k++) printf(k ? " %s" : "%s", NAME_label(model, labels[k]));
        printf(count ? "\t%.4f\n" : "-\t%.4f\n", (double)(count ? probabilities[labels[0]] : max));
    }
    return code;
}
