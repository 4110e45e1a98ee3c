/* A clockwork network over complete sequences, forward and backward: each module is computed at the positions of its
 * updates; elsewhere its states are copied and their errors passed on. Compiled after engine/kernels.h. */
#include <stdlib.h>

/* Arrays of positions are (batch, positions, width). At position 0 all clocks are `start`. */
typedef struct {
    int64_t batch, positions, start, d_in, d, groups, size, modules, periods[];
} shape;

/* One module, or several small modules: `size` units from `unit` on. The fastest of them update at `updates` positions:
 * first, first + period, ... The errors at the pre-activations, (batch, updates, size), begin at `errors`. */
typedef struct {
    int64_t unit, size, period, first, updates, errors;
} group;

/* Returns the number of units that update at position t. These units come first. */
static int64_t updating_units(const shape *s, int64_t t) {
    int64_t k = 0;
    while (k < s->modules && (s->start + t) % s->periods[k] == 0)
        k++;
    return k * s->size;
}

/* Returns the first column of U (`of_h`) or W that a unit reads: a module reads the states of itself and of slower
 * modules. */
static int64_t first_column(const shape *s, int64_t unit, int of_h) { return of_h ? unit / s->size * s->size : 0; }

/* Allocates aligned memory for packed matrices, or returns NULL. The public functions return 1 if they get NULL, else
 * 0. */
static real *allocate(int64_t reals) { return aligned_alloc(64, (reals * sizeof(real) / 64 + 1) * 64); }

static int64_t max_packed_size(const shape *s, const group *m, int64_t width) {
    int64_t by_rows = packed_size(m->size, width), by_columns = packed_size(width, m->size);
    return by_rows > by_columns ? by_rows : by_columns;
}

/* Packs each group's rows of A (d x width), or their transpose, without the columns before the first that the group
 * reads. */
