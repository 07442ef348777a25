"""Settings: read once at startup, then passed on as values.

Each value knows its origin, so an error and `coach config` can name file and key. No other package reads an
environment variable or a config file to choose a setting.
"""

from __future__ import annotations

from coach.config.load import load as load
from coach.config.settings import BACKENDS as BACKENDS
from coach.config.settings import DEFAULT_CLUSTER as DEFAULT_CLUSTER
from coach.config.settings import DEFAULT_THEME as DEFAULT_THEME
from coach.config.settings import FileStamp as FileStamp
from coach.config.settings import LaunchDefaults as LaunchDefaults
from coach.config.settings import NoticeSettings as NoticeSettings
from coach.config.settings import Settings as Settings
from coach.model.launching.site import Advice as Advice
from coach.model.launching.site import Limits as Limits
from coach.model.launching.site import Lock as Lock
from coach.model.launching.site import Switch as Switch
