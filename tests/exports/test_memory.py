"""A table is never in memory twice while it is exported, and hardly at all while it is served."""

import json

import pytest

from tests.exports.cases import served

pytestmark = pytest.mark.slow

MEGABYTES = 256
CODE = """
import json, sys, threading, time
from pathlib import Path
import jax
import jax.numpy as jnp
from sparrow import config, exports, runs, serving

folder, megabytes = sys.argv[1], int(sys.argv[2])
peak = 0.0

def private():
    "Megabytes that are this process's own: pages of a mapped file are not among them."
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024

def watch():
    global peak
    while True:
        peak = max(peak, private())
        time.sleep(0.002)

def measured(work):
    global peak
    before = peak = private()
    work()
    return peak - before

def serve():
    model = serving.load(folder + "/export")
    model.predict({"big": list(range(0, 100_000, 100)), "small": [1] * 1000})

rows = megabytes * 2**20 // (64 * 4)
features = [{"kind": "id", "name": n, "num_buckets": r, "embedding_dim": 64} for n, r in (("big", rows), ("small", 10))]
program = runs.Program.of(config.from_mapping({
    "train": {"sparse_optimizer": {"name": "sgd", "learning_rate": 0.1}, "batch_size": 8, "steps": 1,
              "dense_optimizer": {"optimizer": "sgd", "learning_rate": 0.1}},
    "tasks": {"click": {"label": "click", "losses": ["binary_cross_entropy"]}},
    "data": {"train": {"name": "parquet", "path": "none"}, "features": features},
    "model": {"architecture": {"name": "multi_tower", "towers": [{"input": "all", "mlp": {"hidden_units": [4]}}]},
              "groups": {"all": ["big", "small"]}},
}))
ones = lambda leaf: jnp.ones(leaf.shape, leaf.dtype)
state = jax.block_until_ready(jax.tree.map(ones, jax.eval_shape(program.init)))
threading.Thread(target=watch, daemon=True).start()
print(json.dumps([measured(lambda: exports.export(program, state, folder + "/export")), measured(serve)]))
"""


def test_peak_memory(tmp_path):
    result = served(CODE, tmp_path, MEGABYTES)
    assert result.returncode == 0, result.stderr
    exporting, serving = json.loads(result.stdout)
    assert (tmp_path / "export" / "tables.safetensors").stat().st_size > MEGABYTES * 2**20
    assert exporting < MEGABYTES / 2
    assert serving < MEGABYTES / 2
