/* Parses the options; returns the index of the first file argument, or 0 for invalid options. */
static int parse_options(int argc, char **argv, double *probabilities) {
    *probabilities = argc > 1 && !strcmp(argv[1], "--probabilities");
    return *probabilities > 0 ? 2 : argc < 2 || *argv[1] != '-';
}

static int answer(const NAME_model *model, waiting *of) {
    int code = grow(&of->results, &of->results_for, of->frames, sizeof(double) + sizeof(uint32_t));
    double *scores = of->results;
    uint32_t *labels = (uint32_t *)(void *)(scores + of->frames);
    if (!code) code = NAME_tag(model, of->memory, of->memory_for, of->series, of->count, labels, of->option > 0 ? scores : NULL);
    for (size_t n = 0; !code && n < of->count; labels += of->series[n].count, scores += of->series[n].count, n++) {
        printf("%s\t", of->names[n]);
        for (size_t t = 0; t < of->series[n].count; t++) printf(t ? " %s" : "%s", NAME_label(model, labels[t]));
        for (size_t t = 0; of->option > 0 && t < of->series[n].count; t++) printf(t ? " %.6f" : "\t%.6f", scores[t]);
        putchar('\n');
    }
    return code;
}
