"""The twin: what vLLM's V1 engine would do with a workload, without running it.

`simulate` serves given requests under given limits and a given step-time law; `surface` asks each setting of a grid
for the highest rate that meets targets. Pure and deterministic: the same input gives the same numbers. The kernel is
compiled by numba and cached on disk where NUMBA_CACHE_DIR points to.

Numba takes a function of its cache for unchanged as long as the function's own file is, whatever became of those that
it calls. So the kernel is one file, though a long one; after a change of `law.step_duration_s` empty the cache.
"""

from kneekeeper.domain.twin.law import Law, log_normal_noise
from kneekeeper.domain.twin.simulate import Load, Step, TwinError, TwinLimits, TwinResult, simulate

__all__ = ["Law", "Load", "Step", "TwinError", "TwinLimits", "TwinResult", "log_normal_noise", "simulate"]
