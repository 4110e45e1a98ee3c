/* A tagger trained with ensue: a label for each word of a sentence, with its probability.
 *
 * A model is immutable after NAME_open, so threads can share it. The caller allocates a session:
 * NAME_session_size(WORDS) bytes, aligned as by malloc; each thread needs its own. Only NAME_open allocates. A function
 * that fails returns a number below 0. */
typedef struct NAME_session NAME_session;

enum {
    NAME_LABELS = @LABELS@, /* the number of labels */
    NAME_BYTES = 16     /* bytes of text per word of a session */
};

/* A word of a sentence. */
typedef struct {
    const char *text;   /* input: UTF-8, not zero-terminated; invalid bytes become U+FFFD */
    size_t size;        /* input: its bytes */
    int ends;           /* input: 1 for the last word of a sentence */
    uint32_t id;        /* output: the id of its label, from 0 on */
    const char *label;  /* output: its label, zero-terminated; valid as long as the model */
    double probability; /* output: the probability of the label, if requested */
} NAME_word;

/* Returns the size in bytes of a session for sentences of up to `words` words, from 1 to 1,000,000, otherwise 0. Short
 * sentences are batched up to this number of words, so a larger session is faster. */
size_t NAME_session_size(size_t words);

/* Initializes a session for sentences of up to `words` words. */
int NAME_begin(const NAME_model *model, NAME_session *session, size_t words);

/* Splits a line into the words of a sentence, as `ensue predict` does. Returns the number of words and writes the first
 * `room` of them; if there are more, call the function again with more room. */
int64_t NAME_cut(const NAME_model *model, NAME_session *session, const char *text, size_t size, NAME_word *words,
                 size_t room);

/* Labels the words of any number of sentences. `probabilities` is 1 or 0. */
int NAME_label(const NAME_model *model, NAME_session *session, NAME_word *words, size_t count, int probabilities);

/* Reads a piece of a text up to the end of a line, and sets `*used` to the number of bytes read. A text may be cut
 * between any bytes. Returns 1 if the line is complete, else 0. If `bytes` is NULL, the text and its last line
 * end. Returns NAME_TOO_LONG for a line of more than NAME_BYTES bytes per word of the session; the next line is read as
 * usual. */
int NAME_feed(const NAME_model *model, NAME_session *session, const char *bytes, size_t count, size_t *used);

/* Splits and labels the complete line. Returns the number of its words; their texts are valid until the next NAME_feed.
 * If the number exceeds `room`, no word is labeled: call the function again with more room. */
int64_t NAME_take(const NAME_model *model, NAME_session *session, NAME_word *words, size_t room, int probabilities);
