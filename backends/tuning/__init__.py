"""Tuning: a graph learns to do on a chip's own neuron what the float reference does, without labels.

student    the graph on the chip's neuron and grid, and its layers in torch
figures    how far the chip is from the teacher, on clips
settings   what can be set without training
training   of one layer or of several together, with straight-through weights
state      what is done so far, so that a run can go on after a kill
tune       all of it, in order, each step kept only if held-back clips say so
"""

from nrf.backends.tuning.tune import Options as Options
from nrf.backends.tuning.tune import Tuned as Tuned
from nrf.backends.tuning.tune import tune as tune
