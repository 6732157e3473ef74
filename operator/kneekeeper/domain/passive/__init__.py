"""What production alone tells of each replica: its knee, its capacity, and whether it stands out from its peers.

`history` is what was seen of one engine, `levels` and `knee` find its knee, `peers` compares replicas of one workload,
`one_setting` says what one set of arguments costs unlike replicas, `router` how unevenly requests reach them. Pure: no
probe, no clock. What it rests on and where it errs: docs/observed.md.
"""

from kneekeeper.domain.passive.history import EngineHistory
from kneekeeper.domain.passive.knee import KneePrior, NotObserved, PassiveKnee, passive_knee
from kneekeeper.domain.passive.levels import StepCurve

__all__ = ["EngineHistory", "KneePrior", "NotObserved", "PassiveKnee", "StepCurve", "passive_knee"]
