/* A clockwork network over whole sequences, forward and backward: each module is worked out at its turns; the rest of the
 * time its states are copied and their errors passed on. Compiled after engine/kernels.h. */
#include <stdlib.h>

/* Arrays of positions are (batch, positions, width). At position 0 the clocks show `start`. */
typedef struct {
    int64_t batch, positions, start, d_in, d, parts, size, modules, periods[];
} shape;

/* One module, or several small ones: `size` units from `unit` on, of which some work at `turns` positions, first,
 * first + period, ... The errors at their pre-activations, (batch, turns, size), begin at `errors`. */
typedef struct {
    int64_t unit, size, period, first, turns, errors;
} part;

/* How many units work at position t, always the first ones. */
static int64_t working(const shape *s, int64_t t) {
    int64_t k = 0;
    while (k < s->modules && (s->start + t) % s->periods[k] == 0)
        k++;
    return k * s->size;
}

/* The first column of U, or of W, that is read by the module of a unit: it hears itself and the slower ones. */
static int64_t heard(const shape *s, int64_t unit, int of_h) { return of_h ? unit / s->size * s->size : 0; }

/* Memory as packed matrices want it, or NULL; the functions that Python calls then do nothing and return 1, else 0. */
static real *room(int64_t reals) { return aligned_alloc(64, (reals * sizeof(real) / 64 + 1) * 64); }

static int64_t most_packed(const shape *s, const part *m, int64_t width) {
    int64_t by_rows = packed_size(m->size, width), by_columns = packed_size(width, m->size);
    return by_rows > by_columns ? by_rows : by_columns;
}

/* The rows of A (d x width) of each part, or their transpose, from the first column that is heard on. */
static real *pack_parts(const shape *s, const part *m, const real *A, int64_t width, int of_h, int transposed) {
    int64_t each = most_packed(s, m, width);
    real *packed = room(s->parts * each + m->size * width), *copy;
    if (!packed)
        return NULL;
    copy = packed + s->parts * each;
    for (int64_t k = 0; k < s->parts; k++, m++) {
        int64_t from = heard(s, m->unit, of_h);
        const real *rows = A + m->unit * width + from;
        if (of_h && m->size > s->size) { /* of several modules, each hears from itself on */
            for (int64_t j = 0; j < m->size; j++)
                for (int64_t i = from, begin = heard(s, m->unit + j, of_h); i < width; i++)
                    copy[j * width + i - from] = i < begin ? 0 : A[(m->unit + j) * width + i];
            rows = copy;
        }
        if (transposed)
            pack(width - from, m->size, rows, 1, width, packed + k * each);
        else
            pack(m->size, width - from, rows, width, 1, packed + k * each);
    }
    return packed;
}

/* y holds W x first. */
static void add_inputs(const shape *s, const part *m, int64_t row, const real *x, const real *W, real *y) {
    int64_t each = most_packed(s, m, s->d_in);
    for (int64_t k = 0; k < s->parts; k++, m++) {
        int64_t at = row * s->positions + m->first;
        if (m->turns)
            gemm(m->turns, m->size, s->d_in, x + at * s->d_in, m->period * s->d_in, 1, W + k * each,
                 y + at * s->d + m->unit, m->period * s->d, 0);
    }
}

/* Rows `first` to `last` of y from x and the states h before. */
PUBLIC int forward(const shape *s, const part *parts, int64_t first, int64_t last, const real *x, const real *h,
             const real *W, const real *U, const real *b, real *y) {
    int64_t d = s->d, ld = s->positions * d, each = most_packed(s, parts, d);
    real *W_parts = pack_parts(s, parts, W, s->d_in, 0, 1), *U_parts = pack_parts(s, parts, U, d, 1, 1);
    int fails = !W_parts || !U_parts;
    for (int64_t row = first; !fails && row < last; row++)
        add_inputs(s, parts, row, x, W_parts, y);
    for (int64_t t = 0; !fails && t < s->positions; t++) {
        const real *before = t ? y + first * ld + (t - 1) * d : h + first * d;
        int64_t ld_before = t ? ld : d, works = working(s, t);
        real *now = y + first * ld + t * d;
        for (const part *m = parts; m < parts + s->parts && m->unit < works; m++)
            gemm(last - first, m->size, d - m->unit, before + m->unit, ld_before, 1, U_parts + (m - parts) * each,
                 now + m->unit, ld, 1);
        for (int64_t row = first; row < last; row++, now += ld, before += ld_before) {
            for (int64_t j = 0; j < works; j++)
                now[j] = tanh_(now[j] + b[j]);
            memcpy(now + works, before + works, (d - works) * sizeof(real));
        }
    }
    free(W_parts);
    free(U_parts);
    return fails;
}

/* A row's errors at the pre-activations of a position. */
static real *errors_at(const part *m, int64_t row, int64_t t, real *errors) {
    return errors + m->errors + (row * m->turns + (t - m->first) / m->period) * m->size;
}

