/* The output of `ensue predict` for the series in files, or in the files that stdin lists, one on each line:
 *
 *     NAME @OPTION@ FILE ...
 *
 * A file is a recording (.wav) for a model of sounds, an array (.npy), a table (.csv, .tsv), a table of paths, or images
 * (idx). */
#include <math.h>

static const char USAGE[] = "[@OPTION@] [FILE ...]";

/* Columns that are not features, and the names of the features, if they have names. */
static const char *const OTHERS[] = {@OTHERS@}, *const COLUMNS[] = {@COLUMNS@};

enum { WAITING = 256, MAX_FRAMES_PER_CALL = 1 << 14, READS_MISSING = @MISSING@ };

/* Buffered series: their names, lengths and concatenated frames. */
typedef struct {
    char *names[WAITING];
    NAME_series series[WAITING];
    size_t count, frames, room, memory_for, results_for;
    float *numbers;
    void *memory, *results;
    double option;
} waiting;

/* The message of the first error, and the path of its file. */
static const char *error_reason;
static char error_path[4096];

static int report_error(const char *what) {
    error_reason = what;
    return NAME_ARGUMENT;
}

/* Reallocates `of` for at least `count` elements. */
static int grow(void **of, size_t *room, size_t count, size_t each) {
    if (count <= *room) return NAME_OK;
    if (count > SIZE_MAX / 2 / each) return NAME_MEMORY;
    count += count / 2;
    void *larger = realloc(*of, count * each);
    if (!larger) return NAME_MEMORY;
    *of = larger, *room = count;
    return NAME_OK;
}

static int make_memory(waiting *of, size_t frames) {
    if (frames <= of->memory_for) return NAME_OK;
    size_t size = NAME_memory(frames);
    free(of->memory);
    of->memory = size ? malloc(size) : NULL;
    of->memory_for = of->memory ? frames : 0;
    return !size ? NAME_TOO_LONG : of->memory ? NAME_OK : NAME_MEMORY;
}

@ANSWER@
/* Prints the outputs of the buffered series. */
static int flush(const NAME_model *model, waiting *of) {
    size_t max = of->frames < MAX_FRAMES_PER_CALL ? of->frames : MAX_FRAMES_PER_CALL, begin = 0;
    for (size_t k = 0; k < of->count; begin += of->series[k++].count) {
        of->series[k].frames = of->numbers + begin * NAME_WIDTH;
        max = of->series[k].count > max ? of->series[k].count : max;
    }
    int code = of->count ? make_memory(of, max) : NAME_OK;
    if (of->count && !code) code = answer(model, of);
    for (size_t k = 0; k < of->count; k++) free(of->names[k]);
    of->count = of->frames = 0;
    return code;
}

/* Returns room for more frames in the buffer, or NULL. */
static float *allocate_rows(waiting *of, size_t frames) {
    void *numbers = of->numbers;
    int code = frames > SIZE_MAX / 2 ? NAME_MEMORY : grow(&numbers, &of->room, of->frames + frames, NAME_WIDTH * sizeof(float));
    of->numbers = numbers;
    return code ? NULL : of->numbers + of->frames * NAME_WIDTH;
}

/* Adds a series to the buffer. A `number` of 0 or more is appended to its name in brackets. */
static int add_series(const NAME_model *model, waiting *of, const char *name, int64_t number, size_t frames) {
    const float *numbers = of->numbers + of->frames * NAME_WIDTH;
    if (!NAME_memory(frames)) return frames ? NAME_TOO_LONG : report_error("a series without frames");
    for (size_t k = 0; k < frames * NAME_WIDTH; k++)
        if (!isfinite(numbers[k]) && !(READS_MISSING && isnan(numbers[k]))) return NAME_NOT_FINITE;
    char *copy = malloc(strlen(name) + 32);
    if (!copy) return NAME_MEMORY;
    strcpy(copy, name);
    if (number >= 0) snprintf(copy + strlen(name), 32, "[%lld]", (long long)number);
    of->names[of->count] = copy, of->series[of->count++].count = frames;
    of->frames += frames;
    return of->count == WAITING || of->frames >= MAX_FRAMES_PER_CALL ? flush(model, of) : NAME_OK;
}

/* An array in a file: its kind (i, u, f), the bytes of a number, whether it is big-endian, its shape, and the offset of
 * its data. */
typedef struct {
    char kind;
    int size, is_big, dimensions;
    uint64_t sizes[3];
    size_t begin;
} array;

