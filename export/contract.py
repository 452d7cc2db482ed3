"""Everything about discretisation that NIR leaves open, and that decides whether spikes match."""

import json
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_type_hints

from nrf.containers import parse_json
from nrf.errors import InputError
from nrf.events.sensor import Sensor
from nrf.model.readout import Readout


@dataclass(frozen=True)
class Contract:
    """How the continuous equations of a graph become time steps.

    Kept of the step before:  a = 1 - dt/tau_mem, b = 1 - dt/tau_syn  (integration "euler"), or
                              a = exp(-dt/tau_mem), b = exp(-dt/tau_syn)  ("exponential"); a = 1 without leak.

    One step of a neuron, in this order; x is the sum of its inputs, R its spikes of the step before:

        synapse   i <- b i + (1 - b) w_in x             CubaLIF, CubaLI; "scaled"
                  i <- b i + w_in x                     "unit"
                  i <- b (i + w_in x)                   "decayed"
                  i <- x                                all others
        membrane  v <- a v + (1 - a) (v_leak + r i)     "scaled";   IF and I:  v <- v + dt r i
                  v <- a v + (1 - a) v_leak + i         "unit";     IF and I:  v <- v + i
        late      v <- v - v_threshold R                reset_at "next" with reset "subtract"
                  v <- v (1 - R)                        reset_at "next" with reset "zero": one refractory step
        floor     v <- max(v, v_min)                    if v_min is given, in neurons that fire
        fire      z = v > v_threshold                   fire "gt";  "ge":  v >= v_threshold
                  z = floor(v / v_threshold)            max_spikes other than 1; 0: any number
        reset     v <- v_reset where z                  reset "zero", at the "spike"
                  v <- v - v_threshold z                reset "subtract", at the "spike"

    `reset_at` "held" is the reset at the spike, but a membrane that stays above the threshold after it has to
    reach twice the threshold to fire again (snnTorch with reset_delay=False). Before the first step v is
    v_leak (0 for IF), or v_reset with `start` "reset"; i is 0, nothing has fired. I, LI and CubaLI are the
    same without fire and reset; they give v itself. Threshold fires on its input. Delay waits delay/dt steps.
    Without time constants in a graph, dt may be None and a step counts as one unit of time.

    `delay` is the number of steps that each neuron-to-neuron (or input-to-neuron) connection adds in the
    reference; with `emit` "late" a neuron's spikes come one step after its membrane passed the threshold. A
    recurrent edge always carries the spikes of the step before (those of a late neuron come in time for it).
    """

    dt: float | None = None  # seconds per step; None only where no node has a time constant
    reset: Literal["zero", "subtract", "none"] = "zero"
    fire: Literal["gt", "ge"] = "gt"
    delay: Literal[0, 1] = 0  # steps
    v_min: float | None = None  # volts
    integration: Literal["euler", "exponential"] = "euler"
    output: Literal["spikes", "membrane"] = "spikes"  # what the graph's output means
    readout: Readout | None = None  # how the host makes coordinates of the output
    synapse: Literal["scaled", "unit", "decayed"] = "scaled"
    membrane: Literal["scaled", "unit"] = "scaled"
    max_spikes: int = 1  # per neuron and step; 0 for any number
    reset_at: Literal["spike", "next", "held"] = "spike"
    emit: Literal["now", "late"] = "now"
    start: Literal["leak", "reset"] = "leak"
    classes: int | None = None  # the host reads a class: the largest sum over so many last steps; 0 for all
    sensor: str | None = None  # how a camera's events become the input, see `nrf.events.sensor`

    def __post_init__(self) -> None:
        for key, values in CHOICES.items():
            if getattr(self, key) not in values:
                raise InputError(f"contract: {key} is {getattr(self, key)!r}, expected one of {values}")
        for key, kind in NUMBERS.items():
            value = getattr(self, key)
            if value is not None and not is_number(value, kind):
                raise InputError(f"contract: {key} is {value!r:.60}, expected a number")
        if self.dt is not None and not 0 < self.dt < 1e6:
            raise InputError(f"contract: dt is {self.dt}, expected seconds above 0 and below a million")
        if self.readout is not None and not (
            isinstance(self.readout, Readout) and all(map(is_number, vars(self.readout).values()))
        ):
            raise InputError(f"contract: readout is {self.readout!r:.200}, expected numbers")
        if self.sensor is not None:
            Sensor.parse(str(self.sensor))
        if self.classes is not None and self.classes < 0:
            raise InputError(
                f"contract: classes is {self.classes}, expected the last steps that count, 0 for all"
            )
        if self.classes is not None and self.readout is not None:
            raise InputError("contract: the output is read as coordinates; leave out classes")
        if self.max_spikes < 0:
            raise InputError(
                f"contract: max_spikes is {self.max_spikes}, expected 1 or more, or 0 for any number"
            )
        if self.max_spikes != 1 and self.reset_at != "spike":
            raise InputError(f"contract: max_spikes {self.max_spikes} needs reset_at 'spike'")
        if self.emit == "late" and self.delay:
            raise InputError("contract: emit 'late' and delay 1 are not known together")

    def with_(self, **changes: Any) -> "Contract":
        """A copy with some fields changed; None leaves a field as it is."""
        return replace(self, **{key: value for key, value in changes.items() if value is not None})

    def to_json(self) -> str:
        """One line of JSON, as stored in a graph's metadata under `nrf_contract`."""
        later = ("classes", "sensor")  # than the first files with a contract: left out where not stated
        stated = {key: value for key, value in asdict(self).items() if key not in later or value is not None}
        return json.dumps(stated, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Contract":
        """Read back what `to_json` wrote; fields that a file does not have yet get their defaults."""
        try:
            values = parse_json(text)
            readout = values.pop("readout", None)
            return cls(**values, readout=Readout(**readout) if readout else None)
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"contract in the graph's metadata is unreadable: {error}") from error


def is_number(value: Any, kind: type[Any] = Real) -> bool:
    """Not one that a file spells with hundreds of digits, nor NaN."""
    return isinstance(value, kind) and not isinstance(value, bool) and bool(abs(value) <= LARGEST)


LARGEST = 2**53  # of any number
NUMBERS = {"dt": Real, "v_min": Real, "max_spikes": Integral, "classes": Integral}
HINTS = get_type_hints(Contract)
CHOICES = {  # fields that have one of a few values
    field.name: get_args(HINTS[field.name])
    for field in fields(Contract)
    if getattr(HINTS[field.name], "__origin__", None) is Literal
}
