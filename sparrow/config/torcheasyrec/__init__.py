"""Configs of TorchEasyRec, in the text format of protocol buffers, read as ours.

Each field that is not supported is refused, with its name and line; nothing is skipped.
"""

from sparrow.config.torcheasyrec.pipeline import import_config

__all__ = ["import_config"]
