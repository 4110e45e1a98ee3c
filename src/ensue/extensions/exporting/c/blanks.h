/* The blanks between words of a text: none before a closing mark or after an opening one. AT_KINDS has bits for each
 * word: 1 closes, 2 opens, 4 is a quotation mark, which alternates, 8 ends the line. */
typedef struct {
    uint8_t in_quotes, blank; /* whether a blank comes before the next word, unless that word closes */
} spacing;

/* Returns whether a blank comes before a word, and updates the spacing. */
static int write_blank(const NAME_model *model, spacing *in, uint32_t id) {
    if (!IS_WORDS) return 0;
    uint8_t kind = ((const uint8_t *)words32(model, AT_KINDS))[id];
    int blank = in->blank, closes = kind & 1, opens = kind & 2;
    if (kind & 8) return *in = (spacing){0, 0}, 0;
    if (kind & 4) in->in_quotes = !in->in_quotes, closes = !in->in_quotes, opens = in->in_quotes;
    in->blank = !opens;
    return blank && !closes;
}
