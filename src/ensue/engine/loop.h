/* The loop over positions, the same for every cell: it calls a generated step with the rows of each position.
 *
 * An array has six fields: its address and the distance of its rows in reals; the address and the distance of the rows
 * before the first position; its extent, which determines where the rows of a position begin; and, if the array stores
 * only one of several positions, a buffer for the recomputed positions. */
enum { POSITION, PREVIOUS, ROW, VECTOR, SUM, RING, PREVIOUS_RING, CHUNKED, PREVIOUS_CHUNKED };

typedef struct {
    real *base;
    int64_t ld;
    real *start;
    int64_t start_ld, extent;
    real *buffer;
} array;

typedef struct {
    int64_t array, width;
    real *to;
} final_state;

/* Rows `first` to `last` of the batch at positions `from` to `to`, counted from the end if `backward`. `counts[t]` rows
 * have a position t, and begin at row `begins[t]` of an array. Chunked arrays store one of `every` positions (0: no
 * array is chunked). All positions of `block` rows (0: of all rows) are computed before the next rows. */
typedef struct {
    int64_t positions, from, to, batch, first, last, worker, backward, arrays, finals, every, block;
    const int64_t *counts, *begins;
} range;

typedef void multiplication(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, const real *packed,
                            real *c, int64_t ldc);
typedef void step(int64_t rows, const int64_t *n, real *const *p, const int64_t *ld, const real *const *packed,
                  multiplication *multiply);

static real *rows_of_chunked(const array *a, const range *of, int64_t t) {
    int64_t place = t % of->every;
    if (place == of->every - 1) return a->base + (t / of->every * of->batch + of->first) * a->ld;
    return a->buffer + (of->worker * of->every + place) * of->block * a->ld;
}

static real *rows_of(const array *a, const range *of, int64_t t) {
    switch (a->extent) {
        case POSITION: return a->base + (of->begins[t] + of->first) * a->ld;
        case RING: return a->base + (t % 2 * of->batch + of->first) * a->ld;
        case ROW: return a->base + of->first * a->ld;
        case VECTOR: return a->base;
        case SUM: return a->base + of->worker * a->ld;
        case CHUNKED: return rows_of_chunked(a, of, t);
    }
    if (t == 0) return a->start + of->first * a->start_ld;
    if (a->extent == PREVIOUS_CHUNKED) return rows_of_chunked(a, of, t - 1);
    if (a->extent == PREVIOUS) return a->base + (of->begins[t - 1] + of->first) * a->ld;
    return a->base + ((t - 1) % 2 * of->batch + of->first) * a->ld;
}

static int64_t ld_at(const array *a, int64_t t) {
    int is_previous = a->extent == PREVIOUS || a->extent == PREVIOUS_RING || a->extent == PREVIOUS_CHUNKED;
    return t == 0 && is_previous ? a->start_ld : a->ld;
}

/* Copies the final states of rows `from` to `to`, whose last position is t. */
static void finish(const array *a, const range *of, const final_state *finals, int64_t t, int64_t from, int64_t to) {
    for (int64_t k = 0; k < of->finals; k++)
        for (int64_t r = from; r < to; r++)
            memcpy(finals[k].to + (of->first + r) * finals[k].width,
                   rows_of(a + finals[k].array, of, t) + r * a[finals[k].array].ld, finals[k].width * sizeof(real));
}

static int64_t rows_at(const range *of, int64_t t) {
    int64_t count = t < of->positions ? of->counts[t] : 0;
    count = (count < of->last ? count : of->last) - of->first;
    return count > 0 ? count : 0;
}

static void run_over(step *run_step, const range *of, const array *a, const final_state *finals, const int64_t *n,
                const real *const *packed, multiplication *multiply) {
    real *p[of->arrays];
    int64_t ld[of->arrays];
    for (int64_t i = of->from; i < of->to; i++) {
        int64_t t = of->backward ? of->positions - 1 - i : i, rows = rows_at(of, t);
        if (rows == 0) continue;
        for (int64_t k = 0; k < of->arrays; k++) {
            p[k] = rows_of(a + k, of, t);
            ld[k] = ld_at(a + k, t);
        }
        run_step(rows, n, p, ld, packed, multiply);
        finish(a, of, finals, t, rows_at(of, t + 1), rows);
    }
}

/* With chunked arrays, the backward pass runs over one chunk of positions at a time, after `recompute` has filled the
 * buffer of the chunk. */
static void run(step *run_step, step *recompute, const range *of, const array *a, const final_state *finals,
                const int64_t *n, const real *const *packed, multiplication *multiply) {
    range rows = *of;
    for (rows.first = of->first; rows.first < of->last; rows.first = rows.last) {
        rows.last = of->block && rows.first + of->block < of->last ? rows.first + of->block : of->last;
        if (!recompute || !of->every) {
            run_over(run_step, &rows, a, finals, n, packed, multiply);
            continue;
        }
        for (int64_t end = of->positions, begin; end > 0; end = begin) {
            begin = (end - 1) / of->every * of->every;
            range chunk = rows;
            chunk.backward = 0, chunk.from = begin, chunk.to = end - (end % of->every == 0);
            run_over(recompute, &chunk, a, finals, n, packed, multiply);
            chunk.backward = 1, chunk.from = of->positions - end, chunk.to = of->positions - begin;
            run_over(run_step, &chunk, a, finals, n, packed, multiply);
        }
    }
}
