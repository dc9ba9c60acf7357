"""Requests and answers in JSON."""

from __future__ import annotations

import difflib
import heapq
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from sparrow.data import shown
from sparrow.server.limits import Limits, Refused, check_rows, too_many_values

FORM = '{"rows": [{"COLUMN": VALUE, ...}, ...]} or {"columns": {"COLUMN": [VALUE, ...], ...}}'
"""The two forms of a body."""
NEAR: Final = 0.85
"""The similarity from which on a name is taken for a misspelled one."""
SUGGESTED, LONGEST = 3, 100
"""The most unknown names that are compared with the model's, and their most characters: a comparison is dear."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON; write null for a missing value")


DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
ENCODER: Final = json.JSONEncoder(default=lambda value: value.tolist(), allow_nan=False)


def columns_of(
    body: bytes, wanted: Sequence[str], limits: Limits, options: Sequence[str] = ()
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return the wanted columns that a body holds, and the fields beside them that ``options`` names.

    Of rows, one without a column has a missing value in it.

    >>> columns_of(b'{"rows": [{"user": 1, "item": 7}, {"user": 2}]}', ["user", "item"], Limits())
    ({'user': [1, 2], 'item': [7, None]}, {})
    >>> columns_of(b'{"rows": [{"user": 1}], "k": 5}', ["user", "item"], Limits(), ["k"])
    ({'user': [1], 'item': [None]}, {'k': 5})
    >>> columns_of(b'{"columns": {"user": [1, 2], "age": [30, 40]}}', ["user", "item"], Limits())
    ({'user': [1, 2]}, {})
    """
    try:
        given = DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {_reason(error)}") from None
    beside = {name: given.pop(name) for name in options if name in given} if isinstance(given, dict) else {}
    if given == {} and "keys" in beside:  # users that the server knows
        return {}, beside
    if not isinstance(given, dict) or len(given) != 1 or not given.keys() <= {"rows", "columns"}:
        more = f", with {', '.join(options)} beside it where needed" if options else ""
        raise Refused(f"the body must be {FORM}{more}")
    (form, held), *_ = given.items()
    made = (_of_rows if form == "rows" else _of_columns)(held, wanted, limits.rows)
    _check_values(made, limits.values)
    return made, beside


def _of_rows(rows: Any, wanted: Sequence[str], most_rows: int) -> dict[str, list[Any]]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Refused(f"'rows' must be a list of objects: {FORM}")
    check_rows(len(rows), most_rows)
    present = set[str]().union(*rows)
    if rows and not present.isdisjoint(wanted):
        _refuse_near(present, wanted)
        columns = zip(*(map(row.get, wanted) for row in rows), strict=True)
        return dict(zip(wanted, map(list, columns), strict=True))
    if rows:
        raise Refused(f"the rows hold none of the columns {', '.join(wanted)}")
    return {name: [] for name in wanted}


def _refuse_near(present: set[str], wanted: Sequence[str]) -> None:
    """Refuse a name that is probably a misspelled one: its column would be missing from all rows, in silence."""
    absent = [name for name in wanted if name not in present]
    unknown = (name for name in present.difference(wanted) if len(name) <= LONGEST) if absent else ()
    for other in heapq.nsmallest(SUGGESTED, unknown):
        if close := difflib.get_close_matches(other, absent, n=1, cutoff=NEAR):
            why = f"the model reads no column {shown(other)}; did you mean '{close[0]}'? Write null for a missing value"
            raise Refused(why)


def _of_columns(columns: Any, wanted: Sequence[str], most_rows: int) -> dict[str, list[Any]]:
    if not isinstance(columns, dict) or not all(isinstance(values, list) for values in columns.values()):
        raise Refused(f"'columns' must hold a list for each column: {FORM}")
    for values in columns.values():
        check_rows(len(values), most_rows)
    return {name: columns[name] for name in wanted if name in columns}


def _check_values(columns: Mapping[str, list[Any]], most: int) -> None:
    """Refuse objects as values, which no model reads and each of which may have its own fields, and too many values."""
    flat = itertools.chain.from_iterable(columns.values())
    if {dict, list}.isdisjoint(map(type, flat)):
        return
    left = most
    for name, held in columns.items():
        level = [held]
        while level:
            kinds = [set(map(type, values)) for values in level]
            if any(dict in held for held in kinds):
                why = f"column {shown(name)} holds an object; send numbers, strings or lists of them"
                raise Refused(why)
            lists = (values for values, held in zip(level, kinds, strict=True) if list in held)
            level = [value for values in lists for value in values if type(value) is list]
            left -= sum(map(len, level))
            if left < 0:
                raise too_many_values(most)


def to_json(fields: dict[str, Any]) -> bytes:
    """Return an answer. NumPy's numbers are written with all their digits, and a number that is not finite as null."""
    try:
        return ENCODER.encode(fields).encode()
    except ValueError:
        return json.dumps(_finite(fields)).encode()


def _finite(value: Any) -> Any:
    """Return a value with None for each number that is not finite, which JSON cannot write."""
    if isinstance(value, dict):
        return {name: _finite(held) for name, held in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_finite(held) for held in value]
    return None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(error).removesuffix("; use sys.set_int_max_str_digits() to increase the limit")
