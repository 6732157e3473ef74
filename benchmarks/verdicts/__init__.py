"""Is a PASS worth its name? `python -m benchmarks.verdicts`.

Certification stages are simulated on five engines, of which two had no part in the making of the rule, and judged
by the product's own code. Each condition has a rate R, a share of the engine's saturation, and targets that are
exactly met at R in a run of a million requests. As the operator does, a stage for a claim about a rate offers 1.2
times that rate.

`false_pass`: the claim is about R itself, which is no better than the target: a PASS here is not deserved.
`power`: the claim is about 0.65 R; anything but a PASS within 3,000 requests counts against it.

Both are the worst condition's; `false_pass_pooled` and `power_pooled` count all stages alike. The conditions that come
out worst get more stages, so that the worst is not the unluckiest.

A second table tells which margin between the offered and the promised rate is needed when production turns out
slower or burstier than the certification. The last line is one JSON object.

- `engine`, `truth`: what is certified, and what is true of it in a long run.
- `stage`: one certification stage, judged.
- `conditions`: what is tried, and what it says of the rule.
- `margin`: the second table.
- `page`: the page of the docs.
"""
