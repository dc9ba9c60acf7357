"""``tokenize_feature``: the tokens of a text, as ours."""

from __future__ import annotations

from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.data import TokenizeFeature

_OPTIONS: Final[dict[str, Any]] = {
    "TEXT_LOWER2UPPER": "upper",
    "TEXT_UPPER2LOWER": "lower",
    "TEXT_SBC2DBC": "half_width",
    "TEXT_CHT2CHS": None,  # traditional characters stay
    "TEXT_FILTER": "remove_symbols",
    "TEXT_SPLITCHRS": "split_chinese",
    "TEXT_REMOVE_SPACE": "remove_space",
}
_DEFAULT: Final = ("TEXT_LOWER2UPPER", "TEXT_SBC2DBC", "TEXT_CHT2CHS", "TEXT_FILTER")


def tokenize(name: str, block: Block, source: dict[str, Any]) -> TokenizeFeature:
    """Return the feature; ``source`` is its column."""
    if block["tokenizer_type"] != "bpe":
        kind = block["tokenizer_type"]
        block.fail(f"not supported: {kind!r}; convert it to a tokenizer.json (bpe)", "tokenizer_type")
    return TokenizeFeature(
        name,
        embedding_dim=block["embedding_dim"],
        vocabulary=block["vocab_file"],
        normalize=_normalize(block["text_normalizer"]),
        default=block["default_value"] or None,
        pooling=block["pooling"],
        table=block["embedding_name"],
        **source,
    )


def _normalize(block: Block | None) -> Any:
    if block is None:
        return ()
    for field in ("max_length", "stop_char_file"):
        if block[field]:
            block.fail("not supported; remove it", field)
    made = (_OPTIONS[option] for option in block["norm_options"] or _DEFAULT)
    return tuple(option for option in made if option is not None)
