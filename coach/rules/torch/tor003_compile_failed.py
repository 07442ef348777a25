"""TOR003: torch.compile could not compile the model."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule


class CompileFailed(EndingRule):
    """torch.compile, or a part of it (dynamo, inductor, Triton), could not compile the model.

    What it sees
        The exceptions of torch._dynamo and torch._inductor (BackendCompilerFailed, InternalTorchDynamoError,
        Unsupported, InductorError, LoweringException), Triton's CompilationError and OutOfResources, the C
        compiler that failed on Triton's launcher, and "Cannot find a working triton installation".
    Why it matters
        The model runs without compilation: the error is in the compiler, in a tool that it needs (a C++
        compiler, Triton), or in code that it cannot trace.
    When it stays silent
        Where dynamo falls back to eager and only warns. The finding is info if the program went on.
    What to do
        Run once without torch.compile: if that works, compile a smaller part, mark the function with
        `torch.compiler.disable`, or update torch and Triton together. `TORCH_LOGS=+dynamo` shows the code
        that it was compiling. If the compiler is missing, load a gcc module in the job. `suppress_errors`
        lets the run go on, but hides the loss of speed.
    Sources
        torch._dynamo.exc, torch._inductor.exc; torch.compile troubleshooting; triton.compiler.errors.
    """

    code = "TOR003"
    name = "compile-failed"
    cause = "torch_compile_error"

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        return (
            "torch.compile failed: "
            f"{hit.fields.get('error', '').rpartition('.')[2]}{(hit.fields.get('words') or '')[:140]}"
        )

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if snapshot.run is not None and snapshot.run.parameters.get("compile") is True:
            yield Fix("Without compilation", {"compile": False})
            return
        yield Fix(
            "Run once without torch.compile, to know that the model itself works",
            {"env": {"TORCH_COMPILE_DISABLE": "1"}},
            needs=("torch.compile",),
        )
        yield Fix(
            "Run once without that Triton kernel, to know that the model itself works",
            needs=("not torch.compile",),
        )
