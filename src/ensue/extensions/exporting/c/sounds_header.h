
/* Of sounds. */
enum {
    NAME_RATE = @RATE@,     /* samples in a second */
    NAME_NO_SOUND = -9,  /* no WAV file with whole numbers of 8 to 32 bits, or none that is whole */
    NAME_OTHER_RATE = -10 /* a WAV file with another rate */
};

/* The samples of a WAV file whose bytes are given, from -1 to 1; several channels are mixed. Returns their number, and
 * writes the first `room` of them. */
int64_t NAME_samples(const void *file, size_t size, float *samples, size_t room);

/* The frames of so many samples: logarithms of the energy in bands of frequency. Returns their number, and writes the
 * first `room` of them. If they are relative to the loudest one, there has to be room for all. */
int64_t NAME_frames(const NAME_model *model, void *memory, const float *samples, size_t count, float *to, size_t room);
