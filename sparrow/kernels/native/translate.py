"""A rule's equation as C++: trace the row step, build its graph, write its loops."""

from __future__ import annotations

import dataclasses
import functools
import hashlib

from sparrow.kernels.native import sources
from sparrow.kernels.native.emit import emit
from sparrow.kernels.row import RowStep
from sparrow.kernels.translate.graph import build
from sparrow.kernels.translate.trace import trace, trace_any_dim
from sparrow.kernels.translate.values import C_TYPES


@dataclasses.dataclass(frozen=True)
class RowFunction:
    """A row step in C++.

    Attributes:
      symbol: the function's name, with a hash of its code: equal names are equal code.
      key: the same hash as a number.
      source: the function.
      buffers: the number of its scratch vectors.
    """

    symbol: str
    key: int
    source: str
    buffers: int


@functools.lru_cache(maxsize=1024)
def translate(step: RowStep) -> RowFunction:
    """``step`` in C++; raises `Inexpressible` where that cannot be.

    One code serves every dim, unless the rule computes something else from the length than a mean: then it is for
    its own dim alone.

    >>> from sparrow.rules import SGD
    >>> sgd = SGD()
    >>> step = RowStep(sgd.without_numbers(), slots=(), scalars=tuple(sgd.hyper(0)), dim=8, dtype="float32")
    >>> print(translate(step).source)
    extern "C" ...
      for (int32_t i = 0; i < dim; ++i) {
        const float v3 = (scalar0 * grad[i]);
        const float v4 = (row[i] - v3);
        row[i] = v4;
      }
    }
    <BLANKLINE>
    """
    try:
        graph = build(trace_any_dim(step))
    except Exception:  # a rule may fail for a symbolic length; its true errors come below
        graph = build(trace(step))
    code = emit(graph, C_TYPES[step.dtype])
    digest = hashlib.sha256(f"{sources.text(*sources.ROW_STEP_HEADERS)}\n{code.body}".encode()).digest()
    symbol = f"sparrow_row_step_{digest.hex()[:16]}"
    source = (
        f'extern "C" __attribute__((visibility("default"))) void {symbol}(const sparrow::RowArguments& a) {{\n'
        f"  using namespace sparrow;\n{code.body}\n}}\n"
    )
    return RowFunction(symbol, int.from_bytes(digest[:8], "big", signed=True), source, code.buffers)
