"""From files to filled buffers on the device: one plan, one filler, one queue, for every consumer of batches."""

from sparrow.feed.batching import Batching, Cost, Position
from sparrow.feed.candidates import (
    CANDIDATES,
    IS_EXAMPLE,
    NEGATIVE_IDS,
    NEGATIVE_LOG_Q,
    POSITIVE_IDS,
    POSITIVE_LOG_Q,
    TAKES_PART,
    USERS,
)
from sparrow.feed.feed import Feed, MeshLayout, Parts, alike, filled, placed
from sparrow.feed.pipeline import Pipeline, Waits
from sparrow.feed.prepare import Made, OneByOne, Prepare
from sparrow.feed.preparer import Content, MeshBatch, Prepared, Preparer
from sparrow.feed.reading import WaitInterrupted
from sparrow.feed.shares import Division, Peers
from sparrow.feed.stages import MEANING, STAGES, Stages
from sparrow.feed.unvarying import Unvarying
from sparrow.feed.watermark import WATERMARK, EventTime, Watermark
