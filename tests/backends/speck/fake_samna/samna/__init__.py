"""A FAKE samna for tests: the few names that Sinabs needs, and a fake Speck board that obeys its orders.

The board works on what Sinabs wrote into the configuration (weights columns first, destinations, thresholds),
event by event, depth first, in plain Python. It shares no code with nrf.
"""

import sys
import types
from types import SimpleNamespace

__version__ = "fake"


class Spike:
    """One event in or out."""

    def __init__(self):
        self.layer = self.feature = self.x = self.y = self.timestamp = 0


class Configuration:
    """Nine cores with two destinations each, and the sensor stage."""

    def __init__(self):
        def destinations():
            return [SimpleNamespace(layer=0, enable=False, pooling=1) for _ in range(2)]

        self.cnn_layers = [
            SimpleNamespace(destinations=destinations(), neurons_initial_value=[[[0]]], dimensions=None)
            for _ in range(9)
        ]
        self.dvs_layer = SimpleNamespace(
            pass_sensor_events=True, destinations=destinations(), pooling=SimpleNamespace(x=1, y=1)
        )


class Board:
    """Applies a configuration and answers events."""

    def __init__(self):
        self.inbox, self.outbox, self.log = None, None, []

    def get_model(self):
        return self

    def get_sink_node(self):
        return self

    def get_source_node(self):
        return self

    def get_stop_watch(self):
        return SimpleNamespace(start=lambda: None, stop=lambda: None, reset=lambda: None)

    def get_io_module(self):
        self.io = SimpleNamespace(set_slow_clk=lambda on: None, set_slow_clk_rate=lambda rate: None)
        return self.io

    def apply_configuration(self, configuration):
        self.configuration = configuration
        self.v = {}
        for core, layer in enumerate(configuration.cnn_layers):
            if layer.dimensions:
                size = layer.dimensions["output_shape"]["size"]
                count = layer.dimensions["output_shape"]["feature_count"]
                self.v[core] = [[[0] * size["y"] for _ in range(size["x"])] for _ in range(count)]

    def play(self, events):
        for event in events:
            self.deliver(event.layer, event.feature, event.x, event.y, event.timestamp)

    def deliver(self, core, channel, x, y, timestamp):
        layer = self.configuration.cnn_layers[core]
        sizes, v = layer.dimensions, self.v[core]
        columns, rows = sizes["output_shape"]["size"]["x"], sizes["output_shape"]["size"]["y"]
        fired = []
        for row in range(rows):
            tap_y = y + sizes["padding"]["y"] - row * sizes["stride"]["y"]
            for column in range(columns):
                tap_x = x + sizes["padding"]["x"] - column * sizes["stride"]["x"]
                if not (0 <= tap_y < sizes["kernel_size"] and 0 <= tap_x < sizes["kernel_size"]):
                    continue
                for feature in range(sizes["output_shape"]["feature_count"]):
                    new = v[feature][column][row] + layer.weights[feature][channel][tap_x][tap_y]
                    new = max(min(new, 2**15 - 1), -(2**15))
                    if new >= layer.threshold_high:
                        new = 0 if layer.return_to_zero else new - layer.threshold_high
                        fired.append((feature, column, row))
                    v[feature][column][row] = max(new, layer.threshold_low)
        for feature, column, row in fired:
            if layer.monitor_enable:
                spike = Spike()
                spike.layer, spike.feature, spike.x, spike.y = core, feature, column, row
                spike.timestamp = timestamp
                self.outbox.events.append(spike)
            for destination in layer.destinations:
                if destination.enable:
                    target = self.configuration.cnn_layers[destination.layer].dimensions["input_shape"][
                        "size"
                    ]
                    place = column // destination.pooling, row // destination.pooling
                    if place[0] < target["x"] and place[1] < target["y"]:
                        self.deliver(destination.layer, feature, *place, timestamp)


class Source:
    """Where the host writes events."""

    def write(self, events):
        self.board.play(events)


class Sink:
    """Where the host reads events."""

    def __init__(self):
        self.events = []

    def get_events(self):
        events, self.events = self.events, []
        return events


class EventFilterGraph:
    """Connects a buffer with the board."""

    def sequential(self, nodes):
        for node, other in (nodes, nodes[::-1]):
            if isinstance(node, Source):
                node.board = other
            if isinstance(node, Sink):
                other.outbox = node

    def start(self):
        pass

    def stop(self):
        pass


def _module(name, **contents):
    module = types.ModuleType(f"samna.{name}")
    module.__dict__.update(contents)
    sys.modules[module.__name__] = module
    return module


BOARD = Board()
INFO = SimpleNamespace(device_type_name="Speck2fModuleDevKit", usb_device_address=1)
device = _module(
    "device", get_all_devices=lambda: [INFO], open_device=lambda info: BOARD, DeviceInfo=SimpleNamespace
)
graph = _module("graph", EventFilterGraph=EventFilterGraph)
for _chip in ("speck2e", "speck2f"):
    _configuration = _module(
        f"{_chip}.configuration", SpeckConfiguration=Configuration, CNNLayerConfig=object
    )
    _event = _module(f"{_chip}.event", Spike=Spike)
    globals()[_chip] = _module(
        _chip, configuration=_configuration, event=_event, validate_configuration=lambda c: (True, "")
    )
    globals()[f"BasicSourceNode_{_chip}_event_input_event"] = Source
    globals()[f"BasicSinkNode_{_chip}_event_output_event"] = Sink
