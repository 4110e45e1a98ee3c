/* The character CNN: the maximum of each filter over windows of FILTER_WIDTH characters. */
typedef struct {
    real x[(MAX_CHARACTERS + FILTER_WIDTH) * D_CHARACTER], y[MAX_CHARACTERS * WIDE_FILTERS];
} character_room;

static void spell(const NAME_model *model, const form *of, character_room *room, real *to) {
    const real *bias = reals(model, AT_FILTER_BIAS);
    memset(room->x, 0, sizeof room->x); /* zero padding before and after the word */
    int count = read_letters(model, of, room->x + (FILTER_WIDTH - 1) / 2 * D_CHARACTER);
    multiply(count, WIDE_FILTERS, FILTER_WIDTH * D_CHARACTER, room->x, D_CHARACTER, reals(model, AT_FILTERS), room->y,
             WIDE_FILTERS);
    for (int j = 0; j < D_CHARACTERS; j++) to[j] = count ? room->y[j] : 0;
    for (int t = 1; t < count; t++)
        for (int j = 0; j < D_CHARACTERS; j++)
            to[j] = room->y[t * WIDE_FILTERS + j] > to[j] ? room->y[t * WIDE_FILTERS + j] : to[j];
    for (int j = 0; count && j < D_CHARACTERS; j++) to[j] += bias[j];
}
