"""When spikes arrive: every synapse of the chip takes one step, the contract may ask for another number.

A connection that the contract makes n steps long (its delay, its Delay nodes, one step if it is recurrent)
arrives in time if its own delay makes up the difference, and a population may run late as a whole:

    delay = latency[target] - latency[source] + n - 1  >=  0

The smallest latencies that allow this are found by relaxation. A loop that the contract closes in fewer steps
than it has synapses has no solution and is refused.
"""

from collections.abc import Collection, Mapping

from nrf.backends.border import Recording, Spikes
from nrf.backends.lowering.layers import Connection
from nrf.errors import InputError
from nrf.export.contract import Contract


def contract_steps(connection: Connection, contract: Contract) -> int:
    """How many steps after the membrane of its source fired the contract lets a spike arrive."""
    late = contract.emit == "late" and not connection.external
    return connection.delay + (1 if connection.recurrent or late else contract.delay)


def latencies(
    connections: Collection[Connection], contract: Contract, populations: Collection[str]
) -> dict[str, int]:
    """Steps that each population runs late; the input is one of them, with 0."""
    late = dict.fromkeys(populations, 0)
    for _ in range(len(late) + 1):
        changed = False
        for connection in connections:
            least = late[connection.source] + 1 - contract_steps(connection, contract)
            if late[connection.target] < least:
                late[connection.target], changed = least, True
        if not changed:
            return late
    loop = sorted(name for name in late if late[name] >= len(late))
    raise InputError(
        f"the loop through {', '.join(loop)} has fewer steps in the contract than synapses, and on Loihi 2 "
        "each takes one: put a Delay into the loop, or use a contract with delay 1"
    )


def extra_delay(connection: Connection, contract: Contract, late: dict[str, int]) -> int:
    """Steps of delay that the synapses of a connection need on top of their own one."""
    return late[connection.target] - late[connection.source] + contract_steps(connection, contract) - 1


def on_chip_clock(recording: Recording, latencies: Mapping[str, int]) -> dict[str, Spikes]:
    """The reference's spikes at the steps at which the chip should fire them: what teacher forcing plays."""
    late = {
        name: spikes.later(latencies[name]) for name, spikes in recording.spikes.items() if name in latencies
    }
    return {name: spikes.where(spikes.t >= 0) for name, spikes in late.items()}
