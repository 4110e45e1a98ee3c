/* An encoder-decoder trained with ensue: the output text for a source, such as a pronunciation or a translation.
 *
 * A model is immutable after NAME_open, so threads can share it. The caller allocates a session:
 * NAME_session_size(BYTES, TOKENS) bytes, aligned as by malloc; each thread needs its own. Only NAME_open allocates. A
 * function that fails returns a number below 0. */
typedef struct NAME_session NAME_session;

enum {
    NAME_TEXTS = @TEXTS@, /* texts per source, such as a word and its features */
    NAME_BEAMS = @BEAMS@, /* the largest beam size */
    NAME_ROWS = @ROWS@   /* the most hypotheses, and so outputs, of the sources of a batch */
};

typedef struct {
    const char *bytes; /* UTF-8, not zero-terminated; invalid bytes become U+FFFD */
    size_t size;
} NAME_text;

/* Options of beam search. A hypothesis is ranked by ln P / length^length_penalty; the length includes the end. */
typedef struct {
    uint32_t beams, n_best;          /* the beam size, 1: greedy; the number of outputs of a source */
    double length_penalty;           /* 0 to 10 */
    uint32_t min_tokens, max_tokens; /* the least and the most tokens of an output */
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

/* Returns the size in bytes of a session for sources of so many bytes in all and outputs of so many tokens, the
 * search's maximum. 0 for more than 1,000,000 of either, or if the size exceeds size_t. An invalid byte may count as
 * three. Sources are batched as far as there is room, which is faster. */
size_t NAME_session_size(size_t bytes, size_t tokens);

/* Initializes a session for so many bytes and tokens. */
int NAME_begin(const NAME_model *model, NAME_session *session, size_t bytes, size_t tokens);

/* Computes the outputs of the first of `count` sources, each of NAME_TEXTS texts, and returns the number of these
 * sources: as many as there is room for, at least one. Without a `search` it is that of the run. Each source has
 * `n_best` outputs, the best first, complete ones before others; missing ones have a NULL text. NAME_ROWS elements are
 * always enough. */
int NAME_transduce(const NAME_model *model, NAME_session *session, const NAME_text *texts, size_t count,
                   const NAME_search *search, NAME_answer *answers);
