"""`time_feed`: how fast the way from files to the device is by itself, and which stage of it takes longest."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any, Final

import jax

from sparrow.config import Config, train_pipeline
from sparrow.feed import MEANING, Pipeline, Preparer
from sparrow.runs.step.program import Program

ADVICE: Final = {
    "read": "the disk is slower than the rest: use a faster one, or copy the files to it first",
    "decode": "raise data.threads if cores are free; Parquet is read faster than text, and plain integers than texts",
    "convert": "raise data.threads if cores are free; integers are converted faster than texts",
    "pack": "raise data.threads if cores are free; larger batches have less work each",
    "copy": "larger batches are copied faster",
}


@dataclasses.dataclass(frozen=True)
class FeedTimes:
    """The speed of a feed: the examples measured, their seconds and threads, and seconds of all threads by stage."""

    examples: int
    seconds: float
    threads: int
    stages: dict[str, float]

    @property
    def examples_per_second(self) -> float:
        return self.examples / self.seconds if self.seconds > 0 else 0.0

    @property
    def slowest(self) -> str:
        return max(self.stages, key=self.stages.__getitem__)

    def lines(self) -> list[str]:
        total = sum(self.stages.values()) or 1.0
        speed = f"{self.examples_per_second:,.0f} examples per second"
        lines = [f"{speed}: {self.examples:,} in {self.seconds:.1f} s, {self.threads} threads"]
        lines += [f"{name:8} {value / total:4.0%}  {MEANING[name]}" for name, value in self.stages.items()]
        return [*lines, f"the slowest stage is {self.slowest}: {ADVICE[self.slowest]}"]

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "examples_per_second": self.examples_per_second, "slowest": self.slowest}


def feed_seconds(pipeline: Pipeline[Any], preparer: Preparer, elapsed: float) -> float:
    """Return the seconds that a row takes from files to the device, by the work of a pipeline in ``elapsed`` seconds.

    Rows that are converted but not packed yet count as such: a pipeline that shuffles converts a window of rows before
    its first batch. So does the number of threads that were at work, the one that waits for batches included.
    """
    parts = [(sum(part.seconds.values()), max(part.rows, 1)) for part in (pipeline.stages, preparer.stages)]
    busy = sum(seconds for seconds, _ in parts)
    return sum(seconds / rows for seconds, rows in parts) * elapsed / busy if busy else 0.0


def time_feed(config: Config, seconds: float = 10.0) -> FeedTimes:
    """Take the batches of training to the device, for a number of seconds or one epoch, and drop them."""
    preparer = Program.of(config).preparer()
    once = config.model_copy(update={"train": config.train.model_copy(update={"epochs": 1})})
    pipeline = train_pipeline(once, preparer)
    examples, last, began = 0, None, time.perf_counter()
    with contextlib.closing(iter(pipeline)) as batches:  # type: ignore[type-var]
        for prepared in batches:
            examples, last = examples + prepared.examples, prepared.feed
            if time.perf_counter() - began >= seconds:
                break
        jax.block_until_ready(last)  # type: ignore[no-untyped-call]
        took = time.perf_counter() - began
    stages = {name: value + preparer.stages.seconds[name] for name, value in pipeline.stages.seconds.items()}
    return FeedTimes(examples, took, pipeline.threads, stages)
