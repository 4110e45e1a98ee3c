/* The best tags of a sentence from its emissions (T, TAGS), and the marginal probability of each tag, independent or in
 * a chain. Sums over paths are in double precision. */
#if !HAS_CHAIN
static void best_path(const NAME_model *model, real *scores, int64_t words, real *best, uint32_t *path) {
    (void)model, (void)best;
    for (int64_t t = 0; t < words; t++) {
        const real *x = scores + t * TAGS;
        path[t] = 0;
        for (uint32_t k = 1; k < TAGS; k++) path[t] = x[k] > x[path[t]] ? k : path[t];
    }
}

static void compute_marginals(const NAME_model *model, const real *scores, int64_t words, double *marginals, double *work) {
    (void)model, (void)work;
    for (int64_t t = 0; t < words; t++) {
        const real *x = scores + t * TAGS;
        real max = x[0];
        double sum = 0;
        for (int k = 1; k < TAGS; k++) max = x[k] > max ? x[k] : max;
        for (int k = 0; k < TAGS; k++) sum += marginals[t * TAGS + k] = exp_64((double)x[k] - (double)max);
        for (int k = 0; k < TAGS; k++) marginals[t * TAGS + k] /= sum;
    }
}
#else
static void log_softmax(const real *x, real *to) {
    real max = x[0];
    for (int k = 1; k < TAGS; k++) max = x[k] > max ? x[k] : max;
    double sum = 0;
    for (int k = 0; k < TAGS; k++) sum += exp_64((double)(x[k] - max));
    for (int k = 0; k < TAGS; k++) to[k] = x[k] - max - (real)log_64(sum);
}

/* Viterbi. For tags that were trained independently, `scores` are overwritten by their log-softmax. */
static void best_path(const NAME_model *model, real *scores, int64_t words, real *best, uint32_t *path) {
    const real *start = reals(model, AT_START), *pairs = reals(model, AT_PAIRS), *end = reals(model, AT_END);
    for (int64_t t = 0; LOG_SOFTMAX && t < words; t++) log_softmax(scores + t * TAGS, scores + t * TAGS);
    for (int k = 0; k < TAGS; k++) best[k] = start[k] + scores[k];
    for (int64_t t = 1; t < words; t++) {
        const real *restrict before = best + (t - 1) * TAGS;
        real *restrict here = best + t * TAGS;
        for (int k = 0; k < TAGS; k++) here[k] = before[0] + pairs[k];
        for (int i = 1; i < TAGS; i++)
            for (int k = 0; k < TAGS; k++) {
                real sum = before[i] + pairs[i * TAGS + k];
                here[k] = sum > here[k] ? sum : here[k];
            }
        for (int k = 0; k < TAGS; k++) here[k] += scores[t * TAGS + k];
    }
    uint32_t tag = 0;
    const real *last = best + (words - 1) * TAGS;
    for (uint32_t k = 1; k < TAGS; k++) tag = last[k] + end[k] > last[tag] + end[tag] ? k : tag;
    path[words - 1] = tag;
    for (int64_t t = words - 1; t > 0; t--) {
        const real *before = best + (t - 1) * TAGS;
        uint32_t found = 0;
        for (uint32_t k = 1; k < TAGS; k++)
            found = before[k] + pairs[k * TAGS + tag] > before[found] + pairs[found * TAGS + tag] ? k : found;
        path[t - 1] = tag = found;
    }
}

/* The score of forbidden transitions: -inf - -inf would be NaN. */
#define NEVER (-1e30)

static double clamp_score(real x) { return x > (real)NEVER ? (double)x : NEVER; }

/* to_j = log sum_i exp(from_i + pairs_ij): products of exponentials, or logarithms where the products underflow. */
static void log_sums(const double *from, const double *powers, const real *pairs, int64_t step_i, int64_t step_j,
                     double *marginals, double *to) {
    double max = from[0];
    for (int i = 1; i < TAGS; i++) max = from[i] > max ? from[i] : max;
    for (int i = 0; i < TAGS; i++) marginals[i] = exp_64(from[i] - max);
    for (int j = 0; j < TAGS; j++) {
        double sum = 0;
        for (int i = 0; i < TAGS; i++) sum += marginals[i] * powers[i * step_i + j * step_j];
        if (sum > 1e-200) {
            to[j] = max + log_64(sum);
            continue;
        }
        double top = NEVER * 4;
        for (int i = 0; i < TAGS; i++) {
            double x = from[i] + clamp_score(pairs[i * step_i + j * step_j]);
            top = x > top ? x : top;
        }
        for (int i = 0; i < TAGS; i++) sum += exp_64(from[i] + clamp_score(pairs[i * step_i + j * step_j]) - top);
        to[j] = top + log_64(sum);
    }
}

/* `work` has room for 3 + TAGS rows. */
static void compute_marginals(const NAME_model *model, const real *scores, int64_t words, double *marginals, double *work) {
    const real *start = reals(model, AT_START), *pairs = reals(model, AT_PAIRS), *end = reals(model, AT_END);
    double *powers = work + 3 * TAGS, *backward = work, *here = work + TAGS, *room = work + 2 * TAGS;
    for (int k = 0; k < TAGS * TAGS; k++) powers[k] = exp_64((double)pairs[k]);
    for (int k = 0; k < TAGS; k++) marginals[k] = clamp_score(start[k]), backward[k] = clamp_score(end[k]);
    for (int64_t t = 1; t < words; t++) {
        for (int k = 0; k < TAGS; k++) here[k] = marginals[(t - 1) * TAGS + k] + (double)scores[(t - 1) * TAGS + k];
        log_sums(here, powers, pairs, TAGS, 1, room, marginals + t * TAGS);
    }
    for (int64_t t = words - 1; t >= 0; t--) {
        double *to = marginals + t * TAGS, max = -INFINITY, sum = 0;
        for (int k = 0; k < TAGS; k++) {
            here[k] = backward[k] + (double)scores[t * TAGS + k];
            to[k] += here[k];
            max = to[k] > max ? to[k] : max;
        }
        for (int k = 0; k < TAGS; k++) sum += to[k] = exp_64(to[k] - max);
        for (int k = 0; k < TAGS; k++) to[k] /= sum;
        if (t) log_sums(here, powers, pairs, 1, TAGS, room, backward);
    }
}
#endif
