"""Where a rule begins to speak. Frozen on one half of the simulated fleet, scored on the other (docs/diagnosis.md).

All are ratios or shares, so that they hold for any model and GPU. Rules compare them with an interval where
chance plays a part, so a healthy engine near a threshold is silent.
"""

from __future__ import annotations

LITTLE_LOAD_SHARE_OF_KNEE = 0.10
"""Concurrency below this share of the knee leaves nine tenths of the batch that the GPU could carry unused."""

POOL_DISPERSION = 0.15
"""Variance over mean of the concurrency. Open-loop arrivals give 1; at 12 readings less than 0.15 is chance once
in 20,000 (chi-squared with 11 degrees of freedom)."""

FEWEST_POOL_READINGS = 10

POOL_SHARE_OF_KNEE = 0.7
"""A pool of clients that brings the engine near its knee does not hold it back."""

HOST_SLOWDOWN = 1.3
"""Step time over what the run measured at the same batch."""

HOST_GPU_UTILIZATION = 0.7
"""A GPU that always has a batch and runs no kernel for 30% of the time waits for the host."""

API_DELAY_SHARE_OF_TTFT = 0.4
API_DELAY_LEAST_S = 0.1
"""TTFT outside of queue and prefill: the API process. A free one costs milliseconds."""

FULL_BATCH_SHARE = 0.9
"""Mean running over max_num_seqs from which on the limit holds requests back."""

FEWEST_WAITING = 1.0
"""Mean of the queue below which nobody waits to speak of."""

SMALL_LIMIT_SHARE_OF_KNEE = 0.5
"""A full batch below half of the knee gives away throughput; above, the queue is what the cap is for."""

PAST_KNEE = 1.15
"""Mean running over the knee."""

PLATEAU_SHARE = 0.75
"""Of the limit of throughput; at the knee it is 0.8 in theory, the run's fit is some percent off."""

QUEUE_SHARE_OF_TTFT = 0.5

QUEUE_GROWTH_SIGMAS = 3.0
"""Growth of the queue over the square root of the requests that ended: a stable queue wanders by about 1."""

FEWEST_QUEUE_GROWTH = 10.0

JITTER_STEPS = 4.0
"""A gap this many decode steps long is a stall that a reader sees."""

JITTER_SHARE = 0.01
"""P99: of all gaps."""

BUDGET_FULL_SHARE = 0.85
"""Tokens per step over the token budget."""

CONTRADICTION_TOKENS_PER_SEQUENCE = 2.0
"""A budget of fewer tokens a sequence leaves a full batch less than one prompt token for each decode."""

CONCURRENCY_RATIO = 1.5
LITTLE_GAIN_ELASTICITY = 0.25
"""ln(gain of throughput) / ln(gain of concurrency). At the knee it is 0.2, at half of the knee 0.33."""

LEAST_GAIN = 0.925
"""Throughput over the earlier one; below, it falls, which is another finding."""

TPOT_RATIO = 1.25

SAME_LENGTHS = 1.25
"""Ratio of mean lengths within which two windows have the same workload."""

FALL_SHARE = 0.9
FALL_CONCURRENCY_RATIO = 1.2

PREEMPTION_SHARE = 0.02
FEWEST_PREEMPTIONS = 3.0
KV_FULL_SHARE = 0.9

LONGER = 1.3
"""Mean length over the run's."""

HITS_LOST_SHARE = 0.10
BURSTIER = 2.5
"""Dispersion of what ends between two readings over the run's."""

FEWEST_INTERVALS = 12

SLO_MISS_SHARE = 0.01
MEAN_IS_FINE = 0.7
"""Mean over target."""

COARSE_BUCKET = 1.2
"""Upper over lower bound of the bucket that holds the target."""

FEWEST_FOR_P99 = 300

OUTSIDE_SHARE = 0.3
OUTSIDE_LEAST_S = 0.05
"""What clients wait for beyond the engine's own TTFT."""

IMBALANCE = 2.0
"""This replica's concurrency over the mean of the others."""

FEWEST_REQUESTS = 30
SINGLE_REQUEST_CONCURRENCY = 1.0
SHORT_OUTPUT_TOKENS = 4.0
