/* Byte-pair encoding (Sennrich et al. 2016) of a word that comes byte by byte.
 *
 * For each prefix of the word the last token is stored: the only token at its end that is compatible with the last
 * token before it. Two tokens are compatible if the merges of their bytes give these two tokens. So the cost per byte
 * does not depend on the length of the word (van Antwerpen and Neubeck 2024). When the window is full, the tokens that
 * no later byte can change become final; if there are none, all tokens become final. */
typedef struct {
    uint32_t tokens[WINDOW]; /* final tokens at their first bytes; at other bytes, the last token of the prefix */
    uint32_t begins[WINDOW], ends[WINDOW]; /* the text position of each byte's character, the lower 32 bits */
    uint8_t bytes[WINDOW];
    uint32_t taken, word, count; /* bytes of taken tokens; the start of the word; all bytes */
} merger;

enum { WORD_ROOM = WINDOW - 32 }; /* a step appends fewer bytes than the spare room */

static uint32_t token_size(const NAME_model *model, uint32_t id) {
    const uint32_t *starts = words32(model, AT_PIECE_STARTS) + id;
    return starts[1] - starts[0];
}

/* The two parts of a token and the rank of its merge, 0 for a byte. */
static const uint32_t *find_merge(const NAME_model *model, uint32_t id) {
    return words32(model, AT_MERGES) + 3 * (size_t)id;
}

/* The rank of the merge of two tokens, or UINT32_MAX. */
static uint32_t find_rank(const NAME_model *model, uint32_t left, uint32_t right) {
    const uint32_t *slots = words32(model, AT_PAIRS);
    uint32_t at = left * UINT32_C(0x9E3779B1) + right * UINT32_C(0x85EBCA6B);
    for (at = (at ^ at >> 15) & PAIR_MASK; slots[at]; at = (at + 1) & PAIR_MASK) {
        const uint32_t *merge = find_merge(model, slots[at] - 1);
        if (merge[0] == left && merge[1] == right) return merge[2];
    }
    return UINT32_MAX;
}

/* Returns whether two tokens are compatible. Their merges at the boundary are undone, the latest first; a merge across
 * the boundary must not have a lower rank than an undone merge. */
static int are_compatible(const NAME_model *model, uint32_t left, uint32_t right) {
    for (uint32_t limit = UINT32_MAX;;) {
        if (find_rank(model, left, right) < limit) return 0;
        const uint32_t *one = find_merge(model, left), *other = find_merge(model, right);
        if (!one[2] && !other[2]) return 1;
        if (one[2] > other[2]) limit = one[2], left = one[1];
        else limit = other[2] + 1, right = other[0];
    }
}

/* Returns the first of the sorted tokens `low` to `high`, equal in the last `depth` bytes, whose next byte is at least
 * `min`. */
static uint32_t first_ending(const NAME_model *model, uint32_t low, uint32_t high, uint32_t depth, int min) {
    const uint32_t *order = words32(model, AT_ENDINGS), *starts = words32(model, AT_PIECE_STARTS);
    const uint8_t *texts = (const uint8_t *)words32(model, AT_PIECES);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, id = order[middle];
        int byte = depth < starts[id + 1] - starts[id] ? texts[starts[id + 1] - 1 - depth] : -1;
        if (byte < min) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void merges_append(const NAME_model *model, merger *in, uint8_t byte, uint64_t begin, uint64_t end) {
    uint32_t at = in->count++, low = 0, high = ENDINGS, found = 0;
    in->bytes[at] = byte, in->begins[at] = (uint32_t)begin, in->ends[at] = (uint32_t)end;
    for (uint32_t depth = 0; depth <= at - in->word; depth++) {
        int next = in->bytes[at - depth];
        low = first_ending(model, low, high, depth, next);
        high = first_ending(model, low, high, depth, next + 1);
        if (low == high) break;
        uint32_t id = words32(model, AT_ENDINGS)[low]; /* the shortest */
        if (token_size(model, id) != depth + 1) continue;
        found = id;
        if (depth == at - in->word || are_compatible(model, in->tokens[at - depth - 1], id)) break;
    }
    in->tokens[at] = found;
}

/* Marks the tokens of the first `end` bytes as final. */
static void merges_settle(const NAME_model *model, merger *in, uint32_t end) {
    for (uint32_t k = end; k > in->word;) {
        uint32_t id = in->tokens[k - 1];
        in->tokens[k -= token_size(model, id)] = id;
    }
    in->word = end;
}

static void merges_end(const NAME_model *model, merger *in) { merges_settle(model, in, in->count); }

/* Makes room. The next token begins at one of the last bytes; the tokens that are the same for each of these bytes are
 * final. */
static void merges_make_room(const NAME_model *model, merger *in) {
    uint32_t shared = in->count, word = in->word;
    for (uint32_t k = 1; k < MAX_TOKEN_BYTES && k <= in->count - word; k++)
        for (uint32_t other = in->count - k; other != shared;) {
            uint32_t *further = other > shared ? &other : &shared;
            *further -= token_size(model, in->tokens[*further - 1]);
        }
    merges_settle(model, in, shared > word ? shared : in->count);
}

/* Takes the next final token and its position in a text that has been read up to `position`. Returns whether
 * there is a final token. */
static int merges_take(const NAME_model *model, merger *in, uint64_t position, uint32_t *id, uint64_t *begin,
                       uint64_t *end) {
    if (in->taken == in->word) return 0;
    *id = in->tokens[in->taken];
    *begin = position - (uint32_t)((uint32_t)position - in->begins[in->taken]);
    in->taken += token_size(model, *id);
    *end = position - (uint32_t)((uint32_t)position - in->ends[in->taken - 1]);
    if (in->taken == in->word) {
        uint32_t from = in->word, left = in->count - from;
        memmove(in->tokens, in->tokens + from, left * sizeof *in->tokens);
        memmove(in->begins, in->begins + from, left * sizeof *in->begins);
        memmove(in->ends, in->ends + from, left * sizeof *in->ends);
        memmove(in->bytes, in->bytes + from, left);
        in->taken = in->word = 0, in->count = left;
    }
    return 1;
}

/* Validates a state: final tokens end at the start of the word, as do the tokens of all bytes that are read again. */
static int merges_are_valid(const NAME_model *model, const merger *in) {
    uint8_t reached[WINDOW] = {0};
    if (in->taken > in->word || in->word > in->count || in->count > WINDOW - 8) return 0;
    for (uint32_t k = in->taken; k < in->count; k++)
        if (in->tokens[k] >= VOCABULARY || !token_size(model, in->tokens[k])) return 0;
    uint32_t at = in->taken;
    while (at < in->word) at += token_size(model, in->tokens[at]);
    int is_valid = at == in->word;
    reached[in->word] = 1;
    for (at = in->word + 1; at <= in->count; at++) {
        uint32_t size = token_size(model, in->tokens[at - 1]);
        reached[at] = size <= at - in->word && reached[at - size];
        is_valid &= reached[at] || at + MAX_TOKEN_BYTES <= in->count;
    }
    return is_valid;
}
