"""`answering`: constructors and functions that answer an unknown argument with the right name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sparrow.registry.synonyms import nearest

T = TypeVar("T", bound=Callable[..., Any])


def answering(made: T) -> T:
    """Make a class or a function raise TypeError with the right name for an argument that it does not have.

    The signature stays as it is. Every registered record is answering; a subclass with an ``__init__`` of its own is
    not, until it is decorated or registered.

    >>> @answering
    ... def adam(learning_rate, beta1=0.9, eps=1e-8): ...
    >>> adam(0.1, b1=0.8)
    Traceback (most recent call last):
    TypeError: adam has no argument 'b1': did you mean 'beta1'? Valid names: beta1, eps, learning_rate
    """
    inner: Any = vars(made).get("__init__") if isinstance(made, type) else made
    if inner is None or hasattr(inner, "_answers"):  # an inherited constructor answers, or was not made to
        return made
    if inspect.isfunction(inspect.unwrap(inner)) and inspect.unwrap(inner).__code__.co_flags & inspect.CO_VARKEYWORDS:
        return made

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return inner(*args, **kwargs)
        except TypeError:  # names are looked at only here: most records are never given a wrong one
            known = list(inspect.signature(inner).parameters)[isinstance(made, type) :]
            unknown = [name for name in kwargs if name not in known]
            if not unknown:
                raise
        raise TypeError(f"{made.__name__} has no argument '{unknown[0]}': {nearest(unknown[0], known)}")

    call._answers = True  # type: ignore[attr-defined]
    if not isinstance(made, type):
        return cast("T", call)
    cast("Any", made).__init__ = call
    return made
