"""Tell a failed connection to the internet from one to another machine of the job.

Two rules match the same messages and decide here.

A compute node without internet reports "Name or service not known" for huggingface.co, and also for a wrong
MASTER_ADDR. The host's name tells them apart if the line has it, else the frames of an HTTP library.
"""

from __future__ import annotations

import re

from coach.model.training.log import LogHit

_HOST = re.compile(
    r"ConnectionPool\(host='(?P<pool>[^']+)'|Failed to resolve '(?P<name>[^']+)'"
    r"|Cannot connect to host (?P<aiohttp>[\w.-]+)"
    r"|https?://(?P<url>[\w.-]+)|(?:Could not resolve host:"
    r"|unable to resolve host address|wget: bad address) ?[‘'`]?(?P<shell>[\w.-]+)"
    r"|Failed to connect to (?P<curl>[\w.-]+) port (?:443|80)\b"
)
_OUTSIDE = re.compile(
    r"(?!localhost)[\w-]+(?:\.[\w-]+)*\.(?!local|localdomain|internal|cluster|lan\b|hpc\b)[A-Za-z]{2,}"
)
_FETCHES = re.compile(
    r"urlopen error|\bhttp(?:x|core)2?\.|HTTPSConnection|on the Hub\b|the requested files in the"
    r"|couldn't find (?:it|them) in the cached|[Oo]ffline mode is enabled"
)
_HTTP_FRAME = re.compile(
    r'[\\/](?:urllib[\\/]request|http[\\/]client|torch[\\/]hub|torchvision[\\/]datasets[\\/]utils)\.py"'
    r"|[\\/](?:urllib3|requests|httpx2?|httpcore2?|aiohttp|huggingface_hub|wget|gdown)[\\/]"
)


def host_of(text: str) -> str | None:
    """The host that could not be reached, or None if the line does not name it."""
    found = _HOST.search(text)
    return next((name for name in found.groups() if name), None) if found is not None else None


def is_of_a_download(hit: LogHit) -> bool:
    """True if the failed connection was to a host outside of the cluster."""
    host = host_of(hit.text)
    if host is not None:
        return bool(_OUTSIDE.fullmatch(host))
    return bool(_FETCHES.search(hit.text)) or any(map(_HTTP_FRAME.search, hit.traceback))


def is_inside_the_cluster(hit: LogHit) -> bool:
    """True if the rule about downloads declines a line that it matches; then no rule explains that line."""
    return hit.rule == "ENV021" and hit.signature == "unreachable" and not is_of_a_download(hit)
