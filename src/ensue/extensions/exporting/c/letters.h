/* The vectors of the characters that are read of a word: of a long one the first and the last. Returns their number. */
static int read_letters(const NAME_model *model, const form *of, real *to) {
    int count = of->count < MOST_CHARACTERS ? of->count : MOST_CHARACTERS;
    for (int k = 0; k < count; k++, to += D_CHARACTER) {
        uint8_t bytes[4];
        int from_end = of->count > MOST_CHARACTERS && k >= MOST_CHARACTERS / 2;
        size_t size = (size_t)utf8_write(of->points[from_end ? of->count - MOST_CHARACTERS + k : k], bytes);
        uint32_t id = number_of(model, &KNOWN_CHARACTER, bytes, size);
        read_row(reals(model, AT_CHARACTER_VECTORS), KNOWN_CHARACTER.size, D_CHARACTER, id, 1, to);
    }
    return count;
}
