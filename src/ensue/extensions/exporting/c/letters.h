/* Reads the vectors of a word's characters, or of a long word's first and last characters; returns their number. */
static int read_letters(const NAME_model *model, const form *of, real *to) {
    int count = of->count < MAX_CHARACTERS ? of->count : MAX_CHARACTERS;
    for (int k = 0; k < count; k++, to += D_CHARACTER) {
        uint8_t bytes[4];
        int from_end = of->count > MAX_CHARACTERS && k >= MAX_CHARACTERS / 2;
        size_t size = (size_t)utf8_write(of->points[from_end ? of->count - MAX_CHARACTERS + k : k], bytes);
        uint32_t id = find_id(model, &KNOWN_CHARACTER, bytes, size);
        read_row(reals(model, AT_CHARACTER_VECTORS), KNOWN_CHARACTER.size, D_CHARACTER, id, 1, to);
    }
    return count;
}
