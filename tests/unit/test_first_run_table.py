"""kubectl makes each table as wide as its cells; lines of many tables stand below one head."""

from __future__ import annotations

from e2e.first_run import aligned

WAITING = """\
NAME   TARGET   MODE    READY   STAGE   SEQS   TOKENS   PROMISED   AGE
chat   chat     Apply                                              0s
"""
RAMP = """\
NAME   TARGET   MODE    READY   STAGE              SEQS   TOKENS   PROMISED   AGE
chat   chat     Apply   False   Ramp/warm-up-1-2                              18s
"""
TUNED = """\
NAME   TARGET   MODE    READY   STAGE          SEQS   TOKENS   PROMISED   AGE
chat   chat     Apply   True    BelowTheKnee   8      384      25.55      3m41s
"""


def test_lines_of_different_tables_have_their_cells_in_the_columns_of_one_head():
    head, tuned = aligned(TUNED)
    for table in (WAITING, RAMP):
        other, line = aligned(table)
        assert other == head
        assert line.split() == table.splitlines()[1].split()
        assert line[head.rindex("AGE") :] == line.split()[-1]
    assert tuned[head.index("SEQS") :].split() == ["8", "384", "25.55", "3m41s"]
    assert tuned[head.index("STAGE") :].startswith("BelowTheKnee ")
