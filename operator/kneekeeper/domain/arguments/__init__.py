"""The command line of a vLLM container: read, rewritten and fingerprinted, never guessed.

The way of the words: `words` (where each stands, after the kubelet's expansion) → `program` (is this
vLLM?) → `scan` (flags and values, as argparse splits them) → `reading`, `rewriting` and `fingerprinting`.
What has no certain meaning ends as a `Refusal` that names the piece. A script (`shell`) and a config file are
other sources of the same words. Each character of a word knows the text that stands for it (`words.Glyph`), so
one way of `editing` serves all forms.
"""

from kneekeeper.domain.arguments.editing import VariableUse
from kneekeeper.domain.arguments.environment import Completeness, Content, Environment
from kneekeeper.domain.arguments.fingerprinting import fingerprint_arguments
from kneekeeper.domain.arguments.model import DEFAULT_PORT, EngineArguments, Scheme, SpeculativeDecoding, WrittenLimits
from kneekeeper.domain.arguments.program import ImageEntrypoint, entrypoint_of_image
from kneekeeper.domain.arguments.reading import read_engine_arguments, read_written_limits
from kneekeeper.domain.arguments.refusal import Refusal, RefusalReason
from kneekeeper.domain.arguments.rewriting import Rewrite, rewrite

__all__ = [
    "DEFAULT_PORT",
    "Completeness",
    "Content",
    "EngineArguments",
    "Environment",
    "ImageEntrypoint",
    "Refusal",
    "RefusalReason",
    "Rewrite",
    "Scheme",
    "SpeculativeDecoding",
    "VariableUse",
    "WrittenLimits",
    "entrypoint_of_image",
    "fingerprint_arguments",
    "read_engine_arguments",
    "read_written_limits",
    "rewrite",
]
