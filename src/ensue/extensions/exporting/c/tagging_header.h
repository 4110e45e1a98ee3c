/* A tagger of ensue: a label for each word of a sentence, and how probable it is.
 *
 * A model is read once and never changes, so that threads share it. All that changes is in a session: memory of
 * NAME_session_size(WORDS) bytes, aligned as malloc does it, that the caller owns; each thread needs its own. Nothing is
 * allocated but in NAME_open. A function that fails returns a number below 0. */
typedef struct NAME_session NAME_session;

enum {
    NAME_LABELS = @LABELS@, /* the number of labels */
    NAME_BYTES = 16     /* the bytes of a text for each word of a session */
};

/* A word of a sentence. */
typedef struct {
    const char *text;   /* given: UTF-8 without a 0 at its end; bytes that are not UTF-8 count as U+FFFD */
    size_t size;        /* given: its bytes */
    int ends;           /* given: 1 if it is the last word of its sentence */
    uint32_t id;        /* found: the number of its label, from 0 on */
    const char *label;  /* found: its label, with a 0 at its end; lives as long as the model */
    double probability; /* found: that of the label, if it was asked for */
} NAME_word;

/* The bytes of a session for sentences of up to so many words, 1 to 1,000,000; 0 for others. Short sentences are read
 * side by side, up to so many words together, which is faster. */
size_t NAME_session_size(size_t words);

/* Makes `session` one of this model for so many words. */
int NAME_begin(const NAME_model *model, NAME_session *session, size_t words);

/* Cuts a text of one line into the words of a sentence, as `ensue predict` does. Returns their number. The first `room`
 * of them are written; if there are more, try again with more room. */
int64_t NAME_cut(const NAME_model *model, NAME_session *session, const char *text, size_t size, NAME_word *words,
                 size_t room);

/* Labels the words of any number of sentences; the last word ends one. `probabilities` is 1 or 0. */
int NAME_label(const NAME_model *model, NAME_session *session, NAME_word *words, size_t count, int probabilities);

/* Reads the next bytes of a text, cut anywhere, up to the end of a line: `*used` of them. Returns 1 if a line is whole,
 * 0 if more bytes are needed. `bytes` NULL ends the text, and with it its last line. A line of more than NAME_BYTES
 * bytes for each word of the session is NAME_TOO_LONG; the next one is read as if it had not been there. */
int NAME_feed(const NAME_model *model, NAME_session *session, const char *bytes, size_t count, size_t *used);

/* Cuts and labels the line that is whole. Returns the number of its words, whose texts live until the next NAME_feed. If
 * that is more than `room`, nothing is labeled: try again with more room. */
int64_t NAME_take(const NAME_model *model, NAME_session *session, NAME_word *words, size_t room, int probabilities);