static double number_at(const unsigned char *at, const array *of) {
    uint64_t bits = 0;
    for (int k = 0; k < of->size; k++) bits |= (uint64_t)at[of->is_big ? of->size - 1 - k : k] << 8 * k;
    if (of->kind == 'f' && of->size == 4) {
        uint32_t half = (uint32_t)bits;
        float x;
        memcpy(&x, &half, sizeof x);
        return (double)x;
    }
    double x;
    memcpy(&x, &bits, sizeof x);
    if (of->kind == 'i' && of->size < 8 && bits >> (8 * of->size - 1)) bits |= ~(uint64_t)0 << 8 * of->size;
    return of->kind == 'f' ? x : of->kind == 'i' ? (double)(int64_t)bits : (double)bits;
}

/* Reads the series of an array (frames, width) or (series, frames, width); numbers are divided by `scale`. */
static int read_array(const NAME_model *model, waiting *of, const char *name, const char *bytes, size_t size, array in,
                      double scale, int has_numbers) {
    if (in.dimensions == 1) in.sizes[1] = 1, in.dimensions = 2; /* a series of frames of one number */
    if (in.dimensions == 2) in.sizes[2] = in.sizes[1], in.sizes[1] = in.sizes[0], in.sizes[0] = 1;
    uint64_t count = in.sizes[0], frames = in.sizes[1], max = (uint64_t)(size - in.begin) / (uint64_t)in.size;
    if (in.sizes[2] != NAME_WIDTH) return report_error("wrong width of frames");
    if (!count || !frames || frames > max / NAME_WIDTH || count > max / NAME_WIDTH / frames ||
        count * frames * NAME_WIDTH * (uint64_t)in.size != size - in.begin)
        return report_error("damaged");
    const unsigned char *at = (const unsigned char *)bytes + in.begin;
    for (uint64_t n = 0; n < count; n++) {
        float *to = allocate_rows(of, (size_t)frames);
        if (!to) return NAME_MEMORY;
        for (uint64_t k = 0; k < frames * NAME_WIDTH; k++, at += in.size) to[k] = (float)(number_at(at, &in) / scale);
        int code = add_series(model, of, name, has_numbers || count > 1 ? (int64_t)n : -1, (size_t)frames);
        if (code) return code;
    }
    return NAME_OK;
}

/* Reads an .npy file: a Python dictionary, then the data. */
static int read_npy(const NAME_model *model, waiting *of, const char *path, const char *name, char *bytes, size_t size) {
    (void)path;
    static const char DAMAGED[] = "damaged, or not an array of numbers in C order";
    array in = {0};
    size_t from = size > 6 && bytes[6] > 1 ? 12 : 10;
    if (size < from || memcmp(bytes, "\x93NUMPY", 6)) return report_error(DAMAGED);
    for (size_t k = 8; k < from; k++) in.begin |= (size_t)(unsigned char)bytes[k] << 8 * (k - 8);
    if (!in.begin || in.begin > size - from) return report_error(DAMAGED);
    in.begin += from, bytes[in.begin - 1] = 0;
    const char *type = strstr(bytes + from, "'descr': '"), *shape = strstr(bytes + from, "'shape': (");
    if (!type || !shape || !strstr(bytes + from, "'fortran_order': False")) return report_error(DAMAGED);
    type += 10, shape += 10;
    in.is_big = *type == '>', in.kind = type[0] ? type[1] : 0, in.size = in.kind ? atoi(type + 2) : 0;
    if (in.kind == 'b') in.kind = 'u';
    if (in.kind == 'f' ? in.size != 4 && in.size != 8
                       : (in.kind != 'i' && in.kind != 'u') || (in.size != 1 && in.size != 2 && in.size != 4 && in.size != 8))
        return report_error("expected numbers of 8 to 64 bits");
    while (*shape >= '0' && *shape <= '9') {
        if (in.dimensions == 3) return report_error(DAMAGED);
        char *end;
        in.sizes[in.dimensions++] = strtoull(shape, &end, 10);
        for (shape = end; *shape == ',' || *shape == ' '; shape++) {}
    }
    return in.dimensions ? read_array(model, of, name, bytes, size, in, 1, 0) : report_error(DAMAGED);
}

/* Reads images (series, rows, columns) in MNIST's format: two zeros, the type, the number of dimensions, the shape, the
 * data. */
