/* One call of the engine's C in a process of its own, on another kind of processor: memory, arrays and sizes come by
 * standard input as numbers of 64 bits, and memory as the call has left it goes to standard output. Comes after the
 * printed passes and products.c, with PASSES as their names. */
#include <stdio.h>
#include <stdlib.h>

typedef void pass(const range *, const array *, const final_state *, const int64_t *, const real *const *,
                  multiplication *);
static pass *const passes[] = {PASSES};

static void take(void *to, int64_t bytes) {
    if (bytes && fread(to, 1, (size_t)bytes, stdin) != (size_t)bytes) abort();
}

static int64_t number(void) {
    int64_t found;
    take(&found, 8);
    return found;
}

static char *room(int64_t bytes) {
    char *found = aligned_alloc(64, (size_t)(bytes / 64 + 1) * 64);
    if (!found) abort();
    return found;
}

static char *memory[256];

/* Where a number of a memory, and of a byte in it, point to; -1: nowhere. */
static real *place(void) {
    int64_t which = number(), byte = number();
    return which < 0 ? NULL : (real *)(memory[which] + byte);
}

static int64_t *numbers(int64_t count) {
    int64_t *found = (int64_t *)room(8 * count);
    take(found, 8 * count);
    return found;
}

int main(void) {
    int64_t sizes[256], memories = number();
    for (int64_t m = 0; m < memories; m++) {
        memory[m] = room(sizes[m] = number());
        take(memory[m], sizes[m]);
    }
    int64_t which = number();
    if (which < 0) { /* a product */
        int64_t *n = numbers(8);
        real *a = place(), *b = place(), *c = place(), *workspace = (real *)room(8 * size_of_block(n[1]));
        multiply_once(n[0], n[1], n[2], a, n[3], n[4], b, n[5], n[6], c, n[7], 0, workspace);
    } else {
        range of;
        take(&of, 12 * 8);
        of.counts = numbers(of.positions);
        of.begins = numbers(of.positions);
        array *arrays = (array *)room(of.arrays * (int64_t)sizeof(array));
        for (int64_t k = 0; k < of.arrays; k++) {
            real *base = place(), *start = place();
            arrays[k] = (array){base, number(), start, 0, 0, NULL};
            arrays[k].start_ld = number();
            arrays[k].extent = number();
        }
        final_state *finals = (final_state *)room(of.finals * (int64_t)sizeof(final_state));
        for (int64_t k = 0; k < of.finals; k++) {
            finals[k].array = number();
            finals[k].width = number();
            finals[k].to = place();
        }
        int64_t *n = numbers(number());
        int64_t matrices = number();
        real *packed[256];
        for (int64_t m = 0; m < matrices; m++) {
            int64_t *s = numbers(4);
            packed[m] = (real *)room(8 * size_of_packed(s[0], s[1]));
            pack_matrix(s[0], s[1], place(), s[2], s[3], packed[m]);
        }
        passes[which](&of, arrays, finals, n, (const real *const *)packed, multiply);
    }
    for (int64_t m = 0; m < memories; m++)
        fwrite(memory[m], 1, (size_t)sizes[m], stdout);
    return 0;
}
