/* The key of a word in the hash of n-grams: its id for a known word; a negative hash of its spelling for others. */
/* Updates a CRC-32 with a byte. */
static uint32_t crc_of(uint32_t sum, uint8_t byte) {
    static const uint32_t TABLE[16] = {
        0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
        0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C,
    };
    sum = sum >> 4 ^ TABLE[(sum ^ byte) & 15];
    return sum >> 4 ^ TABLE[(sum ^ (uint32_t)byte >> 4) & 15];
}

static int64_t key_of(const NAME_model *model, const uint32_t *word, uint32_t count) {
    uint8_t bytes[MAX_WORD_BYTES + 4], spelled[4];
    size_t size = 0; /* MAX_WORD_BYTES + 1 for a word that is longer than all known words */
    uint32_t sum = UINT32_MAX, points[MAX_LOWER_POINTS];
    for (uint32_t k = 0; k < count; k++) {
        uint32_t found = 1;
        if (LOWERCASE) found = lower_at(word, count, k, points);
        else points[0] = word[k];
        for (uint32_t c = 0; c < found; c++) {
            uint32_t point = FOLD_DIGITS && set_has(SET_DIGITS, points[c]) ? 0x30u : points[c];
            size_t length = (size_t)utf8_write(point, spelled);
            for (size_t b = 0; IS_PAIR && b < length; b++) sum = crc_of(sum, spelled[b]);
            if (size + length > MAX_WORD_BYTES) size = MAX_WORD_BYTES + 1;
            else memcpy(bytes + size, spelled, length), size += length;
        }
    }
    uint32_t id = size > MAX_WORD_BYTES ? 0 : number_of(model, &KNOWN_WORD, bytes, size);
    return id ? (int64_t)id : -1 - (int64_t)~sum;
}

static void read_keys(const NAME_model *model, const uint32_t *points, const span *words, size_t count, int64_t *keys) {
    for (size_t k = 0; k < count; k++) keys[k] = key_of(model, points + words[k].begin, words[k].end - words[k].begin);
}
