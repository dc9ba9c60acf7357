"""Rows of few bits: within half a scale of their values, compiled as in NumPy and in XLA, odd rows and odd sizes."""

import ml_dtypes
import numpy as np
import pytest

from sparrow.kernels.native.host import host_library
from sparrow.kernels.quantized import QuantizedTable, dequantize, quantize, record_bytes
from sparrow.serving.lookup import PlainLookups


def rows(count, dim):
    made = np.random.default_rng(0).standard_normal((count, dim)).astype(np.float32)
    made[0] = 0.0
    if count > 3:
        made[1], made[2], made[3] = 3.25, made[2] * 1e4, made[3] * 1e-6
    return made


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dim", [1, 2, 7, 16, 64])
def test_values_are_within_half_a_scale(bits, dim):
    given = rows(50, dim)
    records = quantize(given, bits)
    assert records.shape == (50, record_bytes(dim, bits))
    made = dequantize(records, dim, bits)
    scale = records[:, -4:-2].copy().view(np.float16).astype(np.float32)
    bound = 0.5 * scale + np.abs(given).max(axis=1, keepdims=True) * 2e-7
    assert (np.abs(made - given) <= bound).all()
    np.testing.assert_array_equal(made[0], 0)


@pytest.mark.parametrize("bits", [8, 4])
def test_compiled_rows_are_those_of_numpy_and_of_xla(bits):
    assert host_library("quantized") is not None
    given = rows(300, 19)
    records = quantize(given, bits)
    ids = np.random.default_rng(1).integers(-2, 305, 1000).astype(np.int32)
    table = QuantizedTable(records, 19, bits)
    inside = (ids >= 0) & (ids < 300)
    expected = np.where(inside[:, None], dequantize(records[np.where(inside, ids, 0)], 19, bits), 0)
    out = np.full((1000, 40), 7.0, np.float32)
    table.fill(ids, out[:, 10:29])
    np.testing.assert_allclose(out[:, 10:29], expected, rtol=1e-6, atol=1e-7)
    assert (out[:, :10] == 7).all()
    assert (out[:, 29:] == 7).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_numbers_that_do_not_fit_are_refused(value):
    with pytest.raises(ValueError, match="numbers of 8 bits are between -65504 and 65504; the table has others"):
        quantize(np.array([[1.0, value]], np.float32), 8)


def test_lookups_in_tables_of_all_kinds_are_written_at_once():
    """Those that a batch has not, or has with ids out of range, are left to others."""
    values = rows(40, 5)
    tables = {
        "a": values,
        "b": values.astype(np.float16),
        "c": values.astype(ml_dtypes.bfloat16),
        "d": QuantizedTable(quantize(values, 8), 5, 8),
        "e": QuantizedTable(quantize(values, 4), 5, 4),
    }
    places = {name: slice(5 * i, 5 * i + 5) for i, name in enumerate(tables)}
    lookups = PlainLookups(tables, {"a": "x", "b": "y", "c": "x", "d": "z", "e": "y"}, places)
    x, y, z = (np.random.default_rng(seed).integers(0, 40, 9).astype(np.int32) for seed in range(3))
    ids_of = {"a": x, "b": y, "c": x, "d": z, "e": y}
    for missing, left in ((), ()), (("y",), ("b", "e")), (("x", "z"), ("a", "c", "d")):
        given = {
            name: np.append(own[:-1], [40]).astype(np.int32) if name in missing else own
            for name, own in {"x": x, "y": y, "z": z}.items()
        }
        for batch in (given, {name: own for name, own in given.items() if name not in missing}):
            out = np.full((12, 25), 7.0, np.float32)
            made = lookups.fill(batch, out)
            assert list(made) == [name for name in tables if name not in left]
            for name, table in tables.items():
                place = places[name]
                own = np.asarray(table.take(ids_of[name], axis=0), np.float32) if name in made else 7.0
                np.testing.assert_allclose(out[:9, place.start : place.stop], np.broadcast_to(own, (9, 5)), rtol=1e-6)
            assert (out[9:] == 7).all()
