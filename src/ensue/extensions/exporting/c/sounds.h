/* The samples of recordings and their log-mel frames: log max(W P, floor), where P is the power spectrum of FRAME_SIZE
 * windowed samples. Two frames are transformed as the real and imaginary parts of one transform. */
static const double *doubles(const NAME_model *model, size_t offset) {
    return (const double *)(const void *)(model->weights + offset);
}

static uint32_t little_endian(const uint8_t *at, int bytes) {
    uint32_t number = 0;
    for (int k = 0; k < bytes; k++) number |= (uint32_t)at[k] << 8 * k;
    return number;
}

int64_t NAME_samples(const void *file, size_t size, float *samples, size_t room) {
    if ((!file && size) || (!samples && room)) return NAME_ARGUMENT;
    const uint8_t *bytes = file;
    if (size < 12 || memcmp(bytes, "RIFF", 4) || memcmp(bytes + 8, "WAVE", 4)) return NAME_NO_SOUND;
    uint64_t end = 8 + (uint64_t)little_endian(bytes + 4, 4), available = end < size ? end : size, at = 12;
    uint32_t channels = 0, width = 0, rate = 0, length = 0;
    for (int is_data = 0; !is_data; at += is_data ? 0 : length + (length & 1)) {
        if (at + 8 > available) return NAME_NO_SOUND;
        const uint8_t *part = bytes + at;
        length = little_endian(part + 4, 4), at += 8;
        is_data = !memcmp(part, "data", 4);
        if (!is_data && (at + length + (length & 1) > end)) return NAME_NO_SOUND;
        if (memcmp(part, "fmt ", 4)) continue;
        if (length < 16 || at + 16 > available || little_endian(part + 8, 2) != 1) return NAME_NO_SOUND; /* 1: PCM */
        channels = little_endian(part + 10, 2), rate = little_endian(part + 12, 4), width = (little_endian(part + 22, 2) + 7) / 8;
    }
    if (!channels || !width || width > 4 || !rate) return NAME_NO_SOUND;
    if (rate != NAME_RATE) return NAME_OTHER_RATE;
    uint64_t each = channels * width, count = length / each;
    if (count * each > available - at && (available - at) % each) return NAME_NO_SOUND; /* truncated within a sample */
    if (count * each > available - at) count = (available - at) / each;
    if (!count) return NAME_NO_SOUND;
    for (uint64_t t = 0; t < count && t < room; t++) {
        real sum = 0;
        for (uint32_t c = 0; c < channels; c++) {
            const uint8_t *number = bytes + at + t * each + c * width;
            if (width == 1) sum += (real)(*number - 128) / 128;
            else sum += (real)(int32_t)(little_endian(number, (int)width) << (32 - 8 * width)) / 2147483648.0f;
        }
        samples[t] = sum / (real)channels;
    }
    return (int64_t)count;
}

/* The in-place FFT of POINTS complex numbers. `cosines` and `sines` have the angles of the stage with half size h from
 * index h on. */
static void transform(const double *cosines, const double *sines, double *re, double *im) {
    for (uint32_t i = 0, j = 0; i < POINTS; i++) {
        if (i < j) {
            double a = re[i], b = im[i];
            re[i] = re[j], im[i] = im[j], re[j] = a, im[j] = b;
        }
        uint32_t bit = POINTS >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j |= bit;
    }
    for (uint32_t half = 1; half < POINTS; half *= 2)
        for (uint32_t begin = 0; begin < POINTS; begin += 2 * half) {
            double *restrict a = re + begin, *restrict b = im + begin, *restrict c = a + half, *restrict d = b + half;
            NO_OVERLAP
            for (uint32_t k = 0; k < half; k++) {
                double x = c[k] * cosines[half + k] + d[k] * sines[half + k];
                double y = d[k] * cosines[half + k] - c[k] * sines[half + k];
                c[k] = a[k] - x, d[k] = b[k] - y, a[k] += x, b[k] += y;
            }
        }
}

/* The windowed samples of a frame, zero-padded at the end. */
static void read_window(const NAME_model *model, const float *samples, size_t count, size_t begin, double *to) {
    const real *window = reals(model, AT_WINDOW);
    size_t available = begin < count ? count - begin : 0;
    for (size_t k = 0; k < POINTS; k++) to[k] = k < FRAME_SIZE && k < available ? (double)(samples[begin + k] * window[k]) : 0;
}

int64_t NAME_frames(const NAME_model *model, void *memory, const float *samples, size_t count, float *to, size_t room) {
    if (!model || !memory || !samples || !count || (!to && room)) return NAME_ARGUMENT;
    call_room of;
    lay_out(&of, memory, 1);
    double *re = of.wave, *im = re + POINTS, *powers[2] = {im + POINTS, im + POINTS + BINS};
    const double *cosines = doubles(model, AT_COSINES), *sines = doubles(model, AT_SINES);
    const uint32_t *starts = words32(model, AT_BAND_STARTS), *firsts = words32(model, AT_BAND_FIRSTS);
    const double *weights = doubles(model, AT_BANDS);
    size_t total = 1 + (count > FRAME_SIZE ? (count - FRAME_SIZE + FRAME_STEP - 1) / FRAME_STEP : 0);
    if (DYNAMIC_RANGE > 0 && room && room < total) return NAME_ARGUMENT; /* frames are relative to the loudest one */
    for (size_t t = 0; t < total && t < room; t += 2) {
        read_window(model, samples, count, t * FRAME_STEP, re);
        read_window(model, samples, count, (t + 1) * FRAME_STEP, im);
        transform(cosines, sines, re, im);
        for (uint32_t k = 0; k < BINS; k++) {
            uint32_t other = (POINTS - k) % POINTS;
            double a = re[k] + re[other], b = im[k] - im[other], c = im[k] + im[other], d = re[other] - re[k];
            powers[0][k] = (a * a + b * b) / (4.0 * FRAME_SIZE), powers[1][k] = (c * c + d * d) / (4.0 * FRAME_SIZE);
        }
        for (size_t part = 0; part < 2 && t + part < total && t + part < room; part++)
            for (uint32_t b = 0; b < D_FRAME; b++) {
                double sum = 0;
                for (uint32_t k = starts[b]; k < starts[b + 1]; k++) sum += weights[k] * powers[part][firsts[b] + k - starts[b]];
                to[(t + part) * D_FRAME + b] = (float)log_64(sum <= FLOOR ? FLOOR : sum);
            }
    }
    if (DYNAMIC_RANGE > 0 && room) {
        float max = to[0];
        for (size_t i = 1; i < total * D_FRAME; i++) max = to[i] > max ? to[i] : max;
        for (size_t i = 0; i < total * D_FRAME; i++) to[i] = fmaxf(to[i] - max, -(float)DYNAMIC_RANGE);
    }
    return (int64_t)total;
}
