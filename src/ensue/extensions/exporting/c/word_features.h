/* The concatenated features of a word form: word vector, characters, affixes, shape, and pretrained vector. */
UNUSED static void copy_row(const NAME_model *model, size_t table, size_t rows, uint32_t row, size_t width, real **to) {
    read_row(reals(model, table), rows, width, row, 1, *to);
    *to += width;
}

UNUSED static int lower_form(form *of) {
    uint32_t size = 0;
    for (int k = 0; k < of->count; k++)
        size += lower_at(of->points, (uint32_t)of->count, (uint32_t)k, of->lowered + size);
    return (int)size;
}

#if D_WORD || D_AFFIX
static size_t normalize(form *of) {
    of->lowered_count = of->count;
    if (LOWERCASE) of->lowered_count = lower_form(of);
    else memcpy(of->lowered, of->points, (size_t)of->count * sizeof *of->points);
    for (int k = 0; FOLD_DIGITS && k < of->lowered_count; k++)
        if (set_has(SET_DIGITS, of->lowered[k])) of->lowered[k] = '0';
    return write_points(of->lowered, of->lowered_count, of->bytes, of->ends);
}
#endif

#if D_AFFIX
static void copy_affixes(const NAME_model *model, form *of, real **to) {
    int count = of->lowered_count;
    for (int k = 0; k < 2 * MAX_AFFIX; k++) {
        int is_suffix = k >= MAX_AFFIX, length = k % MAX_AFFIX + 1;
        if (length > count) length = count;
        uint32_t begin = is_suffix ? of->ends[count - length] : 0;
        size_t size = (is_suffix ? of->ends[count] : of->ends[length]) - begin;
        of->others[0] = '-', memcpy(of->others + is_suffix, of->bytes + begin, size);
        if (!is_suffix) of->others[size] = '-';
        uint32_t id = find_id(model, &KNOWN_AFFIX, of->others, size + 1);
        copy_row(model, AT_AFFIX_VECTORS, KNOWN_AFFIX.size, id, D_AFFIX, to);
    }
}
#endif

#if D_SHAPE
static uint32_t find_shape(const NAME_model *model, form *of) {
    size_t size = 0;
    uint32_t last = 0;
    for (int k = 0, run = 0; k < of->count && k < MAX_CHARACTERS; k++) {
        uint32_t point = of->points[k];
        if (set_has(SET_DIGITS, point)) point = 'd';
        else if (set_has(SET_LETTERS, point)) point = set_has(SET_CAPITALS, point) ? 'X' : 'x';
        int counts = point == 'X' || point == 'x' || point == 'd' || point == '.' || point == '-';
        run = counts && k && point == last ? run + 1 : 1;
        last = point;
        if (run <= 3) size += (size_t)utf8_write(point, of->others + size);
    }
    return find_id(model, &KNOWN_SHAPE, of->others, size);
}
#endif

#if D_VECTOR
static void copy_pretrained_vector(const NAME_model *model, form *of, real **to) {
    uint32_t id = find_id(model, &KNOWN_VECTOR, of->others, write_points(of->points, of->count, of->others, NULL));
    if (!id) {
        int count = lower_form(of);
        id = find_id(model, &KNOWN_VECTOR, of->others, write_points(of->lowered, count, of->others, NULL));
    }
    if (id < NUM_TRAINED) {
        copy_row(model, AT_TRAINED, NUM_TRAINED, id, D_VECTOR, to);
        return;
    }
    size_t at = (size_t)(id - NUM_TRAINED) * D_VECTOR;
    for (size_t k = 0; k < D_VECTOR; k++)
        *(*to)++ = real_of_half((uint16_t)(words32(model, AT_FROZEN)[(at + k) / 2] >> 16 * ((at + k) % 2)));
}
#endif

/* Writes D_FEATURES numbers. */
static void compute_features(const NAME_model *model, form *of, const char *text, size_t size, character_room *room,
                        real *to) {
    read_form(of, text, size);
#if D_WORD || D_AFFIX
    size_t normal = normalize(of);
    (void)normal;
#endif
#if D_WORD
    copy_row(model, AT_WORD_VECTORS, KNOWN_WORD.size, find_id(model, &KNOWN_WORD, of->bytes, normal), D_WORD, &to);
#endif
    spell(model, of, room, to);
    to += D_CHARACTERS;
#if D_AFFIX
    copy_affixes(model, of, &to);
#endif
#if D_SHAPE
    copy_row(model, AT_SHAPE_VECTORS, KNOWN_SHAPE.size, find_shape(model, of), D_SHAPE, &to);
#endif
#if D_VECTOR
    copy_pretrained_vector(model, of, &to);
#endif
    (void)to;
}
