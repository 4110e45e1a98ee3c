/* Updates a CRC-32 with a byte. */
static uint32_t update_crc(uint32_t sum, uint8_t byte) {
    static const uint32_t TABLE[16] = {
        0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
        0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C,
    };
    sum = sum >> 4 ^ TABLE[(sum ^ byte) & 15];
    return sum >> 4 ^ TABLE[(sum ^ (uint32_t)byte >> 4) & 15];
}

/* Writes the characters of character `k` in the vocabulary's form, in lower case or a folded digit; returns their number. */
static uint32_t normalize_character(const uint32_t *word, uint32_t count, uint32_t k, uint32_t *points) {
    uint32_t found = 1;
    if (LOWERCASE) found = lower_at(word, count, k, points);
    else points[0] = word[k];
    for (uint32_t c = 0; FOLD_DIGITS && c < found; c++)
        if (set_has(SET_DIGITS, points[c])) points[c] = 0x30;
    return found;
}

/* The key of a word in the hash of n-grams: its id for a known word; a negative hash of its spelling for others. */
static int64_t compute_key(const NAME_model *model, const uint32_t *word, uint32_t count) {
    uint8_t bytes[MAX_WORD_BYTES + 4], spelled[4];
    size_t size = 0; /* MAX_WORD_BYTES + 1 for a word that is longer than all known words */
    uint32_t sum = UINT32_MAX, points[MAX_LOWER_POINTS];
    for (uint32_t k = 0; k < count; k++) {
        uint32_t found = normalize_character(word, count, k, points);
        for (uint32_t c = 0; c < found; c++) {
            size_t length = (size_t)utf8_write(points[c], spelled);
            for (size_t b = 0; IS_PAIR && b < length; b++) sum = update_crc(sum, spelled[b]);
            if (size + length > MAX_WORD_BYTES) size = MAX_WORD_BYTES + 1;
            else memcpy(bytes + size, spelled, length), size += length;
        }
    }
    uint32_t id = size > MAX_WORD_BYTES ? 0 : find_id(model, &KNOWN_WORD, bytes, size);
    return id ? (int64_t)id : -1 - (int64_t)~sum;
}

/* Writes the hashes of the n-grams of the characters of a word between < and >; returns their number. The middle of a
 * long word is left out. */
static size_t hash_ngrams(const uint32_t *word, uint32_t count, uint32_t *hashes) {
    uint8_t bytes[4 * NGRAM_LETTERS + 2] = {'<'};
    size_t ends[NGRAM_LETTERS + 2] = {1}, letters = 1, size = 1, found = 0;
    uint32_t points[MAX_LOWER_POINTS], total = 0, at = 0;
    for (uint32_t k = 0; k < count; k++) total += normalize_character(word, count, k, points);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t written = normalize_character(word, count, k, points);
        for (uint32_t c = 0; c < written; c++, at++) {
            if (total > NGRAM_LETTERS && at >= NGRAM_LETTERS / 2 && at < total - NGRAM_LETTERS / 2) continue;
            size += (size_t)utf8_write(points[c], bytes + size);
            ends[letters++] = size;
        }
    }
    bytes[size++] = '>', ends[letters++] = size;
    for (size_t k = 0; k < letters; k++) {
        uint32_t hash = 2166136261u;
        size_t byte = k ? ends[k - 1] : 0;
        for (size_t n = 1; n <= CHARACTER_NGRAMS && k + n <= letters; n++) {
            for (; byte < ends[k + n - 1]; byte++) hash = (hash ^ (uint32_t)(int32_t)(int8_t)bytes[byte]) * 16777619u;
            if (n >= MIN_NGRAM_LETTERS) hashes[found++] = hash;
        }
    }
    return found;
}

/* Writes the keys of words, and the hashes of their n-grams of characters; returns the number of hashes. */
static size_t read_keys(const NAME_model *model, const uint32_t *points, const span *words, size_t count, int64_t *keys,
                        uint32_t *spelled) {
    size_t found = 0;
    for (size_t k = 0; k < count; k++) {
        const uint32_t *word = points + words[k].begin;
        uint32_t length = words[k].end - words[k].begin;
        keys[k] = compute_key(model, word, length);
        if (CHARACTER_NGRAMS) found += hash_ngrams(word, length, spelled + found);
    }
    return found;
}
