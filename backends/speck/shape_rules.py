"""Rules about the shapes of kernels, pooling and maps."""

from nrf.backends.border.chip import Target
from nrf.backends.lowering.rules import Found
from nrf.backends.speck.rule import LAYER, halved
from nrf.backends.speck.structure import Layer
from nrf.export.graph import Graph


@LAYER.rule("error")
def kernel_is_square(layer: Layer, graph: Graph, target: Target) -> Found:
    """A core has one kernel size for both directions."""
    height, width = layer.conv.weight.shape[2:]
    if height != width:
        yield (
            layer.synapse,
            f"kernel is {height}x{width}, the chip's are square",
            f"pad it with zeros to {max(height, width)}x{max(height, width)}",
        )


@LAYER.rule("error")
def kernel_fits(layer: Layer, graph: Graph, target: Target) -> Found:
    """Kernels are at most 16 x 16. A linear layer is a kernel as large as the map before it."""
    side, limit = max(layer.conv.weight.shape[2:]), target["kernel.max_side"]
    if side > limit:
        yield (
            layer.synapse,
            f"kernel is {side} wide, the chip holds {limit}",
            "pool or use a stride before this layer",
        )


@LAYER.rule("error")
def stride_is_known(layer: Layer, graph: Graph, target: Target) -> Found:
    """The chip counts in strides of 1, 2, 4 or 8."""
    strides = target["kernel.strides"]
    if any(step not in strides for step in layer.conv.stride):
        yield (
            layer.synapse,
            f"stride is {layer.conv.stride}, the chip knows {strides}",
            "use the next smaller one and pool after the neurons",
        )


@LAYER.rule("error")
def padding_fits(layer: Layer, graph: Graph, target: Target) -> Found:
    """Padding is 0 to 7."""
    padding, limit = max(layer.conv.padding), target["kernel.max_padding"]
    if padding > limit:
        yield (
            layer.synapse,
            f"padding is {padding}, the chip pads at most {limit}",
            "use a smaller kernel or let the map shrink",
        )


@LAYER.rule("error")
def no_dilation(layer: Layer, graph: Graph, target: Target) -> Found:
    """Kernels have no holes."""
    if layer.conv.dilation != (1, 1):
        wide = [
            gap * (side - 1) + 1
            for gap, side in zip(layer.conv.dilation, layer.conv.weight.shape[2:], strict=True)
        ]
        yield (
            layer.synapse,
            f"dilation is {layer.conv.dilation}, the chip knows 1",
            f"write the kernel out with zeros as {wide[0]}x{wide[1]}",
        )


@LAYER.rule("error")
def no_groups(layer: Layer, graph: Graph, target: Target) -> Found:
    """Every output channel sees every input channel."""
    if layer.conv.groups != 1:
        yield (
            layer.synapse,
            f"{layer.conv.groups} groups, the chip knows 1",
            "write the kernel out with zeros between the groups",
        )


@LAYER.rule("error")
def pooling_is_known(layer: Layer, graph: Graph, target: Target) -> Found:
    """Spikes are pooled by 1, 2 or 4 on their way, without padding or overlap."""
    sizes = target["pool.sizes"]
    for source in layer.sources:
        for pool in source.pools:
            if pool.kernel[0] != pool.kernel[1] or pool.stride != pool.kernel or pool.padding != (0, 0):
                yield (
                    pool.node,
                    f"pooling {pool.kernel} with stride {pool.stride} and padding {pool.padding}; "
                    "the chip's is square, with stride equal to its kernel and no padding",
                    "use a convolution with stride instead",
                )
        if source.pool not in sizes and source.pools:
            yield (
                source.pools[-1].node,
                f"pools by {source.pool}, the chip knows {sizes}",
                "pool by 2 or 4, or use a convolution with stride",
            )


@LAYER.rule("error")
def input_map_fits(layer: Layer, graph: Graph, target: Target) -> Found:
    """A core addresses at most 128 x 128 input pixels."""
    side, limit = max(layer.conv.input_shape[1:]), target["map.max_input"]
    if side > limit:
        yield (
            layer.synapse,
            f"input map is {side} wide, the chip takes {limit}",
            f"pool by {2 if side <= 2 * limit else 4} before this layer",
        )


@LAYER.rule("error")
def output_map_fits(layer: Layer, graph: Graph, target: Target) -> Found:
    """A core addresses at most 64 x 64 neurons per output channel."""
    (_, height, width), limit = layer.shape, target["map.max_output"]
    if max(height, width) > limit:
        stride, (rows, columns) = halved(layer)
        yield (
            layer.node,
            f"output map is {height}x{width}, the chip holds {limit}x{limit}",
            f"stride {stride} on '{layer.synapse}' would make it {rows}x{columns}",
        )


@LAYER.rule("error")
def channels_fit(layer: Layer, graph: Graph, target: Target) -> Found:
    """At most 1024 channels in and out."""
    limit = target["map.max_channels"]
    for count, which in ((layer.conv.input_shape[0], "input"), (layer.shape[0], "output")):
        if count > limit:
            yield (layer.synapse, f"{count} {which} channels, the chip has {limit}", "use fewer")
