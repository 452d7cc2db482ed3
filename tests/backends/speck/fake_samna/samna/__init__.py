"""A FAKE samna for tests: the few names that Sinabs needs, and a fake Speck board that obeys its orders.

The board works on what Sinabs wrote into the configuration (weights columns first, destinations, thresholds,
biases), event by event, depth first, in plain Python, in a time of its own: `BOARD.sleep` takes the place of
`time.sleep`, and every call of the host takes 20 us. It shares no code with nrf.
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
            return [SimpleNamespace(layer=0, enable=False, pooling=1, feature_shift=0) for _ in range(2)]

        self.cnn_layers = [
            SimpleNamespace(destinations=destinations(), neurons_initial_value=[[[0]]], dimensions=None)
            for _ in range(9)
        ]
        self.dvs_layer = SimpleNamespace(
            pass_sensor_events=True, destinations=destinations(), pooling=SimpleNamespace(x=1, y=1)
        )


class Board:
    """Applies a configuration, ticks, and answers events. Times are microseconds of the board.

    `choices` are what SynSense does not document, see `nrf.backends.speck.asynchronous.Choices`.
    """

    def __init__(self):
        self.now, self.started, self.rate, self.clock = 0.0, 0.0, 0, None
        self.inbox, self.outbox, self.choices = [], None, {}

    def get_model(self):
        return self

    def get_sink_node(self):
        return self

    def get_source_node(self):
        return self

    def get_stop_watch(self):
        return SimpleNamespace(start=self.call, stop=self.call, reset=self.restart)

    def get_io_module(self):
        return SimpleNamespace(set_slow_clk=self.set_slow_clk, set_slow_clk_rate=self.set_slow_clk_rate)

    def call(self):
        self.sleep(20e-6)

    def restart(self):
        self.call()
        self.started = self.now

    def set_slow_clk_rate(self, rate):
        self.call()
        self.rate = rate

    def set_slow_clk(self, on):
        self.call()
        phase = {"start": None, "middle": 1.5, "end": 1.9}[self.choices.get("tick_at", "start")]
        if not on:
            self.clock = None
        elif phase:
            self.clock = self.started + phase * 1e6 / self.rate
        else:
            self.clock = self.now + 1e6 / self.rate

    def sleep(self, seconds):
        """Let time pass: ticks of the slow clock, and events as their time comes."""
        end = self.now + seconds * 1e6
        while True:
            event = self.started + self.inbox[0].timestamp if self.inbox else float("inf")
            tick = float("inf") if self.clock is None else self.clock
            if min(event, tick) > end:
                break
            self.now = max(self.now, min(event, tick))
            if tick <= event:
                self.clock += 1e6 / self.rate
                self.tick()
            else:
                event = self.inbox.pop(0)
                if self.first is None:
                    self.first = event.timestamp  # it goes to two cores, maybe
                if self.first != event.timestamp or self.choices.get("first_event") != "lost":
                    self.deliver(event.layer, event.feature, event.x, event.y)
        self.now = end

    def apply_configuration(self, configuration):
        self.configuration, self.v, self.first = configuration, {}, None
        for core, layer in enumerate(configuration.cnn_layers):
            if layer.dimensions:
                size = layer.dimensions["output_shape"]["size"]
                count = layer.dimensions["output_shape"]["feature_count"]
                self.v[core] = [[[0] * size["y"] for _ in range(size["x"])] for _ in range(count)]

    def play(self, events):
        self.call()
        self.inbox += events

    def update(self, core, feature, column, row, drive, fires=True):
        """One neuron gets some drive; whether it fires."""
        layer, cells = self.configuration.cnn_layers[core], self.v[core][feature][column]
        new = max(min(cells[row] + drive, 2**15 - 1), -(2**15))
        fired = fires and new >= layer.threshold_high
        if fired:
            new = 0 if layer.return_to_zero else new - layer.threshold_high
        cells[row] = max(new, layer.threshold_low)
        return fired

    def tick(self):
        """The slow clock: every core at once, then what fired, core by core."""
        fired = []
        for core, neurons in sorted(self.v.items()):
            layer = self.configuration.cnn_layers[core]
            if layer.leak_enable:
                size = layer.dimensions["output_shape"]["size"]
                fires = self.choices.get("tick_fires", "yes") == "yes"
                for row in range(size["y"]):
                    for column in range(size["x"]):
                        for feature in range(len(neurons)):
                            if self.update(core, feature, column, row, layer.biases[feature], fires):
                                fired.append((core, feature, column, row))
        for spike in fired:
            self.send(*spike)

    def deliver(self, core, channel, x, y):
        """One event at one core."""
        layer = self.configuration.cnn_layers[core]
        sizes, fired = layer.dimensions, []
        columns, rows = sizes["output_shape"]["size"]["x"], sizes["output_shape"]["size"]["y"]
        for row in range(rows):
            tap_y = y + sizes["padding"]["y"] - row * sizes["stride"]["y"]
            if not 0 <= tap_y < sizes["kernel_size"]:
                continue
            for column in range(columns):
                tap_x = x + sizes["padding"]["x"] - column * sizes["stride"]["x"]
                if not 0 <= tap_x < sizes["kernel_size"]:
                    continue
                for feature in range(sizes["output_shape"]["feature_count"]):
                    weight = layer.weights[feature][channel][tap_x][tap_y]
                    if self.update(core, feature, column, row, weight):
                        fired.append((core, feature, column, row))
        for spike in fired:
            self.send(*spike)

    def send(self, core, feature, column, row):
        """One spike to the host and to all destinations of its core."""
        layer = self.configuration.cnn_layers[core]
        if layer.monitor_enable:
            spike = Spike()
            spike.layer, spike.feature, spike.x, spike.y = core, feature, column, row
            spike.timestamp = int(self.now - self.started)
            self.outbox.events.append(spike)
        order = -1 if self.choices.get("first_destination") == "last" else 1
        for destination in layer.destinations[::order]:
            if destination.enable:
                target = self.configuration.cnn_layers[destination.layer].dimensions["input_shape"]["size"]
                place = column // destination.pooling, row // destination.pooling
                if place[0] < target["x"] and place[1] < target["y"]:
                    self.deliver(destination.layer, feature + destination.feature_shift, *place)


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
