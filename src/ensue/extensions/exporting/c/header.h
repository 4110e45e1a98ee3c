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
    NAME_NO_FILE = -1,   /* the weights cannot be read */
    NAME_DAMAGED = -2,   /* the weights are damaged, or belong to another model */
    NAME_MEMORY = -3,    /* out of memory */
    NAME_ARGUMENT = -4,  /* an argument is out of range */
    NAME_BAD_STATE = -5, /* the bytes are not a state of this model */
    NAME_NUMBERS = -6,   /* the scores are not finite */
    NAME_TOO_LONG = -7   /* a text is too long */
};

/* Opens a model with the weights of a file; `path` is NULL if the weights are embedded. */
int NAME_open(NAME_model **model, const char *path);

void NAME_close(NAME_model *model);

/* Returns the English description of an error. */
const char *NAME_message(int code);

@INTERFACE@
#ifdef __cplusplus
}
#endif
#endif
