"""`make bench-day`: a day with two traffic mixes, served with one setting and with one for each mix's hours.

By day people chat, by night nobody waits: a batch runs, under targets of its own. Engine and laws are those of
`benchmarks.tuner.engines`, which are not the fit's. The two settings are what the product's own run certifies for each
mix; the single one is the best of a grid for this very day, which nobody could know before. The busiest moment of each
mix asks for the rate that was certified for it. What is carried is the largest multiple of the day's rates at which at
most 1% of each mix miss their targets.

- `cases`: which mixes, targets and engines.
- `requests`: the day's arrivals.
- `serving`: what becomes of them under one setting, or two.
- `__main__`: tables, page, and one JSON object as the last line.
"""
