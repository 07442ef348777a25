"""Keeps the raw input of sources, before parsing, and plays it back: a better parser or rule can be tried on
an old recording."""

from coach.recorder.anonymize import Names, anonymize
from coach.recorder.recording import Chapter, Header, Recording, demo_path, open_recording
from coach.recorder.recording_io import RecordingIo
from coach.recorder.replay_io import ReplayIo

__all__ = [
    "Chapter",
    "Header",
    "Names",
    "Recording",
    "RecordingIo",
    "ReplayIo",
    "anonymize",
    "demo_path",
    "open_recording",
]
