"""A site and a user on a disk of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from coach import config


@dataclass
class Place:
    """Write the files, then `load`."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def site_file(self) -> Path:
        return self.root / "site.toml"

    @property
    def user_file(self) -> Path:
        return self.home / ".config/coach/config.toml"

    @property
    def environment(self) -> dict[str, str]:
        site = {"COACH_SITE": str(self.site_file)} if self.site_file.exists() else {}
        return {"HOME": str(self.home), "SLURM_CLUSTER_NAME": "tiger", **site, **self.env}

    def site(self, text: str) -> Path:
        self.site_file.write_text(text)
        return self.site_file

    def user(self, text: str) -> Path:
        self.user_file.parent.mkdir(parents=True, exist_ok=True)
        self.user_file.write_text(text)
        return self.user_file

    def load(self) -> config.Settings:
        return config.load(self.environment, why_not=lambda path: None)
