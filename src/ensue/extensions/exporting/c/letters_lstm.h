/* The character LSTM: the last outputs in both directions. */
typedef struct {
    real x[MAX_CHARACTERS * D_CHARACTER], y[MAX_CHARACTERS * D_CHARACTERS], hoisted[MAX_CHARACTERS * MAX_HOISTED];
    step_room step;
} character_room;

static void spell(const NAME_model *model, const form *of, character_room *room, real *to) {
    int64_t count = read_letters(model, of, room->x);
    const batch word = {1, count, {0}, {count}};
    memset(to, 0, D_CHARACTERS * sizeof *to);
    if (!count) return;
    run_layer(model, &SPELLING, &word, room->x, D_CHARACTER, NULL, room->hoisted, &room->step, room->y);
    memcpy(to, room->y + (count - 1) * D_CHARACTERS, D_CHARACTERS / 2 * sizeof *to);
    memcpy(to + D_CHARACTERS / 2, room->y + D_CHARACTERS / 2, D_CHARACTERS / 2 * sizeof *to);
}
