/* A classifier trained with ensue: the labels of a text, with their probabilities.
 *
 * A model is immutable after NAME_open, so threads can share it. The caller allocates the memory of each call:
 * NAME_memory(BYTES) bytes, aligned as by malloc; each thread needs its own. The memory keeps no state between calls.
 * A session buffers a line of text that comes in pieces. Only NAME_open allocates. A function that fails returns a
 * number below 0. */
typedef struct NAME_session NAME_session;

typedef struct {
    const char *bytes; /* UTF-8, not zero-terminated; invalid bytes become U+FFFD */
    size_t size;
} NAME_text;

enum {
    NAME_LABELS = @LABELS@, /* the number of labels; ids start at 0 */
    NAME_TEXTS = @TEXTS@,  /* texts per call: 2 for a model of pairs, else 1 */
    NAME_NO_TAB = -8 /* a line of a pair has no tab */
};

/* Returns the name of a label in UTF-8, zero-terminated, valid as long as the model; NULL for an unknown id. */
const char *NAME_label(const NAME_model *model, uint32_t label);

/* Returns the memory in bytes for texts of `bytes` bytes in total, 0 for too many. If the model has layers, words are
 * assumed to have four bytes, including the blank; for shorter words, `4 * bytes` is always enough. */
size_t NAME_memory(size_t bytes);

/* Writes the probabilities of all labels. `texts` has NAME_TEXTS texts, and `memory` has `size` bytes. Returns the
 * number of words that the model reads. Without a known word the probabilities are meaningless. */
int NAME_classify(const NAME_model *model, void *memory, size_t size, const NAME_text *texts,
                  float probabilities[NAME_LABELS]);

/* Writes the ids of the predicted labels for these probabilities, the most probable first, and returns their number.
 * Labels with a probability below `at_least` are left out. */
int NAME_choose(const NAME_model *model, const float probabilities[NAME_LABELS], double at_least,
                uint32_t labels[NAME_LABELS]);

/* Returns the size in bytes of a session for lines of up to `bytes` bytes, 0 for too many. */
size_t NAME_session_size(size_t bytes);

/* Initializes a session for lines of up to `bytes` bytes. */
int NAME_begin(const NAME_model *model, NAME_session *session, size_t bytes);

/* Reads a piece of a text up to the end of a line, and sets `*used` to the number of bytes read. A text may be cut
 * between any bytes. Returns 0 if the line continues. Returns 1 if the line is complete, and writes its text; for a
 * model of pairs, the texts before and after the tab, without a second tab and the rest. Texts are valid until the next
 * NAME_feed. If `bytes` is NULL, the text and its last line end. Returns NAME_TOO_LONG for a line that exceeds the
 * session; the next line is read as usual. */
int NAME_feed(const NAME_model *model, NAME_session *session, const char *bytes, size_t count, size_t *used,
              NAME_text texts[NAME_TEXTS]);
