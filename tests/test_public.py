"""The public face: `dir(sparrow)` is what the package exports, and every name of it can be imported."""

import sparrow as sp


def test_dir_lists_the_public_names_alone():
    assert dir(sp) == sorted(sp.__all__)
    assert not [name for name in dir(sp) if name.startswith("_") and name != "__version__"]


def test_every_public_name_is_there():
    assert all(getattr(sp, name) is not None for name in sp.__all__)
