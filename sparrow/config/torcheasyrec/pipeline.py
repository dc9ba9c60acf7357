"""A whole config of TorchEasyRec."""

from __future__ import annotations

from sparrow.config.config import Config
from sparrow.config.torcheasyrec import text
from sparrow.config.torcheasyrec.blocks import read
from sparrow.config.torcheasyrec.tasks import task
from sparrow.config.torcheasyrec.training import evaluate, train


def import_config(source_text: str, source: str | None = None) -> Config:
    """Reads a ``.config`` of TorchEasyRec. ``source`` is the file's name, for errors."""
    pipeline = read(text.parse(source_text, source), "EasyRecConfig", source)
    data, model = pipeline["data_config"], pipeline["model_config"]
    if not data["label_fields"]:
        data.fail("is required: the column of the label", "label_fields")
    label, *_ = data["label_fields"]
    return Config(
        train=train(pipeline["train_config"], data["batch_size"]),
        evaluate=evaluate(pipeline["eval_config"], data["eval_batch_size"]),
        tasks={label: task(model, label, model["num_class"], None)},
        model_dir=pipeline["model_dir"],
    )
