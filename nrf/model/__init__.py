"""The network: neurons, kernels, initialisation, readout."""
