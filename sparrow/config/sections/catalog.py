"""The section ``evaluate.catalog`` of a config: ranks among all items, for two towers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sparrow.config.loading.records import SourceRecord
from sparrow.config.loading.section import Section
from sparrow.config.sections.train import Count, Name


class Catalog(Section):
    """Ranks of the chosen items among all items, and the metrics made of them, by user."""

    items: SourceRecord | None = None
    """A row per item, with the columns that its features need. Default: data.negatives.items, or the distinct items of
    the data to train on."""
    id_column: Name | None = None
    """The column of the id in the items. Default: that of data.negatives, or data.item_column."""
    user_column: Name | None = None
    """The column of the user's id in the examples. Default: data.user_column; without it, each example is a user."""
    top_k: Annotated[tuple[Count, ...], Field(min_length=1)] = (10, 20)
    """The lengths of the lists: results are catalog_recall_at_10, catalog_ndcg_at_10, catalog_hr_at_10, ..."""
    exclude_seen: bool = True
    """Whether items that a user has in the data to train on are left out of his list."""
