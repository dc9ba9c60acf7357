"""Normalizers of numbers, such as ``method=zscore,mean=1.5,standard_deviation=2.0``, as fields of our features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block

_NORMALIZERS: Final[Mapping[str, tuple[str, ...]]] = {
    "zscore": ("mean", "standard_deviation"),
    "minmax": ("min", "max"),
    "log10": ("threshold", "default"),
}


def normalizer(block: Block) -> dict[str, Any]:
    """Return the fields of the message's normalizer, where it has one."""
    written: str | None = block["normalizer"]
    if not written:
        return {}
    if written.replace(" ", "").startswith("method=expression,expr="):
        return {"expression": written.partition("expr=")[2].strip()}
    given = dict(part.strip().partition("=")[::2] for part in written.split(","))
    method = given.pop("method", "")
    if method not in _NORMALIZERS:
        known = [f"method={name},{names[0]}=..,{names[1]}=.." for name, names in _NORMALIZERS.items()]
        known.append("method=expression,expr=..")
        block.fail(f"not supported: {written!r}; write {' or '.join(known)}", "normalizer")
    names = _NORMALIZERS[method]
    if given.keys() != set(names):
        block.fail(f"{method} takes {' and '.join(names)}, got {written!r}", "normalizer")
    try:
        first, second = (float(given[name]) for name in names)
    except ValueError:
        block.fail(f"{' and '.join(names)} must be numbers, got {written!r}", "normalizer")
    match method:
        case "zscore":
            return {"mean": first, "std": second}
        case "minmax":
            if first >= second:
                block.fail(f"min must be below max, got {written!r}", "normalizer")
            return {"mean": first, "std": second - first}
    return {"log10_above": first, "log10_default": second}
