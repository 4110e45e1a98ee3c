/* The common functions of all pages: memory, and a model whose weights JavaScript puts into memory. The code reads no
 * files, so the WebAssembly has no imports. */
#include "NAME.c"

#include <stddef.h>

#define EXPORTED(name) __attribute__((export_name(#name)))

static struct NAME_model model;

/* Memory aligned to 64 bytes, or NULL. */
EXPORTED(allocate) void *pageAllocate(size_t size) { return aligned_alloc(64, (size + 63) & ~(size_t)63); }

EXPORTED(release) void pageRelease(void *memory) { free(memory); }

EXPORTED(open) int pageOpen(const void *weights, size_t size) {
    model.weights = weights;
    return size == WORDS * sizeof(uint32_t) && checksum(weights, WORDS) == CHECKSUM ? NAME_OK : NAME_DAMAGED;
}

EXPORTED(message) const char *pageMessage(int code) { return NAME_message(code); }
