"""What an event camera gives: events, files of many formats, frames; and synthetic clips to train on."""

from nrf.events.clips import ClipSource, Sample, Samples, from_tonic
from nrf.events.files import read, write
from nrf.events.frames import Source, frame_pieces, load_frames
from nrf.events.types import Events, frame_index, make

__all__ = [
    "ClipSource",
    "Events",
    "Sample",
    "Samples",
    "Source",
    "frame_index",
    "frame_pieces",
    "from_tonic",
    "load_frames",
    "make",
    "read",
    "write",
]  # fmt: skip
