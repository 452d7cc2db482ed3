"""The chip's neuron for tuning: integrates and fires, leaks linearly by its bias, has a floor."""

from nrf.backends.border.student import Setting, Student
from nrf.backends.speck.chip import Speck, signed

# A floor at 0 drops inhibition that comes before excitation of the same step; one threshold lower keeps it.
FLOORS = (-1.0,)
LEAKS = (0.0, 0.3, 0.7)


def student(chip: Speck) -> Student:
    """Spikes are events: one at a time, in no defined order within a step."""
    return Student(
        contract={"reset": "subtract", "fire": "ge", "max_spikes": 1, "reset_at": "spike", "emit": "now"},
        settings=tuple(Setting(floor, leak) for floor in FLOORS for leak in LEAKS),
        leak="linear",
        weights=signed(chip.bits.weight),
        biases=signed(chip.bits.bias),
        runtime="asynchronous",
    )
