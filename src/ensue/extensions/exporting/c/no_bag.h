/* The model has no n-grams. */
static void read_keys(const NAME_model *model, const uint32_t *points, const span *words, size_t count, int64_t *keys) {
    (void)model, (void)points, (void)words, (void)count, (void)keys;
}

static void add_bag(const NAME_model *model, const int64_t *keys, const size_t *counts, uint64_t *sums, uint32_t *rows,
                    double *scores) {
    (void)model, (void)keys, (void)counts, (void)sums, (void)rows, (void)scores;
}
