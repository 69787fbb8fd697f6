/* Empty stand-ins for TensorRT's libraries, so that NVIDIA's real Python bindings can be imported without them. */
#include <stdint.h>

void *createInferBuilder_INTERNAL(void *logger, int32_t version) { return 0; }
void *createInferRefitter_INTERNAL(void *engine, void *logger, int32_t version) { return 0; }
void *createInferRuntime_INTERNAL(void *logger, int32_t version) { return 0; }
void *createNvOnnxParserRefitter_INTERNAL(void *refitter, void *logger, int32_t version) { return 0; }
void *createNvOnnxParser_INTERNAL(void *network, void *logger, int32_t version) { return 0; }
void *getBuilderPluginRegistry(int32_t capability) { return 0; }
void *getPluginRegistry(void) { return 0; }
int getNvOnnxParserVersion(void) { return 0; }
int getInferLibVersion(void) { return 0; }
int initLibNvInferPlugins(void *logger, const char *name) { return 1; }
