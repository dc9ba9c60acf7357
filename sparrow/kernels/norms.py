"""Layer normalization of rows: by XLA, or on an NVIDIA GPU by kernels that read each row once."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from sparrow.kernels.attention.operation import is_portable
from sparrow.kernels.cuda import machine, norms
from sparrow.kernels.device_kind import platform
from sparrow.kernels.pairs import is_split


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def layer_norm(
    epsilon: float, is_kept: bool, x: jax.Array, scale: jax.Array, bias: jax.Array, added: jax.Array | None = None
) -> Any:
    """``(x - mean) / √(variance + epsilon) * scale + bias`` of each row of ``x``, in its dtype; float32 within.

    With ``is_kept`` it comes as ``(x + added, norm(x + added))``, where ``added`` has the shape and dtype of ``x``, or
    is None: the sum, and the gradient of what else is made of it, take no pass of their own.
    """
    total, made = _on_this_device(_by_xla, norms.norm, x, scale, bias, epsilon, added)
    return (total.reshape(x.shape), made.reshape(x.shape)) if is_kept else made.reshape(x.shape)


def _forward(
    epsilon: float, is_kept: bool, x: jax.Array, scale: jax.Array, bias: jax.Array, added: jax.Array | None = None
) -> Any:
    made = layer_norm(epsilon, is_kept, x, scale, bias, added)
    return made, (made[0] if is_kept else x, scale, bias, added is not None)


def _backward(epsilon: float, is_kept: bool, held: Any, grads: Any) -> tuple[Any, ...]:
    x, scale, bias, is_sum = held
    kept, grads = grads if is_kept else (None, grads)
    of_x, sums = _on_this_device(_gradient_by_xla, norms.gradient, x, scale, bias, epsilon, grads, kept)
    of_x = of_x.reshape(x.shape)
    return of_x, sums[0].astype(scale.dtype), sums[1].astype(bias.dtype), of_x if is_sum else None


layer_norm.defvjp(_forward, _backward)


def _on_this_device(
    by_xla: Any, by_kernel: Any, x: jax.Array, scale: Any, bias: Any, epsilon: float, *more: Any
) -> Any:
    scale, bias = scale.astype(jnp.float32), bias.astype(jnp.float32)
    is_elsewhere = is_portable() or is_split(x) or not x.size
    gpu = None if is_elsewhere or norms.unsupported(x.shape[-1], x.dtype.name) else machine.if_any()
    rows = [x.reshape(-1, x.shape[-1]), *(None if each is None else each.reshape(-1, x.shape[-1]) for each in more)]

    def of(f: Any) -> Any:
        return lambda x, scale, bias, *more: f(x, scale, bias, epsilon, *more)

    by_xla, by_kernel = of(by_xla), of(functools.partial(by_kernel, gpu))
    arguments = rows[0], scale, bias, *rows[1:]
    if gpu is None:
        return by_xla(*arguments)
    if platform() == "cpu":  # the emulation of the tests
        return by_kernel(*arguments)
    return jax.lax.platform_dependent(*arguments, cuda=by_kernel, default=by_xla)


def _normalized(x: jax.Array, epsilon: float) -> tuple[jax.Array, jax.Array]:
    centered = x.astype(jnp.float32)
    centered = centered - centered.mean(axis=1, keepdims=True)
    factor = jax.lax.rsqrt(jnp.square(centered).mean(axis=1, keepdims=True) + epsilon)
    return centered * factor, factor


def _by_xla(
    x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float, added: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    total = x if added is None else x + added
    return total, (_normalized(total, epsilon)[0] * scale + bias).astype(x.dtype)


def _gradient_by_xla(
    x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float, grads: jax.Array, kept: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    y, factor = _normalized(x, epsilon)
    own = grads.astype(jnp.float32)
    sums = jnp.stack([(own * y).sum(axis=0), own.sum(axis=0)])
    own = own * scale
    of_x = factor * (own - own.mean(axis=1, keepdims=True) - y * (own * y).mean(axis=1, keepdims=True))
    return (of_x if kept is None else of_x + kept.astype(jnp.float32)).astype(x.dtype), sums
