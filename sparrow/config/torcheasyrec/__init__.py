"""Configs of TorchEasyRec, in the text format of protocol buffers, read as ours.

Each field that is not supported is refused, with its name and line, all of them at once; one that changes no number is
accepted with a note; nothing is skipped.
"""

from sparrow.config.torcheasyrec.blocks import Outcome
from sparrow.config.torcheasyrec.edits import Edit, from_json, from_override, is_edit, path_fields
from sparrow.config.torcheasyrec.pipeline import Imported, import_config, read_config
