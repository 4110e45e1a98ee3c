/* The file of weights: little-endian 32-bit numbers, with a checksum of LANES parallel sums. */
struct NAME_model {
    const uint32_t *weights;
    void *allocated;
};

static const uint32_t *words32(const NAME_model *model, size_t offset) { return model->weights + offset; }

static const real *reals(const NAME_model *model, size_t offset) {
    return (const real *)(const void *)(model->weights + offset);
}

enum { LANES = 64 };

static uint64_t checksum(const uint32_t *x, size_t count) {
    uint64_t sums[LANES], found = count;
    for (int k = 0; k < LANES; k++) sums[k] = 0;
    for (size_t i = 0; i < count; i += LANES)
        for (int k = 0; k < LANES; k++) sums[k] = (sums[k] ^ x[i + (size_t)k]) * 0x9E3779B97F4A7C15u + (sums[k] >> 29);
    for (int k = 0; k < LANES; k++) found = (found ^ sums[k]) * 0x9E3779B97F4A7C15u + (found >> 29);
    return found;
}

int NAME_open(NAME_model **model, const char *path) {
    if (!model) return NAME_ARGUMENT;
    *model = NULL;
    NAME_model *opened = malloc(sizeof *opened);
    if (!opened) return NAME_MEMORY;
    opened->allocated = NULL;
#if IS_EMBEDDED
    (void)path;
    opened->weights = EMBEDDED;
#else
    int code = NAME_OK;
    FILE *file = path ? fopen(path, "rb") : NULL;
    uint32_t *read = NULL;
    if (!path || !file) code = path ? NAME_NO_FILE : NAME_ARGUMENT;
    if (!code) {
        opened->allocated = malloc(WORDS * sizeof *read + 64);
        if (!opened->allocated) code = NAME_MEMORY;
    }
    if (!code) {
        read = (uint32_t *)(((uintptr_t)opened->allocated + 63) & ~(uintptr_t)63);
        if (fread(read, sizeof *read, WORDS, file) != WORDS || fgetc(file) != EOF)
            code = ferror(file) ? NAME_NO_FILE : NAME_DAMAGED;
    }
    if (file) fclose(file);
    if (code) {
        free(opened->allocated);
        free(opened);
        return code;
    }
    opened->weights = read;
#endif
    if (checksum(opened->weights, WORDS) != CHECKSUM) {
        NAME_close(opened);
        return NAME_DAMAGED;
    }
    *model = opened;
    return NAME_OK;
}

void NAME_close(NAME_model *model) {
    if (model) free(model->allocated);
    free(model);
}

const char *NAME_message(int code) {
    switch (code) {
        case NAME_NO_FILE: return "the file of weights cannot be read";
        case NAME_DAMAGED: return "the weights are damaged, or belong to another model";
        case NAME_MEMORY: return "not enough memory";
        case NAME_ARGUMENT: return "an argument is out of range";
        case NAME_BAD_STATE: return "the bytes are not a state of this model";
        case NAME_NUMBERS: return "the scores are not finite";
        case NAME_TOO_LONG: return "a text is too long for the memory of the call, or for the model";
#ifdef MORE_MESSAGES
        MORE_MESSAGES
#endif
    }
    return code < 0 ? "an unknown error" : "no error";
}
