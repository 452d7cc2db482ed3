"""Checkpoints: what was written is read, and what is broken is named. No pickle is read."""

import json
import pickle

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from nrf.config import to_table
from nrf.errors import InputError
from nrf.model.network import build
from nrf.training import checkpoint
from nrf.training.presets import load_preset

TINY = load_preset("tiny")


@pytest.mark.parametrize("share", [False, True])
def test_a_network_reads_back_with_its_weights_configuration_and_figures(tmp_path, share):
    config = replace(TINY, seed=5, network=replace(TINY.network, share=share, learn_tau=True))
    network = build(config.network, config.seed)
    checkpoint.write(tmp_path / checkpoint.BEST, network, config, {"error": 2.5})
    saved = checkpoint.read(tmp_path)
    again = saved.network()
    assert saved.config == config and saved.summary == {"error": 2.5} and not again.training
    clip = (torch.rand(5, 2, *config.network.input) < 0.05).float()
    assert torch.equal(again(clip).membrane, network(clip).membrane)


def test_a_pickle_is_refused(tmp_path):
    path = tmp_path / "evil.safetensors"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(InputError, match=r"evil.safetensors: not a readable checkpoint"):
        checkpoint.read(path)


def test_missing_foreign_and_mismatched_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"none: not a readable checkpoint .*; make one with `nrf train`"):
        checkpoint.read(tmp_path / "none")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(InputError, match="safetensors, but not a checkpoint of nrf"):
        checkpoint.read(tmp_path / "foreign.safetensors")
    path = tmp_path / checkpoint.BEST
    checkpoint.write(path, build(TINY.network), TINY, {})
    header = {"version": 99, "config": to_table(TINY), "summary": {}}
    save_file(load_file(path), path, metadata={"nrf": json.dumps(header)})
    with pytest.raises(InputError, match="checkpoint version 99, this nrf reads 1"):
        checkpoint.read(path)
    for foreign in ("[1]", json.dumps(header | {"version": 1, "summary": [1]})):
        save_file({"a": torch.zeros(1)}, path, metadata={"nrf": foreign})
        with pytest.raises(InputError, match="safetensors, but not a checkpoint of nrf"):
            checkpoint.read(path)


CONV = "body.conv1_0.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({f"network/{CONV}": torch.zeros(2, 7)}),
         f"tensor '{CONV}' is (2, 7), in a network of this configuration (4, 2, 5, 5)"),
        (lambda t: t.pop(f"network/{CONV}"),
         f"tensor '{CONV}' is missing, in a network of this configuration (4, 2, 5, 5)"),
        (lambda t: t.update({"network/b": torch.zeros(2)}),
         "tensor 'b' is (2,), in a network of this configuration missing"),
        (lambda t: (t.pop(f"network/{CONV}"), t.update({"network/a": torch.zeros(2)})),
         f"tensor '{CONV}' is missing, in a network of this configuration (4, 2, 5, 5) (and 1 more)"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_named_in_one_line(tmp_path, change, message):
    path = tmp_path / checkpoint.BEST
    checkpoint.write(path, build(TINY.network), TINY, {})
    tensors = load_file(path)
    change(tensors)
    header = {"version": 1, "config": to_table(TINY), "summary": {}}
    save_file(tensors, path, metadata={"nrf": json.dumps(header)})
    with pytest.raises(InputError) as error:
        checkpoint.read(tmp_path).network()
    assert str(error.value) == f"{path}: does not fit its own configuration: {message}; train it again"
