"""The page of all settings: each key of config.toml and of the site's file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from coach.analysis.spelling.environment import KEYS as ENVIRONMENT_KEYS
from coach.config.explain import rows
from coach.config.keys import KEYS, SITE_ONLY_TABLES, Key
from coach.config.settings import Settings
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.model.launching.site import Advice
from reference_pages.docstrings import field_sentences
from reference_pages.markdown import code, page, table, text

_DEFAULTS = {
    "runs_root": "the first that can be written: `runs_roots`, `$SCRATCH/coach/runs`, `~/coach/runs`",
    "cache_dir": "`$COACH_HOME/cache`, else `$SCRATCH/coach/cache`, else `~/.cache/coach`",
    "slurm.timeout_s": "MessageTimeout of slurm.conf and 2; where that is not known, 12",
    "ascii": "true where the locale's encoding is not UTF-8",
}
"""Defaults that depend on the machine."""
_INTRODUCTION = """\
Settings are read from the site's file (`$COACH_SITE`, else that of the installation, else
`/etc/coach/site.toml`), above it from the user's `$COACH_HOME/config.toml`, else
`~/.config/coach/config.toml`, and above that from the environment variable that stands with a key.
`SBATCH_ACCOUNT`, `SBATCH_PARTITION` and `SBATCH_QOS`, sbatch's own variables, count above the site's file
and below the user's.
`coach config --explain` prints what counts and who said it; `coach config --check FILE` names each
mistake of a file. A dotted key `launch.time` is written as `time = …` below `[launch]`. A dash in the
column *default* means: not set."""
_SITE = """\
These count in the site's file alone. [settings of a site](../site/settings.md) shows a whole file."""
_SWITCHES = """\
Each is true unless the site's file says false. What is switched off does nothing, and says so in one
line."""
_ENVIRONMENTS = f"""\
`[environments.NAME]` describes a training environment, to be chosen by `launch.environment = "NAME"` or
`--env NAME`. `kind` is one of {", ".join(f"`{kind}`" for kind in EnvironmentKind)}."""
_OPEN = (
    ("launch.sbatch.OPTION", "text, a number, true or false", "One more option of sbatch, by its long name."),
    (
        "rules.CODE.NAME",
        "a number",
        "A threshold of a rule; `coach explain CODE` lists them with their units. A number that the rule "
        "cannot use is refused.",
    ),
    ("locked.KEY", "text", "The site's reason why nobody else may set this key, or this table."),
)


def config_page() -> str:
    """docs/reference/config.md."""
    nowhere = Path("/")
    default = {row.key: row.text for row in rows(Settings(nowhere, nowhere, nowhere))} | _DEFAULTS
    plain = [key for key in KEYS.values() if not key.is_site_only and not key.name.startswith("keys.")]
    site = [key for key in KEYS.values() if key.is_site_only and not key.name.startswith("switches.")]
    switches = [key for key in KEYS.values() if key.name.startswith("switches.")]
    parts = [_INTRODUCTION]
    for name in dict.fromkeys(_table_of(key) for key in plain):
        parts.append(f"## [{name}]" if name else "## At the top of the file")
        parts.append(_keys([key for key in plain if _table_of(key) == name], default))
    parts += ["## [keys]", _keys_table()]
    parts += ["## [environments.NAME]", _ENVIRONMENTS, _fields(Environment, ENVIRONMENT_KEYS)]
    parts += ["## Tables whose keys a person chooses", table(("key", "value", "sets"), _open())]
    parts += ["## In the site's file alone", _SITE, _keys(site, default)]
    parts += ["### [advice.CODE]", "What the site says beside a rule's finding.", _fields(Advice)]
    parts += ["### [switches]", _SWITCHES, _keys(switches, default)]
    return page("Settings: config.toml and site.toml", *parts)


def _table_of(key: Key) -> str:
    return key.name.rpartition(".")[0]


def _keys(keys: Iterable[Key], default: dict[str, str | None]) -> str:
    found = []
    for key in keys:
        said = default.get(key.name)
        shown = said if key.name in _DEFAULTS else None if said is None else code(said)
        variable = f" `{key.variable}`" if key.variable else ""
        found.append((code(key.name), text(key.takes), shown or "–", text(key.says) + variable))
    return table(("key", "value", "default", "sets; environment variable"), found)


def _keys_table() -> str:
    shown = [
        ("`keys.6` … `keys.9`", text(KEYS["keys.6"].takes), "–", "The recipe that this digit launches."),
        (
            "`keys.ID`",
            text(KEYS["keys.open"].takes),
            "as shipped",
            "The key that does this on the screens; [keys.md](keys.md) lists the ids.",
        ),
    ]
    return table(("key", "value", "default", "sets"), shown)


def _fields(cls: type, names: Iterable[str] | None = None) -> str:
    sentences = field_sentences(cls)
    told = list(names) if names is not None else list(cls.__annotations__)
    return table(
        ("key", "holds"), [(code(name), text(sentences.get(name) or _PLAIN.get(name))) for name in told]
    )


_PLAIN = {
    "kind": "How a job gets at it.",
    "text": "The advice.",
    "url": "A page that tells more.",
}


def _open() -> list[tuple[str, str, str]]:
    found = [(code(name), text(takes), text(says)) for name, takes, says in _OPEN]
    return [
        (
            name,
            takes,
            f"{says} The site's file alone." if name[1:].partition(".")[0] in SITE_ONLY_TABLES else says,
        )
        for name, takes, says in found
    ]