static real *pack_groups(const shape *s, const group *m, const real *A, int64_t width, int of_h, int transposed) {
    int64_t each = max_packed_size(s, m, width);
    real *packed = allocate(s->groups * each + m->size * width), *copy;
    if (!packed)
        return NULL;
    copy = packed + s->groups * each;
    for (int64_t k = 0; k < s->groups; k++, m++) {
        int64_t from = first_column(s, m->unit, of_h);
        const real *rows = A + m->unit * width + from;
        if (of_h && m->size > s->size) { /* a module does not read faster modules of its group */
            for (int64_t j = 0; j < m->size; j++)
                for (int64_t i = from, begin = first_column(s, m->unit + j, of_h); i < width; i++)
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

/* Writes W x to y. */
static void add_inputs(const shape *s, const group *m, int64_t row, const real *x, const real *W, real *y) {
    int64_t each = max_packed_size(s, m, s->d_in);
    for (int64_t k = 0; k < s->groups; k++, m++) {
        int64_t at = row * s->positions + m->first;
        if (m->updates)
            gemm(m->updates, m->size, s->d_in, x + at * s->d_in, m->period * s->d_in, 1, W + k * each,
                 y + at * s->d + m->unit, m->period * s->d, 0);
    }
}

/* Computes rows `first` to `last` of y from x and the initial states h. */
PUBLIC int forward(const shape *s, const group *groups, int64_t first, int64_t last, const real *x, const real *h,
             const real *W, const real *U, const real *b, real *y) {
    int64_t d = s->d, ld = s->positions * d, each = max_packed_size(s, groups, d);
    real *W_packed = pack_groups(s, groups, W, s->d_in, 0, 1), *U_packed = pack_groups(s, groups, U, d, 1, 1);
    int fails = !W_packed || !U_packed;
    for (int64_t row = first; !fails && row < last; row++)
        add_inputs(s, groups, row, x, W_packed, y);
    for (int64_t t = 0; !fails && t < s->positions; t++) {
        const real *before = t ? y + first * ld + (t - 1) * d : h + first * d;
        int64_t ld_before = t ? ld : d, updating = updating_units(s, t);
        real *now = y + first * ld + t * d;
        for (const group *m = groups; m < groups + s->groups && m->unit < updating; m++)
            gemm(last - first, m->size, d - m->unit, before + m->unit, ld_before, 1, U_packed + (m - groups) * each,
                 now + m->unit, ld, 1);
        for (int64_t row = first; row < last; row++, now += ld, before += ld_before) {
            for (int64_t j = 0; j < updating; j++)
                now[j] = tanh_(now[j] + b[j]);
            memcpy(now + updating, before + updating, (d - updating) * sizeof(real));
        }
    }
    free(W_packed);
    free(U_packed);
    return fails;
}

/* Returns the address of a row's errors at the pre-activations of a position. */
static real *errors_at(const group *m, int64_t row, int64_t t, real *errors) {
    return errors + m->errors + (row * m->updates + (t - m->first) / m->period) * m->size;
}

/* Writes a row's error at x, from the errors at the pre-activations. */
static void write_input_errors(const shape *s, const group *m, int64_t row, real *errors, const real *W,
                               real *error_x) {
    int64_t each = max_packed_size(s, m, s->d_in), every = m->period == 1;
    if (!every)
        memset(error_x + row * s->positions * s->d_in, 0, s->positions * s->d_in * sizeof(real));
    for (int64_t k = 0; k < s->groups; k++, m++)
        if (m->updates)
            gemm(m->updates, s->d_in, m->size, errors_at(m, row, m->first, errors), m->size, 1, W + k * each,
                 error_x + (row * s->positions + m->first) * s->d_in, m->period * s->d_in, k || !every);
}

/* Writes a group's errors at the pre-activations of a position, zeros for units that do not update. Only U reads the
 * previous state of a unit that updates, so the unit's `error` becomes 0, and the caller adds the error from U. */
static void write_update_errors(const group *m, int64_t updating, const real *y, real *error, real *error_b,
                             real *errors) {
    int64_t n = minimum(m->size, updating - m->unit);
    for (int64_t j = 0, unit = m->unit; j < n; j++, unit++) {
        errors[j] = error[unit] * (1 - y[unit] * y[unit]);
        error_b[unit] += errors[j];
        error[unit] = 0;
    }
    memset(errors + n, 0, (m->size - n) * sizeof(real));
}

/* Writes the errors at pre-activations and at x for rows `first` to `last`, and adds the errors at h and the bias. */
PUBLIC int backward(const shape *s, const group *groups, int64_t first, int64_t last, const real *y,
                    const real *error_y, const real *W, const real *U, real *errors, real *error_x, real *error_h,
                    real *error_b) {
    int64_t d = s->d, each = max_packed_size(s, groups, d);
    real *W_packed = pack_groups(s, groups, W, s->d_in, 0, 0), *U_packed = pack_groups(s, groups, U, d, 1, 0);
    int fails = !W_packed || !U_packed;
    for (int64_t t = s->positions - 1; !fails && t >= 0; t--) {
        int64_t updating = updating_units(s, t);
        for (int64_t row = first; row < last; row++) {
            int64_t at = (row * s->positions + t) * d;
            for (int64_t j = 0; j < d; j++)
                error_h[row * d + j] += error_y[at + j];
            for (const group *m = groups; m < groups + s->groups && m->unit < updating; m++)
                write_update_errors(m, updating, y + at, error_h + row * d, error_b, errors_at(m, row, t, errors));
        }
        for (const group *m = groups; m < groups + s->groups && m->unit < updating; m++)
            gemm(last - first, d - m->unit, m->size, errors_at(m, first, t, errors), m->updates * m->size, 1,
                 U_packed + (m - groups) * each, error_h + first * d + m->unit, d, 1);
    }
    for (int64_t row = first; !fails && row < last; row++)
        write_input_errors(s, groups, row, errors, W_packed, error_x);
    free(W_packed);
    free(U_packed);
    return fails;
}

/* Packs row p of a matrix of `count` rows and n columns. */
static void pack_row(int64_t p, int64_t count, int64_t n, const real *row, real *packed) {
    for (packed += p * PANEL; n >= PANEL; n -= PANEL, row += PANEL, packed += count * PANEL)
        memcpy(packed, row, PANEL * sizeof(real));
    for (int64_t j = 0; n > 0 && j < PANEL; j++)
        packed[j] = j < n ? row[j] : 0;
}

/* Computes columns `first` to `last` of the errors at a matrix (d x width) that reads x or, unless h is NULL, the
 * states before. */
static void write_matrix_errors(const shape *s, const group *m, int64_t first, int64_t last, const real *inputs,
                                const real *h, int64_t width, real *errors, real *error_matrix, real *workspace) {
    for (const group *end = m + s->groups; m < end; m++) {
        int64_t first_read = first_column(s, m->unit, h != NULL), from = first_read > first ? first_read : first;
        real *to = error_matrix + m->unit * width;
        for (int64_t i = 0, all = s->batch * m->updates, count; from < last && i < all; i += count) {
            count = even_chunk(all - i, BLOCK);
            for (int64_t p = 0; p < count; p++) {
                int64_t row = (i + p) / m->updates, t = m->first + (i + p) % m->updates * m->period;
                const real *source = inputs + (row * s->positions + t) * width;
                if (h)
                    source = t ? source - width : h + row * width;
                pack_row(p, count, last - from, source + from, workspace);
            }
            gemm(m->size, last - from, count, errors + m->errors + i * m->size, 1, m->size, workspace, to + from,
                 width, i > 0);
        }
        for (int64_t unit = m->unit; unit < m->unit + m->size; unit++, to += width) {
            int64_t zeros = (m->updates ? minimum(last, first_column(s, unit, h != NULL)) : last) - first;
            if (zeros > 0)
                memset(to + first, 0, zeros * sizeof(real));
        }
    }
}

/* Computes columns `first` to `last` of the errors at [W U]. */
PUBLIC int matrix_errors(const shape *s, const group *groups, int64_t first, int64_t last, const real *x,
                 const real *y, const real *h, real *errors, real *error_W, real *error_U) {
    real *workspace = allocate(packed_size(BLOCK, last - first));
    if (!workspace)
        return 1;
    if (first < s->d_in)
        write_matrix_errors(s, groups, first, minimum(last, s->d_in), x, NULL, s->d_in, errors, error_W, workspace);
    if (last > s->d_in)
        write_matrix_errors(s, groups, first > s->d_in ? first - s->d_in : 0, last - s->d_in, y, h, s->d, errors,
                            error_U, workspace);
    free(workspace);
    return 0;
}
