"""Expressions over numbers, such as ``click / max(show, 1)``, in a grammar of their own: no code is ever run."""

from sparrow.data.expressions.expression import Expression
from sparrow.data.expressions.functions import FUNCTIONS
from sparrow.data.expressions.grammar import ExpressionError
from sparrow.data.expressions.vectors import Uneven, Vector
