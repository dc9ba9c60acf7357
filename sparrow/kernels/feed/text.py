"""`EncodedText`: lines of a text file as they are in the file, for compiled code to parse."""

from __future__ import annotations

import codecs
import ctypes
import dataclasses
import functools
import os
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.files import AnyPath, Remote
from sparrow.kernels.feed import pool
from sparrow.kernels.feed.loading import library, struct_fields
from sparrow.kernels.native.host import address

ASCII_INSIDE: Final = ("utf-8", "ascii", "iso8859-1", "iso8859-15", "cp1252")
"""Encodings, by Python's names, in which ASCII is itself: compiled code reads such text where it is ASCII."""


class _Text(ctypes.Structure):
    _fields_ = [
        *struct_fields("p data n size"),
        ("counted", ctypes.c_int64 * 4),
        *struct_fields("n is_utf8 t separator n separator_size quote breaks_in_quotes num_columns"),
        *struct_fields("p wanted n num_wanted p missing n num_missing"),
    ]


@dataclasses.dataclass(frozen=True)
class TextForm:
    """The form of text files, as `sparrow.data.Csv` describes it.

    ``wanted``: the places of the wanted columns among the ``num_columns`` of the file.
    """

    separator: str
    quote: str | None
    breaks_in_quotes: bool
    encoding: str
    missing: tuple[str, ...]
    num_columns: int
    wanted: tuple[int, ...]

    @functools.cached_property
    def is_known(self) -> bool:
        """Whether compiled code reads the encoding and the separator."""
        return self._encoding in ASCII_INSIDE and self.separator.isascii()

    @functools.cached_property
    def _encoding(self) -> str:
        return codecs.lookup(self.encoding).name

    @functools.cached_property
    def _raw(self) -> tuple[_Text, list[Any]]:
        """All but the data, and the arrays that it points to."""
        separator = self.separator.encode()
        wanted = np.array(self.wanted or [0], np.int64)
        words = [np.frombuffer(text.encode() + b"\0", np.uint8) for text in self.missing]
        spans = [(address(word), len(word) - 1) for word in words]
        missing = np.array(spans or [(0, 0)], np.int64)
        raw = _Text(
            is_utf8=self._encoding == "utf-8",
            separator=separator,
            separator_size=len(separator),
            quote=-1 if self.quote is None else ord(self.quote),
            breaks_in_quotes=self.breaks_in_quotes,
            num_columns=self.num_columns,
            wanted=address(wanted),
            num_wanted=len(self.wanted),
            missing=address(missing),
            num_missing=len(self.missing),
        )
        return raw, [separator, wanted, words, missing]

    def read(self, path: AnyPath, begin: int, end: int) -> EncodedText | None:
        """Return the complete lines between two places of a file; None: they must be read in another way."""
        loaded = library() if self.is_known else None
        if loaded is None:
            return None
        memory = pool.empty((end - begin + 1,), np.uint8)
        counted = (ctypes.c_int64 * 4)()
        file = -1
        try:
            if not isinstance(path, Remote):
                file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            elif not path.read_spans([(begin, end - begin)], memory):
                return None
            is_read = loaded.sparrow_feed_read_text(file, begin, end - begin, self._raw[0].quote, memory, counted)
        except OSError:
            return None  # the other way will raise the error
        finally:
            if file >= 0:
                os.close(file)
        if not is_read:
            return None
        has_break = end > begin and memory[end - begin - 1] == ord("\n")
        return EncodedText(self, counted[0], memory[: end - begin + (not has_break)], counted)


@dataclasses.dataclass(frozen=True)
class EncodedText:
    """Complete lines of a form, ``rows`` at the most; ``counted``: the fields of ``Counted`` of text_index.h."""

    form: TextForm
    rows: int
    memory: npt.NDArray[np.uint8]
    counted: Any

    def run(self, loaded: ctypes.CDLL, steps: Any, num_steps: int, target: Any) -> int:
        raw, _ = self.form._raw
        text = _Text.from_buffer_copy(raw)
        text.data, text.size = address(self.memory), len(self.memory)
        text.counted = self.counted
        answer: int = loaded.sparrow_feed_parse(steps, num_steps, ctypes.byref(text), ctypes.byref(target))
        return answer
