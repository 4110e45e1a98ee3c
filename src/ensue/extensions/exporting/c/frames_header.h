/* @ABOUT_FRAMES@
 *
 * A model is immutable after NAME_open, so threads can share it. The caller allocates the memory of each call:
 * NAME_memory(FRAMES) bytes, aligned as by malloc; each thread needs its own. The memory keeps no state between calls.
 * Only NAME_open allocates. A function that fails returns a number below 0. */
enum {
    NAME_LABELS = @LABELS@,   /* the number of labels; ids start at 0 */
    NAME_WIDTH = @WIDTH@,    /* numbers per frame */
    NAME_NOT_FINITE = -8 /* a number of a frame is missing or infinite */
};

/* Frames in the order of time, NAME_WIDTH numbers each. NaN is a missing value. */
typedef struct {
    const float *frames;
    size_t count; /* at least 1 */
} NAME_series;

/* Returns the name of a label in UTF-8, zero-terminated, valid as long as the model; NULL for an unknown id. */
const char *NAME_label(const NAME_model *model, uint32_t label);

/* Returns the memory in bytes for series of up to `frames` frames, 0 for too many. Short series are batched up
 * to `frames` frames, so larger memory is faster. */
size_t NAME_memory(size_t frames);

@HEAD@@SOUNDS@
