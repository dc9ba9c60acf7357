"""Negatives: TorchEasyRec's ``negative_sampler`` as ours.

Its table of items holds ``id``, ``weight`` and ``attrs``, the values of the items' columns joined by a delimiter. As
a text file it is separated by tabs, and its first line is ``id:int64<tab>weight:float<tab>attrs:string``.
"""

from __future__ import annotations

from sparrow.config.sections.data import Negatives
from sparrow.config.torcheasyrec.architectures import MATCHING
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.data import Csv, Parquet, Source, Split


def negatives(data: Block, model: Block) -> Negatives | None:
    """Return the source of negatives; None: the other items of the batch are the negatives, or the model takes none."""
    name, chosen = model.choose("model")
    found = data.chosen("sampler")
    in_batch = name in MATCHING and chosen["in_batch_negative"]
    if found is None:
        if name in MATCHING and not in_batch:
            chosen.fail("needs a negative_sampler in data_config, or in_batch_negative: true")
        return None
    kind, block = found
    if name not in MATCHING:
        data.fail(f"{name} takes no negatives; remove it", kind)
    if kind != "negative_sampler":
        data.fail("not supported yet: use negative_sampler, or in_batch_negative in the model", kind)
    if in_batch:
        chosen.fail("cannot be given together with the negative_sampler of data_config; keep one", "in_batch_negative")
    if not block["attr_fields"]:
        block.fail("is required: the columns that attrs holds, in order", "attr_fields")
    items, identity, weight = _items(block)
    with block.locating():
        return Negatives(
            items=items,
            group=chosen["item_tower"]["input"],
            id_column=block["item_id_field"],
            items_id_column=identity,
            weight_column=weight,
            count=block["num_sample"],
            evaluate_count=block["num_eval_sample"] or None,
        )


def _items(block: Block) -> tuple[Source, str, str]:
    """Return the table of items, and its columns of ids and of weights."""
    path: str = block["input_path"]
    attributes = tuple(block["attr_fields"])
    with block.locating():
        if path.endswith((".parquet", ".pq")):
            return Split(Parquet(path), "attrs", block["attr_delimiter"], attributes), "id", "weight"
        text = Csv(path, separator=block["field_delimiter"] or "\t", quote=None)
        return Split(text, "attrs:string", block["attr_delimiter"], attributes), "id:int64", "weight:float"
