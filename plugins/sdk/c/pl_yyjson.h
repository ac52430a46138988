/* Declarations for the files that use yyjson. */
#ifndef PL_YYJSON_H
#define PL_YYJSON_H

#include "pl_internal.h"
#include "yyjson.h"

/* Allocator for yyjson, on the call's memory. */
extern const yyjson_alc pl_call_memory;

#endif
