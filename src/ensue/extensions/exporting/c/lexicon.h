/* Hash tables from symbols to ids; the id of unknown symbols is 0. A bucket has the size, the id and the bytes of each
 * symbol; sizes and ids are variable-length numbers of seven bits per byte, the lowest bits first. */
typedef struct {
    size_t starts, symbols; /* offsets of the buckets and of their starts */
    uint32_t mask, size;
} vocabulary;

static uint32_t hash_symbol(const void *bytes, size_t size) {
    uint32_t hash = 2166136261u;
    for (size_t k = 0; k < size; k++) hash = (hash ^ ((const uint8_t *)bytes)[k]) * 16777619u;
    return hash ^ hash >> 15;
}

INLINE uint32_t read_varint(const uint8_t **at) {
    uint32_t found = *(*at)++;
    if (found < 128) return found;
    found &= 127;
    for (int shift = 7;; shift += 7) {
        uint32_t next = *(*at)++;
        found |= (next & 127) << shift;
        if (next < 128) return found;
    }
}

UNUSED static uint32_t find_id(const NAME_model *model, const vocabulary *of, const uint8_t *bytes, size_t size) {
    const uint32_t *starts = words32(model, of->starts) + (hash_symbol(bytes, size) & of->mask);
    const uint8_t *symbols = (const uint8_t *)words32(model, of->symbols), *end = symbols + starts[1];
    for (const uint8_t *at = symbols + starts[0]; at < end;) {
        uint32_t length = read_varint(&at), id = read_varint(&at);
        if (length == size && !memcmp(at, bytes, size)) return id;
        at += length;
    }
    return 0;
}
