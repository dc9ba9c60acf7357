"""Tables and features: specs, packing, the `Embedder`, row gradients."""

from sparrow.embedding.batches.columns import replaced
from sparrow.embedding.batches.packing import (
    MAX_ENTRIES,
    InRows,
    Laid,
    Measured,
    Packer,
    Shape,
    Shaped,
    Size,
    lay_out,
    members_of,
    of_one_size,
    size_name,
)
from sparrow.embedding.batches.ragged import Ragged
from sparrow.embedding.batches.sizes import Learned, Sizes, size_class
from sparrow.embedding.batches.texts import hash_strings, hash_texts
from sparrow.embedding.dynamic.saved import Held, Ids, SavedIds
from sparrow.embedding.embedder import Embedder
from sparrow.embedding.host_memory import HostMemory
from sparrow.embedding.initializers import INITIALIZERS, Constant, Initializer, Normal, Uniform, register_initializer
from sparrow.embedding.packed_batch import Group, PackedBatch
from sparrow.embedding.planner.costs import Links
from sparrow.embedding.planner.search import Choice, choose_placement, kind_of
from sparrow.embedding.planner.uses import imagined_mesh
from sparrow.embedding.row_grads import RowGrads, clip_factor
from sparrow.embedding.sequences import Jagged, Rows, Sequence
from sparrow.embedding.sharding.device_order import in_device_order
from sparrow.embedding.sharding.measured import RoutedBatch
from sparrow.embedding.sharding.placement import Placement, table_bytes
from sparrow.embedding.sharding.shards import Shards, from_host
from sparrow.embedding.specs import Dynamic, FeatureSpec, TableSpec
from sparrow.embedding.stacking import Stack, row_step
from sparrow.embedding.state import EmbeddingState, devices_of
from sparrow.embedding.tracking import CHECKPOINTS, EXPORTS, ChangedRows, cleared
from sparrow.kernels.ids import U64, hash_integers
from sparrow.kernels.ids import mix64_of_numpy as mix64
