"""Sparrow: recommendation models with very large embedding tables, trained in JAX."""

__version__ = "0.1.0"
