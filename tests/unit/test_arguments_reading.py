"""What a command line means: limits, model, switches, variables; and what is refused for having no certain meaning."""

from __future__ import annotations

import pytest

from kneekeeper.domain.arguments import EngineArguments, Refusal, RefusalReason, Scheme, read_engine_arguments
from kneekeeper.domain.arguments.expansion import expand
from kneekeeper.domain.arguments.numbers import parse_human_integer, parse_model_length


def read(*words: str, env: dict[str, str] | None = None) -> EngineArguments:
    """The arguments of `vllm serve M words…`."""
    result = read_engine_arguments(["vllm", "serve", "M"], list(words), env or {})
    assert isinstance(result, EngineArguments), result
    return result


def refusal(*words: str, env: dict[str, str] | None = None) -> Refusal:
    result = read_engine_arguments(["vllm", "serve", "M"], list(words), env or {})
    assert isinstance(result, Refusal), result
    return result


class TestReading:
    def test_without_flags_the_limits_are_vllms_defaults_and_the_name_is_the_model(self):
        arguments = read()
        assert arguments.max_num_seqs is None
        assert arguments.max_num_batched_tokens is None
        assert arguments.served_model_names == ("M",)
        assert (arguments.port, arguments.scheme, arguments.root_path) == (8000, Scheme.HTTP, "")
        assert arguments.chunked_prefill
        assert arguments.log_stats
        assert not arguments.api_key_required

    def test_the_last_of_several_occurrences_counts(self):
        assert read("--max-num-seqs=1", "--max_num_seqs", "2").max_num_seqs == 2

    @pytest.mark.parametrize("key", ["--max-num-seqs", "--max_num_seqs", "--max-num_seqs", "--max-num-se"])
    def test_separators_and_abbreviations_do_not_matter(self, key):
        assert read(f"{key}=7").max_num_seqs == 7
        assert read(key, "7").max_num_seqs == 7

    def test_an_abbreviation_of_another_flag_is_that_flag(self):
        assert read("--tensor=7").tensor_parallel_size == 7

    @pytest.mark.parametrize("key", ["--max-num", "--max-num-s", "--max", "--no-enable"])
    def test_an_abbreviation_that_is_not_unique_in_every_version_is_refused(self, key):
        refused = refusal(f"{key}=7")
        assert refused.reason == RefusalReason.AMBIGUOUS_FLAG
        assert key in refused.piece

    def test_token_budgets_may_be_human_readable_but_sequences_may_not(self):
        assert read("--max-num-batched-tokens=8k").max_num_batched_tokens == 8000
        assert read("--max-num-batched-tokens=8K").max_num_batched_tokens == 8192
        assert read("--max-num-batched-tokens", "8_192").max_num_batched_tokens == 8192
        assert refusal("--max-num-seqs=1K").reason == RefusalReason.INVALID_VALUE

    @pytest.mark.parametrize("value", ["", "abc", "0", "-5", "1.5", "64 --port=9"])
    def test_a_limit_that_is_no_positive_number_is_refused(self, value):
        assert refusal(f"--max-num-seqs={value}").reason == RefusalReason.INVALID_VALUE

    def test_an_invalid_earlier_occurrence_is_refused_as_argparse_does(self):
        assert refusal("--max-num-seqs=x", "--max-num-seqs=4").reason == RefusalReason.INVALID_VALUE

    def test_several_served_names_and_a_following_flag(self):
        arguments = read("--served-model-name", "a", "b", "--port", "9000")
        assert arguments.served_model_names == ("a", "b")
        assert arguments.port == 9000

    @pytest.mark.parametrize(
        ("words", "on"),
        [
            (["--no-enable-chunked-prefill"], False),
            (["--enable-chunked-prefill"], True),
            (["--enable-chunked-prefill=False"], False),
            (["--enable-chunked-prefill", "False"], False),
            (["--enable_chunked_prefill", "true"], True),
            (["--no-enable-chunked-prefill", "--enable-chunked-prefill"], True),
        ],
    )
    def test_chunked_prefill_in_the_forms_of_old_and_new_versions(self, words, on):
        assert read(*words).chunked_prefill is on

    def test_a_switch_with_a_strange_value_is_refused(self):
        assert refusal("--enable-lora=maybe").reason == RefusalReason.INVALID_VALUE

    @pytest.mark.parametrize(("text", "length"), [("auto", None), ("-1", None), ("32k", 32000), ("4096", 4096)])
    def test_model_length(self, text, length):
        assert read("--max-model-len", text).max_model_len == length

    def test_speculation_from_json_from_single_keys_and_from_own_flags(self):
        as_json = read('--speculative-config={"method":"eagle","num_speculative_tokens":3}').speculative
        by_keys = read("-sc.method", "eagle", "--speculative-config.num_speculative_tokens=3").speculative
        by_flags = read("--spec-method", "eagle", "--spec-tokens", "3").speculative
        assert as_json == by_keys == by_flags
        assert as_json is not None
        assert (as_json.method, as_json.num_speculative_tokens) == ("eagle", 3)

    def test_a_speculative_config_that_is_no_json_object_is_refused(self):
        assert refusal("--speculative-config=eagle").reason == RefusalReason.INVALID_VALUE

    def test_certificates_mean_https(self):
        assert read("--ssl-certfile=/c", "--ssl-keyfile=/k").scheme is Scheme.HTTPS

    @pytest.mark.parametrize(
        ("words", "env"),
        [
            (["--api-key", "very-secret"], {}),
            (["--api-key=very-secret"], {}),
            (["--api-key", "$(KEY)", "$(OTHER)"], {}),
            (["--api-key=$(KEY)"], {"KEY": "very-secret"}),
            ([], {"VLLM_API_KEY": "very-secret"}),
        ],
    )
    def test_an_api_key_is_noticed_and_never_shown(self, words, env):
        arguments = read(*words, env=env)
        assert arguments.api_key_required
        assert "very-secret" not in repr(arguments)

    def test_an_empty_api_key_is_none(self):
        assert not read("--api-key", "").api_key_required

    @pytest.mark.parametrize(
        "words",
        [["--runner", "pooling"], ["--runner=pooling"], ["--task=embed"], ["--task", "score"], ["--convert=classify"]],
    )
    def test_a_pooling_model_is_refused(self, words):
        assert refusal(*words).reason == RefusalReason.POOLING_MODEL

    @pytest.mark.parametrize("words", [["--headless"], ["--grpc"], ["--uds", "/run/vllm.sock"]])
    def test_an_engine_without_its_own_http_port_is_refused(self, words):
        assert refusal(*words).reason == RefusalReason.NO_HTTP_SERVER

    @pytest.mark.parametrize("words", [["--config", "/c.yaml"], ["--config", "/c.yaml", "--port", "1"]])
    def test_a_config_file_that_is_not_at_hand_is_refused(self, words):
        assert refusal(*words).reason == RefusalReason.CONFIG_FILE

    def test_unknown_flags_are_kept_and_named(self):
        arguments = read("--brand-new=1", "--other-new", "value", "--max-num-seqs=4", "-zz")
        assert arguments.unknown_flags == ("--brand-new", "--other-new", "-zz")
        assert arguments.max_num_seqs == 4

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            (["--max-num-seqs"], RefusalReason.MISSING_VALUE),
            (["--max-num-seqs", "--port", "1"], RefusalReason.MISSING_VALUE),
            (["--port"], RefusalReason.MISSING_VALUE),
            (["-tp.x"], RefusalReason.MISSING_VALUE),
            (["--enforce-eager --max-num-seqs 4"], RefusalReason.NOT_UNDERSTOOD),
            (["--max-num-seqs 4"], RefusalReason.NOT_UNDERSTOOD),
            (["--", "x"], RefusalReason.NOT_UNDERSTOOD),
            (["stray"], RefusalReason.NOT_UNDERSTOOD),
            (["--max-num-seqs.x=4"], RefusalReason.NOT_UNDERSTOOD),
            (["--max_num_seqs.x", "4"], RefusalReason.NOT_UNDERSTOOD),
        ],
    )
    def test_what_has_no_certain_meaning_is_refused(self, words, reason):
        assert refusal(*words).reason == reason


