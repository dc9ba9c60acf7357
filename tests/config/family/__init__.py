"""Configs as TorchEasyRec's users write them: one for each model, feature, sampler and reason to refuse.

`FAMILY` holds them by name. Paths are empty or of MaxCompute, as in most of TorchEasyRec's own: tests give them.
"""

from __future__ import annotations

from tests.config.family import codes, computed, growing, histories, hstu, matching, single, tasks
from tests.config.family.refused import REFUSED

__all__ = ["FAMILY", "REFUSED"]

FAMILY: dict[str, str] = {
    **single.CONFIGS,
    **tasks.CONFIGS,
    **histories.CONFIGS,
    **matching.CONFIGS,
    **computed.CONFIGS,
    **growing.CONFIGS,
    **hstu.CONFIGS,
    **codes.CONFIGS,
}
