/* Where the tokens of a text are written. */
typedef struct {
    NAME_token *tokens;
    size_t room, found;
} sink;