static int read_idx(const NAME_model *model, waiting *of, const char *path, const char *name, char *bytes, size_t size) {
    (void)path;
    static const char KINDS[] = "ui.iiff"; /* types 8 to 14; 10 is unused */
    static const int SIZES[] = {1, 1, 0, 2, 4, 4, 8};
    array in = {0};
    int type = size >= 16 ? bytes[2] - 8 : -1;
    if (type < 0 || type > 6 || type == 2 || bytes[0] || bytes[1] || bytes[3] != 3) return report_error("damaged, or not an idx file of images");
    in.kind = KINDS[type], in.size = SIZES[type], in.is_big = 1, in.dimensions = 3, in.begin = 16;
    for (int k = 0; k < 12; k++) in.sizes[k / 4] = in.sizes[k / 4] << 8 | (unsigned char)bytes[4 + k];
    return read_array(model, of, name, bytes, size, in, type ? 1 : 255, 1);
}

/* Reads the next field of a table without quotes and surrounding blanks, and advances `at`. Returns whether the row
 * continues. */
static int next_field(char **at, char delimiter, char **field) {
    char *from = *at, *to = from;
    if (*from == '"' && delimiter != '\t')
        for (from++; *from && (*from != '"' || *++from == '"');) *to++ = *from++;
    while (*from && *from != delimiter && *from != '\n') *to++ = *from++;
    char sign = *from;
    char *begin = *at;
    *at = from + (sign != 0);
    while (to > begin && strchr(" \t\r\n\v\f", to[-1])) to--;
    *to = 0;
    *field = begin + strspn(begin, " \t\r\n\v\f");
    return sign == delimiter;
}

static int equals_ignoring_case(const char *text, const char *lower) {
    for (; *text && (*text | ((*text >= 'A' && *text <= 'Z') << 5)) == *lower; text++) lower++;
    return !*text && !*lower;
}

/* Parses a number; NaN if it is missing. */
static int read_number(const char *text, float *to) {
    static const char *const MISSING[] = {"", "nan", "na", "n/a", "null", "none", "?"};
    for (size_t k = 0; k < sizeof MISSING / sizeof *MISSING; k++)
        if (equals_ignoring_case(text, MISSING[k])) return *to = NAN, 1;
    char *end;
    *to = (float)strtod(text, &end);
    return end != text && !*end && !strpbrk(text, "xX(");
}

/* Returns whether a column is not a feature. */
static int is_excluded(const char *name) {
    for (size_t k = 0; k < sizeof OTHERS / sizeof *OTHERS; k++)
        if (!strcmp(name, OTHERS[k])) return 1;
    return 0;
}

static int read_path(const NAME_model *model, waiting *of, const char *path);

/* Reads a file listed in the table at `path`, relative to the table's folder. */
static int read_listed_file(const NAME_model *model, waiting *of, const char *path, const char *name, const char *file) {
    size_t folder = *file == '/' ? 0 : (size_t)(name - path);
    char *whole = malloc(folder + strlen(file) + 1);
    if (!whole) return NAME_MEMORY;
    memcpy(whole, path, folder), strcpy(whole + folder, file);
    static int depth;
    int code = depth++ ? report_error("a table of paths lists another table") : read_path(model, of, whole);
    depth--;
    free(whole);
    return code;
}

enum { IS_FEATURE, IS_SERIES, IS_PATH, IS_OTHER };

/* Reads a table whose first row has the names of the columns. Times are ignored. */
static int read_rows(const NAME_model *model, waiting *of, const char *path, const char *name, char *bytes, char *kinds) {
    static float row[NAME_WIDTH];
    char *at = bytes, delimiter = strcspn(bytes, "\t") < strcspn(bytes, "\n") ? '\t' : strcspn(bytes, ",") < strcspn(bytes, "\n") ? ',' : ';';
    const char *series = name;
    size_t columns = 0, width = 0, frames = 0, paths = 0;
    char *field;
    int differs = 0;
    for (int continues_row = 1; continues_row; columns++) {
        continues_row = next_field(&at, delimiter, &field);
        char kind = !strcmp(field, OTHERS[0]) ? IS_SERIES : !strcmp(field, "path") ? IS_PATH : is_excluded(field) ? IS_OTHER : IS_FEATURE;
        kinds[columns] = kind, paths += kind == IS_PATH;
        if (kind != IS_FEATURE) continue;
        differs |= *COLUMNS && (width >= NAME_WIDTH || strcmp(field, COLUMNS[width]));
        width++;
    }
    if (!paths && width != NAME_WIDTH) return report_error("wrong width of frames");
    if (!paths && differs) return report_error("the columns are not those of training");
    while (*at) {
        size_t column = 0, place = 0;
        const char *of_row = name, *file = "";
        if (at[strspn(at, "\r")] == '\n') { /* an empty row */
            at += strspn(at, "\r") + 1;
            continue;
        }
        for (int continues_row = 1; continues_row; column++) {
            continues_row = next_field(&at, delimiter, &field);
            if (column == columns) return report_error("a row has another number of cells than the first row");
            if (kinds[column] == IS_SERIES) of_row = field;
            if (kinds[column] == IS_PATH) file = field;
            if (kinds[column] == IS_FEATURE && !paths && !read_number(field, row + place++)) return report_error("a cell is not a number");
        }
        if (column < columns) return report_error("a row has another number of cells than the first row");
        int code = paths ? read_listed_file(model, of, path, name, file) : NAME_OK;
        if (!code && frames && strcmp(series, of_row)) code = add_series(model, of, series, -1, frames), frames = 0;
        if (code) return code;
        if (paths) continue;
        float *to = allocate_rows(of, frames + 1);
        if (!to) return NAME_MEMORY;
        memcpy(to + frames++ * NAME_WIDTH, row, sizeof row);
        series = of_row;
    }
    return frames || !paths ? add_series(model, of, series, -1, frames) : NAME_OK;
}

