"""SASRec and TIGER: self-attention over a history; and what models share whose user is one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from sparrow import fields
from sparrow.embedding import Rows
from sparrow.losses import Positions
from sparrow.models.inputs import Arrays, Group, Inputs, Sequence
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.norms import LayerNorm
from sparrow.models.layers.towers import Tower
from sparrow.models.records import register_model
from sparrow.models.retrievers.kmeans import checked_codebook
from sparrow.models.retrievers.two_towers import Negatives, Similarity, TwoTowers, candidates, check_towers
from sparrow.models.sequences.layout import Layout, Tokens
from sparrow.models.sequences.tokens import history_group


class HistoryTowers(TwoTowers):
    """A model of two towers over a history; a subclass makes the layers, `states` and `normalized`.

    With ``every_position`` a training step learns from each element of a history, whose target is the next one, and
    from the last, whose target is the item of the row: the output "positions" is a `sparrow.losses.Positions`. The
    history and the item must hold the same features in the same order, from the same tables. Items are told apart by
    the bits of their rows: tables must not begin with equal rows, such as zeros.

    Attributes:
      every_position: whether a training step learns from every element.
      deterministic: whether this is no training step; ``nnx.Module.eval`` sets it.
    """

    every_position: bool
    deterministic = False

    def states(self, acts: Arrays, numbers: Arrays) -> tuple[jax.Array, Layout, Rows]:
        """Return the state of each token, ``(tokens, dim)``, where they are, and the features of the elements."""
        raise NotImplementedError

    def normalized(self, x: jax.Array) -> jax.Array:
        """Return states as the last layer takes them."""
        return x

    @property
    def why_no_states(self) -> str | None:
        """Why states of a history cannot be kept; None: they can."""
        return None

    @property
    def why_no_append(self) -> str | None:
        """Why further elements cannot be appended to a state; None: they can."""
        return None

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        x, layout, _ = self.states(acts, numbers)
        return self.user_output(self.normalized(layout.newest(x)))

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """Return what `TwoTowers` do, and "positions" in training with ``every_position``."""
        if not self.every_position or self.deterministic:
            return super().__call__(acts, numbers)
        x, layout, history = self.states(acts, numbers)
        query = self.user_output(self.normalized(layout.newest(x)))
        made = candidates(type(self).__name__, query, self.item(acts, numbers), self.negatives)
        raw, batch = self.item_tower.group.concat(acts, numbers), query.shape[0]
        following, there = layout.following(x, history, raw[:batch])
        _, examples = layout.of_tokens(x, jnp.arange(batch, dtype=jnp.int32))
        positions = Positions(
            self.user_output(self.normalized(x)),
            self.item_output(self.item_tower.mlp(following)),
            row_keys(following),
            there.astype(jnp.float32),
            examples,
        )
        if "negatives" in made:
            positions = positions._replace(negatives=made["negatives"], negative_keys=row_keys(raw[batch:]))
        return {**made, "positions": positions}  # type: ignore[dict-item]


def check_same_features(model: str, inputs: Inputs, history: str, item: str) -> None:
    """Raise ValueError where the elements of a history and an item differ in their features."""
    elements, one = inputs.sequence_group(history).sequences.dims, inputs.group(item).dims
    if elements != one:
        raise ValueError(
            f"{model}.every_position needs the features of the group '{item}' to be those of the group '{history}', in "
            f"the same order; their widths are {list(one)} and {list(elements)}"
        )


def row_keys(rows: jax.Array) -> jax.Array:
    """(n,) int32: a hash of the bits of each row, by which items are told apart wherever their rows came from.

    >>> keys = row_keys(jnp.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]))
    >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
    (True, False)
    """
    bits = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(rows).astype(jnp.float32), jnp.uint32)
    factors = np.random.default_rng(0).integers(0, 2**32, rows.shape[1], np.uint32) | np.uint32(1)
    mixed = ((bits ^ (bits >> 15)) * factors).sum(axis=1, dtype=jnp.uint32)
    return jax.lax.bitcast_convert_type((mixed ^ (mixed >> 16)) * np.uint32(0x9E3779B1), jnp.int32)


class Block(nnx.Module):
    """One layer of `SASRec`."""

    def __init__(self, dim: int, num_heads: int, dropout_ratio: float, *, rngs: nnx.Rngs) -> None:
        self.heads = num_heads
        self.norm, self.hidden_norm = (LayerNorm(dim, rngs=rngs) for _ in range(2))
        self.project = nnx.Linear(dim, 3 * dim, rngs=rngs)
        self.hidden, self.output = (nnx.Linear(dim, dim, rngs=rngs) for _ in range(2))
        self.dropout = nnx.Dropout(dropout_ratio, rngs=rngs if dropout_ratio else None)

    def __call__(self, x: jax.Array, layout: Layout) -> jax.Array:
        q, k, v = (
            part.reshape(x.shape[0], self.heads, -1) for part in jnp.split(self.project(self.norm(x)), 3, axis=1)
        )
        mixed = layout.attend(q, k, v, score="softmax", alpha=q.shape[2] ** -0.5).reshape(x.shape)
        x = x + self.dropout(mixed)
        hidden = self.dropout(jax.nn.relu(self.hidden(self.hidden_norm(x))))
        return x + self.dropout(self.output(hidden))


class SelfAttention(nnx.Module):
    """Positions and layers of `SASRec`: the state of each element of a history, which attends to those before it.

    Attributes:
      dim: the length of the states.
    """

    def __init__(
        self,
        model: str,
        width: int,
        max_length: int,
        dim: int | None,
        num_layers: int,
        num_heads: int,
        dropout_ratio: float,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        for name, value in (("max_length", max_length), ("num_layers", num_layers), ("num_heads", num_heads)):
            fields.integer(f"{model}.{name}", value)
        fields.number(f"{model}.dropout_ratio", dropout_ratio, at_least=0, below=1)
        if dim is not None:
            fields.integer(f"{model}.dim", dim)
        self.model, self.dim = model, dim or width
        if self.dim % num_heads:
            raise ValueError(
                f"{model}: the length of the states, {self.dim}, must be a multiple of num_heads={num_heads}"
            )
        self.linear = nnx.data(None) if self.dim == width else nnx.Linear(width, self.dim, rngs=rngs)
        self.position = nnx.Param(0.02 * jax.random.normal(rngs.params(), (max_length, self.dim)))
        self.dropout = nnx.Dropout(dropout_ratio, rngs=rngs if dropout_ratio else None)
        self.blocks = nnx.List([Block(self.dim, num_heads, dropout_ratio, rngs=rngs) for _ in range(num_layers)])
        self.norm = LayerNorm(self.dim, rngs=rngs)

    def __call__(self, found: Sequence) -> tuple[jax.Array, Layout, Rows]:
        """Return the state of each element, ``(tokens, dim)``, where they are, and the features of the elements."""
        history, most = found.rows, found.values.shape[1]
        if most > self.position.shape[0]:
            raise ValueError(
                f"{self.model}.max_length must be at least that of the sequences, {most}, got {self.position.shape[0]}"
            )
        made = history.values if self.linear is None else self.linear(history.values)
        x, layout = Layout.join(Tokens.of(history._replace(values=made), most))
        (place,) = layout.of_tokens(x)
        x = x * x.shape[1] ** 0.5 + layout.at_places(self.position[...], place).astype(x.dtype)
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, layout)
        return x, layout, history

    def normalized(self, x: jax.Array) -> jax.Array:
        """Return states as the last layer takes them; zeros stay."""
        return jnp.where((x == 0).all(axis=-1, keepdims=True), 0, self.norm(x))


@register_model("sasrec")
class SASRec(HistoryTowers):
    """Self-attentive sequential recommendation: the next item from all before it.

    ::

        x_0     = √dim element + position                                     positions count from the first element
        q, k, v = norm(x) W + b
        y       = x + dropout([Σ_{j <= i} softmax(<q_i, k_j> / √(dim of a head))_j v_j of all heads])
        x'      = y + dropout(dropout(relu(norm(y) W_1 + b_1)) W_2 + b_2)     ``num_layers`` times
        query   = norm(x) at the last element                                 zeros without a history
        item    = item tower(its group)

    An element is the features of the group ``history_input`` side by side, through a linear layer where ``dim`` is
    given. A training step learns from every element (`HistoryTowers`); negatives are those of the loss:
    ``in_batch_softmax`` takes the items of the batch, ``sampled_softmax`` and ``gbce`` those of ``data.negatives``,
    whose count "all" is the complete catalog. The outputs are those of `DSSM`.

    >>> inputs = Inputs(acts={"item": 4}, sequences={"seen": 4}, groups={"history": ["seen"], "item": ["item"]})
    >>> model = SASRec(inputs, item_tower=Tower("item"), max_length=5, rngs=nnx.Rngs(0))
    >>> acts = {"item": jnp.ones((2, 4)), "seen": Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))}
    >>> model.query(acts, {}).shape, model(acts, {})["positions"].query.shape
    ((2, 4), (10, 4))

    Reference: Kang and McAuley, Self-Attentive Sequential Recommendation, ICDM 2018, arXiv 1808.09781.

    Attributes:
      max_length: the number of positions, at least the max_length of the sequences.
      dim: the length of the states; None: that of an element.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        item_tower: Tower,
        max_length: int,
        history_input: str = "history",
        dim: int | None = None,
        num_layers: int = 2,
        num_heads: int = 1,
        dropout_ratio: float = 0.2,
        every_position: bool = True,
        output_dim: int | None = None,
        similarity: Similarity = "inner_product",
        negatives: Negatives = "in_batch",
        rngs: nnx.Rngs,
    ) -> None:
        check_towers("SASRec", history_input, item_tower.input, similarity, negatives)
        inputs.check("SASRec", required=(history_input, item_tower.input))
        self.group = history_group("SASRec", inputs, history_input)
        if every_position:
            check_same_features("SASRec", inputs, history_input, item_tower.input)
        self.attention = SelfAttention(
            "SASRec", self.group.sequences.dim, max_length, dim, num_layers, num_heads, dropout_ratio, rngs=rngs
        )
        width, self.every_position = self.attention.dim, every_position
        self._make_item_tower(inputs, item_tower, width, output_dim, similarity, negatives, rngs=rngs)

    def states(self, acts: Arrays, numbers: Arrays) -> tuple[jax.Array, Layout, Rows]:
        return self.attention(self.group.sequence(acts, numbers))

    def normalized(self, x: jax.Array) -> jax.Array:
        return self.attention.normalized(x)


