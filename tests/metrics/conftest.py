"""Shared fixtures of the metrics' tests."""

import jax
import pytest


@pytest.fixture
def quick_compiler():
    """For tests that compile many small programs and run each once."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
