"""Data: from files to batches. A source reads rows, features turn columns into inputs, a pipeline makes batches."""

from sparrow.data.batch import Batch, join
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
from sparrow.data.errors import IN_MEMORY, DataError, MissingColumn, Problems, WaitInterrupted, shown
from sparrow.data.features import (
    AUTO,
    AutoDis,
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
from sparrow.data.hash_table import HashTable
from sparrow.data.item_counts import ItemCounts, holds_one_key
from sparrow.data.label_checks import CheckedLabel, LabelCheck
from sparrow.data.labels import Label
from sparrow.data.layout import Layout as BlockLayout
from sparrow.data.layout import Name
from sparrow.data.pipeline import Pipeline
from sparrow.data.prefetch import prefetch as prefetched
from sparrow.data.prepare import Prepare
from sparrow.data.same_lengths import check_same_lengths
from sparrow.data.samplers import ID, Ancestors, EdgeTable, Items, NegativeSampler, Parents, Sampler, TreeSampler
from sparrow.data.shares import Division, Peers
from sparrow.data.sources import (
    ClickLog,
    Criteo,
    Csv,
    HeldOut,
    InMemory,
    MovieLens,
    Parquet,
    Reader,
    Rows,
    Source,
    Split,
    Tables,
    cut_in_two,
    opened,
    register_source,
    source_of,
    write_clicks,
    write_criteo,
)
from sparrow.data.specs import feature_specs, lookup_specs
from sparrow.data.stages import COPY, MEANING, PACK, STAGES, Stages
from sparrow.data.synthetic import Clicks
from sparrow.data.tokenizer import Tokenizer
from sparrow.data.values import INTEGERS, STRINGS, kind_of
from sparrow.data.views import without_views
from sparrow.data.vocabulary import Vocabulary
from sparrow.data.words import Words

__all__ = [
    "AUTO",
    "CANDIDATES",
    "COPY",
    "ID",
    "INTEGERS",
    "IN_MEMORY",
    "MEANING",
    "PACK",
    "STAGES",
    "STRINGS",
    "Ancestors",
    "AutoDis",
    "Batch",
    "Block",
    "BlockLayout",
    "BoolMask",
    "Bucketize",
    "CandidateLabel",
    "CheckedLabel",
    "ClickLog",
    "Clicks",
    "Collisions",
    "Combine",
    "ComboFeature",
    "Computed",
    "Constant",
    "Converter",
    "Counted",
    "Criteo",
    "Csv",
    "Custom",
    "DataError",
    "Division",
    "DynamicRows",
    "Each",
    "EdgeTable",
    "EditDistance",
    "Expr",
    "Feature",
    "HashTable",
    "HeldOut",
    "Holds",
    "IdFeature",
    "InMemory",
    "ItemCounts",
    "Items",
    "KvDotProduct",
    "Label",
    "LabelCheck",
    "Lookup",
    "MLPEmbedding",
    "Match",
    "MissingColumn",
    "MovieLens",
    "Name",
    "NegativeSampler",
    "NumberEmbedding",
    "Overlap",
    "Parents",
    "Parquet",
    "Peers",
    "Pipeline",
    "Prepare",
    "Problems",
    "RawFeature",
    "RawSequenceFeature",
    "Reader",
    "RegexReplace",
    "Rows",
    "Sampler",
    "SequenceFeature",
    "Source",
    "SparseFeature",
    "Split",
    "Stages",
    "TableUse",
    "Tables",
    "TokenizeFeature",
    "Tokenizer",
    "TreeSampler",
    "Vocabulary",
    "WaitInterrupted",
    "Words",
    "build_vocabularies",
    "check_same_lengths",
    "concatenate",
    "count_collisions",
    "cut_in_two",
    "distinct_rows",
    "feature_specs",
    "holds_one_key",
    "join",
    "key_pairs",
    "kind_of",
    "lookup_specs",
    "opened",
    "prefetched",
    "register_computed",
    "register_feature",
    "register_function",
    "register_source",
    "shown",
    "source_of",
    "without_presence",
    "without_views",
    "write_clicks",
    "write_criteo",
    "write_vocabularies",
]
