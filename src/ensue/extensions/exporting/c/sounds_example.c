
static int read_sound(const NAME_model *model, waiting *of, const char *path, const char *name, char *bytes, size_t size) {
    int64_t count = NAME_samples(bytes, size, NULL, 0);
    if (count < 0) return (void)path, (int)count;
    float *samples = malloc((size_t)count * sizeof *samples), *to = NULL;
    int code = samples ? make_memory(of, 1) : NAME_MEMORY;
    int64_t frames = code ? code : (NAME_samples(bytes, size, samples, (size_t)count), NAME_frames(model, of->memory, samples, (size_t)count, NULL, 0));
    if (frames > 0) to = allocate_rows(of, (size_t)frames);
    if (to) NAME_frames(model, of->memory, samples, (size_t)count, to, (size_t)frames);
    free(samples);
    return to ? add_series(model, of, name, -1, (size_t)frames) : code ? code : NAME_MEMORY;
}
