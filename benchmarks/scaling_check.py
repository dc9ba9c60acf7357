"""The plan for many devices compared with real steps on 2, 4 and 8 virtual devices; `scaling.py --check` runs it.

Bytes: the all-to-alls in the compiled program of a step, against the plan's. Times: the devices share this machine's
cores, so a step takes the sum of what its devices do, n times what `sparrow plan` gives for one::

    step = n * (moved / memory + sent / link + collectives * latency)

The three rates are fitted to the steps with 2 and 4 devices, for three batch sizes; the steps with 8 are predicted.
The rate of the memory also pays for the arithmetic of the (small) network, which grows with the batch as rows do.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from typing import Any, NamedTuple

import numpy as np
from mesh import ALLOCATOR

DEVICES = (2, 4, 8)
FITTED = (2, 4)
BATCHES = (1024, 2048, 4096)
ROWS, DIM, STEPS = 20_000, 32, 100
BYTES = {"s32": 4, "f32": 4, "u32": 4, "bf16": 2}


class Step(NamedTuple):
    """One case: ``moved``, ``sent`` and ``collectives`` are the plan's, of one device; the rest is measured.

    Attributes:
      devices, batch: the case.
      moved: bytes of rows, slots, activations and dense state.
      sent: bytes of ids, values, gradients of rows and dense gradients.
      collectives: their number.
      exchanged, counted: bytes of the all-to-alls of rows, as planned and in the compiled program.
      dense, dense_counted: bytes of the all-to-all of dense gradients, as planned and in the program.
      clock, processor: milliseconds of the fastest step, by the clock and in the processor time of all threads.
    """

    devices: int
    batch: int
    moved: float
    sent: float
    collectives: float
    exchanged: float
    counted: float
    dense: float
    dense_counted: float
    clock: float
    processor: float

    @property
    def terms(self) -> list[float]:
        """The factors of 1 / memory, 1 / link and latency."""
        return [self.devices * term for term in (self.moved, self.sent, self.collectives)]


def all_to_alls(program: str) -> tuple[float, float]:
    """Return the bytes that the all-to-alls of a compiled program exchange: for rows, and for dense gradients."""
    rows = dense = 0.0
    for line in program.splitlines():
        result, found, _ = line.partition(" all-to-all(")
        if not found:
            continue
        for kind, shape in re.findall(r"\b(\w+)\[([\d,]*)\]", result.partition(" = ")[2]):
            numbers = [int(number) for number in shape.split(",") if number]
            size = BYTES[kind] * math.prod(numbers)
            # Values of rows have three dimensions, ids are integers: the rest are dense gradients.
            if kind == "f32" and len(numbers) < 3:
                dense += size
            else:
                rows += size
    return rows, dense


def real(devices: int) -> list[dict[str, float]]:
    """Compile and run a step for each batch size on the devices of this process, in turns."""
    import jax
    from scaling import large

    from sparrow.config import train_pipeline
    from sparrow.runs import Program
    from sparrow.runs.step.step import Steps

    cases: list[list[Any]] = []
    made: list[dict[str, float]] = []
    for batch in BATCHES:
        program = Program.of(large(ROWS, DIM, batch, devices, small=True))
        pipeline = train_pipeline(large(ROWS, DIM, batch, small=True))
        pipeline.prepare = program.preparer()
        feed = next(iter(pipeline)).feed
        state, step = program.init(), Steps(program).one
        run = jax.jit(lambda s, f, step=step: step(s, (f,)), donate_argnums=0).lower(state, feed).compile()
        share = (devices - 1) / devices  # the rest stays on the device
        rows, dense = (share * count for count in all_to_alls(run.as_text()))
        made.append({"counted": rows, "dense_counted": dense})
        cases.append([run, state, feed, [], []])
    for i in range(STEPS + 3):
        for case in cases:
            run, state, feed, clock, processor = case
            began, used = time.perf_counter(), time.process_time()
            case[1], report = run(state, feed)
            jax.block_until_ready((case[1], report))
            if i >= 3:
                clock.append(time.perf_counter() - began)
                processor.append(time.process_time() - used)
    for one, (*_, clock, processor) in zip(made, cases, strict=True):
        one |= {"clock": 1e3 * min(clock), "processor": 1e3 * min(processor)}
    return made


def beside_the_plan() -> list[Step]:
    """Return all cases: the real steps run in processes of their own, with as many virtual devices."""
    from scaling import large

    from sparrow import planning

    found = {}
    for devices in DEVICES:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        environment = {**os.environ, **ALLOCATOR, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, __file__, str(devices)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        found[devices] = json.loads(done.stdout.splitlines()[-1])
    steps = []
    units = planning.Links(link=1.0, network=1.0, latency=1.0, memory=1.0)  # seconds are bytes, or collectives
    for i, batch in enumerate(BATCHES):
        config = large(ROWS, DIM, batch, small=True)
        one = planning.plan(config)
        for devices in DEVICES:
            many = planning.spread(config, one, devices, links=units)
            steps.append(
                Step(
                    devices,
                    batch,
                    many.rows_seconds + many.ordered_seconds,
                    many.exchange_seconds + many.dense_seconds,
                    many.latency_seconds,
                    exchanged=sum(stack.sent for stack in many.stacks.values()),
                    dense=many.dense / 2 if devices > 2 else 0,
                    **found[devices][i],
                )
            )
    return steps


def fitted(steps: list[Step], measured: str) -> np.ndarray[Any, Any]:
    """Return 1 / memory, 1 / link and latency, none below 0: the least relative errors over the FITTED devices."""
    from scipy.optimize import nnls

    chosen = [step for step in steps if step.devices in FITTED]
    terms = np.array([[term / getattr(step, measured) for term in step.terms] for step in chosen])
    scale = terms.max(axis=0)
    return nnls(terms / scale, np.ones(len(chosen)))[0] / scale


def check() -> None:
    """Print the tables of benchmarks/results/scaling.md."""
    steps = beside_the_plan()
    print("| batch | devices | rows exchanged: planned, counted | dense gradients: planned, counted |")
    print("|---|---|---|---|")
    for step in steps:
        cells = f"{step.exchanged:,.0f}, {step.counted:,.0f} | {step.dense:,.0f}, {step.dense_counted:,.0f}"
        print(f"| {step.batch:,} | {step.devices} | {cells} |")
    for name in ("clock", "processor"):
        rates = fitted(steps, name)
        shown = ["none" if not rate else f"{1e-6 / rate:.2f} GB/s" for rate in rates[:2]]
        print(f"\n{name}: memory {shown[0]}, link {shown[1]}, {1e3 * rates[2]:.0f} µs a collective and device\n")
        print("| batch | devices | measured, ms | model, ms | error |")
        print("|---|---|---|---|---|")
        for step in steps:
            modeled, measured = float(np.dot(rates, step.terms)), getattr(step, name)
            kind = "" if step.devices in FITTED else ", predicted"
            cells = f"{measured:.1f} | {modeled:.1f}{kind} | {modeled / measured - 1:+.0%}"
            print(f"| {step.batch:,} | {step.devices} | {cells} |")
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    print(json.dumps(real(int(sys.argv[1]))))
