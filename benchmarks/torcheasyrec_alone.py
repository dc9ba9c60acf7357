"""TorchEasyRec's training of one config on a CPU, without its packages that are not on PyPI.

    PYTHONPATH=TorchEasyRec python benchmarks/torcheasyrec_alone.py pipeline.config

``TorchEasyRec`` is a checkout of it, after ``protoc --python_out=. tzrec/protos/*.proto tzrec/protos/models/*.proto``;
the environment has torch, torchrec, fbgemm-gpu-cpu, torchmetrics, protobuf 4, pyarrow, pandas, scikit-learn, anytree,
requests, safetensors, tensorboard. Configs with ``fg_mode: FG_NONE`` and files of Parquet need no other package.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Sequence

ABSENT = {"alibabacloud_credentials", "common_io", "confluent_kafka", "feature_store_py", "graphlearn", "odps", "pyfg"}


class Kind(type):
    """Has every attribute."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Nothing(metaclass=Kind):
    """Stands in for any class of an absent package, to be subclassed and named in annotations."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass


class AbsentModule(types.ModuleType):
    """Has every attribute."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Nothing,), {})


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the absent packages."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def main() -> None:
    """Train and evaluate the config that the command line names, in one process."""
    sys.meta_path.insert(0, Absent())
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29511"))
    from tzrec.main import train_and_evaluate

    train_and_evaluate(sys.argv[1])


if __name__ == "__main__":
    main()
