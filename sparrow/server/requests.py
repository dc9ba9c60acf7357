"""Requests: bodies become rows for a model, and their options are checked, before anything is computed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple

from sparrow.data import Batch, DataError
from sparrow.retrieval import RowIndex
from sparrow.server import arrow_bodies, json_bodies
from sparrow.server.known_users import KnownUsers
from sparrow.server.limits import Limits, Refused, check_rows, too_many_values
from sparrow.serving import ExportedModel, Function, Ranker, States
from sparrow.serving.description import APPEND, HISTORY, PREDICT

Form = Literal["json", "arrow"]
FUNCTION: Final = "user"
"""The function of an export that gives the vectors of users."""
OPTIONS: Final = ("k", "exclude", "allow", "where", "keys")
DEFAULT: Final = 10
SHORT: Final = 8 << 10
"""Bodies of JSON up to this length are parsed at once: handing one to a thread and back takes longer than that."""
CONDITIONS: Final = 20
"""The most conditions on attributes."""

log = logging.getLogger("sparrow.server")


class Request(NamedTuple):
    """A request for results.

    Attributes:
      function: the function of the export: "predict", or a tower.
      body: the body.
      form: the form of the body.
      answer: the form of the answer.
      recommends: whether to answer with items for the vectors of users.
      k: items for each row, where the address has it; the body may have it instead.
    """

    function: str
    body: bytes
    form: Form
    answer: Form
    recommends: bool = False
    k: int | None = None


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


class Ranked(NamedTuple):
    """A ranker, and how many items of each user it orders."""

    rank: Ranker
    candidates: int


class Served(NamedTuple):
    """The model that a server uses now, and the model that orders its items again, if any."""

    model: ExportedModel
    ranked: Ranked | None = None


class Scored(NamedTuple):
    """Candidates of users with a key, whose histories are states.

    Attributes:
      keys: the key of each user.
      users: (rows,) the number of each row's user.
      states: the states of the users; None: they are computed from ``histories``.
      histories: a row for each user.
    """

    keys: list[Any]
    users: Any
    states: States | None
    histories: Batch


class ReadRequest(NamedTuple):
    """A request whose rows were read, for the model that computes it.

    Attributes:
      request: the request, without its body.
      model: the model.
      batch: the rows; empty where ``queries`` are given.
      rows: their number.
      wish: the options of a request for recommendations.
      ranked: the model that orders the items again.
      users: the columns of the users, for the ranker.
      queries: the vectors of users that are known, or the rows that the index reads by itself; None: vectors are to
        be computed.
      scored: candidates of users with a key; None: the rows have no keys.
      keys: for each row of new events, the key of its user.
      columns: the columns of a short request, which are converted with those of others; ``batch`` is empty then.
    """

    request: Request
    model: ExportedModel
    batch: Batch
    rows: int
    wish: Wish | None = None
    ranked: Ranked | None = None
    users: Any = None
    queries: Any = None
    scored: Scored | None = None
    keys: list[Any] | None = None
    columns: dict[str, list[Any]] | None = None


def read(served: Served, request: Request, limits: Limits, known: KnownUsers) -> ReadRequest:
    """Return the rows of a request."""
    model, ranked = served.model, served.ranked if request.recommends else None
    try:
        if request.recommends and model.index is None:
            why = "the export has no items to recommend; write it with sparrow export --index"
            raise Refused(why, HTTPStatus.NOT_FOUND)
        searched = model.index if request.recommends and isinstance(model.index, RowIndex) else None
        request = request._replace(function=request.function if searched is None else PREDICT)
        if request.function == APPEND and APPEND not in model.description.functions:
            why = "the export takes no new events; write it with sparrow export --states, if its model allows"
            raise Refused(why, HTTPStatus.NOT_FOUND)
        if request.function not in model.description.functions:
            towers = ", ".join(model.towers)
            why = f"the towers are {towers}; add ?tower=NAME" if towers else "the model has no towers"
            raise Refused(why, HTTPStatus.NOT_FOUND)
        function = model.function(request.function)
        if request.function in (PREDICT, APPEND) and not request.recommends and request.form == "json":
            part = _by_key(model, function, request, limits, known)
            if part is not None:
                return part
        wanted = function.columns if searched is None else searched.user_columns
        if ranked is not None:
            wanted = list(dict.fromkeys([*wanted, *ranked.rank.columns]))
        given: dict[str, Any] = {} if request.k is None else {"k": request.k}
        columns: Any
        if request.form == "json":
            options = OPTIONS if request.recommends else ()
            columns, beside = json_bodies.columns_of(request.body, wanted, limits, options)
            given |= beside
        else:
            columns = arrow_bodies.table_of(request.body, wanted, limits)
        if not request.recommends:
            return _plain(model, function, request, columns)
        request = request._replace(body=b"")
        wish = read_wish(given, limits)
        if wish.keys is not None and searched is not None:
            raise ValueError("the index searches by the rows of users, and keeps no vectors; leave keys out")
        if wish.keys is not None and (found := known.find(version_of(model), wish.keys)) is not None:
            part = ReadRequest(request, model, Batch(), len(wish.keys), wish, ranked, found.columns, found.vectors)
        elif wish.keys is not None and not columns:
            raise Refused("some of these users are not known any more; send their rows too", HTTPStatus.NOT_FOUND)
        elif searched is not None:
            rows = len(function.read(searched.first_rows(columns)))  # refuses what a search would refuse
            part = ReadRequest(request, model, Batch(), rows, wish, ranked, columns, columns)
            check_rows(rows, max(1, limits.ranked // searched.most_pairs(wish.k)))
        else:
            batch = function.read(columns)
            if wish.keys is not None:
                _check_keys(wish.keys, len(batch))
            if wish.keys is not None and model.has_states:  # vectors with states, to which events can be appended
                function, request = model.histories.history, request._replace(function=HISTORY)
                batch = function.read(columns)
            part = ReadRequest(request, model, batch, len(batch), wish, ranked, columns)
        check_rows(part.rows, limits.recommended_rows)
        if ranked is not None:
            check_rows(part.rows, limits.ranked // max(ranked.candidates, wish.k))
        return part
    except Exception as error:
        raise refusal(error) from None


def _plain(model: ExportedModel, function: Function, request: Request, columns: Any) -> ReadRequest:
    """Return a request for results; the columns of a short one are converted when it is computed, with other ones."""
    is_short = request.form == "json" and len(request.body) <= SHORT
    request = request._replace(body=b"")
    if is_short and columns.keys() >= set(function.columns):
        rows = set(map(len, columns.values()))
        if len(rows) == 1 and 0 not in rows:
            return ReadRequest(request, model, Batch(), rows.pop(), columns=columns)
    batch = function.read(columns)
    return ReadRequest(request, model, batch, len(batch))


def version_of(model: ExportedModel) -> Any:
    """Return a key of the model and its version: users of others are not known."""
    return id(model), model.version


def _by_key(
    model: ExportedModel, function: Function, request: Request, limits: Limits, known: KnownUsers
) -> ReadRequest | None:
    """Return a request for candidates, or with new events, of users with a key; None: it has no keys."""
    wanted = function.columns
    if request.function == PREDICT and model.has_states:
        wanted = list(dict.fromkeys([*wanted, *model.histories.history.columns]))
    columns, beside = json_bodies.columns_of(request.body, wanted, limits, ("keys",))
    keys = beside.get("keys")
    if keys is None and request.function == PREDICT:
        return _plain(model, function, request, columns)
    request = request._replace(body=b"")
    read_wish({"keys": keys or []}, limits)
    assert keys is not None
    if request.function == APPEND:
        batch = function.read(columns)
        if len(set(keys)) < len(keys):
            raise Refused("keys must hold each user once; send all of its new events in one row")
        _check_keys(keys, len(batch))
        return ReadRequest(request, model, batch, len(batch), keys=keys)
    histories = model.histories
    batch = histories.scoring.read({name: columns[name] for name in histories.scoring.columns if name in columns})
    _check_keys(keys, len(batch))
    unique = list(dict.fromkeys(keys))
    place = {key: number for number, key in enumerate(unique)}
    users, rows = [place[key] for key in keys], Batch()
    found = known.find(version_of(model), unique)
    if found is None or found.states is None:
        own = {name: columns[name] for name in histories.history.columns if name in columns}
        if all(value is None for values in own.values() for value in values):
            raise Refused("some of these users are not known any more; send their histories too", HTTPStatus.NOT_FOUND)
        first = [keys.index(key) for key in unique]
        rows = histories.history.read({name: [values[row] for row in first] for name, values in own.items()})
    states = None if found is None else found.states
    return ReadRequest(request, model, batch, len(batch), scored=Scored(unique, users, states, rows))


def _check_keys(keys: list[Any], rows: int) -> None:
    if len(keys) != rows:
        raise ValueError(f"keys has {len(keys)} keys for {rows} rows; give one key per row")


def read_wish(given: Mapping[str, Any], limits: Limits) -> Wish:
    """Return the options of a request, or refuse them in one sentence."""
    wish = Wish(**given)
    if type(wish.k) is not int or not 1 <= wish.k <= limits.items:
        raise Refused(f"k must be an integer from 1 to {limits.items}, got {str(wish.k)[:40]}")
    if wish.exclude is not None and not _is_list(wish.exclude, lambda ids: ids is None or _is_list(ids, _is_id)):
        raise Refused("exclude must hold a list of ids for each row")
    if wish.allow is not None and not _is_list(wish.allow, _is_id):
        raise Refused("allow must be a list of ids")
    if wish.where is not None and (not isinstance(wish.where, dict) or len(wish.where) > CONDITIONS):
        raise Refused(f"where must be an object of at most {CONDITIONS} conditions by attribute")
    if wish.keys is not None and (not _is_list(wish.keys, _is_id) or not wish.keys):
        raise Refused("keys must be a list with an integer or a string for each row")
    if wish.keys is not None and not limits.user_seconds:
        raise Refused("the server keeps no users; start it with sparrow serve --user-seconds 600, or leave keys out")
    named = sum(len(ids or ()) for ids in wish.exclude or ()) + len(wish.allow or ())
    if named > limits.values:
        raise too_many_values(limits.values)
    return wish


def _is_list(value: Any, check: Any) -> bool:
    return isinstance(value, list) and all(map(check, value))


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def refusal(error: Exception) -> Exception:
    """Return the error as an answer."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, DataError):
        where = ", ".join(filter(None, (error.place, error.column and f"column '{error.column}'")))
        return Refused(f"{where}: {error.why}" if where else error.why)
    if isinstance(error, ValueError | TypeError | OverflowError):
        return Refused(str(error))
    log.error("a request failed", exc_info=error)
    return Refused("the model failed; the server's log has the cause", HTTPStatus.INTERNAL_SERVER_ERROR)
