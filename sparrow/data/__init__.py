"""Data: from files to batches. A source reads rows, features turn columns into inputs, a pipeline makes batches."""

from sparrow.data.batch import Batch, join
from sparrow.data.block import Block, Name
from sparrow.data.converter import Converter
from sparrow.data.counting import Counted, build_vocabularies, write_vocabularies
from sparrow.data.errors import DataError, WaitInterrupted, shown
from sparrow.data.features import (
    ComboFeature,
    DynamicRows,
    Feature,
    Holds,
    IdFeature,
    RawFeature,
    RawSequenceFeature,
    SequenceFeature,
    SparseFeature,
    TableUse,
    register_feature,
    without_presence,
)
from sparrow.data.hash_table import HashTable
from sparrow.data.label_checks import CheckedLabel, LabelCheck
from sparrow.data.labels import Label
from sparrow.data.negatives import ID, NegativeSampler
from sparrow.data.pipeline import Pipeline
from sparrow.data.prepare import Prepare
from sparrow.data.same_lengths import check_same_lengths
from sparrow.data.sources import (
    ClickLog,
    Criteo,
    Csv,
    MovieLens,
    Parquet,
    Source,
    Split,
    Tables,
    register_source,
    write_clicks,
    write_criteo,
)
from sparrow.data.specs import feature_specs, lookup_specs
from sparrow.data.stages import COPY, MEANING, PACK, STAGES, Stages
from sparrow.data.synthetic import Clicks
from sparrow.data.vocabulary import Vocabulary

__all__ = [
    "COPY",
    "ID",
    "MEANING",
    "PACK",
    "STAGES",
    "Batch",
    "Block",
    "CheckedLabel",
    "ClickLog",
    "Clicks",
    "ComboFeature",
    "Converter",
    "Counted",
    "Criteo",
    "Csv",
    "DataError",
    "DynamicRows",
    "Feature",
    "HashTable",
    "Holds",
    "IdFeature",
    "Label",
    "LabelCheck",
    "MovieLens",
    "Name",
    "NegativeSampler",
    "Parquet",
    "Pipeline",
    "Prepare",
    "RawFeature",
    "RawSequenceFeature",
    "SequenceFeature",
    "Source",
    "SparseFeature",
    "Split",
    "Stages",
    "TableUse",
    "Tables",
    "Vocabulary",
    "WaitInterrupted",
    "build_vocabularies",
    "check_same_lengths",
    "feature_specs",
    "join",
    "lookup_specs",
    "register_feature",
    "register_source",
    "shown",
    "without_presence",
    "write_clicks",
    "write_criteo",
    "write_vocabularies",
]
