"""The section ``data`` of a config: sources, features, labels, negatives."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from sparrow.config.loading.section import Section
from sparrow.config.sections.train import Count, Name, Names
from sparrow.data import Ancestors, EdgeTable, Feature, Growing, HeldOut, Label, Parents, Source
from sparrow.data import Histories as HistoriesSource
from sparrow.feed import EventTime
from sparrow.fields import NotNegative, Positive
from sparrow.registry import NOT_EMPTY, Bounds


class Negatives(Section):
    """Items that are drawn as negatives for each batch, for a model with two towers."""

    items: Source | None = None
    """A row per item, with the columns that its features need. Default: the distinct items of the data to train on."""
    group: Name
    """The group of features, in model.groups, that describe an item."""
    id_column: Name
    """The column of the item's id in the examples; items that the example chose are excluded from its negatives."""
    items_id_column: Name | None = None
    """The column of the id in the items. Default: id_column."""
    weight_column: Name | None = None
    """The column of the items with their sampling weights. Default: all items are drawn equally often."""
    count: Count | Literal["all"]
    """Items drawn per training batch, or all: every batch has each item of the catalog once."""
    evaluate_count: Count | Literal["all"] | None = None
    """Items drawn per evaluation batch. Default: count."""
    user_column: Name | None = None
    """The column of the user's id in the examples, for positives and hard."""
    positives: EdgeTable | None = None
    """Items of each user that are excluded from the user's negatives, such as all that were ever chosen."""
    hard: EdgeTable | None = None
    """Items of each user that are further negatives, such as those that were seen and not chosen."""
    hard_count: Count | None = None
    """The most hard negatives of an example; of a user with more, some are drawn."""

    def _check(self) -> None:
        if (self.positives or self.hard) and self.user_column is None:
            raise ValueError("positives and hard need user_column, the column of the user's id in the examples")
        if (self.hard is None) != (self.hard_count is None):
            raise ValueError("hard and hard_count go together; give both or neither")


class Mask(Section):
    """Values that are hidden while a model is trained: features read as if their columns were missing."""

    features: Names
    """The features that are hidden, all together."""
    share: Annotated[float, Bounds(at_least=0, at_most=1)] = 0.0
    """The share of examples, drawn at random."""
    negatives_share: Annotated[float, Bounds(at_least=0, at_most=1)] = 0.0
    """The share of drawn negatives."""


class Cost(Section):
    """A limit of the cost of a batch, for examples of different size."""

    column: Name
    """The column of an example's cost, such as the length of its history."""
    limit: Positive
    """A batch ends before the sum of its costs exceeds the limit, and is padded to train.batch_size examples."""


class Split(Section):
    """Rows of train that are held out to evaluate on: the same ones whenever they are read."""

    by: Literal["random", "user", "time"] = "random"
    """Hold out rows at random, all rows of some users, or the newest rows."""
    share: Annotated[float, Bounds(above=0, below=1)] = 0.1
    """The share that is held out, about."""
    column: Name | None = None
    """The column of the user, or of the time. Default for users: user_column."""
    seed: Annotated[int, Bounds(at_least=0, below=2**31)] = 0
    """Another seed holds other rows or users out."""

    def _check(self) -> None:
        if self.by == "time" and self.column is None:
            raise ValueError("split by time needs column, the column of the time")
        if self.by == "random" and self.column is not None:
            raise ValueError("split by random takes no column; remove it, or set by to user or time")


class Histories(Section):
    """Histories made of a log with a row per event: those before an event are lists, such as item_history of item."""

    time_column: Name | None = None
    """The column of the time. Default: the order of the rows."""
    rows: Literal["user", "event"] = "user"
    """Rows to train on: the newest event of each user, for models that learn from every position, or each event."""
    last: Annotated[int, Bounds(at_least=0, below=2**31)] = 1
    """Events of each user that are held out, the newest; the oldest of these is evaluated on."""
    newest: Annotated[float, Bounds(above=0, below=1)] | None = None
    """The share of all events that is held out instead, the newest by time; all of them are evaluated on."""
    max_length: Count = 200
    """The most events before one, the newest."""


class LeafAncestors(Section):
    """Pairs of a leaf and one of its ancestors, one per row."""

    source: Source
    """The rows."""
    leaf_column: Name
    """The column of the leaf's id."""
    ancestor_column: Name
    """The column of the ancestor's id."""


