"""The float reference: any canonical graph under its contract. Everything else is compared with it.

>>> run(read_graph("model.nir"), frames).dense("lif1").sum()  # doctest: +SKIP
"""

from nrf.backends.reference.devices import check_device, dtype_of
from nrf.backends.reference.simulate import run

__all__ = ["check_device", "dtype_of", "run"]
