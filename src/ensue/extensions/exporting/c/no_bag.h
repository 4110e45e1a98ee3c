/* The model has no n-grams. */
static size_t read_keys(const NAME_model *model, const uint32_t *points, const span *words, size_t count, int64_t *keys,
                        uint32_t *spelled) {
    return (void)model, (void)points, (void)words, (void)count, (void)keys, (void)spelled, 0;
}

static void add_bag(const NAME_model *model, const int64_t *keys, const size_t *counts, uint64_t *sums, uint32_t *rows,
                    uint32_t *spelled, const size_t *spelled_counts, double *scores) {
    (void)model, (void)keys, (void)counts, (void)sums, (void)rows, (void)spelled, (void)spelled_counts, (void)scores;
}
