/* The version, as the build file states it. */
#include "engine/stint.h"

const char *stint_version(void) { return STINT_VERSION; }
