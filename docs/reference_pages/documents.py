"""Each JSON document of coach: the program that writes it, and the type of its schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coach.analysis.query.job_fields import job_vocabulary, past_job_vocabulary
from coach.analysis.query.language import Vocabulary
from coach.analysis.query.node_fields import node_vocabulary
from coach.model.training import run_files
from coach.model.training.telemetry import SensorGap
from coach.sources.slurm.node_sets import expand_nodes
from reference_pages.json_schema import Maker, Schema, document_schema
from reference_pages.json_types import cluster, judging, keeping, launching, measuring


@dataclass(frozen=True, slots=True)
class Document:
    """One kind of document."""

    name: str
    """Of its schema: `schemas/NAME.json`."""
    made_by: str
    """A command line, or the file of a run directory."""
    type: Any
    """Its type, or a tuple of those of which it is one."""
    is_line: bool = False
    """True if it is one line of many."""


COMMAND_DOCUMENTS = (
    Document("check", "coach check TARGET", judging.CheckDocument),
    Document("check-jobs", "coach check", judging.CheckJobsDocument),
    Document("why", "coach why JOB", judging.CheckDocument),
    Document("why-none", "coach why, where no job ended badly", judging.CheckJobsDocument),
    Document("ticket", "coach ticket JOB", judging.TicketDocument),
    Document("watch", "coach watch", judging.CheckJobsDocument),
    Document("stacks", "coach stacks RUN", measuring.StacksDocument),
    Document("trace", "coach trace RUN", measuring.TRACE),
    Document("attach", "coach attach JOB", measuring.ATTACH_LINES, is_line=True),
    Document("fix-list", "coach fix RUN --list", judging.FixesDocument),
    Document("fix", "coach fix RUN", judging.FixDocument),
    Document("fix-script", "coach fix JOB, of a job that coach did not launch", judging.ForeignFixDocument),
    Document("compare", "coach compare RUN RUN", judging.ComparisonDocument),
    Document("compare-group", "coach compare GROUP", judging.GroupDocument),
    Document("compare-chain", "coach compare RUN, of a chain of fixes", judging.ChainDocument),
    Document("recipes", "coach recipes", launching.RecipesDocument),
    Document("recipe", "coach recipes RECIPE", launching.RecipeDocument),
    Document("launch", "coach launch WHAT, coach drill NAME", launching.LaunchDocument),
    Document("data", "coach data", keeping.DataDocument),
    Document("jobs", "coach jobs", cluster.JobsDocument),
    Document("history", "coach history", cluster.HistoryDocument),
    Document("nodes", "coach nodes", cluster.NodesDocument),
    Document("nodes-gpus", "coach nodes --gpus", cluster.GpusDocument),
    Document("partitions", "coach partitions", cluster.PartitionsDocument),
    Document("nodes-reserved", "coach nodes --reserved", cluster.ReservedDocument),
    Document("drills", "coach drill", launching.DrillsDocument),
    Document("drill-answer", "coach drill NAME --answer CAUSE", launching.DrillAnswerDocument),
    Document("drill-results", "coach drill --all", launching.DrillResultsDocument),
    Document("cohort", "coach cohort", launching.CohortDocument),
    Document("workshop-check", "coach workshop check PLAN.toml", launching.WorkshopDocument),
    Document("doctor", "coach doctor", keeping.DoctorDocument),
    Document("config", "coach config", keeping.ConfigDocument),
    Document("config-check", "coach config --check", keeping.ConfigCheckDocument),
    Document("runs", "coach runs", keeping.RunsDocument),
    Document("runs-clean", "coach runs clean", keeping.CleanDocument),
)
"""What `--format json` prints, in the order of commands.md."""

_KINDS = {
    "GpuSample": "gpu",
    "GpuLink": "gpu_link",
    "GpuHealth": "gpu_health",
    "GpuEvent": "gpu_event",
    "HostSample": "host",
    "ProcessSample": "process",
    "PortSample": "port",
    "MountSample": "mount",
    "SensorGap": "gap",
}
"""Class → the `kind` of its records."""
FILE_DOCUMENTS = (
    Document("run-json", "run.json", run_files.RunJson),
    Document("exit-json", "exit.json", run_files.ExitJson),
    Document("verdict-json", "verdict.json", judging.VerdictDocument),
    Document("drill-answer-json", "drill_answer.json", run_files.DrillAnswerJson),
    Document(
        "metrics", "metrics/rank-<r>.jsonl", (run_files.StepRecord, run_files.EventRecord), is_line=True
    ),
    Document("stacks-samples", "stacks/samples-<node>.jsonl", run_files.StackSamplesRecord, is_line=True),
)
TELEMETRY = Document(
    "telemetry",
    "telemetry/<node>.jsonl, and `coach sample --once` and `--stream`",
    measuring.SAMPLES,
    is_line=True,
)
COLUMNS = (
    Document("jobs-columns", "coach jobs --columns FIELDS", job_vocabulary(None, None, expand_nodes)),
    Document("history-columns", "coach history --columns FIELDS", past_job_vocabulary(None, expand_nodes)),
    Document(
        "nodes-columns", "coach nodes --columns FIELDS", node_vocabulary(lambda node: None, expand_nodes)
    ),
)
"""Lists with chosen columns: their types are vocabularies."""
ALL = (*COMMAND_DOCUMENTS, *COLUMNS, *FILE_DOCUMENTS, TELEMETRY)
_SHOWN_AS: dict[str, Schema] = {
    "text": {"anyOf": [{"type": ["null", "string"]}, {"type": "array", "items": {"type": "string"}}]},
    "count": {"type": ["integer", "null"]},
    "percent": {"type": ["null", "number"]},
    "size": {"type": ["null", "number"]},
    "duration": {"type": ["null", "number"]},
    "time": {"type": ["null", "number"]},
}


def schema_of(document: Document) -> Schema:
    """The JSON Schema of a document."""
    title = f"{document.made_by}{' (one line)' if document.is_line else ''}"
    if document is TELEMETRY:
        return _telemetry(title)
    if isinstance(document.type, Vocabulary):
        return _columns(document, title)
    return document_schema(document.name, title, document.type)


def _columns(document: Document, title: str) -> Schema:
    noun = "nodes" if document.name == "nodes-columns" else "jobs"
    schema = document_schema(document.name, title, cluster.ColumnsDocument)
    properties = {
        field.attribute: {**_SHOWN_AS[field.kind.shown_as], "description": field.about}
        for field in document.type.fields
    }
    name = f"{document.name.removesuffix('-columns').capitalize()}Columns"
    sentence = "The fields that were named; the others are missing."
    row = {
        "type": "object",
        "description": sentence,
        "properties": properties,
        "required": [],
        "additionalProperties": True,
    }
    return {
        **schema,
        "properties": {
            "schema": schema["properties"].pop("schema"),
            noun: {"type": "array", "items": {"$ref": f"#/$defs/{name}"}},
            **schema["properties"],
        },
        "required": ["schema", noun],
        "$defs": {name: row},
    }


def _telemetry(title: str) -> Schema:
    """Each record has its kind, its time and its node; the sampler leaves out values that a node does not
    have."""
    schema = document_schema(TELEMETRY.name, title, run_files.TelemetryKey)
    key = {name: schema.pop(name) for name in ("type", "description", "properties", "required")}
    del schema["additionalProperties"]
    records = []
    for sample in measuring.SAMPLES:
        of_kind = Maker(frozenset({sample})).object_of((sample,))
        properties = {
            "kind": {"const": _KINDS[sample.__name__]},
            **key["properties"],
            **of_kind["properties"],
        }
        required = ["kind", *key["required"], *(["what"] if sample is SensorGap else [])]
        records.append({**of_kind, "properties": properties, "required": required})
    return {**schema, "anyOf": records}


def by_name() -> dict[str, Document]:
    """The documents by the names of their schemas."""
    return {document.name: document for document in ALL}
