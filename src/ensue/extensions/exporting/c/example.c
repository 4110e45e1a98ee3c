@ABOUT@#include "NAME.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_error(int code) {
    fprintf(stderr, "NAME: %s\n", NAME_message(code));
    return 2;
}

@TASK@
/* The path of a file in the folder of the program. */
static char *join_program_folder(const char *program, const char *name) {
    size_t folder = strlen(program);
    while (folder && program[folder - 1] != '/' && program[folder - 1] != '\\') folder--;
    char *path = malloc(folder + strlen(name) + 1);
    if (path) memcpy(path, program, folder), memcpy(path + folder, name, strlen(name) + 1);
    return path;
}

int main(int argc, char **argv) {
    int is_named = argc > 2 && strcmp(argv[1], "--weights") == 0;
    char *path = is_named ? NULL : join_program_folder(argc ? argv[0] : "", "NAME.weights");
    const char *weights = is_named ? argv[2] : path;
    if (is_named) argc -= 2, argv += 2;
    if (!is_usage_valid(argc, argv)) {
        fprintf(stderr, "usage: NAME [--weights FILE] %s\n", USAGE);
        free(path);
        return 2;
    }
    NAME_model *model;
    int code = weights ? NAME_open(&model, weights) : NAME_MEMORY;
    if (code) fprintf(stderr, "NAME: %s: %s\n", weights ? weights : "NAME.weights", NAME_message(code));
    free(path);
    if (code) return 2;
    code = run(model, argc, argv);
    NAME_close(model);
    return fflush(stdout) ? 2 : code;
}
