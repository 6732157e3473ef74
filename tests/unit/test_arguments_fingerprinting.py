"""One fingerprint for every way of saying the same, another one for anything else."""

from __future__ import annotations

import pytest

from kneekeeper.domain.arguments import fingerprint_arguments


class TestFingerprint:
    def fingerprint(self, *words: str, env: dict[str, str] | None = None) -> str:
        return fingerprint_arguments(["vllm", "serve", "M"], list(words), env or {})

    def test_it_is_the_same_for_every_way_of_saying_the_same(self):
        first = self.fingerprint("--port=1", "--tensor-parallel-size=2", "--enable-lora")
        assert first == self.fingerprint("--enable_lora", "-tp", "2", "--port", "9", "--por", "1")
        assert first == fingerprint_arguments(
            ["python", "-m", "vllm.entrypoints.openai.api_server"],
            ["--model=M", "--port=$(P)", "-tp=2", "--enable-lora"],
            {"P": "1"},
        )

    @pytest.mark.parametrize(
        "words",
        [["--port=2"], ["--no-enable-lora"], ["--new"], ["--new=1"], ["--middleware=a"], ["-cc.mode", "3"]],
    )
    def test_it_changes_with_any_other_argument(self, words):
        assert self.fingerprint() != self.fingerprint(*words)

    def test_all_middleware_counts_since_vllm_keeps_every_one(self):
        assert self.fingerprint("--middleware=a", "--middleware=b") != self.fingerprint("--middleware=b")

    def test_a_new_key_is_no_new_engine(self):
        assert self.fingerprint("--api-key=a") == self.fingerprint("--api-key=b")
        assert self.fingerprint("--api-key=a") != self.fingerprint()

    def test_words_that_cannot_be_read_still_have_one(self):
        shell = ["sh", "-c", "eval vllm serve M --api-key a"]
        assert fingerprint_arguments(shell, None, {}) != fingerprint_arguments(["bash", *shell[1:]], None, {})
        other_key = ["sh", "-c", "eval vllm serve M --api-key b"]
        assert fingerprint_arguments(shell, None, {}) == fingerprint_arguments(other_key, None, {})
