"""Named training configurations, one TOML each."""

from functools import cache
from importlib.resources import files

from nrf.config import from_table, read_toml
from nrf.errors import InputError, did_you_mean
from nrf.training.config import Config


def preset_names() -> list[str]:
    """What there is to choose from."""
    return sorted(file.name[:-5] for file in files(__name__).iterdir() if file.name.endswith(".toml"))


@cache
def load_preset(name: str) -> Config:
    """A configuration by name.

    >>> load_preset("tiny").network.input
    (2, 32, 32)
    """
    if name not in preset_names():
        raise InputError(f"preset '{name}' is not known; {did_you_mean(name, preset_names())}")
    return from_table(Config, read_toml(files(__name__) / f"{name}.toml"), f"{name}.toml")
