"""Configs of tiny runs that the tests share: seconds each, compilation included."""

import copy

from sparrow import config as configs

FIELDS, IDS = 3, 20


def clicks(impressions=4096, start=0):
    """A planted truth of few ids, which a small model learns in a few dozen steps."""
    return {
        "name": "clicks",
        "impressions": impressions,
        "fields": FIELDS,
        "ids": IDS,
        "start": start,
        "chunk_rows": 1024,
    }


NAMES = [f"id_{i}" for i in range(FIELDS)]
BASE = {
    "train": {
        "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.1},
        "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
        "batch_size": 256,
        "steps": 40,
        "log_every_steps": 20,
    },
    "tasks": {
        "click": {
            "label": "label",
            "losses": ["binary_cross_entropy"],
            "metrics": ["auc", "exact_auc"],
            "train_metrics": ["auc"],
        }
    },
    "data": {
        "train": clicks(),
        "evaluate": clicks(2048, start=1000),
        "shuffle_rows": 2048,
        "features": [{"kind": "id", "name": name, "num_buckets": IDS, "embedding_dim": 4} for name in NAMES],
    },
    "model": {
        "architecture": {"name": "deepfm", "deep": {"hidden_units": [8]}},
        "groups": {"wide": NAMES, "deep": NAMES},
    },
}


def case(*overrides, **sections):
    """The base config with whole sections replaced, and then single fields overridden."""
    data = copy.deepcopy(BASE)
    data.update(sections)
    return configs.from_mapping(data, overrides=overrides)
