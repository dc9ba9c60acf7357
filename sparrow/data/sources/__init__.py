"""Sources of rows, in chunks that can be read in any order."""

from sparrow.data.sources.any_source import opened, source_of
from sparrow.data.sources.base import BadRows, Reader, Rows, Source, register_source, registry
from sparrow.data.sources.clicks import ClickLog, write_clicks, write_criteo
from sparrow.data.sources.criteo import Criteo
from sparrow.data.sources.follow import Follow
from sparrow.data.sources.growing import Flight, Growing, GrowingReader, Order
from sparrow.data.sources.held_out import HeldOut
from sparrow.data.sources.histories import Histories
from sparrow.data.sources.kafka import Kafka
from sparrow.data.sources.memory import InMemory, Tables
from sparrow.data.sources.movielens import MovieLens
from sparrow.data.sources.parquet import Parquet
from sparrow.data.sources.split import Split
from sparrow.data.sources.text import Csv
