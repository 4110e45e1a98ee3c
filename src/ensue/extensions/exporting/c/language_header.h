/* A language model trained with ensue: token probabilities, surprisals of texts, and generation.
 *
 * A model is immutable after NAME_open, so threads can share it. The caller allocates a state: NAME_state_size() bytes,
 * aligned as by malloc. A state contains no pointers: it can be copied, saved, and continued in another process
 * (NAME_check validates it). Only NAME_open allocates. A function that fails returns a number below 0. */
typedef struct NAME_state NAME_state;

enum {
    NAME_VOCABULARY = @VOCABULARY@,   /* the number of tokens; ids start at 0 */
    NAME_ROOM = 32,                  /* the smallest `room` of NAME_feed */
    NAME_CONTEXT = @CONTEXT@         /* the maximum length of a prompt of a Transformer; 0 for other models */
};

/* A token of a text. */
typedef struct {
    uint32_t id;
    int is_unknown;      /* the text is not in the vocabulary; `text` is a placeholder */
    uint64_t begin, end; /* byte offsets since the last NAME_begin; 0 for generated tokens */
    double nats;         /* the surprisal -log P(token | all previous tokens) */
    const char *text;    /* UTF-8, not zero-terminated; valid as long as the model */
    size_t size;         /* in bytes; bytes and subwords may split a character */
    int blank;           /* 1 if a blank comes before this generated token */
} NAME_token;

/* Options of sampling. A zero disables an option, except that a `temperature` of 0 is greedy. The order is: repetition
 * penalty, temperature, top_k, top_p, min_p. */
typedef struct {
    double temperature;        /* 1: unchanged; lower values are more conservative, higher ones more random */
    uint32_t top_k;            /* keep this number of the most probable tokens */
    double top_p;              /* keep the most probable tokens up to this cumulative probability, at most 1 */
    double min_p;              /* keep tokens with this fraction of the largest probability, at most 1 */
    double repetition_penalty; /* values above 1 make repeated tokens less probable */
} NAME_sampling;

/* Returns the size of a state in bytes. */
size_t NAME_state_size(void);

/* Initializes a state. A seed gives the same text as `ensue generate --seed`. */
int NAME_begin(const NAME_model *model, NAME_state *state, uint64_t seed);

/* Reads a piece of a text, and writes the complete tokens with their surprisals to `tokens`, an array of `room`
 * elements. Returns the number of tokens, and sets `*used` to the number of bytes read: reading stops before the array
 * is full. A text may be cut between any bytes; invalid bytes become U+FFFD. If `bytes` is NULL, the text ends, and its
 * last tokens are written; with subwords, call the function until it returns 0. */
int NAME_feed(const NAME_model *model, NAME_state *state, const char *bytes, size_t count, size_t *used,
              NAME_token *tokens, size_t room);

/* Samples the next token and reads it; ends the text first. If `sampling` is NULL, no option is set. */
int NAME_next(const NAME_model *model, NAME_state *state, const NAME_sampling *sampling, NAME_token *token);

/* Checks that bytes are a valid state of this model: NAME_OK or NAME_BAD_STATE. */
int NAME_check(const NAME_model *model, const NAME_state *state);
