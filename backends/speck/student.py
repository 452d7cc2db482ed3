"""The chip's neuron for tuning: integrates and fires, leaks linearly by its bias, has a floor."""

from nrf.backends.border.student import Setting, Student
from nrf.backends.speck.chip import Speck, signed

# A floor at 0 drops inhibition that comes before excitation of the same step; one threshold lower keeps it.
# IF neurons without a floor of their own keep more of it: their inhibition lasts.
SETTINGS = Setting(-1.0), Setting(-1.0, leak=0.3), Setting(-8.0, own_reset=True)


def student(chip: Speck) -> Student:
    """Spikes are events: one at a time, in no defined order within a step."""
    return Student(
        contract={
            "reset": ("subtract", "zero"),
            "fire": ("ge",),
            "max_spikes": (1,),
            "reset_at": ("spike",),
            "emit": ("now",),
        },
        settings=SETTINGS,
        leak="linear",
        weights=signed(chip.bits.weight),
        biases=signed(chip.bits.bias),
        finest=max(0, chip.bits.state - 6),  # the state then holds 32 thresholds
        runtime="asynchronous",
    )
