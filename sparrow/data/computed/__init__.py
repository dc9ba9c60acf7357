"""Columns that are computed from others, in place of a column of the data: features read them like any other."""

from sparrow.data.computed.base import Column, Computed, Constant, register_computed, registry
from sparrow.data.computed.custom import Custom, register_function
from sparrow.data.computed.lists import BoolMask, Combine, Each
from sparrow.data.computed.maps import KvDotProduct, Lookup, Match
from sparrow.data.computed.numeric import Bucketize, Expr
from sparrow.data.computed.texts import EditDistance, Overlap, RegexReplace
