"""A table is never in memory twice while it is exported, and hardly at all while it is served."""

import re

from tests.exports.cases import served

MEGABYTES = 128
MEASURE = """
import sys, threading, time
from pathlib import Path
import jax
import jax.numpy as jnp

def resident():
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024

peak, done = resident(), False
def watch():
    global peak
    while not done:
        peak = max(peak, resident())
        time.sleep(0.002)

def measured(work):
    global peak
    before = peak = resident()
    work()
    return peak - before

threading.Thread(target=watch, daemon=True).start()
"""
EXPORT = (
    MEASURE
    + """
from sparrow import config, exports, runs
folder, megabytes = sys.argv[1], int(sys.argv[2])
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
state = jax.block_until_ready(jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), jax.eval_shape(program.init)))
exports.export(program, state, folder + "/first")  # compiles
print("export", measured(lambda: exports.export(program, state, folder + "/second")))
done = True
"""
)
SERVE = (
    MEASURE
    + """
import sparrow.serving
model = sparrow.serving.load(sys.argv[1] + "/first")
model.predict({"big": [1], "small": [1]})
def work():
    model = sparrow.serving.load(sys.argv[1] + "/second")
    model.predict({"big": list(range(0, 100_000, 100)), "small": [1] * 1000})
print("serve", measured(work))
done = True
"""
)


def figure(result):
    assert result.returncode == 0, result.stderr
    return float(re.search(r"(?:export|serve) ([\d.]+)", result.stdout)[1])


def test_peak_memory(tmp_path):
    assert figure(served(EXPORT, tmp_path, MEGABYTES)) < 64
    assert (tmp_path / "second" / "tables.safetensors").stat().st_size > MEGABYTES * 2**20
    assert figure(served(SERVE, tmp_path)) < 64
