"""The border between a chip and everything else: what a chip offers and what it gives back."""

from nrf.backends.border.backend import (
    Absent,
    Backend,
    Clips,
    CoreUse,
    Frames,
    Loss,
    Lowered,
    LowerOptions,
    Memory,
    Placement,
    Program,
    RunOptions,
    Runtime,
    Shape,
)
from nrf.backends.border.chip import Chip, Tolerances
from nrf.backends.border.figures import FIGURES
from nrf.backends.border.recording import Provenance, Recording, Spikes
from nrf.backends.border.registry import backend_of, chip_names, load_chip

__all__ = [
    "FIGURES",
    "Absent",
    "Backend",
    "Chip",
    "Clips",
    "CoreUse",
    "Frames",
    "Loss",
    "LowerOptions",
    "Lowered",
    "Memory",
    "Placement",
    "Program",
    "Provenance",
    "Recording",
    "RunOptions",
    "Runtime",
    "Shape",
    "Spikes",
    "Tolerances",
    "backend_of",
    "chip_names",
    "load_chip",
]
