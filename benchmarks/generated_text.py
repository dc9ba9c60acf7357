"""Generated configs, command lines, and the files that describe checkpoints and exports."""

import contextlib
import copy
import io
import json
import os
import shutil
import zlib

import jax.numpy as jnp
import numpy as np

from sparrow import cli
from sparrow.checkpoint import CheckpointError, Checkpoints, Key, Saved, TableRows, Vanished
from sparrow.config import ConfigError, dumps, from_mapping, loads
from sparrow.config.loading.files import override, plain
from sparrow.data import DataError
from tests.runs.cases import BASE

VALUES = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, -(2**70), 0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"),
    "", " ", "a", "auc", "id_0", "adam", "sgd", "name", "1e5", "∞", "\x00", "\ud800", "..", "/", "x" * 5000, "[", "{}",
    [], [None], [[]], [1, "a"], {}, {"name": "adam"}, {"": 1}, {"name": None}, {1: 2}, (), b"bytes", 1j, object(),
    set(),
)  # fmt: skip
WORDS = (
    "train", "eval", "predict", "export", "report", "plan", "import-config", "vocab", "--model-dir", "--resume",
    "--json", "--overwrite", "--step", "best", "0", "-1", "1", "--columns", "--batch-size", "--output", "--import",
    "--form", "yaml", "--ema", "--no-ema", "--separator", ",", "--min-count", "--max-words", "--help", "--", "-", "",
    "train.steps=1", "=", "a=", "=b", "train", "train.batch_size=x", "x[0]=1", "nowhere.yaml", "/dev/null", "/", ".",
    "..", "\x00", "é", "\udcff", "a" * 300, "none.py", "--verify", "--no-verify", "data.train={", "[]",
    "train..steps=3", "data.features[-1]=1",
)  # fmt: skip


def check(error):
    """Check that an error has a message, which does not claim that an existing file was removed."""
    assert str(error).strip()
    assert not isinstance(error, Vanished)


class Configs:
    """Mappings: a small config with one to four values changed, removed or added."""

    name = "configs"

    def __init__(self, folder):
        self.base = copy.deepcopy(BASE)

    def feed(self, rng):
        data = mutated(rng, copy.deepcopy(self.base))
        try:
            from_mapping(data)
        except ConfigError as error:
            check(error)
            return 1, 1
        return 1, 0


class ConfigTexts:
    """Strings: the same config as YAML, JSON and TorchEasyRec's text format, with some characters changed."""

    name = "texts"
    PIECES = (*"{}[]:,\n\"'\t\x00#|%é~", "- ", "  ", "&a ", "*a", "!!int ", "0x")
    TORCHEASYREC = """
        train_config { sparse_optimizer { adagrad_optimizer { lr: 0.001 } constant_learning_rate {} }
          dense_optimizer { adam_optimizer { lr: 0.001 } constant_learning_rate {} } num_epochs: 1 }
        data_config { batch_size: 8 dataset_type: ParquetDataset label_fields: "clk" }
        feature_configs { id_feature { feature_name: "a" expression: "user:a" num_buckets: 10 embedding_dim: 4 } }
        model_config { feature_groups { group_name: "deep" feature_names: "a" group_type: DEEP }
          multi_tower { towers { input: "deep" mlp { hidden_units: [4] } } final { hidden_units: [4] } }
          losses { binary_cross_entropy {} } }
    """

    def __init__(self, folder):
        config = from_mapping(copy.deepcopy(BASE))
        self.texts = {"json": dumps(config, "json"), "yaml": dumps(config), "config": self.TORCHEASYREC}
        self.small = "train: {batch_size: 3, steps: [1, {a: b}]}\ntasks:\n  click: &x\n    label: 'a'\n"

    def feed(self, rng):
        form = rng.choice(("json", "json", "yaml", "config", "config"))
        text = self.small if form == "yaml" and rng.random() < 0.9 else self.texts[form]
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(len(text) + 1)
            cut = rng.choice((0, 0, 1, 2, 20))
            text = text[:at] + rng.choice(("", *self.PIECES)) + text[at + cut :]
        try:
            loads(text, form)
        except ConfigError as error:
            check(error)
            return 1, 1
        return 1, 0


