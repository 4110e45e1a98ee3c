/* The model has n-grams only. */
enum { WORD_COST = 0 };

static size_t layers_room(size_t words) { return words * WORD_COST; }

static void read_layers(const NAME_model *model, char *memory, const char *text, const uint32_t *places,
                        const span *words, size_t count, int number) {
    (void)model, (void)memory, (void)text, (void)places, (void)words, (void)count, (void)number;
}

static void add_layers(const NAME_model *model, char *memory, double *scores) { (void)model, (void)memory, (void)scores; }
