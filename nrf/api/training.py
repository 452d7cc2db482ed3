"""A training run on the integers of a chip."""

from msgspec.structs import replace

from nrf.api.calls import as_chip
from nrf.backends.border import Chip, backend_of
from nrf.errors import InputError
from nrf.model.config import BitsConfig
from nrf.training.config import Config


def for_chip(config: Config, chip: str | Chip) -> Config:
    """The configuration with the widths of the chip, whose integers the network is trained on.

    >>> from nrf.training.presets import load_preset
    >>> for_chip(load_preset("speck2f"), "speck2f").network.bits
    BitsConfig(weight=8, bias=8, finest=10)
    """
    chip = as_chip(chip)
    if not config.network.integers:
        raise InputError(
            f"{config.name}: network.integers is false, so that its weights are rounded for {chip.name} only "
            "when it is exported (nrf export --grid); leave the target out"
        )
    backend = backend_of(chip)
    if backend.student is None:
        raise InputError(f"{chip.name}: its package does not say what to train on; set network.bits instead")
    numbers = backend.student(chip)
    weight, bias = (1 + highest.bit_length() for _, highest in (numbers.weights, numbers.biases))
    bits = BitsConfig(weight, bias, numbers.finest)
    return replace(config, network=replace(config.network, bits=bits))
