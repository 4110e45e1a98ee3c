/* The receiver of tokens. */
typedef struct sink sink;

static void emit(const NAME_model *model, sink *to, uint32_t id, uint64_t begin, uint64_t end);
