"""`Wish`: the options of a request for recommendations, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from sparrow.retrieval import Rank
from sparrow.server.limits import Limits, too_many_values
from sparrow.server.refusals import Refused
from sparrow.serving import ExportedModel

FUNCTION: Final = "user"
"""The function of an export that gives the vectors of users."""
OPTIONS: Final = ("k", "exclude", "allow", "where", "keys")
DEFAULT: Final = 10
CONDITIONS: Final = 20
"""The most conditions on attributes."""


class Wish(NamedTuple):
    """The items that a request wants.

    Attributes:
      k: items for each row.
      exclude: for each row, ids of items to leave out; None: none.
      allow: ids of the items to choose from; None: all.
      where: conditions on attributes of the items.
      keys: for each row, the key of its user; None: there is none.
    """

    k: int = DEFAULT
    exclude: list[Any] | None = None
    allow: list[Any] | None = None
    where: Mapping[str, Any] | None = None
    keys: list[Any] | None = None


def read_wish(model: ExportedModel, given: Mapping[str, Any], limits: Limits) -> Wish:
    """Return the options of a request, or refuse them in one sentence."""
    if model.index is None:
        raise Refused(
            HTTPStatus.NOT_FOUND, "the export has no items to recommend; write it with sparrow export --index"
        )
    wish = Wish(**given)
    if type(wish.k) is not int or not 1 <= wish.k <= limits.items:
        raise _refused(f"k must be an integer from 1 to {limits.items}, got {str(wish.k)[:40]}")
    if wish.exclude is not None and not _is_list(wish.exclude, _is_ids_or_none):
        raise _refused("exclude must hold a list of ids for each row")
    if wish.allow is not None and not _is_list(wish.allow, _is_id):
        raise _refused("allow must be a list of ids")
    if wish.where is not None and (not isinstance(wish.where, dict) or len(wish.where) > CONDITIONS):
        raise _refused(f"where must be an object of at most {CONDITIONS} conditions by attribute")
    if wish.keys is not None and (not _is_list(wish.keys, _is_id) or not wish.keys):
        raise _refused("keys must be a list with an integer or a string for each row")
    if wish.keys is not None and not limits.user_seconds:
        raise _refused("the server keeps no users; start it with sparrow serve --user-seconds 600, or leave keys out")
    named = sum(len(ids or ()) for ids in wish.exclude or ()) + len(wish.allow or ())
    if named > limits.values:
        raise too_many_values(limits.values)
    return wish


def recommended(model: ExportedModel, wish: Wish, vectors: Any, users: Any, rank: Rank | None, candidates: int) -> Any:
    """Return the items of each row, as `sparrow.retrieval.Found`."""
    assert model.index is not None
    given: dict[str, Any] = {
        "exclude": wish.exclude,
        "allow": wish.allow,
        "where": wish.where,
        "candidates": candidates,
    }
    return model.index.found(users, vectors, wish.k, rank, **given)


def _is_list(value: Any, check: Any) -> bool:
    return isinstance(value, list) and all(map(check, value))


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _is_ids_or_none(value: Any) -> bool:
    return value is None or _is_list(value, _is_id)


def _refused(why: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, why)
