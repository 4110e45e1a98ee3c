/* A step of beam search without prefixes and phrases, from log-probabilities to the rows of the next step: as `Frontier`
 * of frontier.py, but without its arrays of candidates. Compiled after engine/kernels.h. */

enum { BLOCK_TOKENS = 64 };

/* A hypothesis of an input: its number of tokens before the last, the row that wrote them, and its last token or -1. */
typedef struct {
    double score, total;
    int64_t length, row, last;
} __attribute__((may_alias)) hypothesis;

/* The best hypotheses of an input, sorted by score; of equal scores the first that was added comes first. */
typedef struct {
    int64_t count;
    hypothesis *best;
} __attribute__((may_alias)) ranking;

/* A continuation of a row. */
typedef struct {
    double total;
    int64_t row, id;
} __attribute__((may_alias)) candidate;

/* The state of a search. Inputs that are not done have `slots` consecutive rows each; the total of an empty slot is -∞.
 * Sizes: `width` candidates; `n_best` hypotheses for each input in `complete` and in `incomplete`; for each input a limit
 * of tokens and the penalty of that length; room for inputs x width rows in `totals` and `next`. `end` may be -1. */
typedef struct {
    int64_t width, n_best, size, end, min_tokens, num_blocked, length, inputs, slots;
    const int64_t *blocked, *limits;
    const double *bounds;
    int64_t *live, *counts;
    double *totals, *next;
    candidate *chosen;
    ranking *complete, *incomplete;
} __attribute__((may_alias)) beams;

static void add(const beams *s, ranking *to, double total, double penalty, int64_t length, int64_t row, int64_t last) {
    hypothesis one = {total / penalty, total, length, row, last};
    int64_t k = to->count;
    for (; k && to->best[k - 1].score < one.score; k--)
        if (k < s->n_best) to->best[k] = to->best[k - 1];
    if (k < s->n_best) to->best[k] = one;
    to->count = minimum(to->count + 1, s->n_best);
}

/* Adds the continuations of a row to the `count` best of its input. Continuations are added in the order of rows and
 * ids, so that of equal totals the first stays. Returns the new count; -1 for NaN. */
static int64_t extend(const beams *s, double total, const real *x, int64_t row, int64_t count, int *is_stuck) {
    candidate *best = s->chosen;
    *is_stuck = 1;
    for (int64_t begin = 0; begin < s->size; begin += BLOCK_TOKENS) {
        int64_t end = minimum(begin + BLOCK_TOKENS, s->size);
        real highest = -(real)INFINITY;
        int is_nan = 0;
#pragma omp simd reduction(max : highest) reduction(| : is_nan)
        for (int64_t j = begin; j < end; j++) {
            highest = x[j] > highest ? x[j] : highest;
            is_nan |= x[j] != x[j];
        }
        if (is_nan) return -1;
        if (highest == -(real)INFINITY) continue;
        *is_stuck = 0;
        if (count == s->width && !(total + (double)highest > best[count - 1].total)) continue;
        for (int64_t j = begin; j < end; j++) {
            double sum = total + (double)x[j];
            if (x[j] == -(real)INFINITY || (count == s->width && !(sum > best[count - 1].total))) continue;
            int64_t k = count < s->width ? count++ : count - 1;
            for (; k && best[k - 1].total < sum; k--)
                best[k] = best[k - 1];
            best[k] = (candidate){sum, row, j};
        }
    }
    return count;
}

/* Chooses the continuations of all inputs from the scores of their rows. `parents` and `ids` get the rows of the next
 * step; returns their number, or -1 if a score is NaN. `penalty` is the divisor at the current length, and `before` the
 * divisor at the length before. */
PUBLIC int64_t advance(beams *s, real *scores, double penalty, double before, int64_t *parents, int64_t *ids) {
    int64_t next = 0, inputs = 0, slots = 0, rows = s->slots;
    int is_stuck[rows], has_ended[rows];
    for (int64_t row = 0, k = 0; k < s->inputs; k++, row += rows) {
        int64_t input = s->live[k], count = 0, first = next;
        ranking *complete = s->complete + input;
        int is_too_long = s->length > s->limits[input];
        for (int64_t r = 0; r < rows; r++) {
            real *x = scores + (row + r) * s->size;
            is_stuck[r] = has_ended[r] = 0;
            if (s->totals[row + r] == -INFINITY) continue;
            for (int64_t b = 0; b < s->num_blocked; b++)
                x[s->blocked[b]] = -(real)INFINITY;
            if (s->end >= 0 && s->length <= s->min_tokens) x[s->end] = -(real)INFINITY;
            count = extend(s, s->totals[row + r], x, row + r, count, is_stuck + r);
            if (count < 0) return -1;
        }
        for (const candidate *c = s->chosen; c < s->chosen + count; c++) {
            if (s->end < 0 ? s->length == s->limits[input] : c->id == s->end) {
                add(s, complete, c->total, penalty, s->length - 1, c->row, s->end < 0 ? c->id : -1);
                has_ended[c->row - row] = 1;
            } else if (!is_too_long) {
                parents[next] = c->row, ids[next] = c->id, s->next[next++] = c->total;
            }
        }
        for (int64_t r = 0; r < rows; r++)
            if (s->totals[row + r] > -INFINITY && (is_stuck[r] || (is_too_long && !has_ended[r])))
                add(s, s->incomplete + input, s->totals[row + r], before, s->length - 1, row + r, -1);
        double last = complete->count == s->n_best ? complete->best[complete->count - 1].score : -INFINITY;
        if (next > first && s->next[first] / s->bounds[input] > last)
            slots = next - first > slots ? next - first : slots, s->live[inputs] = input, s->counts[inputs++] = next - first;
        else
            next = first;
    }
    for (int64_t k = inputs - 1; k >= 0; k--) { /* gives each input `slots` rows, from the last to the first */
        next -= s->counts[k];
        for (int64_t r = slots - 1, to = k * slots + r; r >= 0; r--, to--) {
            int64_t from = next + (r < s->counts[k] ? r : 0);
            parents[to] = parents[from], ids[to] = ids[from];
            s->totals[to] = r < s->counts[k] ? s->next[from] : -INFINITY;
        }
    }
    s->inputs = inputs, s->slots = slots, s->length++;
    return inputs * slots;
}