class TestModel:
    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            (["vllm", "serve"], RefusalReason.MODEL_UNKNOWN),
            (["vllm", "serve", "--brand-new", "x"], RefusalReason.MODEL_UNKNOWN),
            (["vllm", "serve", "--model=a", "--model=b"], RefusalReason.MODEL_UNKNOWN),
            (["vllm", "serve", "a", "--model=b"], RefusalReason.NOT_UNDERSTOOD),
            (["python", "-m", "vllm.entrypoints.openai.api_server", "a"], RefusalReason.NOT_UNDERSTOOD),
            (["vllm", "serve", "models/$(NAME)"], RefusalReason.UNRESOLVED_VARIABLE),
        ],
    )
    def test_a_model_that_is_not_certain_is_refused(self, words, reason):
        result = read_engine_arguments(words, None, {})
        assert isinstance(result, Refusal)
        assert result.reason == reason

    def test_the_model_may_stand_behind_flags_and_beside_an_unknown_flags_value(self):
        result = read_engine_arguments(["vllm", "serve", "--enforce-eager", "M", "--new", "x"], None, {})
        assert isinstance(result, EngineArguments)
        assert result.model == "M"

    def test_of_several_models_of_the_module_form_the_last_counts(self):
        words = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model=a", "--model=b"]
        result = read_engine_arguments(words, None, {})
        assert isinstance(result, EngineArguments)
        assert result.model == "b"


