"""ENV021: the program tried to download, but the node has no internet access."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import was_outlived
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.failed_connections import host_of, is_of_a_download
from coach.rules.from_logs.library_exceptions import PLAIN
from coach.rules.from_logs.quoted_evidence import hits_of

_TIMED_OUT = re.compile(r"[Tt]imed? ?out|Connection refused")
_LAST_MIRROR = "Error downloading "
"""torchvision prints why each mirror failed, and raises an error without a reason after the last one."""
_BROKE_OFF = re.compile(r"IncompleteRead|ChunkedEncodingError|RemoteDisconnected|Connection broken")
_NOT_CACHED = re.compile(r"\bcached\b|local cache|[Oo]ffline ?[Mm]ode")
_TRACKERS = re.compile(r"wandb|comet\.com|neptune\.ai|mlflow")


class NoNetwork(EndingRule):
    """The program tried to download, but the node has no internet access.

    What it sees
        A failed connection to a host outside of the cluster: "We couldn't connect to
        'https://huggingface.co'", urllib's URLError and requests' "Max retries exceeded" with an unknown host
        name, an unreachable network or a time-out, the Hub's "cannot find the requested files in the local
        cache", torchvision's mirrors, curl, wget and git in the batch script.
    Why it matters
        On many clusters only the login node reaches the internet. The job fails at once, each time, although
        the name of the file is correct.
    When it stays silent
        On names without a dot and other hosts of the cluster (DST021), and when a logger reports it only as a
        warning. The finding is info if the program went on, for example with files from its cache.
    What to do
        Fetch models and data on the login node, into a cache that compute nodes see: HF_HOME and TORCH_HOME
        on the shared file system, not in a home that is mounted on the login node alone. Then set
        HF_HUB_OFFLINE=1 in the job (HF_DATASETS_OFFLINE=1 for data sets, WANDB_MODE=offline for the tracker),
        so that it does not try to connect. If the site has a proxy, its documentation explains https_proxy.
    Sources
        huggingface_hub and transformers, offline mode; urllib.error.URLError; urllib3 MaxRetryError;
        torchvision.datasets.utils.
    """

    code = "ENV021"
    name = "no-network"
    cause = "no_network"

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        if hit.signature == "mirror":
            raised = hits_of(snapshot, PLAIN, "exception")
            return any(each.fields.get("words", "").startswith(_LAST_MIRROR) for each in raised)
        if hit.signature == "shell":
            return is_of_a_download(hit) and not was_outlived(hit, snapshot)
        return is_of_a_download(hit)

    def confidence_of(self, hit: LogHit) -> float:
        # A time-out can mean a firewall that drops packets, or a host that is down.
        return 0.7 if _TIMED_OUT.search(hit.text) else self.confidence

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if _BROKE_OFF.search(hit.text):
            return "A transfer broke off before its end: the network is there, and lost the connection"
        hosts = (host_of(each.text) for each in (hit, *hits_of(snapshot, self.code)))
        host = next((host for host in hosts if host), None)
        if _NOT_CACHED.search(hit.text):
            return f"The job's cache lacks the file, and {host or 'the hub'} was not reached"
        return f"A download failed: {host or 'the internet'} cannot be reached from the job"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if _TRACKERS.search(hit.text):
            yield Fix(
                "Let the tracker write to disk, and send it from the login node",
                {"env": {"WANDB_MODE": "offline"}},
            )
            return
        yield Fix(
            "Fetch it on the login node, into a cache that compute nodes see (HF_HOME, TORCH_HOME on the "
            "shared file system), "
            "and set HF_HUB_OFFLINE=1 in the job"
        )
