from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.stage import Endpoint
from kneekeeper.domain.prompts import Prompt, PromptError, read_prompts, summarise_prompts

SECRET = "my salary is"


def test_texts_are_completed_and_messages_are_chats():
    text, chat = read_prompts(['{"text": "Hello"}\n', "\n", '{"messages": [{"role": "user", "content": "Hi"}]}'])
    assert (text.endpoint, text.field) == (Endpoint.COMPLETIONS, {"prompt": "Hello"})
    assert (chat.endpoint, chat.field) == (Endpoint.CHAT, {"messages": [{"role": "user", "content": "Hi"}]})


@pytest.mark.parametrize(
    ("line", "column", "why"),
    [
        (f'{{"text": "{SECRET}"', 24, "not JSON"),
        (f'{{"text": "{SECRET}", "messages": []}}', 1, "either"),
        (f'["{SECRET}"]', 1, "not an object"),
        (f'{{"note": 1, "text": ["{SECRET}"]}}', 13, "not a text"),
        ('{"text": ""}', 2, "at least one character"),
        (f'{{"messages": "{SECRET}"}}', 2, "list of objects"),
        (f'{{"messages": [{{"content": "{SECRET}"}}]}}', 2, "'role' and 'content'"),
        ('{"messages": []}', 2, "list of objects"),
    ],
)
def test_an_error_names_line_and_column_and_no_word_of_the_prompt(line, column, why):
    with pytest.raises(PromptError, match=why) as caught:
        list(read_prompts(['{"text": "fine"}\n', line]))
    assert (caught.value.line, caught.value.column) == (2, column)
    assert "salary" not in str(caught.value)


def test_a_file_without_a_prompt_is_an_error():
    with pytest.raises(PromptError, match="no prompt"):
        list(read_prompts(["\n", " \n"]))


def test_a_prompt_gets_into_no_log():
    assert SECRET not in f"{Prompt(SECRET)!r} {Prompt(SECRET)} {[Prompt(SECRET)]}"


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=20))
def test_any_text_comes_back_as_it_was_and_is_only_counted(texts):
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    assert [prompt.content for prompt in read_prompts(lines)] == texts
    report = summarise_prompts(lines)
    assert report.prompts == len(texts)
    assert report.longest_bytes == max(len(line) for line in lines)


@given(st.lists(st.text(max_size=30), max_size=5))
def test_garbage_is_a_prompt_error_and_nothing_else(garbage):
    with contextlib.suppress(PromptError):
        list(read_prompts(garbage))
