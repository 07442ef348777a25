"""ENV016: two packages of the environment, or the program and its torch, are of versions that do not work
together."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.environment.failed_import import is_below_a_failed_import, is_without_torch
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule, ending_signatures
from coach.rules.from_logs.quoted_evidence import hits_of

_CONFLICT = re.compile(
    UNHEEDED + r".*?(?:"
    r"RuntimeError: (?P<operator>operator torchvision::\w+ does not exist)"
    r"|ImportError: (?P<requirement>[^\s<>=!~]++ ?[<>=!~].*? is required for a normal functioning of this "
    r"module, but found .*)"
    r"|ImportError: (?P<name>cannot import name '\w+' from '(?:torch|torchvision|torchaudio)(?:\.[\w.]+)?')"
    r"|ImportError: (?P<other_name>cannot import name '\w+' from '[\w.]+') \(\S*(?:site|dist)-packages"
    r"|ImportError: (?P<broken_name>cannot import name '\w+' from '(?:transformers|diffusers|accelerate|peft"
    r"|datasets|tensorflow|numpy)(?:\.[\w.]+)?')(?: \(unknown location\)|$)"
    r"|^(?P<bare_name>cannot import name '\w+' from '[\w.]+')"
    r"|Error: (?P<abi>_ARRAY_API not found|numpy\.core\.multiarray failed to import)"
    r"|Error: (?P<cudnn>cuDNN version incompatibility)|Loaded runtime (?P<runtime>CuDNN library: [\d.]+(?: "
    r"\(compatibility version \d+\))? but source was compiled with:? [\d.]+)"
    r"|AttributeError: (?P<attribute>module '(?:torch|torchvision|torchaudio|torchtext|triton|numpy|scipy"
    r"|pandas|jax|jaxlib|ml_dtypes|flax|tensorflow|keras|transformers|accelerate|diffusers|peft"
    r"|PIL)(?:\.[\w.]+)?' has no attribute '\w+')"
    r"|Error: (?P<numpy>numpy\.\w+ size changed, may indicate binary incompatibility|Numpy is not available"
    r"|module compiled against A[BP]I version \S+ but this version of numpy is \S+|`np\.\w+` was removed in "
    r"the NumPy 2\.0 release)"
    r"|Error: (?P<used>\w+==\S+ is used but incompatible|This example requires a (?:minimum version"
    r"|source install)"
    r"|jaxlib (?:version \S+ is newer than and incompatible with jax|is version \S+ but this version of jax "
    r"requires).*)"
    r"|AttributeError: (?P<python>module '(?:collections|distutils|inspect|fractions|time)' has no attribute "
    r"'\w+')"
    r"|ImportError: (?P<moved>cannot import name '\w+' from 'collections')"
    r"|symbol lookup error: \S+: (?P<looked_up>undefined symbol: _Z\S+)"
    r"|TypeError: (?P<protobuf>Descriptors cannot (?:not )?be created directly)"
    r"|^(?P<components>Outdated (?:CUDA|cu[A-Z]\w+) installation found)"
    r"|(?:RuntimeError: |^)(?P<cuda>Detected that PyTorch and \w+ were compiled with different CUDA(?: "
    r"major)? versions)"
    r"|(?:ImportError|OSError): (?!.*torch_extensions)\S+\.so\S*: (?P<symbol>undefined symbol: _Z\S+)"
    r"|^(?!.*torch_extensions)\S+\.so\S*: (?P<bare_symbol>undefined symbol: _Z\S+)"
    r"|RuntimeError: (?P<operators>Couldn't load custom C\+\+ ops)"
    r"|Error: (?P<load>Due to a serious vulnerability issue in `torch\.load`.*?require users to upgrade "
    r"torch.*?)(?: in order|$)"
    r"|(?:Error|Value error)[:,] (?P<unknown>The checkpoint you are trying to load has model type \S+ but "
    r"Transformers does not recognize this architecture)"
    r"|ImportError: .*?(?P<flash>you need flash_attn package version to be greater or equal .*?Detected "
    r"version [\w.]+)"
    r"|TypeError: (?P<union>unsupported operand type\(s\) for \|: '(?:type|ABCMeta"
    r"|_\w*GenericAlias)' and '(?:type|NoneType|_\w*GenericAlias)')"
    r"|ImportError: (?P<upgrade>.*?\brequires (?:PyTorch|torch|[Pp]ython) [\d<>=v][\w.=]*)"
    r"|pkg_resources\.(?P<packages>(?:Contextual)?VersionConflict: .*)"
    r")"
)

_DISABLED = re.compile(r"(?P<disabled>Disabling PyTorch because PyTorch\s*>= ?\S+ is required but found \S+)")
"""transformers goes on without it, and says that there is none where a model is made."""

_FIELDS = (
    "operator",
    "requirement",
    "name",
    "other_name",
    "broken_name",
    "bare_name",
    "attribute",
    "numpy",
    "abi",
    "cudnn",
    "runtime",
    "protobuf",
    "cuda",
    "components",
    "packages",
    "symbol",
    "bare_symbol",
    "operators",
    "used",
    "python",
    "moved",
    "looked_up",
    "load",
    "unknown",
    "upgrade",
    "disabled",
    "flash",
    "union",
)


class VersionConflict(EndingRule):
    """Versions in the environment do not work together: mostly a torch that is too old for the program.

    What it sees
        "operator torchvision::nms does not exist" (torchvision built for another torch), "X is required for a
        normal functioning of this module, but found Y", names that torch, transformers, numpy or another
        installed package does not have, a changed `numpy.dtype`, "MMCV==… is used but incompatible"; a model
        type that the installed transformers does not know; as a cause of its own, torch and torchvision (or
        torch_scatter …) for different CUDA versions, a CUDA older than JAX needs, and a cuDNN other than
        torch or TensorFlow was built with; a package that was built against another torch (an undefined C++
        symbol). Or what the job's own first look found: a torch other than the recipe needs.
    Why it matters
        It does not run in this environment at all, and the message names the first name that was missed, not
        the version that would do.
    When it stays silent
        Where the program caught the error and went on; on warnings of pip.
    What to do
        Take an environment with the version that is needed: `coach recipes` says which torch a recipe needs,
        `--env` chooses. torchvision and torchaudio have to be of the release that belongs to torch: install
        the three in one command.
    Sources
        torchvision's table of compatible versions; transformers' dependency_versions_check; setuptools'
        pkg_resources.
    """

    code = "ENV016"
    name = "version-conflict"
    cause = "version_conflict"
    confidence = 0.85
    signatures = ending_signatures(
        "ENV016",
        ("version_conflict",),
        Signature(
            "ENV016",
            "conflict",
            (
                "operator torchvision::",
                "for a normal functioning",
                "cannot import name",
                "has no attribute",
                "VersionConflict",
                " size changed, may",
                "module compiled against A",
                "removed in the NumPy 2.0",
                "is used but incompatible",
                "This example requires a ",
                "jaxlib ",
                "Numpy is not available",
                "_ARRAY_API not found",
                "multiarray failed to import",
                "cuDNN version incompatibility",
                "but source was compiled with",
                "Descriptors cannot",
                "with different CUDA",
                " installation found",
                "undefined symbol: _Z",
                "load custom C++ ops",
                "vulnerability issue in `torch.load`",
                "does not recognize this architecture",
                "requires PyTorch ",
                "you need flash_attn package",
                "operand type(s) for |",
                "requires torch ",
                "requires Python ",
                "requires python ",
            ),
            _CONFLICT,
        ),
        Signature("ENV016", "disabled", ("Disabling PyTorch because",), _DISABLED),
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        if hit.signature == "disabled":
            return any(map(is_without_torch, hits_of(snapshot, "ENV007")))
        return "bare_name" not in hit.fields or is_below_a_failed_import(hit, snapshot)

    def cause_of(self, hit: LogHit) -> str | None:
        return (
            "cuda_version_mismatch"
            if hit.fields.keys() & {"cuda", "components", "cudnn", "runtime"}
            else None
        )

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        said = next((hit.fields[key] for key in _FIELDS if key in hit.fields), "")
        return f"Versions do not fit together: {said}" if said else "Versions do not fit together"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix(
            "Launch with an environment that has the version: --env NAME (coach recipes says which torch "
            "is needed)"
        )
        if hit is not None and "operator" in hit.fields:
            yield Fix("Install torch and torchvision together, so that they belong to one release")
