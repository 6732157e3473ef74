"""The command line of a vLLM container: read, rewritten and fingerprinted, never guessed.

The way of the words: `words` (where each stands, after the kubelet's expansion) → `program` (is this
vLLM?) → `scan` (flags and values, as argparse splits them) → `reading`, `rewriting` and `fingerprinting`.
What has no certain meaning ends as a `Refusal` that names the piece. Another form of command line (a shell
text, a config file) is another source of words and another way to put them back.
"""

from kneekeeper.domain.arguments.fingerprinting import fingerprint_arguments
from kneekeeper.domain.arguments.model import DEFAULT_PORT, EngineArguments, Scheme, SpeculativeDecoding
from kneekeeper.domain.arguments.program import ImageEntrypoint, entrypoint_of_image
from kneekeeper.domain.arguments.reading import read_engine_arguments
from kneekeeper.domain.arguments.refusal import Refusal, RefusalReason
from kneekeeper.domain.arguments.rewriting import Rewrite, rewrite

__all__ = [
    "DEFAULT_PORT",
    "EngineArguments",
    "ImageEntrypoint",
    "Refusal",
    "RefusalReason",
    "Rewrite",
    "Scheme",
    "SpeculativeDecoding",
    "entrypoint_of_image",
    "fingerprint_arguments",
    "read_engine_arguments",
    "rewrite",
]
