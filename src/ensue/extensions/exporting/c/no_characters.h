typedef struct {
    uint8_t none;
} character_room;

static void spell(const NAME_model *model, const form *of, character_room *room, real *to) {
    (void)model, (void)of, (void)room, (void)to;
}
