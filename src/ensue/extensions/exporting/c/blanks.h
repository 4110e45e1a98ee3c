/* How words stand behind one another in a text: with a blank between two, but with none before a mark that closes or behind
 * one that opens. AT_KINDS has bits of each word: 1 closes, 2 opens, 4 is a quotation mark, which does both in turns, 8
 * ends the line. */
typedef struct {
    uint8_t in_quotes, blank; /* `blank` stands before the next word, unless that closes */
} spacing;

/* Whether a blank stands before a word. */
static int write_blank(const NAME_model *model, spacing *in, uint32_t id) {
    if (!IS_WORDS) return 0;
    uint8_t kind = ((const uint8_t *)words32(model, AT_KINDS))[id];
    int blank = in->blank, closes = kind & 1, opens = kind & 2;
    if (kind & 8) return *in = (spacing){0, 0}, 0;
    if (kind & 4) in->in_quotes = !in->in_quotes, closes = !in->in_quotes, opens = in->in_quotes;
    in->blank = !opens;
    return blank && !closes;
}
