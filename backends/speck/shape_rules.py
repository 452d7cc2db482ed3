"""Rules about the shapes of kernels, pooling and maps."""

from nrf.backends.speck.chip import Speck
from nrf.backends.speck.structure import Layer
from nrf.findings import Found, Rules

SHAPES = Rules[[Layer, Speck]]()


@SHAPES.rule("error")
def kernel_is_square(layer: Layer, chip: Speck) -> Found:
    """A core has one kernel size for both directions."""
    height, width = layer.conv.weight.shape[2:]
    side = max(height, width)
    if height != width:
        message = f"kernel is {height}x{width}; on Speck kernels are square"
        yield layer.synapse, message, f"pad it with zeros to {side}x{side}"


@SHAPES.rule("error")
def kernel_fits(layer: Layer, chip: Speck) -> Found:
    """A linear layer is a kernel as large as the map before it."""
    side, limit = max(layer.conv.weight.shape[2:]), chip.kernel.max_side
    if side > limit:
        message = f"kernel is {side} wide, a core holds at most {limit}"
        yield layer.synapse, message, "pool or use a stride before this layer"


@SHAPES.rule("error")
def stride_is_supported(layer: Layer, chip: Speck) -> Found:
    """The chip counts in strides of powers of two."""
    if any(step not in chip.kernel.strides for step in layer.conv.stride):
        yield (
            layer.synapse,
            f"stride {_pair(layer.conv.stride)} is not supported on Speck, {_list(chip.kernel.strides)} are",
            "use the next smaller one and pool after the neurons",
        )


@SHAPES.rule("error")
def padding_fits(layer: Layer, chip: Speck) -> Found:
    """The address of an event leaves few bits to padding."""
    padding, limit = max(layer.conv.padding), chip.kernel.max_padding
    if padding > limit:
        message = f"padding is {padding}, at most {limit} is supported on Speck"
        yield layer.synapse, message, "use a smaller kernel or let the map shrink"


@SHAPES.rule("error")
def no_dilation(layer: Layer, chip: Speck) -> Found:
    """Kernels have no holes."""
    dilation, kernel = layer.conv.dilation, layer.conv.weight.shape[2:]
    if dilation != (1, 1):
        height, width = (gap * (side - 1) + 1 for gap, side in zip(dilation, kernel, strict=True))
        message = f"dilation {_pair(dilation)} is not supported on Speck"
        yield layer.synapse, message, f"write the kernel out with zeros as {height}x{width}"


@SHAPES.rule("error")
def no_groups(layer: Layer, chip: Speck) -> Found:
    """Every output channel sees every input channel."""
    if layer.conv.groups != 1:
        message = f"a convolution in {layer.conv.groups} groups is not supported on Speck"
        yield layer.synapse, message, "write the kernel out with zeros between the groups"


@SHAPES.rule("error")
def pooling_is_supported(layer: Layer, chip: Speck) -> Found:
    """Spikes are pooled on their way, without padding or overlap."""
    for source in layer.sources:
        for pool in source.pools:
            if pool.kernel[0] != pool.kernel[1] or pool.stride != pool.kernel or pool.padding != (0, 0):
                yield (
                    pool.node,
                    f"pooling {_pair(pool.kernel)} with stride {_pair(pool.stride)} and padding "
                    f"{_pair(pool.padding)}; on Speck it is square, without overlap and padding",
                    "use a convolution with stride instead",
                )
        if source.pool not in chip.pool.sizes and source.pools:
            yield (
                source.pools[-1].node,
                f"pooling by {source.pool} is not supported on Speck, by {_list(chip.pool.sizes)} is",
                "pool by 2 or 4, or use a convolution with stride",
            )


@SHAPES.rule("error")
def input_map_fits(layer: Layer, chip: Speck) -> Found:
    """A core addresses a limited number of input pixels per side."""
    side, limit = max(layer.conv.input_shape[1:]), chip.map.max_input
    if side > limit:
        message = f"input map is {side} wide, a core takes at most {limit}"
        yield layer.synapse, message, f"pool by {2 if side <= 2 * limit else 4} before this layer"


@SHAPES.rule("error")
def output_map_fits(layer: Layer, chip: Speck) -> Found:
    """A core addresses a limited number of neurons per side of an output channel."""
    (_, height, width), limit = layer.shape, chip.map.max_output
    if max(height, width) > limit:
        stride, (rows, columns) = layer.halved
        message = f"output map is {height}x{width}, a core holds at most {limit}x{limit}"
        yield layer.node, message, f"stride {stride} on '{layer.synapse}' would make it {rows}x{columns}"


@SHAPES.rule("error")
def channels_fit(layer: Layer, chip: Speck) -> Found:
    """The same limit for channels in and out."""
    limit = chip.map.max_channels
    for count, which in ((layer.conv.input_shape[0], "input"), (layer.shape[0], "output")):
        if count > limit:
            yield layer.synapse, f"{count} {which} channels, a core has at most {limit}", "use fewer"


def _pair(sizes: tuple[int, int]) -> str:
    return f"{sizes[0]}" if sizes[0] == sizes[1] else f"{sizes[0]}x{sizes[1]}"


def _list(sizes: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
