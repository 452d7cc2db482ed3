"""The border between a chip and everything else: what a chip offers and what it gives back."""

from nrf.backends.border.backend import Absent as Absent
from nrf.backends.border.backend import Backend as Backend
from nrf.backends.border.backend import Clips as Clips
from nrf.backends.border.backend import CoreUse as CoreUse
from nrf.backends.border.backend import Frames as Frames
from nrf.backends.border.backend import Loss as Loss
from nrf.backends.border.backend import Lowered as Lowered
from nrf.backends.border.backend import LowerOptions as LowerOptions
from nrf.backends.border.backend import Memory as Memory
from nrf.backends.border.backend import Placement as Placement
from nrf.backends.border.backend import Program as Program
from nrf.backends.border.backend import Reach as Reach
from nrf.backends.border.backend import RunOptions as RunOptions
from nrf.backends.border.backend import Runtime as Runtime
from nrf.backends.border.backend import Shape as Shape
from nrf.backends.border.backend import WeightBits as WeightBits
from nrf.backends.border.chip import Chip as Chip
from nrf.backends.border.chip import Tolerances as Tolerances
from nrf.backends.border.figures import FIGURES as FIGURES
from nrf.backends.border.recording import Provenance as Provenance
from nrf.backends.border.recording import Recording as Recording
from nrf.backends.border.recording import Spikes as Spikes
from nrf.backends.border.registry import backend_of as backend_of
from nrf.backends.border.registry import chip_names as chip_names
from nrf.backends.border.registry import load_chip as load_chip
