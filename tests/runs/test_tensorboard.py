"""Event files, read back by a reader that shares nothing with the writer."""

import binascii
import struct

import numpy as np
import pytest

from sparrow.runs.recorded.tensorboard import EventFile, crc32c, event_file_name


def fields(data):
    """The fields of a protocol buffer: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        size = {1: 8, 5: 4}.get(kind) or (varint() if kind == 2 else 0)
        if kind == 0:
            yield key >> 3, varint()
        else:
            yield key >> 3, data[at : at + size]
            at += size


def events(data):
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        yield dict(fields(data[12 : 12 + length]))
        data = data[16 + length :]


def test_scalars_read_back(tmp_path):
    file = EventFile(tmp_path / event_file_name())
    file.write(300, {"train/loss": 0.5, "eval/auc": 0.75})
    file.close()
    (path,) = tmp_path.glob("*tfevents*")
    version, event = events(path.read_bytes())
    assert version[3] == b"brain.Event:2"
    assert event[2] == 300
    values = [dict(fields(value)) for _, value in fields(event[5])]
    assert {v[1].decode(): struct.unpack("<f", v[2])[0] for v in values} == {"train/loss": 0.5, "eval/auc": 0.75}


def test_checksum_is_castagnolis():
    """Vectors of RFC 3720, section B.4; CRC-32 of zlib is another one."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes([0xFF] * 32)) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"a") != binascii.crc32(b"a")


def read_histogram(data):
    got = dict(fields(data))
    numbers = {i: struct.unpack("<d", got[i])[0] for i in range(1, 6)}
    return numbers, np.frombuffer(got[6], "<f8"), np.frombuffer(got[7], "<f8")


def test_histograms_read_back(tmp_path):
    values = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
    values[0, 0] = np.nan
    file = EventFile(tmp_path / event_file_name())
    file.write(7, {"loss": 0.5}, {"kernel": values, "nothing": np.full(3, np.inf), "constant": np.ones(4)})
    file.close()
    (path,) = tmp_path.glob("*tfevents*")
    _, event = events(path.read_bytes())
    entries = {v[1].decode(): v for v in (dict(fields(value)) for _, value in fields(event[5]))}
    assert entries.keys() == {"loss", "kernel", "constant"}
    numbers, limits, counts = read_histogram(entries["kernel"][5])
    good = values[np.isfinite(values)].astype(np.float64)
    assert numbers == {1: good.min(), 2: good.max(), 3: 1999, 4: good.sum(), 5: pytest.approx((good**2).sum())}
    assert len(limits) == len(counts) == 30
    assert counts.sum() == 1999
    expected = np.diff([0, *((good <= limit).sum() for limit in limits)])
    np.testing.assert_array_equal(counts, expected)
    _, limits, counts = read_histogram(entries["constant"][5])
    assert (limits.tolist(), counts.tolist()) == ([1.0], [4.0])


def test_tensorboards_own_reader_reads_them(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    file = EventFile(tmp_path / event_file_name())
    file.write(300, {"train/loss": 0.5}, {"parameter/kernel": np.linspace(-1.0, 1.0, 100)})
    file.close()
    (path,) = tmp_path.glob("*tfevents*")
    version, event = EventFileLoader(str(path)).Load()
    assert version.file_version == "brain.Event:2"
    scalar, histogram = event.summary.value
    assert (event.step, scalar.tag, histogram.tag) == (300, "train/loss", "parameter/kernel")
    assert scalar.tensor.float_val[:] == [0.5] or scalar.simple_value == 0.5
