/* A regular expression as numbers (printed by `expressions.py`), matched by backtracking as in Python's `re`: the most
 * recent choice is tried first. A choice is a code position and a range of text positions. */
enum { TAKE, SPLIT, JUMP, REPEAT, LAZY, SAME, LOOK, COMMIT, DONE };
#define NO_MATCH UINT32_MAX
#define NO_SET UINT32_MAX
#define IS_LAZY UINT32_C(0x80000000)
enum { EXPRESSION_ROOM = 256 };

typedef struct {
    uint32_t code, low, high;
} choice;

typedef struct {
    const uint32_t *text;
    uint32_t count;
    choice *choices; /* count + EXPRESSION_ROOM elements */
    uint32_t used;
    int is_full;
} matcher;

static void choose(matcher *in, uint32_t code, uint32_t low, uint32_t high) {
    if (in->used == in->count + EXPRESSION_ROOM) in->is_full = 1;
    else in->choices[in->used++] = (choice){code, low, high};
}

/* Returns the end of the match that begins at `at`, or NO_MATCH. */
static uint32_t match(matcher *in, const uint32_t *code, uint32_t next, uint32_t at) {
    uint32_t base = in->used, count = in->count;
    const uint32_t *text = in->text;
    for (;;) {
        const uint32_t *op = code + next;
        int fails = in->is_full;
        switch (op[0]) {
            case TAKE: /* a character of a set */
                fails |= at == count || !set_has(op[1], text[at]);
                at++, next += 2;
                break;
            case SPLIT: /* the next code, if a character of the set op[2] follows, or after failure the code at op[1] */
                next = op[1];
                if (op[2] != NO_SET && (at == count || !set_has(op[2], text[at]))) break;
                choose(in, next, at, at);
                next = (uint32_t)(op - code) + 3;
                break;
            case JUMP: next = op[1]; break;
            case REPEAT: /* op[2] to op[3] characters of a set, greedy */
            case SAME: { /* op[2] to op[3] times the previous character, greedy */
                uint32_t begin = at, max = op[3] < count - at ? begin + op[3] : count;
                if (op[0] == REPEAT) while (at < max && set_has(op[1], text[at])) at++;
                else while (at < max && text[at] == text[begin - 1]) at++;
                fails |= at - begin < op[2];
                next += 4;
                if (!fails && at - begin > op[2]) choose(in, next, begin + op[2], at - 1);
                break;
            }
            case LAZY: /* op[2] to op[3] characters of a set, lazy */
                for (uint32_t k = 0; k < op[2] && !fails; k++, at++) fails = at == count || !set_has(op[1], text[at]);
                if (!fails) choose(in, next | IS_LAZY, at, op[3] - op[2]);
                next += 4;
                break;
            case LOOK: { /* lookahead, or lookbehind by op[2] characters */
                uint32_t end = at < op[2] ? NO_MATCH : match(in, code, next + 4, at - op[2]);
                fails |= (end != NO_MATCH) == op[1];
                next = op[3];
                break;
            }
            case COMMIT: /* drops the choices, since the rest of the expression always matches */
                in->used = base;
                next++;
                break;
            default:
                in->used = base;
                return in->is_full ? NO_MATCH : at;
        }
        while (fails) {
            if (in->is_full || in->used == base) {
                in->used = base;
                return NO_MATCH;
            }
            choice *last = in->choices + in->used - 1;
            if (last->code & IS_LAZY) {
                op = code + (last->code & ~IS_LAZY);
                at = last->low, next = (uint32_t)(op - code) + 4;
                fails = at == count || last->high == 0 || !set_has(op[1], text[at]);
                if (fails) in->used--;
                else last->low = ++at, last->high--;
            } else {
                next = last->code, at = last->high, fails = 0;
                if (last->high == last->low) in->used--;
                else last->high--;
            }
        }
    }
}
