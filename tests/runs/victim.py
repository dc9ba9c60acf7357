"""Runs in processes of their own, to be killed. Imported once by a fork server, so that a process starts in no time."""

import contextlib
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import time

import jax
import numpy as np

from sparrow import cli, processes, runs
from sparrow.checkpoint import Saved, saved_steps
from sparrow.config import dumps
from sparrow.runs.parts.saving import Saver
from tests.runs.cases import case

# Tables with one and with two slots, an average, dropout's keys, batch statistics, metrics of training.
CONFIG = (
    "train.ema=0.9",
    "train.table_optimizers=[{tables: [id_0], optimizer: {name: adam, learning_rate: 0.01}}]",
    "train.log_every_steps=1",
    "train.batch_size=64",
    "train.tensorboard=false",
    "train.traffic=1",  # every batch is counted, so that counts are the same in every run
    "model.architecture.deep={hidden_units: [8], dropout_ratio: 0.5, use_bn: true}",
    "evaluate={steps: 2, every_steps: 50}",
)
LIMIT = 600  # seconds that a process may take, also on a busy machine
CLOCKS = ("time", "examples_per_second", "waiting_for_data", "host_memory", "device_memory")


def config(*overrides):
    return case(*CONFIG, *overrides)


def context():
    """Processes that are forked from one that has imported everything and computed nothing."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["tests.runs.victim"])
    return made


def use_cache(folder):
    """Compiled programs are kept in files: the next process does not compile them again."""
    processes.write_programs_whole()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def train(overrides, folder, cache, resume=True):
    """The target of a process: trains, or goes on training."""
    use_cache(cache)
    with open(os.devnull, "w") as nowhere:
        runs.train(config(*overrides), folder, resume=resume, stream=nowhere)


def command(overrides, folder, cache, output, *options):
    """The target of a process: ``sparrow train``, its output in a file, and its exit code."""
    use_cache(cache)
    folder.mkdir(exist_ok=True)
    path = output.with_suffix(".yaml")
    path.write_text(dumps(config(*overrides)))
    with output.open("w", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        code = cli.main(["train", str(path), "--model-dir", str(folder), *options])
        sys.stdout.flush()
        sys.stderr.flush()
    sys.exit(code)


def on_small_disk(limit, *arguments):
    """`command`, where files may not become larger than ``limit`` bytes."""
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    command(*arguments)


def slow_to_stop(overrides, folder, cache, output):
    """`command`, on a disk that takes a minute for the last save."""
    Saver._save = lambda *_: time.sleep(60)
    command((*overrides, "train.checkpoint={every_steps: 1000}"), folder, cache, output)


def wait_until(condition, process, seconds=LIMIT):
    """Whether the condition came true while the process lived."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        if not process.is_alive():
            return False
        time.sleep(0.002)
    raise AssertionError(f"nothing happened for {seconds} seconds")


def lines(folder):
    """How many lines the log has."""
    with contextlib.suppress(FileNotFoundError):
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    return 0


def entries(folder):
    """The log, without what a clock or the memory says."""
    made = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in entry.items() if key not in CLOCKS and not key.startswith("cache_")}
        for entry in made
    ]


def everything(folder):
    """All arrays of the newest checkpoint, by name."""
    saved = Saved(folder / "checkpoints" / str(saved_steps(folder / "checkpoints")[0]))
    tables = {key: np.concatenate([block for _, block in saved.rows(key)]) for key in saved.tables}
    return saved.step, tables, saved.arrays()


def assert_same_bytes(*folders, but=None):
    """Newest checkpoints hold the same bytes, except in arrays whose names hold ``but``."""
    first, *others = (everything(folder) for folder in folders)
    for other in others:
        assert first[0] == other[0]
        for a, b in ((first[1], other[1]), (first[2], other[2])):
            assert a.keys() == b.keys()
            for name in a:
                if but is None or but not in name:
                    assert a[name].tobytes() == b[name].tobytes(), name


def assert_same(folder, other):
    """Two runs ended bit for bit alike, and logged the same."""
    assert {key.slot for key in everything(folder)[1]} == {None, "accumulator", "momentum", "velocity"}
    assert_same_bytes(folder, other)
    assert entries(folder) == entries(other)


class Chain:
    """A run that is killed again and again, and resumed each time; when it is through, a new one begins.

    Attributes:
      kills: so far.
      in_saves: those that left an unfinished checkpoint behind.
      starting: those before the first step.
      finished: runs that came to their end, each compared with the undisturbed one.
    """

    def __init__(self, overrides, folder, undisturbed, cache, seed):
        self.overrides, self.folder, self.undisturbed, self.cache = overrides, folder, undisturbed, cache
        self.random, self.context = random.Random(seed), context()
        self.kills = self.in_saves = self.starting = self.finished = 0

    def __str__(self):
        return (
            f"{self.kills} kills ({self.starting} before the first step, {self.in_saves} in a save), "
            f"{self.finished} runs came to their end"
        )

    def go(self, kills):
        """Until so many kills are made and the last run is through."""
        while self.kills < kills or self.folder.exists():
            self.one(kills)

    def one(self, kills):
        """Starts the run, or resumes it. It is killed if that makes no more than ``kills``, and compared at its end."""
        process = self.context.Process(target=train, args=(self.overrides, self.folder, self.cache))
        before = lines(self.folder)
        process.start()
        if self.kills < kills:
            self._wait_for_a_moment(process, before)
            if process.is_alive():
                self._kill(process, before)
                return
        process.join(LIMIT)
        assert process.exitcode == 0
        assert_same(self.folder, self.undisturbed)
        self.finished += 1
        self.folder.rename(self.folder.with_name(f"finished-{self.finished}"))

    def _wait_for_a_moment(self, process, before):
        """One in five dies while it starts, two in five while they save, the others while they train."""
        moment = self.random.random()
        if moment < 0.2:
            process.join(self.random.uniform(0.0, 1.0))
        elif wait_until(lambda: lines(self.folder) != before, process):
            if moment < 0.6:
                wait_until(self._is_saving, process)
            else:
                process.join(self.random.uniform(0.0, 0.5))

    def _is_saving(self):
        try:
            return any(".partial" in path.name for path in (self.folder / "checkpoints").glob("*"))
        except FileNotFoundError:  # the folder itself came or went meanwhile
            return False

    def _kill(self, process, before):
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.kills += 1
        self.in_saves += self._is_saving()
        self.starting += lines(self.folder) == before