class TestVariables:
    @pytest.mark.parametrize(
        ("raw", "text", "unresolved"),
        [
            ("$(A)", "1", ()),
            ("x$(A)y$(A)", "x1y1", ()),
            ("$$(A)", "$(A)", ()),
            ("$$$(A)", "$1", ()),
            ("$(B)", "$(B)", ("B",)),
            ("$A ${A} $( $", "$A ${A} $( $", ()),
            ("$(A", "$(A", ()),
            ("$()", "$()", ("",)),
        ],
    )
    def test_they_are_expanded_as_the_kubelet_does(self, raw, text, unresolved):
        expanded = expand(raw, {"A": "1"})
        assert (expanded.text, expanded.unresolved) == (text, unresolved)

    def test_a_limit_and_even_its_flag_may_come_from_a_variable(self):
        env = {"N": "12", "FLAG": "--max-num-batched-tokens=8k"}
        arguments = read("--max-num-seqs=$(N)", "$(FLAG)", env=env)
        assert (arguments.max_num_seqs, arguments.max_num_batched_tokens) == (12, 8000)

    @pytest.mark.parametrize(
        "words",
        [
            ["--max-num-seqs=$(N)"],
            ["--max-num-seqs", "$(N)"],
            ["--max-model-len=$(N)"],
            ["--served-model-name", "a", "$(N)"],
            ["$(N)"],
            ["--enforce-eager", "$(N)"],
            ["--$(N)=4"],
        ],
    )
    def test_an_unknown_variable_where_its_value_matters_is_refused_by_name(self, words):
        refused = refusal(*words)
        assert refused.reason == RefusalReason.UNRESOLVED_VARIABLE
        assert "N" in refused.message

    def test_an_unknown_variable_in_a_value_that_does_not_matter_is_left_alone(self):
        assert read("--download-dir=$(CACHE)", "--tool-call-parser", "$(P)").model == "M"


class TestRefusals:
    def test_a_refusal_names_a_short_piece_and_ends_with_a_next_step(self):
        refused = refusal("--max-num-seqs=" + "9" * 500 + "x")
        assert len(refused.piece) <= 80
        assert refused.message.endswith("Correct the value.")

    def test_a_refusal_shows_no_secret(self):
        refused = read_engine_arguments(["vllm", "serve", "M", "--port=x --api-key very-secret"], None, {})
        assert isinstance(refused, Refusal)
        assert "very-secret" not in refused.message


def test_human_readable_integers():
    assert parse_human_integer("25.6k") == 25600
    assert parse_human_integer("1M") == 1 << 20
    with pytest.raises(ValueError, match=r"1\.5"):
        parse_human_integer("1.5K")
    assert parse_model_length("AUTO") is None
