"""The chip's neuron for tuning: leaks exponentially, resets to zero, has no floor."""

from nrf.backends.border.student import Setting, Student
from nrf.backends.loihi.chip import Loihi

LEAKS = (0.05, 0.1, 0.0)  # of IF: without any leak, what came long ago is never forgotten


def student(chip: Loihi) -> Student:
    """One spike per step; biases are finer than weights by the bits between drive and state."""
    bits = chip.bits
    return Student(
        contract={"reset": ("zero",), "fire": ("gt",), "max_spikes": (1,), "reset_at": ("spike",)},
        settings=tuple(Setting(None, leak) for leak in LEAKS),
        leak="exponential",
        weights=(-bits.largest_weight, bits.largest_weight),
        biases=(-bits.largest_bias, bits.largest_bias),
        bias_steps=2**bits.shift,
        decay_steps=bits.unity,
        currents=True,
        recurrent=True,
    )
