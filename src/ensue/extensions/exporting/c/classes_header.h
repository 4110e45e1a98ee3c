/* A classifier of ensue: the labels of a text, with their probabilities.
 *
 * A model is read once and never changes, so that threads share it. What a call needs beside it is memory that the
 * caller gives: NAME_memory(BYTES) bytes, aligned as malloc does it, another one for each thread. Nothing is kept in it
 * from one call to the next. Texts that come in pieces need a session, too, which keeps a line. Nothing is allocated but
 * in NAME_open. A function that fails returns a number below 0. */
typedef struct NAME_session NAME_session;

typedef struct {
    const char *bytes; /* UTF-8 without a 0 at its end; bytes that are not UTF-8 count as U+FFFD */
    size_t size;
} NAME_text;

enum {
    NAME_LABELS = @LABELS@, /* the number of labels, from 0 on */
    NAME_TEXTS = @TEXTS@,  /* the texts that are read together: 2 of a model of pairs */
    NAME_NO_TAB = -8 /* of pairs: a line has no tab between its two texts */
};

/* The name of a label, UTF-8 with a 0 at its end; lives as long as the model. NULL for a number that is none. */
const char *NAME_label(const NAME_model *model, uint32_t label);

/* The memory for texts of so many bytes together, 0 if they are too long. With layers, it is for words that have four
 * bytes with the blank behind them; of shorter ones, that of four times as many bytes is enough. */
size_t NAME_memory(size_t bytes);

/* Writes the probabilities of all labels. `texts` has NAME_TEXTS texts, `memory` is of `size` bytes. Returns the number
 * of words that are read. If there are none, or none is known from the training data, the answer means nothing. */
int NAME_classify(const NAME_model *model, void *memory, size_t size, const NAME_text *texts,
                  float probabilities[NAME_LABELS]);

/* Writes the numbers of the labels that a text with these probabilities has, the most probable first, and returns how
 * many. No label is given whose probability is below `at_least`. */
int NAME_choose(const NAME_model *model, const float probabilities[NAME_LABELS], double at_least,
                uint32_t labels[NAME_LABELS]);

/* The bytes of a session for lines of up to so many bytes, 0 if they are too long. */
size_t NAME_session_size(size_t bytes);

/* Makes `session` one for lines of so many bytes. */
int NAME_begin(const NAME_model *model, NAME_session *session, size_t bytes);

/* Reads the next bytes of a text, cut anywhere, up to the end of a line: `*used` of them. Returns 1 if a line is whole,
 * and writes its text: of a pair two that a tab is between; behind another tab nothing is read. They live until the next
 * NAME_feed. Returns 0 if more bytes are needed. `bytes` NULL ends the text, and with it its last line. A line of more
 * bytes than the session has room for is NAME_TOO_LONG; the next one is read as if it had not been there. */
int NAME_feed(const NAME_model *model, NAME_session *session, const char *bytes, size_t count, size_t *used,
              NAME_text texts[NAME_TEXTS]);
