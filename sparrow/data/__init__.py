"""Data: from files to batches. A source gives rows, features make inputs of columns, a pipeline makes batches."""

from sparrow.data.batch import Batch, join
from sparrow.data.converter import Converter
from sparrow.data.counting import Counted, build_vocabularies, write_vocabularies
from sparrow.data.errors import DataError, shown
from sparrow.data.features import (
    ComboFeature,
    Feature,
    Holds,
    IdFeature,
    RawFeature,
    SequenceFeature,
    SparseFeature,
    TableUse,
    register_feature,
)
from sparrow.data.label_checks import CheckedLabel, LabelCheck
from sparrow.data.labels import Label
from sparrow.data.negatives import ID, NegativeSampler
from sparrow.data.pipeline import Pipeline
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
from sparrow.data.synthetic import Clicks
from sparrow.data.vocabulary import Vocabulary

__all__ = [
    "ID",
    "Batch",
    "CheckedLabel",
    "ClickLog",
    "Clicks",
    "ComboFeature",
    "Converter",
    "Counted",
    "Criteo",
    "Csv",
    "DataError",
    "Feature",
    "Holds",
    "IdFeature",
    "Label",
    "LabelCheck",
    "MovieLens",
    "NegativeSampler",
    "Parquet",
    "Pipeline",
    "RawFeature",
    "SequenceFeature",
    "Source",
    "SparseFeature",
    "Split",
    "TableUse",
    "Tables",
    "Vocabulary",
    "build_vocabularies",
    "feature_specs",
    "join",
    "lookup_specs",
    "register_feature",
    "register_source",
    "shown",
    "write_clicks",
    "write_criteo",
    "write_vocabularies",
]