static int read_table(const NAME_model *model, waiting *of, const char *path, const char *name, char *bytes, size_t size) {
    if (memchr(bytes, 0, size)) return report_error("damaged");
    if (!strncmp(bytes, "\xEF\xBB\xBF", 3)) bytes += 3;
    char *kinds = malloc(size + 1); /* a quoted name may contain line ends */
    int code = kinds ? read_rows(model, of, path, name, bytes, kinds) : NAME_MEMORY;
    free(kinds);
    return code;
}
@READ_SOUND@
typedef int reader(const NAME_model *model, waiting *of, const char *path, const char *name, char *bytes, size_t size);

static const struct {
    const char *suffix;
    reader *read;
} READERS[] = {{".npy", read_npy}, {".csv", read_table}, {".tsv", read_table}, {".tab", read_table}@SOUND_READERS@};

static reader *find_reader(const char *name) {
    for (const char *at = strstr(name, "idx"); at; at = strstr(at + 1, "idx"))
        if (at[3] >= '1' && at[3] <= '9') return read_idx;
    for (size_t k = 0; k < sizeof READERS / sizeof *READERS; k++) {
        size_t length = strlen(READERS[k].suffix);
        if (strlen(name) > length && equals_ignoring_case(name + strlen(name) - length, READERS[k].suffix)) return READERS[k].read;
    }
    return NULL;
}

/* Reads a file and appends a zero byte. */
static int read_whole(const char *path, char **bytes, size_t *size) {
    size_t room = 0, got = 1;
    void *whole = NULL;
    FILE *file = fopen(path, "rb");
    if (!file) return report_error("cannot be read");
    int code = NAME_OK;
    for (*size = 0; got && !code; *size += got) {
        code = grow(&whole, &room, *size + (1 << 16), 1);
        got = code ? 0 : fread((char *)whole + *size, 1, room - *size - 1, file);
    }
    if (!code && ferror(file)) code = report_error("cannot be read");
    fclose(file);
    *bytes = whole;
    if (!code) (*bytes)[*size] = 0;
    return code;
}

static int read_path(const NAME_model *model, waiting *of, const char *path) {
    const char *name = path + strlen(path);
    while (name > path && name[-1] != '/') name--;
    reader *read = find_reader(name);
    char *bytes = NULL;
    size_t size = 0;
    int code = read ? read_whole(path, &bytes, &size) : report_error("unknown suffix");
    if (!code) code = read(model, of, path, name, bytes, size);
    free(bytes);
    if (code && !*error_path) snprintf(error_path, sizeof error_path, "%s", path);
    return code;
}

/* Reads the files that stdin lists. */
static int read_paths(const NAME_model *model, waiting *of) {
    static char path[4096];
    int code = NAME_OK;
    while (!code && fgets(path, sizeof path, stdin)) {
        path[strcspn(path, "\r\n")] = 0;
        if (*path) code = read_path(model, of, path);
    }
    return code;
}

static int is_usage_valid(int argc, char **argv) {
    double option;
    return parse_options(argc, argv, &option) > 0;
}

static int run(const NAME_model *model, int argc, char **argv) {
    static waiting of;
    int code = NAME_OK, first = parse_options(argc, argv, &of.option);
    for (int k = first; k < argc && !code; k++) code = read_path(model, &of, argv[k]);
    if (first == argc) code = read_paths(model, &of);
    if (!code) code = flush(model, &of);
    while (of.count) free(of.names[--of.count]);
    free(of.numbers), free(of.memory), free(of.results);
    if (!code || !*error_path) return code ? print_error(code) : 0;
    fprintf(stderr, "NAME: %s: %s\n", error_path, error_reason ? error_reason : NAME_message(code));
    return 2;
}
