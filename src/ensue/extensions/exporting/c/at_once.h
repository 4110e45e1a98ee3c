/* The end of a text for lexers whose tokens are complete at their last character. */
static void lexer_end(const NAME_model *model, lexer *in, sink *to) { (void)model, (void)in, (void)to; }

static int lexer_take(const NAME_model *model, lexer *in, sink *to) { return (void)model, (void)in, (void)to, 0; }

UNUSED static int lexer_is_valid(const NAME_model *model, const lexer *in) { return (void)model, (void)in, 1; }
