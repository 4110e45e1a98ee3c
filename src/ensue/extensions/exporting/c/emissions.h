/* The emission scores of tags; `wide` has room for WIDE_TAGS numbers per position. */
static int compute_emissions(const NAME_model *model, int64_t positions, const real *h, int64_t stride, real *wide, real *to) {
    const real *bias = reals(model, AT_BIAS);
    multiply(positions, WIDE_TAGS, D_HEAD, h, stride, reals(model, AT_HEAD), wide, WIDE_TAGS);
    for (int64_t t = 0; t < positions; t++)
        for (int k = 0; k < TAGS; k++) {
            real score = to[t * TAGS + k] = wide[t * WIDE_TAGS + k] + bias[k];
            if (!(score < INFINITY && score > -INFINITY)) return NAME_NUMBERS;
        }
    return NAME_OK;
}
