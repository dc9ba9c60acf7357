"""Features: from the columns of a table to the inputs of a model."""

from sparrow.data.features.bag_sequence import BagSequenceFeature
from sparrow.data.features.base import Feature, SparseFeature, TableUse, register_feature, registry
from sparrow.data.features.combo import ComboFeature
from sparrow.data.features.dynamic import DynamicRows, without_presence
from sparrow.data.features.embeddings import AutoDis, MLPEmbedding, NumberEmbedding
from sparrow.data.features.embeddings import registry as number_embeddings
from sparrow.data.features.ids import IdFeature
from sparrow.data.features.mapped import AUTO
from sparrow.data.features.numeric import RawFeature
from sparrow.data.features.raw_sequence import RawSequenceFeature
from sparrow.data.features.sequence import SequenceFeature
from sparrow.data.features.tokenize import TokenizeFeature, Tokenizer
