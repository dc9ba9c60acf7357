"""Columns that are computed from others, in place of a column of the data: features read them like any other."""

from sparrow.data.computed.base import Column, Computed, register_computed, registry
from sparrow.data.computed.bucketize import Bucketize
from sparrow.data.computed.combine import Combine
from sparrow.data.computed.constant import Constant
from sparrow.data.computed.custom import Custom, register_function
from sparrow.data.computed.each import Each
from sparrow.data.computed.expr import Expr
from sparrow.data.computed.kv_dot_product import KvDotProduct
from sparrow.data.computed.lookup import Lookup
from sparrow.data.computed.mask import BoolMask
from sparrow.data.computed.match import Match
from sparrow.data.computed.overlap import Overlap
from sparrow.data.computed.texts import EditDistance, RegexReplace
