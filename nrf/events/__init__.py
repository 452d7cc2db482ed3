"""What an event camera gives: events, files of many formats, frames; and synthetic clips to train on."""

from nrf.events.files import read, write
from nrf.events.frames import Source, load_frames
from nrf.events.types import Events, frame_index, make

__all__ = ["Events", "Source", "frame_index", "load_frames", "make", "read", "write"]
