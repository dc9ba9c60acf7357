// Attention within jagged sequences, forward and backward.
#pragma once

#include "kernels.h"

namespace sparrow {

void attention(const AttentionCall& call, const Parallel& parallel);
void attention_backward(const AttentionCall& call, const Parallel& parallel);

}  // namespace sparrow