class Tree(Section):
    """A tree of items, whose nodes take the place of the items level by level, for the model tdm."""

    nodes: Source
    """A row per node, leaves included, with the columns that its features need."""
    features: Names
    """The features that describe a node."""
    id_column: Name
    """The column of the item's id in the examples, which is that of a leaf."""
    nodes_id_column: Name | None = None
    """The column of the id in the nodes. Default: id_column."""
    counts: tuple[Annotated[int, Bounds(at_least=0, below=2**31)], ...]
    """Nodes drawn besides the ancestor, for each level from the root's on, which has 0."""
    parent_column: Name | None = None
    """The column of the parent's id in the nodes; the root is its own parent. Or ancestors and level_column."""
    ancestors: LeafAncestors | None = None
    """The ancestors of each leaf, instead of parent_column."""
    level_column: Name | None = None
    """The column of the level in the nodes, with ancestors; that of leaves is the largest."""
    weight_column: Name | None = None
    """The column of the nodes with their sampling weights. Default: the nodes of a level are drawn equally often."""
    keep_ratio: Annotated[float, Bounds(at_least=0, at_most=1)] = 1.0
    """The share of the levels between root and leaves that a batch keeps."""
    keep_weights: Literal["uniform", "arithmetic", "reciprocal"] = "uniform"
    """How likely these levels are: equally, by 1, 2, 3, ... from the root on, or by the reciprocals of ..., 3, 2, 1."""

    def _check(self) -> None:
        if len(self.counts) < 2 or self.counts[0] != 0:
            raise ValueError(f"counts needs a number for each level, 0 for the root, got {list(self.counts)}")
        if (self.ancestors is None) != (self.level_column is None):
            raise ValueError("ancestors and level_column go together; give both or neither")
        if (self.parent_column is None) == (self.ancestors is None):
            raise ValueError("give either parent_column, or ancestors and level_column")

    @property
    def form(self) -> Parents | Ancestors:
        """How the table gives the tree, for a sampler."""
        if self.parent_column is not None:
            return Parents(self.parent_column)
        assert self.ancestors is not None  # checked
        assert self.level_column is not None
        pairs = self.ancestors
        return Ancestors(EdgeTable(pairs.source, pairs.leaf_column, pairs.ancestor_column), self.level_column)


class Late(Section):
    """Rows that come late in a source that grows, by data.time_column."""

    after_seconds: NotNegative
    """Rows that are older than the watermark by more than this are late. The watermark is the time of the newest row so
    far: of several partitions, or files in flight, that of the one that is furthest behind."""
    policy: Literal["train", "drop", "dead_letter"] = "train"
    """The policy for late rows, which are counted: train on them, leave them out, or put them into dead_letters."""


