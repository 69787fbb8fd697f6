/* A stand-in for libcudart.so without a GPU: device memory is the host's, and work on a stream is done at once.
 *
 * What a capture records (copies, and the calls that the double of TensorRT enqueues) is done only when the graph is
 * launched, as on a GPU. CATRO_DOUBLE_GPU_BYTES: the size of the memory; allocations beyond it fail.
 * CATRO_DOUBLE_INTEGRATED: the GPU shares its memory with the processor.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100 };

typedef struct { void (*call)(void *); void *dst; const void *src; size_t bytes; } work;
typedef struct { work *items; size_t count; } graph;
typedef struct { struct timespec at; } event;

static graph *capturing = NULL;
static size_t used_bytes = 0;

static int enqueue(work item) {
    if (capturing) {
        capturing->items = realloc(capturing->items, (capturing->count + 1) * sizeof(work));
        capturing->items[capturing->count++] = item;
    } else if (item.call) {
        item.call(item.dst);
    } else {
        memcpy(item.dst, item.src, item.bytes);
    }
    return SUCCESS;
}

/* Not part of CUDA: whether a capture is in progress. */
int doubleCaptures(void) { return capturing != NULL; }

/* Not part of CUDA: the double of TensorRT calls it to do its work in order with everything else on a stream. */
int doubleEnqueue(void (*call)(void *), void *argument) { return enqueue((work){call, argument, NULL, 0}); }

int cudaGetDeviceProperties(void *properties, int device) {
    if (getenv("CATRO_DOUBLE_NO_GPU")) return NO_DEVICE;
    const char *name = getenv("CATRO_DOUBLE_GPU");
    strcpy(properties, name ? name : "Double of a GPU");
    return SUCCESS;
}
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    int integrated = getenv("CATRO_DOUBLE_INTEGRATED") != NULL;
    *value = attribute == 16 ? 8 : attribute == 18 ? integrated : attribute == 75 ? 8 : attribute == 76 ? 7 : 0;
    return SUCCESS;
}
const char *cudaGetErrorString(int error) { return error == INVALID ? "invalid argument" : "some error"; }

static size_t all_bytes(void) {
    const char *limit = getenv("CATRO_DOUBLE_GPU_BYTES");
    return limit ? strtoull(limit, NULL, 10) : (size_t)8 << 30;
}
int cudaMemGetInfo(size_t *unused, size_t *all) {
    *all = all_bytes();
    *unused = *all - used_bytes;
    return SUCCESS;
}
/* The size of a block is stored in front of it. */
int cudaMalloc(void **pointer, size_t bytes) {
    if (used_bytes + bytes > all_bytes()) return OUT_OF_MEMORY;
    size_t *block = malloc(bytes + 64);
    if (!block) return OUT_OF_MEMORY;
    used_bytes += *block = bytes;
    *pointer = (char *)block + 64;
    return SUCCESS;
}
int cudaFree(void *pointer) {
    if (!pointer) return SUCCESS;
    size_t *block = (size_t *)((char *)pointer - 64);
    used_bytes -= *block;
    free(block);
    return SUCCESS;
}
int cudaMallocHost(void **pointer, size_t bytes) { return (*pointer = malloc(bytes ? bytes : 1)) ? SUCCESS : OUT_OF_MEMORY; }
int cudaFreeHost(void *pointer) { free(pointer); return SUCCESS; }
int cudaMemcpy(void *dst, const void *src, size_t bytes, int kind) { memcpy(dst, src, bytes); return SUCCESS; }
int cudaMemcpyAsync(void *dst, const void *src, size_t bytes, int kind, void *stream) {
    return stream ? enqueue((work){NULL, dst, src, bytes}) : INVALID;
}

int cudaStreamCreate(void **stream) {
    if (getenv("CATRO_DOUBLE_NO_GPU")) return NO_DEVICE;
    return (*stream = malloc(1)) ? SUCCESS : OUT_OF_MEMORY;
}
int cudaStreamDestroy(void *stream) { free(stream); return SUCCESS; }
int cudaStreamSynchronize(void *stream) { return capturing ? INVALID : SUCCESS; }
int cudaStreamBeginCapture(void *stream, int mode) {
    if (!stream || capturing) return INVALID;
    capturing = calloc(1, sizeof(graph));
    return SUCCESS;
}
int cudaStreamEndCapture(void *stream, graph **made) {
    *made = capturing;
    capturing = NULL;
    return *made ? SUCCESS : INVALID;
}
int cudaGraphInstantiateWithFlags(graph **runnable, graph *template, unsigned long long flags) {
    *runnable = calloc(1, sizeof(graph));
    (*runnable)->count = template->count;
    (*runnable)->items = malloc(template->count * sizeof(work));
    memcpy((*runnable)->items, template->items, template->count * sizeof(work));
    return SUCCESS;
}
int cudaGraphLaunch(graph *runnable, void *stream) {
    if (!runnable || capturing) return INVALID;
    for (size_t place = 0; place < runnable->count; ++place) enqueue(runnable->items[place]);
    return SUCCESS;
}
static int forget(graph *gone) { free(gone->items); free(gone); return SUCCESS; }
int cudaGraphExecDestroy(graph *runnable) { return forget(runnable); }
int cudaGraphDestroy(graph *template) { return forget(template); }

int cudaEventCreate(event **made) { return (*made = calloc(1, sizeof(event))) ? SUCCESS : OUT_OF_MEMORY; }
int cudaEventDestroy(event *gone) { free(gone); return SUCCESS; }
int cudaEventRecord(event *at, void *stream) { return clock_gettime(CLOCK_MONOTONIC, &at->at) ? INVALID : SUCCESS; }
int cudaEventSynchronize(event *at) { return SUCCESS; }
int cudaEventElapsedTime(float *ms, event *first, event *last) {
    *ms = (last->at.tv_sec - first->at.tv_sec) * 1e3 + (last->at.tv_nsec - first->at.tv_nsec) / 1e6;
    return SUCCESS;
}
