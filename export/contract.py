"""Everything about discretisation that NIR leaves open, and that decides whether spikes match."""

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from nrf.errors import InputError
from nrf.model.readout import Readout


@dataclass(frozen=True)
class Contract:
    """How the continuous equations of a graph become time steps.

    Every neuron integrates with forward Euler and then fires and resets in the same step:

        LIF      v <- v + dt/tau (v_leak - v + r x)
        IF       v <- v + dt r x
        CubaLIF  i <- i + dt/tau_syn (w_in x - i), then v <- v + dt/tau_mem (v_leak - v + r i)
        floor    v <- max(v, v_min) if v_min is given, in neurons that fire
        fire     z = v > v_threshold ("gt") or v >= v_threshold ("ge")
        reset    v <- v_reset where z ("zero"), or v <- v - v_threshold z ("subtract")

    Before the first step v is v_leak (0 for IF), i is 0, and nothing has fired. I, LI and CubaLI are the same
    without fire and reset; they give v itself. Threshold fires on its input. Delay waits delay/dt steps.
    Without time constants in a graph, dt may be None and a step counts as one unit of time.

    `delay` is the number of steps that each neuron-to-neuron (or input-to-neuron) connection adds
    in the reference. A recurrent edge always carries the spikes of the step before.
    """

    dt: float | None = None  # seconds per step; None only where no node has a time constant
    reset: Literal["zero", "subtract"] = "zero"
    fire: Literal["gt", "ge"] = "gt"
    delay: Literal[0, 1] = 0  # steps
    v_min: float | None = None  # volts
    integration: Literal["euler"] = "euler"
    output: Literal["spikes", "membrane"] = "spikes"  # what the graph's output means
    readout: Readout | None = None  # how the host makes coordinates of the output

    def __post_init__(self) -> None:
        allowed = {
            "reset": ("zero", "subtract"),
            "fire": ("gt", "ge"),
            "delay": (0, 1),
            "integration": ("euler",),
            "output": ("spikes", "membrane"),
        }
        for key, values in allowed.items():
            if getattr(self, key) not in values:
                raise InputError(f"contract: {key} is {getattr(self, key)!r}, expected one of {values}")
        if self.dt is not None and not 0 < self.dt < 1e6:
            raise InputError(f"contract: dt is {self.dt}, expected seconds above 0 and below a million")
        if self.v_min is not None and not math.isfinite(self.v_min):
            raise InputError(f"contract: v_min is {self.v_min}, expected volts")

    def with_(self, **changes: Any) -> "Contract":
        """A copy with some fields changed; None leaves a field as it is."""
        return replace(self, **{key: value for key, value in changes.items() if value is not None})

    def to_json(self) -> str:
        """One line of JSON, as stored in a graph's metadata under `nrf_contract`."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Contract":
        """Read back what `to_json` wrote."""
        try:
            fields = json.loads(text)
            readout = fields.pop("readout", None)
            return cls(**fields, readout=Readout(**readout) if readout else None)
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"contract in the graph's metadata is unreadable: {error}") from error
