/* Vocabularies: a table of numbers of symbols by their hashes, with gaps. 0 is what is unknown. */
typedef struct {
    size_t slots, starts, texts;
    uint32_t mask;
} vocabulary;

static uint32_t hash_of(const void *bytes, size_t size) {
    uint32_t hash = 2166136261u;
    for (size_t k = 0; k < size; k++) hash = (hash ^ ((const uint8_t *)bytes)[k]) * 16777619u;
    return hash ^ hash >> 15;
}

UNUSED static uint32_t number_of(const NAME_model *model, const vocabulary *of, const uint8_t *bytes, size_t size) {
    const uint32_t *slots = words32(model, of->slots), *starts = words32(model, of->starts);
    const uint8_t *texts = (const uint8_t *)words32(model, of->texts);
    for (uint32_t at = hash_of(bytes, size) & of->mask; slots[at]; at = (at + 1) & of->mask) {
        uint32_t id = slots[at] - 1;
        if (starts[id + 1] - starts[id] == size && !memcmp(texts + starts[id], bytes, size)) return id;
    }
    return 0;
}
