"""Event files, read back by a reader that shares nothing with the writer."""

import binascii
import struct

from sparrow.runs.tensorboard import EventFile, crc32c


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
    file = EventFile(tmp_path)
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
