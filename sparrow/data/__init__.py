"""Data: what columns mean. A source reads rows, features turn columns into inputs; no threads, no devices."""

from sparrow.data.batch import Batch, check_same_lengths, join
from sparrow.data.block import Block, concatenate
from sparrow.data.candidate_labels import CANDIDATES, CandidateLabel
from sparrow.data.collisions import Collisions, count_collisions
from sparrow.data.computed import (
    BoolMask,
    Bucketize,
    Combine,
    Computed,
    Constant,
    Custom,
    Each,
    EditDistance,
    Expr,
    KvDotProduct,
    Lookup,
    Match,
    Overlap,
    RegexReplace,
    register_computed,
    register_function,
)
from sparrow.data.converter import Converter
from sparrow.data.counting import Counted, build_vocabularies, write_vocabularies
from sparrow.data.distinct import distinct_rows, key_pairs
from sparrow.data.errors import IN_MEMORY, DataError, MissingColumn, Problems, shown
from sparrow.data.features import (
    AUTO,
    AutoDis,
    BagSequenceFeature,
    ComboFeature,
    DynamicRows,
    Feature,
    Holds,
    IdFeature,
    MLPEmbedding,
    NumberEmbedding,
    RawFeature,
    RawSequenceFeature,
    SequenceFeature,
    SparseFeature,
    TableUse,
    TokenizeFeature,
    register_feature,
    without_presence,
)
from sparrow.data.hashing import HashTable, shuffled
from sparrow.data.item_counts import ItemCounts, holds_one_key
from sparrow.data.labels import CheckedLabel, Label, LabelCheck
from sparrow.data.layout import BlockLayout, Name
from sparrow.data.samplers import ID, Ancestors, EdgeTable, Items, Masks, NegativeSampler, Parents, Sampler, TreeSampler
from sparrow.data.sources import (
    BadRows,
    ClickLog,
    Criteo,
    Csv,
    Flight,
    Follow,
    Growing,
    GrowingReader,
    HeldOut,
    Histories,
    InMemory,
    Kafka,
    MovieLens,
    Order,
    Parquet,
    Reader,
    Rows,
    Source,
    Split,
    Tables,
    opened,
    register_source,
    source_of,
    write_clicks,
    write_criteo,
)
from sparrow.data.specs import feature_specs, lookup_specs
from sparrow.data.synthetic import Clicks
from sparrow.data.tokenizer import Tokenizer
from sparrow.data.values import INTEGERS, STRINGS, kind_of
from sparrow.data.views import without_views
from sparrow.data.vocabulary import Vocabulary, Words

__all__ = [
    "CANDIDATES",
    "AutoDis",
    "BagSequenceFeature",
    "Batch",
    "BoolMask",
    "Bucketize",
    "ClickLog",
    "Clicks",
    "Combine",
    "ComboFeature",
    "Computed",
    "Constant",
    "Criteo",
    "Csv",
    "Custom",
    "DataError",
    "Each",
    "EditDistance",
    "Expr",
    "Feature",
    "Follow",
    "Growing",
    "GrowingReader",
    "Histories",
    "IdFeature",
    "Items",
    "KvDotProduct",
    "Label",
    "Lookup",
    "MLPEmbedding",
    "Match",
    "MissingColumn",
    "MovieLens",
    "NegativeSampler",
    "NumberEmbedding",
    "Overlap",
    "Parquet",
    "RawFeature",
    "RawSequenceFeature",
    "Reader",
    "RegexReplace",
    "Rows",
    "SequenceFeature",
    "Source",
    "SparseFeature",
    "Split",
    "Tables",
    "TokenizeFeature",
    "Tokenizer",
    "TreeSampler",
    "Vocabulary",
    "build_vocabularies",
    "feature_specs",
    "register_computed",
    "register_feature",
    "register_function",
    "register_source",
    "source_of",
    "write_clicks",
    "write_criteo",
    "write_vocabularies",
]


def __dir__() -> list[str]:
    return __all__
