
/* Sounds. */
enum {
    NAME_RATE = @RATE@,     /* the sampling rate in Hz */
    NAME_NO_SOUND = -9,  /* not a PCM WAV file of 8 to 32 bits, or truncated */
    NAME_OTHER_RATE = -10 /* a WAV file with another sampling rate */
};

/* Writes the first `room` samples of a WAV file in memory, from -1 to 1, averaged over channels, and returns the number
 * of all samples. */
int64_t NAME_samples(const void *file, size_t size, float *samples, size_t room);

/* Writes the first `room` log-mel frames of the samples, and returns the number of all frames. If frames are relative to
 * the loudest frame, there must be room for all. */
int64_t NAME_frames(const NAME_model *model, void *memory, const float *samples, size_t count, float *to, size_t room);
