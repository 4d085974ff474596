"""EfficientNet-Lite0 in flax.linen, written as a user would write it, with a Torch model's weights.

Nothing here knows of relurules. Images are (batch, height, width, channel).
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

DTYPE = jnp.float64


def conv(features: int, kernel: int, name: str, *, stride: int = 1, groups: int = 1) -> nn.Conv:
    return nn.Conv(
        features,
        (kernel, kernel),
        (stride, stride),
        padding="SAME",
        feature_group_count=groups,
        use_bias=False,
        dtype=DTYPE,
        param_dtype=DTYPE,
        name=name,
    )


def norm(name: str) -> nn.BatchNorm:
    return nn.BatchNorm(
        use_running_average=True, epsilon=1e-3, dtype=DTYPE, param_dtype=DTYPE, name=name
    )


class MBConv(nn.Module):
    expanded: int
    features: int
    kernel: int
    stride: int

    @nn.compact
    def __call__(self, inputs: Any) -> Any:
        x = inputs
        if self.expanded != inputs.shape[-1]:
            x = nn.relu6(norm("bn0")(conv(self.expanded, 1, "expand")(x)))
        depthwise = conv(
            self.expanded, self.kernel, "depthwise", stride=self.stride, groups=self.expanded
        )
        x = nn.relu6(norm("bn1")(depthwise(x)))
        x = norm("bn2")(conv(self.features, 1, "project")(x))
        return x + inputs if x.shape == inputs.shape else x


class Lite0(nn.Module):
    blocks: tuple[tuple[int, int, int, int], ...]

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu6(norm("bn0")(conv(32, 3, "stem", stride=2)(x)))
        for i, block in enumerate(self.blocks):
            x = MBConv(*block, name=f"block{i}")(x)
        x = nn.relu6(norm("bn1")(conv(1280, 1, "head")(x)))
        return nn.Dense(1000, dtype=DTYPE, param_dtype=DTYPE, name="fc")(x.mean((1, 2)))


def from_torch(model: Any) -> tuple[Lite0, dict[str, Any]]:
    """Return the linen module and its variables for a Torch EfficientNet-Lite0."""
    blocks = []
    params: dict[str, Any] = {"stem": kernel(model._conv_stem), "head": kernel(model._conv_head)}
    stats: dict[str, Any] = {}
    for name in ("bn0", "bn1"):
        params[name], stats[name] = batch_norm(getattr(model, f"_{name}"))
    for i, block in enumerate(model._blocks):
        blocks.append(shape_of(block))
        params[f"block{i}"], stats[f"block{i}"] = of_block(block)
    params["fc"] = {"kernel": array(model._fc.weight).T, "bias": array(model._fc.bias)}
    return Lite0(tuple(blocks)), {"params": params, "batch_stats": stats}


def shape_of(block: Any) -> tuple[int, int, int, int]:
    depthwise = block._depthwise_conv
    return (
        depthwise.out_channels,
        block._project_conv.out_channels,
        depthwise.kernel_size[0],
        depthwise.stride[0],
    )


def of_block(block: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [name for name in ("expand", "depthwise", "project") if hasattr(block, f"_{name}_conv")]
    params: dict[str, Any] = {name: kernel(getattr(block, f"_{name}_conv")) for name in names}
    stats: dict[str, Any] = {}
    for name in ("bn0", "bn1", "bn2"):
        if hasattr(block, f"_{name}"):
            params[name], stats[name] = batch_norm(getattr(block, f"_{name}"))
    return params, stats


def kernel(module: Any) -> dict[str, Any]:
    return {"kernel": array(module.weight).transpose(2, 3, 1, 0)}


def batch_norm(module: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    params = {"scale": array(module.weight), "bias": array(module.bias)}
    return params, {"mean": array(module.running_mean), "var": array(module.running_var)}


def array(tensor: Any) -> Any:
    return np.asarray(tensor.detach().numpy(), np.float64)
