/* An encoder-decoder trained with ensue: the output text for a source, such as a pronunciation or a translation.
 *
 * A model is immutable after NAME_open, so threads can share it. The caller allocates a session:
 * NAME_session_size(BYTES, TOKENS) bytes, aligned as by malloc; each thread needs its own. Only NAME_open allocates. A
 * function that fails returns a number below 0. */
typedef struct NAME_session NAME_session;

enum {
    NAME_TEXTS = @TEXTS@, /* texts per source, such as a word and its features */
    NAME_BEAMS = @BEAMS@, /* the largest beam size */
    NAME_ROWS = @ROWS@   /* the maximum number of hypotheses, and so of outputs, in a batch of sources */
};

typedef struct {
    const char *bytes; /* UTF-8, not zero-terminated; invalid bytes become U+FFFD */
    size_t size;
} NAME_text;

/* Options of beam search. A hypothesis is ranked by ln P / length^length_penalty; the length includes the end. */
typedef struct {
    uint32_t beams, n_best;          /* the beam size (1: greedy); the number of outputs of a source */
    double length_penalty;           /* 0 to 10 */
    uint32_t min_tokens, max_tokens; /* the minimum and the maximum number of tokens in an output */
    uint32_t no_repeat_ngram;        /* no n-gram of this length is repeated; 0: no restriction */
} NAME_search;

typedef struct {
    const char *text; /* UTF-8, not zero-terminated; invalid bytes become U+FFFD */
    size_t size;
    double score, log_probability;
    int is_complete; /* 0 if the output was truncated, or if no token is allowed */
} NAME_answer;

/* Returns the search options of the run. */
NAME_search NAME_usual(void);

/* Returns the size in bytes of a session for sources with a total of `bytes` bytes, and for outputs of up to `tokens`
 * tokens, the `max_tokens` of the search. Returns 0 if `bytes` or `tokens` is above 1,000,000, or if the size exceeds
 * size_t. An invalid byte may count as three bytes. Sources are batched up to `bytes`, so a larger session is faster. */
size_t NAME_session_size(size_t bytes, size_t tokens);

/* Initializes a session for these numbers of bytes and tokens. */
int NAME_begin(const NAME_model *model, NAME_session *session, size_t bytes, size_t tokens);

/* Computes the outputs of a batch: the first of `count` sources, at least one, as far as the session has room. Returns
 * the number of sources in the batch. Each source has NAME_TEXTS texts. If `search` is NULL, the options are those of
 * NAME_usual. `answers` receives `n_best` outputs for each source: complete outputs, then truncated outputs, both
 * sorted by score. If a source has fewer outputs, the text of the other elements is NULL. NAME_ROWS elements are always
 * enough. */
int NAME_transduce(const NAME_model *model, NAME_session *session, const NAME_text *texts, size_t count,
                   const NAME_search *search, NAME_answer *answers);
