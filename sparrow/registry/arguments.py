"""`answering`: constructors and functions that answer an unknown argument with the right name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sparrow.registry.names import nearest

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
    parameters = inspect.signature(inner).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return made
    known = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL}
    if isinstance(made, type):
        known.discard(next(iter(inspect.signature(inner).parameters)))

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.keys() <= known:
            name = next(name for name in kwargs if name not in known)
            raise TypeError(f"{made.__name__} has no argument '{name}': {nearest(name, known)}")
        return inner(*args, **kwargs)

    call._answers = True  # type: ignore[attr-defined]
    if not isinstance(made, type):
        return cast("T", call)
    cast("Any", made).__init__ = call
    return made
