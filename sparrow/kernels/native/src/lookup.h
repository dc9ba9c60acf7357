#pragma once

#include "kernels.h"

namespace sparrow {

void lookup(const LookupCall& call, const Parallel& parallel);

}  // namespace sparrow
