from e2e.realvllm.exposition import differences, shape_of

BODY = """\
# HELP vllm:waiting Requests.
# TYPE vllm:waiting gauge
vllm:waiting{engine="0",reason="capacity"} 1.0
# HELP vllm:ttft_seconds Time.
# TYPE vllm:ttft_seconds histogram
vllm:ttft_seconds_bucket{engine="0",le="0.1"} 1.0
vllm:ttft_seconds_bucket{engine="0",le="+Inf"} 2.0
vllm:ttft_seconds_count{engine="0"} 2.0
vllm:ttft_seconds_sum{engine="0"} 0.3
# HELP vllm:tokens_total Tokens.
# TYPE vllm:tokens_total counter
vllm:tokens_total{engine="0"} 5.0
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds 12.0
"""


def test_a_shape_holds_exposed_names_of_the_prefix_alone():
    assert set(shape_of(BODY)) == {"vllm:waiting", "vllm:ttft_seconds", "vllm:tokens_total"}


def test_values_are_no_part_of_the_shape():
    assert differences(shape_of(BODY), shape_of(BODY.replace(" 5.0", " 9.0"))) == ()


def test_another_bucket_bound_is_told():
    (told,) = differences(shape_of(BODY), shape_of(BODY.replace('le="0.1"', 'le="0.2"')))
    assert told == "vllm:ttft_seconds has buckets (0.2, inf), expected (0.1, inf)"


def test_another_value_of_an_enumerating_label_is_told():
    (told,) = differences(shape_of(BODY), shape_of(BODY.replace("capacity", "deferred")))
    assert told == "vllm:waiting has values ['reason=deferred'], expected ['reason=capacity']"


def test_another_type_is_told():
    (told,) = differences(shape_of(BODY), shape_of(BODY.replace("waiting gauge", "waiting unknown")))
    assert told == "vllm:waiting is a unknown, expected a gauge"


def test_a_renamed_label_is_told():
    (told,) = differences(shape_of(BODY), shape_of(BODY.replace("tokens_total{engine=", "tokens_total{rank=")))
    assert told == "vllm:tokens_total has labels ['rank'], expected ['engine']"


def test_a_missing_and_a_new_family_are_told():
    renamed = BODY.replace("vllm:waiting", "vllm:queued")
    assert differences(shape_of(BODY), shape_of(renamed)) == (
        "vllm:waiting is missing",
        "vllm:queued is not in the expected body",
    )
