"""Runs checks of tables on a mesh, and prints their results. Run by test_mesh.py as ``on_devices.py CHECK...``.

A program of its own, because the number of devices must be set before JAX starts. The mesh takes all of them.
"""

import json
import sys

from tests.embedding.sharding.checks import host, packing, program, rows, steps, training, views

CHECKS = [
    steps.equal,
    steps.every_rule,
    steps.axes,
    steps.placed,
    steps.moved,
    steps.rounded,
    training.optimizer,
    training.split_params,
    program.step_program,
    rows.ordered,
    rows.dynamic,
    rows.undone,
    rows.evicted,
    program.device_order,
    packing.ragged_sizes,
    packing.automatic,
    packing.counted_traffic,
    views.views,
    packing.exchanged_ahead,
    packing.patched,
    training.layers,
    views.refusals,
    host.in_host_memory,
    host.small_cache,
]
BY_CHECK = {check.__name__: check for check in CHECKS}


if __name__ == "__main__":
    found = {}
    for given in sys.argv[1:]:
        name, *arguments = given.split(":")
        found[given] = BY_CHECK[name](*arguments)
    print(json.dumps(found))
