/* The scan h_t = a_t h_{t-1} + b_t and its gradient, each in one pass over memory (nn/scan.py has the equations).

   `real` is float or double, defined by whoever includes this file. Sequences are (rows, T, d), states (rows, d), all
   without gaps, and no output overlaps anything else. The loops over the features vectorize. */

#include <stddef.h>

void scan_forward(ptrdiff_t rows, ptrdiff_t T, ptrdiff_t d, const real *restrict a, const real *restrict b,
                  const real *restrict start, real *restrict h) {
    for (ptrdiff_t row = 0; row < rows; row++) {
        const real *before = start + row * d;
        for (ptrdiff_t t = 0; t < T; t++) {
            const ptrdiff_t at = (row * T + t) * d;
            for (ptrdiff_t j = 0; j < d; j++) h[at + j] = a[at + j] * before[j] + b[at + j];
            before = h + at;
        }
    }
}

/* From dh, what comes from outside; db holds the error terms on the way from right to left. */
void scan_backward(ptrdiff_t rows, ptrdiff_t T, ptrdiff_t d, const real *restrict a, const real *restrict start,
                   const real *restrict h, const real *restrict dh, real *restrict da, real *restrict db,
                   real *restrict dstart) {
    for (ptrdiff_t row = 0; row < rows; row++) {
        real *carried = dstart + row * d; /* a_{t+1} times the error term of t + 1; in the end that of the start */
        for (ptrdiff_t j = 0; j < d; j++) carried[j] = 0;
        for (ptrdiff_t t = T - 1; t >= 0; t--) {
            const ptrdiff_t at = (row * T + t) * d;
            const real *before = t ? h + at - d : start + row * d;
            for (ptrdiff_t j = 0; j < d; j++) {
                const real delta = dh[at + j] + carried[j];
                da[at + j] = delta * before[j];
                db[at + j] = delta;
                carried[j] = a[at + j] * delta;
            }
        }
    }
}
