"""The device code against the FAKE board, in one process of Sinabs' environment for many programs."""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Spikes
from nrf.backends.speck import asynchronous
from nrf.backends.speck.chip_config import write_chip_config
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.run import WORKER
from nrf.backends.vendors.environment import python_of

from .graphs import lower
from .random_graphs import events, random_graph

SCRIPT = Path(__file__).parent / "on_fake_chip.py"


class Ask(Protocol):
    """What the fake board answers to a program."""

    def __call__(
        self,
        program: SpeckProgram,
        frames: NDArray[Any],
        choices: Mapping[str, str] | None = None,
        trace: bool = False,
        **options: Any,
    ) -> dict[str, Any]: ...


@contextmanager
def fake_board() -> Iterator[Ask]:
    """Start the process; give a function from program and frames to the board's answer."""
    command = [str(python_of("sinabs")), "-I", str(SCRIPT), str(WORKER.parent)]
    with tempfile.TemporaryDirectory(prefix="nrf-") as name, tempfile.TemporaryFile("w+") as log:
        folder = Path(name)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        with subprocess.Popen(command, text=True, **pipes) as process:
            assert process.stdin is not None
            assert process.stdout is not None

            def wait(word: str) -> None:
                while (line := process.stdout.readline().strip()) != word:  # Sinabs prints words of its own
                    if not line and process.poll() is not None:
                        log.seek(0)
                        raise AssertionError(log.read())

            def ask(
                program: SpeckProgram,
                frames: NDArray[Any],
                choices: Mapping[str, str] | None = None,
                trace: bool = False,
                **options: Any,
            ) -> dict[str, Any]:
                files = {key: folder / f"{key}.npz" for key in ("program", "frames", "config", "answer")}
                program.save(files["program"])
                np.savez(files["frames"], frames=frames)
                write_chip_config(program, files["config"])
                paths = {key: str(path) for key, path in files.items()}
                asked = {**paths, "options": options, "choices": dict(choices or {}), "trace": trace}
                if "stage" in options:
                    asked["stage"] = options["stage"]
                process.stdin.write(json.dumps(asked) + "\n")
                process.stdin.flush()
                wait("done")
                return dict(json.loads(files["answer"].read_text()))

            wait("ready")
            yield ask
            process.stdin.close()


def differences(
    program: SpeckProgram,
    frames: NDArray[Any],
    answer: dict[str, Any],
    seed: int = 0,
    choices: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Per population, how many counts of the board are not those of the asynchronous simulator."""
    state, rng = asynchronous.new_state(program), np.random.default_rng(seed)
    chosen = asynchronous.Choices(**dict(choices or {}))  # type: ignore[arg-type]
    ours = asynchronous.simulate(program, Spikes.from_dense(frames), len(frames), rng, state, chosen)
    return {
        each.node: int(
            (
                ours.spikes[each.node].dense(len(frames), each.node_shape)
                != np.array(answer["spikes"][each.node])
            ).sum()
        )
        for each in program.populations
    }


@dataclass(frozen=True)
class Case:
    """What one random graph gave."""

    traits: tuple[str, ...]
    spikes: int
    differences: int  # counts of the board that are not the simulator's


def play_random(ask: Ask, seed: int) -> Case | None:
    """A random graph through check, lowering and device code; None where the rules refuse it."""
    if (found := random_graph(seed)) is None:
        return None
    graph, chip = found
    program, rng = lower(graph, None, chip), np.random.default_rng(seed)
    frames = events(rng, program.input_shape)
    known = {key: values for key, values in asynchronous.CHOICES.items() if key != "jitter"}
    choices = {key: str(rng.choice(values)) for key, values in known.items()}
    answer = ask(program, frames, choices, seed=seed)
    kernels = [each.weight.tobytes() for each in program.populations]
    heard = [source.name for each in program.populations for source in each.sources]
    traits = {
        "skip": heard.count(program.input) > 1,
        "fan-in": any(len(each.sources) > 1 for each in program.populations),
        "equal kernels": len(set(kernels)) < len(kernels),
        "biases": any(each.bias.any() for each in program.populations),
        "split": any(each.more for each in program.populations),
    }
    return Case(
        tuple(name for name, has in traits.items() if has),
        sum(answer["details"]["totals"][-1].values()),
        sum(differences(program, frames, answer, seed, choices).values()),
    )
