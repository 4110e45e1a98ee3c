/* A language model of ensue: what it expects next, the surprisal of a text, and texts that it writes.
 *
 * A model is read once and never changes, so that threads share it. All that changes is in a state: memory of
 * NAME_state_size() bytes, aligned as malloc does it, that the caller owns. A state holds no address. Copy it, save its
 * bytes and go on from them another day, in another process (NAME_check says whether they are whole). Nothing is
 * allocated but in NAME_open. A function that fails returns a number below 0. */
typedef struct NAME_state NAME_state;

enum {
    NAME_VOCABULARY = @VOCABULARY@,   /* the number of tokens, from 0 on */
    NAME_ROOM = 32,                  /* the fewest tokens for which NAME_feed needs room */
    NAME_CONTEXT = @CONTEXT@         /* of a Transformer: the most tokens of a prompt; otherwise 0 */
};

/* A token of a text. */
typedef struct {
    uint32_t id;
    int is_unknown;      /* the text is not in the vocabulary: `text` stands for it */
    uint64_t begin, end; /* its bytes in the text, counted from the last NAME_begin; of what is written, 0 */
    double nats;         /* its surprisal, -log P(token | all tokens before it) */
    const char *text;    /* UTF-8 without a 0 at its end; lives as long as the model */
    size_t size;         /* in bytes; a byte or a subword may begin or end within a character */
    int blank;           /* of what is written: 1 if a blank stands before it */
} NAME_token;

/* How the next token is chosen. A member that is 0 changes nothing, but a `temperature` of 0 takes the most probable
 * token. The order is: repetition penalty, temperature, top_k, top_p, min_p. */
typedef struct {
    double temperature;        /* 1: as the model expects; below more cautious, above more varied */
    uint32_t top_k;            /* keep so many of the most probable tokens */
    double top_p;              /* keep the most probable tokens that reach this probability together, up to 1 */
    double min_p;              /* keep tokens with this share of the largest probability, up to 1 */
    double repetition_penalty; /* above 1: make tokens that occurred before less probable */
} NAME_sampling;

/* The bytes of a state. */
size_t NAME_state_size(void);

/* Makes `state` that before a text. The same seed draws the same tokens, those of `ensue generate --seed`. */
int NAME_begin(const NAME_model *model, NAME_state *state, uint64_t seed);

/* Reads the next bytes of a text, cut anywhere, and writes the tokens that are complete, with their surprisals. It stops
 * before `tokens`, an array of `room`, is full: `*used` bytes were read. `bytes` NULL ends the text, so that the last
 * tokens are complete, too; of a model of subwords, there may be more of them than room: call it until it gives none.
 * Bytes that are not UTF-8 count as U+FFFD. Returns the number of tokens. */
int NAME_feed(const NAME_model *model, NAME_state *state, const char *bytes, size_t count, size_t *used,
              NAME_token *tokens, size_t room);

/* Draws the next token, and reads it. If a text was not ended, it is. `sampling` NULL draws as the model expects. */
int NAME_next(const NAME_model *model, NAME_state *state, const NAME_sampling *sampling, NAME_token *token);

/* Whether bytes that were read from somewhere are a whole state of this model: NAME_OK or NAME_BAD_STATE. */
int NAME_check(const NAME_model *model, const NAME_state *state);
