"""The float reference: any canonical graph under its contract. Everything else is compared with it.

>>> run(read_graph("model.nir"), frames).dense("lif1").sum()  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nrf.backends.reference.devices import check_device, dtype_of
    from nrf.backends.reference.simulate import run

__all__ = ["check_device", "dtype_of", "run"]


def __getattr__(name: str) -> Any:
    """Torch is loaded only by those who run a graph."""
    if name not in __all__:
        raise AttributeError(f"module 'nrf.backends.reference' has no attribute '{name}'")
    from nrf.backends.reference import devices, simulate

    return getattr(simulate if name == "run" else devices, name)
