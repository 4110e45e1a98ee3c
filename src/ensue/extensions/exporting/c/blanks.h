/* The blanks between the words of a text: no blank before a closing mark, and no blank after an opening mark. AT_KINDS
 * has bits for each word: 1 is a closing mark, 2 an opening mark, 4 a quotation mark, which opens and closes in turn, 8
 * ends the line. */
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
