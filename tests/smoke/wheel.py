"""Installs each distribution in an empty environment of each Python that is here, and tries it: the quick start of
docs/guides/ten_minutes.md, a table, and the command line; twice: with the compiler of this machine, and without any.

python tests/smoke/wheel.py build/release/*
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TRIAL = """
import jax, jax.numpy as jnp, sparrow as sp
table = sp.TableSpec(name="t", vocabulary_size=100, embedding_dim=8, optimizer=sp.rules.RowwiseAdagrad(0.1))
emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])
state = emb.init(jax.random.key(0))
batch = emb.pack({"f": [[1, 2], [3], []]})
state = emb.update(state, batch, {"f": jnp.ones((3, 8))})
print("sparrow", sp.__version__, sp.backends())
"""
CONFIG = """
data:
  train: {name: clicks, impressions: 4096, fields: 2, ids: 50}
  features:
    - {kind: id, name: id_0, num_buckets: 50, embedding_dim: 4}
    - {kind: id, name: id_1, num_buckets: 50, embedding_dim: 4}
model:
  architecture: {name: deepfm, deep: {hidden_units: [8]}}
  groups: {wide: [id_0, id_1], deep: [id_0, id_1]}
tasks:
  click: {label: label, losses: [binary_cross_entropy]}
train: {batch_size: 512, epochs: 1, sparse_optimizer: adagrad, dense_optimizer: {optimizer: adam, learning_rate: 0.001}}
"""


PYTHONS = ("python3.11", "python3.12", "python3.13")
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "ten_minutes.md"


def quick_start() -> str:
    """The Python of the page, as one program."""
    return "\n".join(re.findall(r"(?ms)^```python$(.*?)^```$", PAGE.read_text()))


def check(distribution: Path, python: str) -> None:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        bin = folder / "venv" / "bin"
        subprocess.run([bin / "python", "-m", "pip", "install", "--quiet", distribution, "pandas"], check=True)
        (folder / "clicks.yaml").write_text(CONFIG)
        for name, path in (("with a compiler", os.environ["PATH"]), ("without one", str(bin))):
            environment = {**os.environ, "PATH": path, "SPARROW_CACHE_DIR": str(folder / name), "CXX": ""}
            environment.pop("PYTHONPATH", None)
            trials = (
                [bin / "python", "-c", TRIAL],
                [bin / "python", "-c", quick_start()],
                [bin / "sparrow", "train", "clicks.yaml", "--model-dir", f"run {name}"],
                [bin / "sparrow", "export", f"run {name}", f"exported {name}"],
            )
            print(f"--- {distribution.name}, {python}, {name}", flush=True)
            (folder / name).mkdir()
            for trial in trials:
                subprocess.run(trial, cwd=folder, env=environment, check=True)
            for made in ("shop", "shop-model"):
                shutil.rmtree(folder / made)


def pythons() -> list[str]:
    """The supported Pythons that start here: pyenv has a command for each, even for those that are switched off."""
    named = [found for name in PYTHONS if (found := shutil.which(name))]
    return [name for name in named if not subprocess.run([name, "--version"], capture_output=True).returncode] or [
        sys.executable
    ]


def main(distributions: list[Path]) -> None:
    for distribution in distributions:
        for python in pythons():
            check(distribution, python)


if __name__ == "__main__":
    main([Path(given).resolve() for given in sys.argv[1:]])
