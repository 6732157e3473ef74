"""The two limits written into a command line, and nothing else of it touched."""

from __future__ import annotations

import pytest

from kneekeeper.domain.arguments import Refusal, RefusalReason, Rewrite, rewrite


def written(
    command: list[str] | None,
    args: list[str] | None,
    env: dict[str, str] | None = None,
    served_max_model_len: int | None = None,
) -> Rewrite | Refusal:
    return rewrite(
        command,
        args,
        env or {},
        max_num_seqs=64,
        max_num_batched_tokens=4096,
        served_max_model_len=served_max_model_len,
    )


class TestRewriting:
    def test_absent_flags_are_appended_to_args_and_without_args_to_the_command(self):
        new = ["--max-num-seqs=64", "--max-num-batched-tokens=4096"]
        assert written(["vllm", "serve", "M"], None) == Rewrite(["vllm", "serve", "M", *new], None)
        assert written(["vllm", "serve"], ["M"]) == Rewrite(["vllm", "serve"], ["M", *new])
        assert written(["vllm", "serve", "M"], []) == Rewrite(["vllm", "serve", "M", *new], [])

    def test_spelling_and_form_are_kept_and_abbreviations_written_out(self):
        assert written(["vllm", "serve", "M", "--max_num_se=8"], ["--max-num-b", "8k"]) == Rewrite(
            ["vllm", "serve", "M", "--max_num_seqs=64"], ["--max-num-batched-tokens", "4096"]
        )

    def test_a_number_that_is_already_right_keeps_its_spelling(self):
        words = ["vllm", "serve", "M", "--max-num-seqs=064", "--max-num-batched-tokens=4K"]
        assert written(words, None) == Rewrite(words, None)

    def test_variables_are_replaced_by_the_number_even_when_they_have_it_already(self):
        env = {"N": "64", "T": "--max-num-batched-tokens=1"}
        assert written(["vllm", "serve", "M"], ["--max-num-seqs", "$(N)", "$(T)"], env) == Rewrite(
            ["vllm", "serve", "M"], ["--max-num-seqs", "64", "--max-num-batched-tokens=4096"], silenced=("N", "T")
        )

    def test_equal_words_elsewhere_are_not_touched(self):
        result = written(["vllm", "serve", "32"], ["--seed", "32", "--max-num-seqs", "32", "--port", "32"])
        assert isinstance(result, Rewrite)
        assert result.args is not None
        assert result.args[:6] == ["--seed", "32", "--max-num-seqs", "64", "--port", "32"]

    @pytest.mark.parametrize(
        ("words", "hint"),
        [
            (["--no-enable-chunked-prefill", "--max-model-len=8192"], "max_model_len"),
            (["--no-enable-chunked-prefill"], "max_model_len"),
            (["--max-num-active-seqs=100"], "--max-num-active-seqs"),
            (["--disable-chunked-mm-input", "--max-num-batched-tokens=8192"], "multimodal"),
            (['--speculative-config={"num_speculative_tokens":64}'], "num_speculative_tokens"),
            (["--spec-method=eagle"], "num_speculative_tokens"),
        ],
    )
    def test_limits_that_vllm_would_reject_are_refused_before_any_write(self, words, hint):
        result = written(["vllm", "serve", "M"], words)
        assert isinstance(result, Refusal)
        assert result.reason == RefusalReason.LIMITS_REJECTED
        assert hint in result.message

    def test_fewer_tokens_than_sequences_are_refused(self):
        result = rewrite(["vllm", "serve", "M"], None, {}, max_num_seqs=64, max_num_batched_tokens=63)
        assert isinstance(result, Refusal)
        assert result.reason == RefusalReason.LIMITS_REJECTED

    def test_a_served_model_length_decides_where_the_arguments_do_not_say_it(self):
        words = ["--no-enable-chunked-prefill"]
        assert isinstance(written(["vllm", "serve", "M"], words, served_max_model_len=2048), Rewrite)
        assert isinstance(written(["vllm", "serve", "M"], words, served_max_model_len=8192), Refusal)

    def test_what_cannot_be_read_is_not_rewritten(self):
        assert isinstance(written(["sh", "-c", "vllm serve M --max-num-seqs $N"], None), Refusal)
