"""A user's own model: a class is enough."""

import pytest
from flax import nnx

from sparrow import models
from sparrow.models import MLP, Inputs


def unregister(name):
    models.registry._records.pop(name)


@pytest.fixture
def bilinear():
    @models.register_model("bilinear")
    class Bilinear(nnx.Module):
        def __init__(self, inputs: Inputs, *, layers: MLP | None = None, sizes: tuple[int, ...] = (), rngs: nnx.Rngs):
            self.inputs, self.layers = inputs, nnx.data(layers and layers.build(3, rngs=rngs))

        def __call__(self, acts, numbers):
            return {"logits": acts["a"][:, 0]}

    yield Bilinear
    unregister("bilinear")


def test_own_class_is_made_from_a_config(bilinear):
    data = {"name": "bilinear", "layers": {"hidden_units": [4], "activation": "tanh"}, "sizes": [1, 2]}
    record = models.registry.from_dict(data)
    assert record == models.registry.make("bilinear", layers=MLP((4,), activation="tanh"), sizes=(1, 2))
    assert models.registry.from_json(models.registry.to_json(record)) == record
    model = record.build(Inputs(acts={"a": 3}), rngs=nnx.Rngs(0))
    assert type(model) is bilinear
    assert hash(nnx.graphdef(model)) is not None  # it kept its Inputs


def test_wide_groups_are_known_to_the_record(bilinear):
    assert models.registry.make("deepfm", deep=MLP((4,))).wide_groups == ("wide",)
    assert models.registry.make("bilinear").wide_groups == ()


def test_name_is_taken_once():
    with pytest.raises(ValueError, match="model 'deepfm' is already registered"):
        models.register_model("deepfm")(models.DeepFM)


class NoInputs(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs) -> None: ...


class NoRngs(nnx.Module):
    def __init__(self, inputs: Inputs) -> None: ...


class ByPosition(nnx.Module):
    def __init__(self, inputs: Inputs, size: int, *, rngs: nnx.Rngs) -> None: ...


class AnyOptions(nnx.Module):
    def __init__(self, inputs: Inputs, *, rngs: nnx.Rngs, **options: int) -> None: ...


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (NoInputs, "'inputs' is missing"),
        (NoRngs, "'rngs' is missing"),
        (ByPosition, "'size' is not an option by keyword"),
        (AnyOptions, "'options' is not an option by keyword"),
        (dict, "must be a class derived from flax.nnx.Module"),
    ],
)
def test_classes_that_cannot_be_models(cls, message):
    with pytest.raises(TypeError, match=message):
        models.register_model("mine")(cls)
    assert "mine" not in models.registry
