import math
import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.local.svg import HEIGHT, WIDTH, Curve, line_chart, nice_step

numbers = st.floats(0, 1e9, allow_nan=False)


@given(st.floats(1e-6, 1e12))
def test_four_steps_reach_the_largest_value_and_not_much_further(largest: float) -> None:
    step = nice_step(largest)
    assert largest * (1 - 1e-9) <= 4 * step <= 2.6 * largest
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert any(math.isclose(mantissa, nice) for nice in (1, 2, 2.5, 5))


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20))
def test_a_chart_is_well_formed_and_all_its_points_lie_in_it(points: list[tuple[float, float]]) -> None:
    svg = line_chart(Curve("P99 <ms>", tuple(points)), "in flight")
    tree = ElementTree.fromstring(svg)
    dots = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in tree.iter("circle")]
    assert len(dots) == len(points)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in dots)


def test_points_are_joined_from_left_to_right() -> None:
    svg = line_chart(Curve("t", ((4, 1), (1, 2), (2, 3))), "x")
    line = re.search(r'polyline points="([^"]+)"', svg)
    assert line
    across = [float(pair.split(",")[0]) for pair in line[1].split()]
    assert across == sorted(across)