@register_model("tiger", is_per_example=True)
class Tiger(nnx.Module):
    """Generative retrieval: a model of semantic ids, whose beam search gives items.

    ::

        x      = self-attention over the history, as in `SASRec`; an element is the codes of an item, side by side
        query  = norm(x) at the last element                                           zeros without a history
        code_l = linear(MLP([query, e(code 1), ..., e(code l - 1)]))                   logits over the codes of layer l

    The group ``history_input`` holds a sequence for each layer of codes; the group ``codes_input`` the codes of the
    item that came next, all but the last, in order: features that share the tables of the sequences. The tasks are
    ``code_1``, ``code_2``, ..., each with the loss ``softmax_cross_entropy`` and its code as the label.
    `sparrow.runs.Run.recommend` searches the codes that exist by beam.

    >>> from sparrow.models.inputs import Sequence
    >>> inputs = Inputs(acts={"code_1": 4}, sequences={"seen_1": 4, "seen_2": 4},
    ...                 groups={"history": ["seen_1", "seen_2"], "codes": ["code_1"]})
    >>> model = Tiger(inputs, codebook=(16, 8), max_length=5, rngs=nnx.Rngs(0))
    >>> seen = Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))
    >>> made = model({"code_1": jnp.ones((2, 4)), "seen_1": seen, "seen_2": seen}, {})
    >>> {name: array.shape for name, array in made.items()}
    {'code_1': (2, 16), 'code_2': (2, 8), 'query': (2, 8)}

    Reference: Rajput et al., Recommender Systems with Generative Retrieval, 2023, arXiv 2305.05065, which has a
    decoder of attention in the place of the layers over the query and the codes before.

    Attributes:
      codebook: the number of codes of each layer.
      max_length: the number of positions, at least the max_length of the sequences.
      codes_input: the group of the next item's codes.
      dim: the length of the states; None: that of an element.
      decoder: the layers of each code; None: one of the width of the states.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        codebook: tuple[int, ...],
        max_length: int,
        history_input: str = "history",
        codes_input: str = "codes",
        dim: int | None = None,
        num_layers: int = 2,
        num_heads: int = 1,
        dropout_ratio: float = 0.2,
        decoder: MLP | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        codebook = checked_codebook("Tiger", codebook)
        if len(codebook) < 2:
            raise ValueError(f"Tiger.codebook must have two layers or more, got {list(codebook)}")
        inputs.check("Tiger", required=(history_input, codes_input))
        self.group = history_group("Tiger", inputs, history_input)
        self.codes: Group = inputs.embedded(codes_input)
        if len(self.codes.names) != len(codebook) - 1:
            raise ValueError(
                f"Tiger: the group '{codes_input}' must hold the {len(codebook) - 1} first codes of the next item, of "
                f"{len(codebook)} layers; got {len(self.codes.names)} features"
            )
        self.attention = SelfAttention(
            "Tiger", self.group.sequences.dim, max_length, dim, num_layers, num_heads, dropout_ratio, rngs=rngs
        )
        width = self.attention.dim
        layers = decoder or MLP((width,))
        widths = [width + sum(self.codes.dims[:layer]) for layer in range(len(codebook))]
        self.decoders = nnx.List([layers.build(each, rngs=rngs) for each in widths])
        self.heads = nnx.List([nnx.Linear(layers.dim, size, rngs=rngs) for size in codebook])

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"code_1": (batch, codes), ..., "query": (batch, dim)}``, float32."""
        query = self._state(acts, numbers)
        known = [acts[name] for name in self.codes.names]
        made = {f"code_{layer + 1}": self.logits(query, known[:layer]) for layer in range(len(self.heads))}
        return {**made, "query": query.astype(jnp.float32)}

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """Return the states of users, ``(batch, dim)``. float32."""
        return self._state(acts, numbers).astype(jnp.float32)

    def _state(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        x, layout, _ = self.attention(self.group.sequence(acts, numbers))
        return self.attention.normalized(layout.newest(x)).astype(x.dtype)

    def logits(self, query: jax.Array, known: list[jax.Array]) -> jax.Array:
        """Return the logits of the next code, ``(batch, codes)``, from the rows of the codes before it. float32."""
        layer = len(known)
        x = jnp.concatenate([query, *(each.astype(query.dtype) for each in known)], axis=1)
        return self.heads[layer](self.decoders[layer](x)).astype(jnp.float32)
