/* Series of frames, and sounds. */
_Static_assert(offsetof(NAME_series, count) == 4 && sizeof(NAME_series) == 8, "as frames.js writes them");

EXPORTED(width) int pageWidth(void) { return NAME_WIDTH; }

EXPORTED(work_size) size_t pageWorkSize(size_t frames) { return NAME_memory(frames); }

#if D_WAVE
/* The sampling rate, and the step between frames in samples. */
EXPORTED(rate) int pageRate(void) { return NAME_RATE; }

EXPORTED(frame_step) int pageFrameStep(void) { return FRAME_STEP; }

EXPORTED(samples) int pageSamples(const void *file, size_t size, float *samples, size_t room) {
    return (int)NAME_samples(file, size, samples, room);
}

EXPORTED(frames) int pageFrames(void *work, const float *samples, size_t count, float *to, size_t room) {
    return (int)NAME_frames(&model, work, samples, count, to, room);
}
#endif
