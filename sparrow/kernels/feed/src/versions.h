// Attributes of functions.
#pragma once

#include <cstdint>

// Functions that Python calls.
#define SPARROW_API extern "C" __attribute__((visibility("default")))

// Functions that are compiled for several instruction sets: the loader picks the best one that the processor has. Only
// for integers, whose results are the same with every one of them.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SPARROW_VERSIONS __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SPARROW_VERSIONS
#endif
