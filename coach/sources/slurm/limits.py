"""Read the limits of a user's associations and of QOS from the accounting database.

Only they explain reasons that name a limit (`QOSMaxJobsPerUserLimit`). Two requests are needed, both to the
database and not to the controller. Columns are identified by their headings. All functions are pure.
"""

from __future__ import annotations

from coach.model.slurm.accounting import Limits
from coach.sources.io import Query
from coach.sources.slurm.text import rows_by_heading

_OF_BOTH = (
    "GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall"
)
_OF_ASSOCIATIONS = f"Account,User,Partition,QOS,{_OF_BOTH},MaxJobs,MaxSubmit"
_OF_QOS = f"Name,{_OF_BOTH},MaxTRESPU,MaxJobsPU,MaxSubmitPU,MaxTRESPA,MaxJobsPA,MaxSubmitPA,MinTRES"
_KEYS = frozenset({"Account", "User", "Partition", "QOS", "Name"})


def associations_query(user: str) -> Query:
    whose = ("where", f"user={user}")
    return Query(
        "associations", ("sacctmgr", "-P", "show", "associations", *whose, f"format={_OF_ASSOCIATIONS}")
    )


QOS_QUERY = Query("qos", ("sacctmgr", "-P", "show", "qos", f"format={_OF_QOS}"))


def parse_limits(text: str, kind: str) -> tuple[tuple[Limits, ...], int]:
    """(limits that are set, number of malformed lines). `kind` is `association` or `qos`."""
    key = "Name" if kind == "qos" else "Account"
    rows, num_bad = rows_by_heading(text, key)
    found = (
        Limits(
            kind=kind,
            name=row[key],
            user=row.get("User") or None,
            partition=row.get("Partition") or None,
            qos=tuple(part for part in row.get("QOS", "").split(",") if part),
            values={name: value for name, value in row.items() if value and name not in _KEYS},
        )
        for row in rows
    )
    return tuple(found), num_bad
