"""Expressions over numbers, such as ``click / max(show, 1)``, in a grammar of their own: no code is ever run."""

from sparrow.data.expressions.expression import Expression, ExpressionError
from sparrow.data.expressions.functions import FUNCTIONS, Uneven, Vector
