/* @ABOUT_FRAMES@
 *
 * A model is read once and never changes, so that threads share it. What a call needs beside it is memory that the
 * caller gives: NAME_memory(FRAMES) bytes, aligned as malloc does it, another one for each thread. Nothing is kept in it
 * from one call to the next. Nothing is allocated but in NAME_open. A function that fails returns a number below 0. */
enum {
    NAME_LABELS = @LABELS@,   /* the number of labels, from 0 on */
    NAME_WIDTH = @WIDTH@,    /* the numbers of a frame */
    NAME_NOT_FINITE = -8 /* a number of a frame is missing or infinite */
};

/* Frames one after another in time, NAME_WIDTH numbers each. NaN is a missing value. */
typedef struct {
    const float *frames;
    size_t count; /* at least 1 */
} NAME_series;

/* The name of a label, UTF-8 with a 0 at its end; lives as long as the model. NULL for a number that is none. */
const char *NAME_label(const NAME_model *model, uint32_t label);

/* The memory for series of up to so many frames, 0 if these are too many. Short series are read side by side, up to so
 * many frames together, which is faster. */
size_t NAME_memory(size_t frames);

@HEAD@@SOUNDS@
