/* What the files that use yyjson share. */
#ifndef PL_YYJSON_H
#define PL_YYJSON_H

#include "pl_internal.h"
#include "yyjson.h"

/* yyjson's memory is the call's. */
extern const yyjson_alc pl_call_memory;

#endif
