"""Program files: a matrix in which an entry lies anywhere but inside is refused when it is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from nrf.backends.border.archive import write_archive
from nrf.backends.border.program import VERSION, checksum, pack
from nrf.backends.loihi.program import LoihiProgram, Neurons, Synapses, load
from nrf.backends.loihi.run import LAVA
from nrf.backends.lowering.operators import Matrix
from nrf.errors import InputError
from nrf.export.contract import Contract

Parts = dict[str, Any]  # data, indices, indptr and shape of a matrix


def program() -> LoihiProgram:
    none, one = np.zeros(1, np.int32), np.ones(1)
    neurons = Neurons((4,), none, none, none + 1, none, none, none, none, one, one)
    weights = sparse.csr_array(np.arange(12, dtype=np.int8).reshape(4, 3) - 5)
    synapses = Synapses("input", "n", Matrix(weights))
    return LoihiProgram(
        "p", "loihi2", LAVA, Contract(dt=1.0), "input", (3,), ("n",), {"n": neurons}, (synapses,)
    )


def ends(*numbers: int) -> Callable[[Parts], None]:
    return lambda parts: parts.update(indptr=np.array(numbers, parts["indptr"].dtype))


@pytest.mark.parametrize(
    "spoil",
    [
        ends(0, 3, 5, 1, 0),  # says that it is empty, which SciPy believes
        ends(0, 3, 6, 9, -(2**31)),
        ends(1, 3, 6, 9, 11),
        ends(0, 3, 6, 9, 12),
        ends(0, 3, 6, 11),
        lambda parts: parts["indices"].put(0, 3),
        lambda parts: parts["indices"].put(0, -1),
        lambda parts: parts.update(indices=parts["indices"].astype(np.uint64)),
        lambda parts: parts.update(indices=parts["indices"].astype(float)),
        lambda parts: parts.update(data=parts["data"][None]),
        lambda parts: parts.update(shape=[4, 2**70]),
        lambda parts: parts.update(shape=[4, -3]),
        lambda parts: parts.update(shape=[4]),
    ],
)  # fmt: skip
def test_a_spoilt_matrix_is_refused(spoil: Callable[[Parts], None], tmp_path: Path) -> None:
    path = tmp_path / "spoilt.loihi2"
    program().save(path)
    assert load(path) == program()
    header, arrays = pack(program())
    matrix = header["synapses"][0]["operator"]["weight"]
    parts: Parts = {key: arrays[matrix[key]].copy() for key in ("data", "indices", "indptr")}
    spoil(parts)
    matrix["shape"] = parts.pop("shape", matrix["shape"])
    arrays |= {matrix[key]: values for key, values in parts.items()}
    write_archive(path, {"version": VERSION, "checksum": checksum(program()), "program": header}, arrays)
    with pytest.raises(InputError, match=r"spoilt.loihi2: not a program for this chip"):
        load(path)
