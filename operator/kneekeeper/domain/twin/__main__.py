"""`python -m kneekeeper.domain.twin`: compile the kernel, so that its machine code is in numba's cache."""

import numpy as np

from kneekeeper.domain.twin import Law, Load, TwinLimits, simulate

if __name__ == "__main__":
    one = np.ones(1, dtype=np.int64)
    simulate(Load(np.zeros(1), one, one), TwinLimits(1, 1, 1), Law(base_s=1.0))
