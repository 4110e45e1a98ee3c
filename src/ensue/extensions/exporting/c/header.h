@ABOUT@#ifndef NAME_H
#define NAME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct NAME_model NAME_model;

enum {
    NAME_OK = 0,
    NAME_NO_FILE = -1,   /* the file of weights cannot be read */
    NAME_DAMAGED = -2,   /* the weights are damaged, or those of another model */
    NAME_MEMORY = -3,    /* there is not enough memory */
    NAME_ARGUMENT = -4,  /* an argument is out of its range */
    NAME_BAD_STATE = -5, /* the bytes are no state of this model */
    NAME_NUMBERS = -6,   /* scores that are not finite */
    NAME_TOO_LONG = -7   /* a text is too long */
};

/* Reads the weights from a file; of a model with its weights inside, `path` is NULL. */
int NAME_open(NAME_model **model, const char *path);

void NAME_close(NAME_model *model);

/* What a number below 0 says, in English. */
const char *NAME_message(int code);

@INTERFACE@
#ifdef __cplusplus
}
#endif
#endif