class Data(Section):
    """The sources of examples, and the features and labels read from them."""

    train: Source
    """The source to train on."""
    features: Annotated[tuple[Feature, ...], NOT_EMPTY]
    """The inputs of the model."""
    evaluate: Source | None = None
    """The source to evaluate on. Default: the rows that split holds out, if any."""
    split: Split | None = None
    """Rows of train that are held out to evaluate on, and not trained on."""
    histories: Histories | None = None
    """Makes histories of train, a log with a row per event; needs user_column and item_column."""
    labels: tuple[Label, ...] = ()
    """Labels that are made from a column, such as "a rating of at least 4"; a label that is not listed is a column."""
    item_column: Name | None = None
    """The column of the item's id, for two towers: logits are corrected for the frequency of each item, and copies of
    the chosen item are no negatives. Default: negatives.id_column, or the id of the item tower with the most rows."""
    user_column: Name | None = None
    """The column of the user's id, for two towers: items that a user chose in the batch are not negatives of its other
    examples. Default: negatives.user_column."""
    negatives: Negatives | None = None
    """The source of negatives, for the losses sampled_softmax and bpr."""
    tree: Tree | None = None
    """The tree of items, for the model tdm."""
    mask: Mask | None = None
    """Values that are hidden while training, as if they were missing, for a model that must do without them."""
    cost: Cost | None = None
    """Batches to train on that have fewer examples where these cost more."""
    shuffle_rows: Annotated[int, Bounds(at_least=0, below=2**31)] = 0
    """The least number of rows that are shuffled together; 0 keeps the order of the source."""
    drop_remainder: bool = False
    """Whether to drop the last rows of an epoch that do not fill a batch. Default: they are a batch, padded where no
    example depends on another one."""
    bad_rows: Literal["error", "skip"] = "error"
    """The reaction to a malformed row: raise an error, or skip the row and count it."""
    dead_letters: Name | None = None
    """The file that rows which bad_rows: skip or late leave out are added to, as lines of JSON: file, place, reason,
    and the row itself. Rows that are read again, such as after a resumed run, are in it again."""
    time_column: Name | None = None
    """The column of an example's time, integers since 1970: for evaluate.windows, checkpoints and exports by event
    time, late rows, and the age of exports."""
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    """The unit of time_column."""
    late: Late | None = None
    """Rows that come late in a source that grows. Default: no row is late."""
    shares: Count | None = None
    """Shares that the training data are divided in: each process reads its own, and a batch has the same number of rows
    of each. The order of examples depends on it. Unless given, the number of processes when the run begins."""
    ahead: Annotated[int, Bounds(at_least=0, at_most=1000)] | None = None
    """Batches that are made early, in the background. Unless given, two more groups of them than threads: small batches
    are made in groups of up to 16."""
    threads: Annotated[int, Bounds(at_least=1, at_most=1024)] | None = None
    """Threads that read and convert; the cores of the machine less two, at least one, unless given."""
    memory_ahead: Annotated[int, Bounds(at_least=1)] = 2**31
    """Bytes that rows made early may take, about: 2 GiB unless given."""

    def _check(self) -> None:
        for kind, names in (("features", [f.name for f in self.features]), ("labels", [lb.name for lb in self.labels])):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise ValueError(f"two of the {kind} are called '{twice[0]}'; names must be unique")
        if self.split is not None and self.split.by == "user" and self._split_user is None:
            raise ValueError("split by user needs column, or user_column: the column of the user's id")
        if self.histories is not None and None in (self.user_column, self.item_column):
            raise ValueError("histories need user_column and item_column, the columns of the ids of users and items")
        if self.histories is not None and self.split is not None:
            raise ValueError("histories hold out events by last or newest; remove split")
        if self.histories is not None and self.histories.newest is not None and self.histories.time_column is None:
            raise ValueError("histories.newest needs histories.time_column, the column of the time")
        self._check_late()
        keeps_late = self.late is not None and self.late.policy == "dead_letter"
        if self.dead_letters is not None and self.bad_rows != "skip" and not keeps_late:
            raise ValueError("dead_letters holds the rows that bad_rows: skip leaves out; set it")
        if isinstance(self.evaluate, Growing):
            raise ValueError("evaluate cannot be a source that grows; evaluate.windows evaluates each batch of train")
        if isinstance(self.train, Growing) and (self.split is not None or self.histories is not None):
            raise ValueError("split and histories need all rows of train, which grows; leave them out")
        if self.negatives is not None and self.tree is not None:
            raise ValueError("negatives and tree exclude each other; keep one")
        if self.mask is not None and self.tree is not None:
            raise ValueError("mask and tree exclude each other: examples of a tree are its nodes; keep one")
        if self.mask is not None and self.mask.negatives_share and self.negatives is None:
            raise ValueError("mask.negatives_share needs negatives; remove it")
        if self.negatives is not None and self.item_column not in (None, self.negatives.id_column):
            raise ValueError(
                f"item_column '{self.item_column}' and negatives.id_column '{self.negatives.id_column}' are the same "
                "thing; remove item_column"
            )

    def _check_late(self) -> None:
        if self.late is None:
            return
        if self.time_column is None:
            raise ValueError("late needs time_column, the column of the time")
        if not isinstance(self.train, Growing):
            raise ValueError("late needs a source that grows, such as follow or kafka; remove it")
        if self.late.policy == "dead_letter" and self.dead_letters is None:
            raise ValueError("late.policy: dead_letter needs dead_letters, the file for these rows")

    @property
    def has_shares(self) -> bool:
        """Whether each of several processes reads a share of the rows to train on, as far as the data allow it."""
        return self.shares != 1 and not isinstance(self.train, Growing)

    @property
    def ticks(self) -> int:
        """The units of time_column in a second."""
        return {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[self.time_unit]

    @property
    def event_time(self) -> EventTime | None:
        """The time of rows of a source that grows, and the policy for late ones; None: they have none."""
        if self.time_column is None or not isinstance(self.train, Growing):
            return None
        if self.late is None:
            return EventTime(self.time_column)
        return EventTime(self.time_column, round(self.late.after_seconds * self.ticks), self.late.policy)

    @property
    def _split_user(self) -> str | None:
        of_negatives = None if self.negatives is None else self.negatives.user_column
        return (self.split and self.split.column) or self.user_column or of_negatives

    def _part(self, part: Literal["train", "evaluate"], **changes: Any) -> Source:
        if (made := self.histories) is not None:
            assert self.user_column is not None  # checked
            assert self.item_column is not None
            options = {name: getattr(made, name) for name in ("rows", "last", "newest", "max_length")}
            own = {"time": made.time_column, "part": part, "bad_rows": self.bad_rows, **options, **changes}
            return HistoriesSource(self.train, self.user_column, self.item_column, **own)
        split = self.split
        assert split is not None
        by = self._split_user if split.by == "user" else None
        return HeldOut(self.train, part, split.share, by, split.seed, split.column if split.by == "time" else None)

    @property
    def _is_cut(self) -> bool:
        return self.split is not None or self.histories is not None

    @property
    def train_rows(self) -> Source:
        """The rows to train on: those of train, less the rows that split or histories hold out."""
        return self._part("train") if self._is_cut else self.train

    @property
    def train_events(self) -> Source:
        """The pairs of a user and an item to train on, one per row."""
        return self.train_rows if self.histories is None else self._part("train", rows="event")

    @property
    def evaluate_rows(self) -> Source | None:
        """The rows to evaluate on; None: there are none."""
        return self.evaluate if self.evaluate is not None or not self._is_cut else self._part("evaluate")
