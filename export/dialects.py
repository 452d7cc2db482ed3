"""How each framework steps, and what its exporter writes: the contract that a stranger's file does not state.

A dialect is data: the framework's defaults as fields of `Contract`, settings that its users change and its
exporter drops (`variants`), repairs of what the exporter gets wrong, and how the step can be read off the
parameters. Each is held against the framework itself, spike by spike; see docs/frameworks.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import nir
import numpy as np

from nrf.errors import InputError, did_you_mean
from nrf.export.contract import Contract
from nrf.export.flatten import Nodes
from nrf.export.repair import (
    Repair,
    channels_last,
    decays_in_r,
    endless_time_constants,
    recurrent_wiring,
    unit_integrators,
)

Fields = Mapping[str, object]  # of Contract


@dataclass(frozen=True)
class Dialect:
    """The semantics of one framework."""

    name: str
    about: str  # framework and version that it was verified against
    contract: Fields
    variants: tuple[Fields, ...] = ()  # other settings of the framework that its files do not tell
    repairs: tuple[Repair, ...] = ()
    step: Callable[[Nodes], float | None] = lambda nodes: None  # dt that the parameters imply, or None
    by_kind: Callable[[Contract, nir.NIRNode, bool], Contract] = lambda contract, node, recurrent: contract

    def contract_for(self, nodes: Nodes, **overrides: object) -> Contract:
        """The contract of a graph in this dialect; `overrides` that are not None come first."""
        given = {key: value for key, value in overrides.items() if value is not None}
        dt = self.step(nodes)
        return Contract(**{**self.contract, **({"dt": dt} if dt else {}), **given})  # type: ignore[arg-type]


def _spyx_step(nodes: Nodes) -> float | None:
    """tau = dt / (1 - beta) with r = beta."""
    for node in nodes.values():
        if isinstance(node, nir.LIF | nir.CubaLIF):
            tau = node.tau if isinstance(node, nir.LIF) else node.tau_mem
            return _readable(np.asarray(tau, np.float64) * (1 - np.asarray(node.r, np.float64)))
    return None


def _rockpool_step(nodes: Nodes) -> float | None:
    """r = (tau / dt) exp(-dt / tau), so that u = dt / tau solves u exp(u) = 1 / r."""
    from scipy.special import lambertw  # slow to load, and hardly anybody needs it

    for node in nodes.values():
        if isinstance(node, nir.LIF | nir.CubaLIF):
            tau = np.asarray(node.tau if isinstance(node, nir.LIF) else node.tau_mem, np.float64)
            r = np.asarray(node.r, np.float64)
            known = np.all(np.isfinite(tau)) and np.all(np.isfinite(r) & (r > 0))
            return _readable(tau * np.real(lambertw(1 / r))) if known else None
    return None


def _spikingjelly_step(nodes: Nodes) -> float | None:
    """IF has r = 1/dt, CubaLIF has w_in = tau_syn/dt; a LIF alone does not tell."""
    for node in nodes.values():
        if isinstance(node, nir.IF) and np.all(np.asarray(node.r) > 0):
            return _readable(1 / np.asarray(node.r, np.float64))
        if isinstance(node, nir.CubaLIF) and np.all(np.asarray(node.w_in) > 0):
            return _readable(np.asarray(node.tau_syn, np.float64) / np.asarray(node.w_in, np.float64))
    return None


def _readable(steps: np.ndarray) -> float | None:
    """One step for all neurons, to the five digits that single precision keeps; None if they disagree."""
    low, high = float(np.min(steps)), float(np.max(steps))
    return float(f"{low:.5g}") if low > 0 and high <= low * (1 + 1e-4) else None


def _norse_kind(contract: Contract, node: nir.NIRNode, recurrent: bool) -> Contract:
    """IAFCell starts at its reset voltage, the others at rest."""
    return contract.with_(start="reset") if isinstance(node, nir.IF) else contract


def _snntorch_kind(contract: Contract, node: nir.NIRNode, recurrent: bool) -> Contract:
    """Reset to zero: Leaky resets before leak and input, as at the spike; others lose the next step."""
    if contract.reset == "zero" and contract.reset_at == "next" and isinstance(node, nir.IF | nir.LIF):
        return contract if recurrent else contract.with_(reset_at="spike")
    return contract


def _spyx_kind(contract: Contract, node: nir.NIRNode, recurrent: bool) -> Contract:
    """CuBaLIF lets its reset decay, as if it came at the spike; IF and LIF do not."""
    return contract.with_(reset_at="spike") if isinstance(node, nir.CubaLIF) else contract


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "norse",
            "Norse 1.1.0, norse.torch.utils.export_nir.to_nir",
            # tau is written as 1e-3/tau_inv and the cell steps by 1e-3: as if dt were 1e-6.
            {"dt": 1e-6, "reset": "zero", "fire": "gt", "synapse": "unit"},
            variants=(
                {"reset": "subtract"},
                {"dt": 1e-3},  # to_nir(..., dt=1.0), which writes the true tau
                {"dt": 1e-3, "reset": "subtract"},
                {"dt": 1e-4},  # the files of the NIR paper
            ),
            repairs=(unit_integrators,),
            by_kind=_norse_kind,
        ),
        Dialect(
            "snntorch",
            "snnTorch 1.0.0, snntorch.export_nir.export_to_nir",
            {"dt": 1e-4, "reset": "subtract", "fire": "gt", "reset_at": "next"},
            repairs=(endless_time_constants,),
            by_kind=_snntorch_kind,
            variants=(
                {"reset": "zero"},
                {"reset": "none"},
                {"reset_at": "held"},
                {"reset": "zero", "reset_at": "held"},
            ),
        ),
        Dialect(
            "sinabs",
            "Sinabs 3.1.3, sinabs.nir.to_nir",
            # tau is written in steps
            {"dt": 1.0, "integration": "exponential", "fire": "ge", "max_spikes": 0, "reset": "subtract"},
            variants=(
                {"max_spikes": 1},
                {"reset": "zero"},
                {"max_spikes": 1, "reset": "zero"},
                {"membrane": "unit"},
                {"membrane": "unit", "max_spikes": 1},
            ),
        ),
        Dialect(
            "spikingjelly",
            "SpikingJelly 2.0.0, spikingjelly.activation_based.nir_exchange",
            {"dt": 1e-4, "reset": "zero", "fire": "ge", "start": "reset"},
            step=_spikingjelly_step,
        ),
        Dialect(
            "rockpool",
            "Rockpool 3.1.0, rockpool.nn.modules.to_nir",
            {
                "dt": 1e-3,
                "integration": "exponential",
                "synapse": "decayed",
                "membrane": "unit",
                "fire": "ge",
                "max_spikes": 0,
                "reset": "subtract",
            },
            variants=({"max_spikes": 1},),
            step=_rockpool_step,
        ),
        Dialect(
            "spyx",
            "Spyx 1.0.0, spyx.nir.to_nir",
            {
                "dt": 1.0,
                "reset": "subtract",
                "fire": "gt",
                "reset_at": "next",
                "emit": "late",
                "synapse": "unit",
                "membrane": "unit",
            },
            repairs=(recurrent_wiring, decays_in_r, channels_last),
            step=_spyx_step,
            by_kind=_spyx_kind,
        ),
    )
}


def dialect_named(name: str) -> Dialect:
    """A dialect by name.

    >>> dialect_named("sinabs").contract["fire"]
    'ge'
    """
    if name not in DIALECTS:
        raise InputError(f"unknown dialect '{name}'; {did_you_mean(name, DIALECTS)}")
    return DIALECTS[name]