/* A row's error at x, from those at the pre-activations. */
static void put_errors(const shape *s, const part *m, int64_t row, real *errors, const real *W, real *error_x) {
    int64_t each = most_packed(s, m, s->d_in), every = m->period == 1;
    if (!every)
        memset(error_x + row * s->positions * s->d_in, 0, s->positions * s->d_in * sizeof(real));
    for (int64_t k = 0; k < s->parts; k++, m++)
        if (m->turns)
            gemm(m->turns, s->d_in, m->size, errors_at(m, row, m->first, errors), m->size, 1, W + k * each,
                 error_x + (row * s->positions + m->first) * s->d_in, m->period * s->d_in, k || !every);
}

/* One part's errors at a position, and zeros where its units rest; what works takes nothing else from before. */
static void end_errors(const part *m, int64_t works, const real *y, real *error, real *error_b, real *errors) {
    int64_t n = least(m->size, works - m->unit);
    for (int64_t j = 0, unit = m->unit; j < n; j++, unit++) {
        errors[j] = error[unit] * (1 - y[unit] * y[unit]);
        error_b[unit] += errors[j];
        error[unit] = 0;
    }
    memset(errors + n, 0, (m->size - n) * sizeof(real));
}

/* Of rows `first` to `last`: the errors at the pre-activations, at x and, added to what is there, at h and the bias. */
PUBLIC int backward(const shape *s, const part *parts, int64_t first, int64_t last, const real *y, const real *error_y,
              const real *W, const real *U, real *errors, real *error_x, real *error_h, real *error_b) {
    int64_t d = s->d, each = most_packed(s, parts, d);
    real *W_parts = pack_parts(s, parts, W, s->d_in, 0, 0), *U_parts = pack_parts(s, parts, U, d, 1, 0);
    int fails = !W_parts || !U_parts;
    for (int64_t t = s->positions - 1; !fails && t >= 0; t--) {
        int64_t works = working(s, t);
        for (int64_t row = first; row < last; row++) {
            int64_t at = (row * s->positions + t) * d;
            for (int64_t j = 0; j < d; j++)
                error_h[row * d + j] += error_y[at + j];
            for (const part *m = parts; m < parts + s->parts && m->unit < works; m++)
                end_errors(m, works, y + at, error_h + row * d, error_b, errors_at(m, row, t, errors));
        }
        for (const part *m = parts; m < parts + s->parts && m->unit < works; m++)
            gemm(last - first, d - m->unit, m->size, errors_at(m, first, t, errors), m->turns * m->size, 1,
                 U_parts + (m - parts) * each, error_h + first * d + m->unit, d, 1);
    }
    for (int64_t row = first; !fails && row < last; row++)
        put_errors(s, parts, row, errors, W_parts, error_x);
    free(W_parts);
    free(U_parts);
    return fails;
}

/* Row p of `count`, packed. */
static void pack_row(int64_t p, int64_t count, int64_t n, const real *row, real *packed) {
    for (packed += p * PANEL; n >= PANEL; n -= PANEL, row += PANEL, packed += count * PANEL)
        memcpy(packed, row, PANEL * sizeof(real));
    for (int64_t j = 0; n > 0 && j < PANEL; j++)
        packed[j] = j < n ? row[j] : 0;
}

/* Columns `first` to `last` of the errors at a matrix (d x width) that reads x, or the states before: with h given. */
static void at_matrix(const shape *s, const part *m, int64_t first, int64_t last, const real *read, const real *h,
                      int64_t width, real *errors, real *error_matrix, real *workspace) {
    for (const part *end = m + s->parts; m < end; m++) {
        int64_t heard_from = heard(s, m->unit, h != NULL), from = heard_from > first ? heard_from : first;
        real *to = error_matrix + m->unit * width;
        for (int64_t i = 0, all = s->batch * m->turns, count; from < last && i < all; i += count) {
            count = even_part(all - i, BLOCK);
            for (int64_t p = 0; p < count; p++) {
                int64_t row = (i + p) / m->turns, t = m->first + (i + p) % m->turns * m->period;
                const real *source = read + (row * s->positions + t) * width;
                if (h)
                    source = t ? source - width : h + row * width;
                pack_row(p, count, last - from, source + from, workspace);
            }
            gemm(m->size, last - from, count, errors + m->errors + i * m->size, 1, m->size, workspace, to + from,
                 width, i > 0);
        }
        for (int64_t unit = m->unit; unit < m->unit + m->size; unit++, to += width) {
            int64_t zeros = (m->turns ? least(last, heard(s, unit, h != NULL)) : last) - first;
            if (zeros > 0)
                memset(to + first, 0, zeros * sizeof(real));
        }
    }
}

/* Columns `first` to `last` of the errors at [W U]. */
PUBLIC int at_matrices(const shape *s, const part *parts, int64_t first, int64_t last, const real *x, const real *y,
                 const real *h, real *errors, real *error_W, real *error_U) {
    real *workspace = room(packed_size(BLOCK, last - first));
    if (!workspace)
        return 1;
    if (first < s->d_in)
        at_matrix(s, parts, first, least(last, s->d_in), x, NULL, s->d_in, errors, error_W, workspace);
    if (last > s->d_in)
        at_matrix(s, parts, first > s->d_in ? first - s->d_in : 0, last - s->d_in, y, h, s->d, errors, error_U,
                  workspace);
    free(workspace);
    return 0;
}
