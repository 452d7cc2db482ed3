"""nrf: spiking vision models from training to neuromorphic chip, and proof that they agree there.

The stages, in the order in which data flows: events -> model (`nrf`), graph (`nrf.export`),
program -> recording -> report (`nrf.backends`). Nothing heavy is imported here.
"""

__version__ = "0.1.0"
