"""Named training configurations, one TOML each."""

from importlib.resources import as_file, files

from nrf.errors import InputError
from nrf.training.config import Config, read_config


def preset_names() -> list[str]:
    """What there is to choose from."""
    return sorted(file.name[:-5] for file in files(__name__).iterdir() if file.name.endswith(".toml"))


def load_preset(name: str) -> Config:
    """A configuration by name.

    >>> load_preset("tiny").network.input
    (2, 32, 32)
    """
    if name not in preset_names():
        raise InputError(f"preset '{name}' is not known; choose from {', '.join(preset_names())}")
    with as_file(files(__name__) / f"{name}.toml") as path:
        return read_config(path)