class Overrides:
    """Overrides of fields on the command line."""

    name = "overrides"

    def __init__(self, folder):
        self.fields = plain(from_mapping(copy.deepcopy(BASE)), True) | {"a": [1, {"b": 2}]}
        self.paths = (
            "train",
            "train.steps",
            "a",
            "a[0]",
            "a[1].b",
            "data.features[0].name",
            "a[9]",
            "x.y.z",
            "",
            "a[",
            "]",
        )

    def feed(self, rng):
        text = rng.choice(self.paths) + rng.choice(("=", "=", "==", "", " = "))
        text += rng.choice(
            ("1", "[1,2", "{a: 1}", "{a: {b: [", "'x", "&a *a", "!!python/object:x", "\x00", "1e999", "~", "0b1")
        )
        if rng.random() < 0.3:
            text = "".join(rng.choice("a.[]=0{}:'\"&*!é\x00 ") for _ in range(rng.randint(0, 12)))
        try:
            override(self.fields, text)
        except ConfigError as error:
            check(error)
            return 1, 1
        return 1, 0


class CommandLines:
    """Command lines: most are refused, none may end in a traceback."""

    name = "commands"

    def __init__(self, folder):
        self.folder = folder / "commands"
        self.folder.mkdir()
        (self.folder / "tiny.yaml").write_text("train: {}\n")
        self.safe = ("import-config", "report", "eval", "export", "predict")

    def feed(self, rng):
        words = [rng.choice(WORDS) for _ in range(rng.randint(0, 6))]
        if rng.random() < 0.5:
            words = [rng.choice(self.safe), *(word for word in words if word not in WORDS[:8])]
        where = os.getcwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                code = cli.main(words)
        except SystemExit as stop:
            code = stop.code
        finally:
            os.chdir(where)
        assert code in (0, 1, 2), code
        return 1, code != 0


class Descriptions:
    """Manifests and descriptions of checkpoints, with their checksums right as often as wrong."""

    name = "manifests"

    def __init__(self, folder):
        self.folder = folder / "checkpoints"
        checkpoints = Checkpoints(self.folder)
        table = jnp.arange(12.0).reshape(6, 2)
        checkpoints.save(
            3, {Key("t"): TableRows(table, 0, 6), Key("t", "m"): TableRows(table, 0, 6)}, {"a": np.ones(3)}, {"x": 1}
        )
        checkpoints.close()
        self.path = self.folder / "3"
        self.good = {
            name: (self.path / name).read_bytes() for name in ("manifest.json", "about.json", "state.safetensors")
        }

    def feed(self, rng):
        name = rng.choice(tuple(self.good))
        data = self.good[name]
        if name.endswith("json") and rng.random() < 0.7:
            data = json.dumps(mutated(rng, json.loads(data), plain=True)).encode()
        else:
            data = flipped(rng, data)
        (self.path / name).write_bytes(data)
        if rng.random() < 0.6:
            self._sign(name, data)
        try:
            return 1, self._read()
        finally:
            for name, data in self.good.items():
                (self.path / name).write_bytes(data)

    def _sign(self, name, data):
        """Return a manifest that fits the file: an attacker can write one."""
        try:
            files = (
                json.loads(data)["files"]
                if name == "manifest.json"
                else json.loads(self.good["manifest.json"])["files"]
            )
            if name != "manifest.json":
                files[name] = {"size": len(data), "crc32": zlib.crc32(data)}
            crc = zlib.crc32(json.dumps(files, sort_keys=True).encode())
        except (ValueError, KeyError, TypeError):
            return
        (self.path / "manifest.json").write_text(json.dumps({"crc32": crc, "files": files}))

    def _read(self):
        try:
            saved = Saved(self.path)
            try:
                saved.arrays()
                for key in saved.tables:
                    for _ in saved.rows(key):
                        pass
            finally:
                saved.close()
        except (CheckpointError, DataError) as error:
            check(error)
            return 1
        return 0


def mutated(rng, data, plain=False):
    """Return the data with some of its values changed, removed, renamed or added."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(data))
        container, key = rng.choice(places)
        how = rng.random()
        if how < 0.6:
            container[key] = _value(rng, plain)
        elif how < 0.75:
            del container[key]
        elif isinstance(container, dict):
            container[rng.choice(("x", "name", "kind", f"{key}s", str(key)[:-1]))] = container[key]
        else:
            container.append(copy.deepcopy(container[key]))
        if not list(_places(data)):
            break
    return data


def _value(rng, plain):
    while True:
        value = rng.choice(VALUES)
        if not plain:
            return copy.copy(value) if isinstance(value, list | dict | set) else value
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            continue
        return copy.deepcopy(value)


def _places(data):
    keys = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in keys:
        yield data, key
        if isinstance(data[key], dict | list):
            yield from _places(data[key])


def flipped(rng, data):
    """Bytes with some of them changed, or cut off, or with more after them."""
    data = bytearray(data)
    how = rng.random()
    if how < 0.2:
        return bytes(data[: rng.randrange(len(data))])
    if how < 0.3:
        return bytes(data) + rng.randbytes(rng.randint(1, 9))
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def emptied(folder):
    """Empty the folder, and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
