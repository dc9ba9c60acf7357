#pragma once

#include "kernels.h"

namespace sparrow {

void update(const UpdateCall& call, const Parallel& parallel);

}  // namespace sparrow
