"""Tuning: a graph learns to do on a chip's own neuron what the float reference does, without labels.

neuron     the graph on the chip's neuron
layers     its layers in torch, on the chip's grid; adjacency: their drive from events
training   of one layer or of several together, with straight-through weights
figures    how far the chip is from the teacher, on clips
stages     what can be set without training, then layer by layer, then end to end
state      what is done so far, so that a run can go on after a kill
tune       all of it, in order, each stage kept only if held-back clips say so
"""

from nrf.backends.tuning.stages import Options as Options
from nrf.backends.tuning.tune import Tuned as Tuned
from nrf.backends.tuning.tune import tune as tune
