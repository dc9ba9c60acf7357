"""`Vocabularies`: the words that a run was trained with. They decide which row an id has, so the run owns them.

A run keeps copies in ``vocabularies/``, and each checkpoint their checksums. A model is loaded, and a run is resumed,
with the copies, even where the files of the config have changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparrow import data
from sparrow.checkpoint import CheckpointError, Saved
from sparrow.config import Config, ConfigError, Problem
from sparrow.data import DataError, Feature
from sparrow.files import AnyPath, UnsafePath, at, inside, replace_file
from sparrow.runs.saved.run_folder import WrittenFiles

FOLDER: Final = "vocabularies"

LogLine = Callable[[str], None]


class Words(NamedTuple):
    """The vocabulary of one feature.

    Attributes:
      table: the table with the rows of its words.
      sha256: the checksum of the words, one per line.
      given: the file that the config names; None: the words are in the config itself.
      file: the run's copy of it, in the run folder.
    """

    table: str
    sha256: str
    given: str | None = None
    file: str | None = None


class Vocabularies:
    """The vocabularies of a run, by feature."""

    def __init__(self, words: Mapping[str, Words]) -> None:
        self._words = dict(words)

    @classmethod
    def of(cls, config: Config) -> Vocabularies:
        """Return the vocabularies that the features of a config have now."""
        return cls({feature.name: _described(feature, words) for feature, words in _with_words(config)})

    @classmethod
    def saved(cls, saved: Saved) -> Vocabularies:
        """Return the vocabularies that a checkpoint lists."""
        try:
            return cls({name: Words(**fields) for name, fields in saved.about.get("vocabularies", {}).items()})
        except (TypeError, AttributeError):
            raise CheckpointError(f"{saved.path}: lists its vocabularies in a way that cannot be read") from None

    def with_new(self, config: Config) -> Vocabularies:
        """Return these, and the vocabularies of further features of a config."""
        return Vocabularies(Vocabularies.of(config)._words | self._words)

    def to_dict(self) -> dict[str, Any]:
        return {name: words._asdict() for name, words in self._words.items()}

    def of_table(self, table: str) -> set[str]:
        """Return the checksums of the vocabularies whose words have their rows in a table."""
        return {words.sha256 for words in self._words.values() if words.table == table}

    def write(self, config: Config, written: WrittenFiles) -> None:
        """Write the copies, from the words that the features hold; an intact copy stays."""
        for feature, words in _with_words(config):
            file = self._words[feature.name].file
            if file is not None and _sum_of_file(feature, written.folder / file) != self._words[feature.name].sha256:
                written.add([file])
                (written.folder / FOLDER).mkdir(exist_ok=True)
                replace_file(written.folder / file, words.content)

    def owned(self, config: Config, run: Path, log: LogLine) -> Config:
        """Return the config with the run's copies instead of the files, or raise `ConfigError` for other words.

        ``log`` receives a line for each file that holds other words by now.
        """
        problems: list[Problem] = []
        places: dict[str, str] = {}
        for index, feature in enumerate(config.data.features if config.data is not None else ()):
            own, given = self._words.get(feature.name), getattr(feature, "vocabulary", None)
            if own is None or given is None:
                continue
            if given == own.given and own.file is not None:
                places[feature.name] = self._copy(feature, own, run, log)
            elif feature.words is None or _sum(feature.words) != own.sha256:
                was = "the list that was" if own.given is None else own.given
                text = f"holds other words than the run was trained with; name {was}, or take the weights alone "
                problems.append(Problem(("data", "features", index, "vocabulary"), text + "with train.start_from"))
            elif own.file is not None:
                places[feature.name] = self._copy(feature, own, run, lambda _: None)
        if problems:
            raise ConfigError(problems)
        return _with_files(config, places)

    def given(self, config: Config) -> Config:
        """Return the config with the files that the user named instead of the run's copies."""
        return _with_files(config, {name: words.given for name, words in self._words.items() if words.given})

    def _copy(self, feature: Feature, own: Words, run: Path, log: LogLine) -> str:
        """Return the path of a feature's words: the run's copy, or the user's file where the copy is damaged."""
        assert own.given is not None
        theirs = _sum_of_file(feature, at(own.given))
        try:
            copy = inside(run, own.file)
        except UnsafePath as error:
            raise CheckpointError(f"{run}: {error}") from None
        if _sum_of_file(feature, copy) == own.sha256:
            if theirs not in (None, own.sha256):
                log(f"{own.given}: holds other words than the run was trained with; the run's copy is used: {copy}")
            return str(copy)
        if theirs == own.sha256:
            log(f"{copy}: is missing or damaged; {own.given} holds the same words and is used")
            return own.given
        raise CheckpointError(
            f"{copy}: is missing or damaged, and {own.given} does not hold the words that the run was trained with; "
            "restore one of them"
        )


def _with_words(config: Config) -> Iterator[tuple[Feature, data.Words]]:
    for feature in config.data.features if config.data is not None else ():
        if feature.words is not None:
            yield feature, feature.words


def _described(feature: Feature, words: data.Words) -> Words:
    table = feature.table_use.table if feature.table_use is not None else feature.name
    sha256, given = _sum(words), getattr(feature, "vocabulary", None)
    if not isinstance(given, str):
        return Words(table, sha256)
    name = re.sub(r"[^\w.-]", "_", feature.name)[:100]
    return Words(table, sha256, given, f"{FOLDER}/{name}-{sha256[:12]}{words.suffix}")


def _with_files(config: Config, files: Mapping[str, str]) -> Config:
    if config.data is None or not files:
        return config
    features = tuple(
        dataclasses.replace(feature, vocabulary=files[feature.name]) if feature.name in files else feature  # type: ignore[type-var]
        for feature in config.data.features
    )
    return config.model_copy(update={"data": config.data.model_copy(update={"features": features})})


def _sum(words: data.Words) -> str:
    return hashlib.sha256(words.content).hexdigest()


def _sum_of_file(feature: Feature, path: AnyPath) -> str | None:
    """Return the checksum of the words in a file; None where it cannot be read."""
    try:
        return _sum(feature.parse_words(path.read_bytes(), str(path)))
    except (DataError, OSError):
        return None
