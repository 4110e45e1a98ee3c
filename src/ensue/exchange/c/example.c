/* What `ensue score` and `ensue generate` print, of the text on stdin:
 *
 *     NAME < TEXT                                    each token with its surprisal in nats
 *     NAME --generate TOKENS [SEED [TEMPERATURE]] < PROMPT    the prompt, and a text that goes on from it
 *
 * The weights are beside the program, or where `--weights FILE` before all else says. */
#include "NAME.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(int code) {
    fprintf(stderr, "NAME: %s\n", NAME_message(code));
    return 2;
}

/* As in a string of JSON; a byte of an incomplete character by its number. */
static void print_quoted(const char *text, size_t size) {
    static const char SIGNS[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (size_t k = 0; k < size; k++) {
        const char *sign = text[k] ? strchr(SIGNS, text[k]) : NULL;
        if (sign && ((sign - SIGNS) % 2 == 0 || text[k] == '"' || text[k] == '\\'))
            printf("\\%c", SIGNS[(sign - SIGNS) / 2 * 2 + 1]);
        else if ((unsigned char)text[k] < 0x20) printf("\\u%04x", (unsigned)text[k]);
        else if (size == 1 && (unsigned char)text[k] >= 0x80) printf("\\\\x%02x", (unsigned)(unsigned char)text[k]);
        else putchar(text[k]);
    }
}

static char *read_all(FILE *file, size_t *size) {
    size_t room = 1 << 16;
    char *text = malloc(room);
    *size = 0;
    while (text) {
        *size += fread(text + *size, 1, room - *size, file);
        if (*size < room) break;
        char *larger = room > SIZE_MAX / 2 ? NULL : realloc(text, room *= 2);
        if (!larger) free(text);
        text = larger;
    }
    return text;
}

static int score(const NAME_model *model, NAME_state *state, const char *text, size_t size) {
    NAME_token tokens[256];
    for (size_t at = 0, used = 0;; at += used) {
        int is_end = at == size;
        int count = NAME_feed(model, state, is_end ? NULL : text + at, size - at, &used, tokens, 256);
        if (count < 0) return failed(count);
        for (int k = 0; k < count; k++) {
            printf("%9.4f\t", tokens[k].nats > 0 ? tokens[k].nats : 0);
            print_quoted(tokens[k].text, tokens[k].size);
            if (tokens[k].is_unknown) {
                putchar('\t');
                print_quoted(text + tokens[k].begin, tokens[k].end - tokens[k].begin);
            }
            putchar('\n');
        }
        if (is_end) return 0;
    }
}

static int generate(const NAME_model *model, NAME_state *state, const char *prompt, size_t size, long count,
                    double temperature) {
    NAME_token tokens[256];
    for (size_t at = 0, used = 0; at < size; at += used) {
        int code = NAME_feed(model, state, prompt + at, size - at, &used, tokens, 256);
        if (code < 0) return failed(code);
    }
    fwrite(prompt, 1, size, stdout);
    NAME_sampling how = {0};
    how.temperature = temperature;
    while (count-- > 0) {
        int code = NAME_next(model, state, &how, tokens);
        if (code < 0) return failed(code);
        if (tokens->blank) putchar(' ');
        fwrite(tokens->text, 1, tokens->size, stdout);
    }
    putchar('\n');
    return 0;
}

/* The path of a file beside the program, by how the program was called. */
static char *beside(const char *program, const char *name) {
    size_t folder = strlen(program);
    while (folder && program[folder - 1] != '/' && program[folder - 1] != '\\') folder--;
    char *path = malloc(folder + strlen(name) + 1);
    if (path) memcpy(path, program, folder), memcpy(path + folder, name, strlen(name) + 1);
    return path;
}

int main(int argc, char **argv) {
    int is_named = argc > 2 && strcmp(argv[1], "--weights") == 0;
    char *path = is_named ? NULL : beside(argc ? argv[0] : "", "NAME.weights");
    const char *weights = is_named ? argv[2] : path;
    if (is_named) argc -= 2, argv += 2;
    int generates = argc > 2 && argc < 6 && strcmp(argv[1], "--generate") == 0;
    if (argc > 1 && !generates) {
        fprintf(stderr, "usage: NAME [--weights FILE] [--generate TOKENS [SEED [TEMPERATURE]]] < TEXT\n");
        free(path);
        return 2;
    }
    NAME_model *model;
    int code = weights ? NAME_open(&model, weights) : NAME_MEMORY;
    if (code) {
        fprintf(stderr, "NAME: %s: %s\n", weights ? weights : "NAME.weights", NAME_message(code));
        free(path);
        return 2;
    }
    free(path);
    size_t size;
    char *text = read_all(stdin, &size);
    NAME_state *state = malloc(NAME_state_size());
    if (!text || !state) {
        code = failed(NAME_MEMORY);
    } else {
        NAME_begin(model, state, argc > 3 ? strtoull(argv[3], NULL, 10) : 1);
        double temperature = argc > 4 ? strtod(argv[4], NULL) : 1;
        code = generates ? generate(model, state, text, size, strtol(argv[2], NULL, 10), temperature)
                         : score(model, state, text, size);
    }
    free(state);
    free(text);
    NAME_close(model);
    return fflush(stdout) ? 2 : code;
}
