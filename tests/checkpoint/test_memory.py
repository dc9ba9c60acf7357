"""Saving a large table needs no second copy of it."""

import subprocess
import sys
import textwrap

import pytest

from tests.conftest import AS_USERS

pytestmark = pytest.mark.slow

LIMIT_MB = 300

SAVE = """
    import sys, tempfile, threading, time
    from pathlib import Path

    import jax
    import jax.numpy as jnp

    import sparrow as sp
    from sparrow.checkpoint import Checkpoints, Saved, placed, rows_of

    ROWS, DIM = 8 << 20, 64  # 2 GiB
    rule = sp.rules.RowwiseAdagrad(0.1)
    table = sp.TableSpec(name="large", vocabulary_size=ROWS, embedding_dim=DIM, optimizer=rule,
                         initializer=jax.nn.initializers.zeros)
    emb = sp.Embedder([sp.FeatureSpec(name="id", table_spec=table)])
    state = emb.init(jax.random.key(0))
    step = jax.jit(lambda s, b: emb.update(s, b, {"id": jnp.ones((3, DIM))}), donate_argnums=0)
    batch = emb.pack({"id": [0, 5, ROWS - 1]})
    state = jax.block_until_ready(step(state, batch))
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(state))

    def anonymous():  # the process's own memory: what it holds in files, such as libraries, is not counted
        text = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon")) * 1024

    peak, going = 0, True
    def watch():
        global peak
        while going:
            peak = max(peak, anonymous())
            time.sleep(0.002)

    threading.Thread(target=watch, daemon=True).start()
    before = anonymous()
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        checkpoints.save(1, rows_of(emb, state), {}, {})
        first = emb.table(state, "large")[5, 0].item()
        state = jax.block_until_ready(step(state, batch))  # while the rest happens in the background
        checkpoints.close()
        saving, peak = peak, 0
        saved = Saved(Path(folder) / "1")
        state = jax.block_until_ready(placed(emb, state, list(saved.tables), saved.rows))
        assert emb.table(state, "large")[5, 0].item() == first
        restoring, going = peak, False
    print(*(round((value - held) / 2**20) for value in (before, saving, restoring)))
"""


def test_two_gigabytes():
    """Tables, slots, Python, JAX and all: the process never holds 300 MB more than its tables and slots."""
    command = [sys.executable, "-c", textwrap.dedent(SAVE)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=AS_USERS)
    assert result.returncode == 0, result.stderr
    before, saving, restoring = map(int, result.stdout.split())
    assert before < saving < LIMIT_MB
    assert restoring < LIMIT_MB
