"""The side-by-side programs of docs/migrate/, run again: the peer's in a separate environment, ours in this one.

    python benchmarks/migrate.py eformer=/venvs/eformer/bin/python torchrec=/venvs/torchrec/bin/python

A page has a block "Data for both", a block with the peer's name and a block "Sparrow"; each program ends with
``results``, arrays by name. The output is a Markdown table of how far the two are apart.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(python|py) title=\"(.*?)\"\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BEFORE = {"sparsecore": "import sparsecore_on_cpu\n"}  # stands in for the two kernels that only a TPU has
PACKAGES = {
    "eformer": ("eformer", "jax", "optax"),
    "keras_rs": ("keras-rs", "keras", "jax"),
    "sparsecore": ("jax-tpu-embedding", "jax", "optax"),
    "torchrec": ("torchrec", "fbgemm-gpu-cpu", "torch"),
}
SAVE = "\nimport sys\nimport numpy\nnumpy.savez(sys.argv[1], **{k: numpy.asarray(v) for k, v in results.items()})\n"
VERSIONS = "import importlib.metadata as m, sys\nprint(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))\n"


def programs(page: str) -> tuple[str, str]:
    """Return the peer's program and ours, both with the data."""
    found = BLOCK.findall((ROOT / "docs" / "migrate" / f"{page}.md").read_text())
    (data,) = (block for _, title, block in found if title == "Data for both")
    (ours,) = (block for _, title, block in found if title == "Sparrow")
    (peer,) = (block for kind, _, block in found if kind == "py")
    return BEFORE.get(page, "") + data + peer, data + ours


def run(python: str, code: str, *arguments: str) -> str:
    """Run a program and return the end of its output."""
    paths = [str(ROOT / "benchmarks"), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([python, "-c", code, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{python} failed:\n{done.stderr[-3000:]}")
    return done.stdout.strip()


def results_of(python: str, code: str) -> dict[str, np.ndarray]:
    """Return the arrays that a program leaves in ``results``."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.npz")
        print(run(python, code + SAVE, path), file=sys.stderr)
        with np.load(path) as saved:
            return {name: saved[name] for name in saved.files}


def main() -> None:
    """Run the programs of each page that the command line names."""
    print("| page | versions | compared | shape | largest value | largest difference |\n|---|---|---|---|---|---|")
    for argument in sys.argv[1:]:
        page, _, python = argument.partition("=")
        theirs, ours = (results_of(at, code) for at, code in zip((python, sys.executable), programs(page), strict=True))
        if theirs.keys() != ours.keys():
            raise SystemExit(f"{page}: the peer's results are {sorted(theirs)}, ours {sorted(ours)}")
        versions = run(python, VERSIONS, *PACKAGES[page])
        for name, values in theirs.items():
            if values.shape != ours[name].shape:
                raise SystemExit(f"{page}: {name} has shape {values.shape} there and {ours[name].shape} here")
            apart = np.abs(values - ours[name]).max()
            shape = " × ".join(map(str, values.shape))
            print(f"| {page} | {versions} | {name} | {shape} | {np.abs(values).max():.4g} | {apart:.1e} |")


if __name__ == "__main__":
    main()
