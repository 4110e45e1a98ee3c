/* An encoder-decoder of ensue: the text that it writes for a text, such as a pronunciation or an inflected form.
 *
 * A model is read once and never changes, so that threads share it. All that changes is in a session: memory of
 * NAME_session_size(BYTES, TOKENS) bytes, aligned as malloc does it, that the caller owns; each thread needs its own.
 * Nothing is allocated but in NAME_open. A function that fails returns a number below 0. */
typedef struct NAME_session NAME_session;

enum {
    NAME_TEXTS = @TEXTS@, /* the texts that are read together, such as a word and its features */
    NAME_BEAMS = @BEAMS@, /* the widest beam */
    NAME_ROWS = @ROWS@   /* the most hypotheses, and so the most answers, of the sources that are read side by side */
};

typedef struct {
    const char *bytes; /* UTF-8 without a 0 at its end; bytes that are not UTF-8 count as U+FFFD */
    size_t size;
} NAME_text;

/* How to search. A hypothesis is ranked by ln P / length^length_penalty, with the end in its length. */
typedef struct {
    uint32_t beams, n_best;          /* hypotheses that go on after each token, 1: greedy; the answers of a text */
    double length_penalty;           /* 0 to 10 */
    uint32_t min_tokens, max_tokens; /* the least and the most tokens of an answer */
    uint32_t no_repeat_ngram;        /* no sequence of so many tokens comes twice; 0: any may */
} NAME_search;

typedef struct {
    const char *text; /* UTF-8 without a 0 at its end; lives until the session is used again */
    size_t size;
    double score, log_probability;
    int is_complete; /* 0 if the search was cut at the most tokens, or if nothing may follow */
} NAME_answer;

/* The search of the run. */
NAME_search NAME_usual(void);

/* The bytes of a session for texts of so many bytes together, and answers of so many tokens: of the search's most. 0 for
 * more than 1,000,000 of one, or more than a size can say. A byte that is not UTF-8 may count as three. Sources are read
 * side by side as far as there is room, which is faster. */
size_t NAME_session_size(size_t bytes, size_t tokens);

/* Makes `session` one of this model for so many bytes and tokens. */
int NAME_begin(const NAME_model *model, NAME_session *session, size_t bytes, size_t tokens);

/* Answers the first of `count` sources, each of NAME_TEXTS texts, and returns how many: as many as there is room for, at
 * least one. Without a `search` it is the usual one. Each source has `n_best` answers, the best first, complete ones
 * before others; one that there is not has NULL as its text. NAME_ROWS answers are always enough. */
int NAME_transduce(const NAME_model *model, NAME_session *session, const NAME_text *texts, size_t count,
                   const NAME_search *search, NAME_answer *answers);
