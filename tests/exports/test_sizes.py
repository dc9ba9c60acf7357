"""A service sees batches of every size, and keeps few programs."""

import numpy as np
import pytest

from sparrow import exports, serving
from sparrow.serving import function
from tests.exports.cases import WORDS, config, program_and_state, rows


@pytest.mark.parametrize("fill", [True, False])
def test_programs_in_memory_are_bounded(tmp_path, monkeypatch, fill):
    monkeypatch.setattr(function, "KEPT", 3)
    (tmp_path / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    exports.export(*program_and_state(config("deepfm", tmp_path / "words.txt")), tmp_path / "export")
    model = serving.load(tmp_path / "export")
    predict = model.function("predict")
    predict._fill = fill  # as of a model that mixes rows
    table = rows(60)
    (expected,) = model.predict(table).values()
    programs = set()
    for size in range(1, 60, 5):
        (found,) = model.predict(table.slice(0, size)).values()
        np.testing.assert_allclose(found, expected[:size], rtol=1e-5)
        programs.add(predict._call._cache_size())
    assert max(programs) == 3
