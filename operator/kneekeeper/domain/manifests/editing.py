"""Writes changed values into a YAML text. Every step is proven by reading the text again."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from kneekeeper.domain.manifests.rendering import Style, render, style_of
from kneekeeper.domain.manifests.source import (
    VALUE_LOADER,
    YAML_ERRORS,
    ManifestFile,
    ManifestObject,
    Place,
    Positions,
    what_is_wrong,
)
from kneekeeper.domain.manifests.values import (
    Change,
    NoStepError,
    Path,
    Step,
    next_step,
    path_text,
    value_at,
    with_changes,
    with_step,
)

MAX_STEPS = 64  # of one set of changes
_TOKEN = re.compile(r"\s+|\S+")
_CONTEXT_CHARACTERS = (32, 8, 1)


class EditRefusedError(ValueError):
    """The text cannot be changed without changing something else; the message says where."""


def apply_changes(file: ManifestFile, target: ManifestObject, changes: Sequence[Change]) -> str:
    """The file's text with `changes` (paths within the object) made to one object. Raises EditRefusedError."""
    moved = [Change((*target.path, *change.path), change.value) for change in changes]
    return _edit(file.text, file.documents, target.document, moved)


def edit_text(text: str, changes: Sequence[Change]) -> str:
    """The text of one YAML document with `changes`. Raises EditRefusedError, and yaml.YAMLError for no YAML."""
    return _edit(text, tuple(yaml.load_all(text, Loader=VALUE_LOADER)), 0, changes)


def _edit(text: str, documents: Sequence[Any], document: int, changes: Sequence[Change]) -> str:
    try:
        goal = list(documents)
        goal[document] = with_changes(documents[document], changes)
        present = list(documents)
        for _ in range(MAX_STEPS):
            step = next_step(present[document], goal[document])
            if step is None:
                return text
            text, present = _take(text, present, document, step, goal[document])
    except NoStepError as error:
        raise EditRefusedError(f"The change at {error} is no change of single values.") from error
    raise EditRefusedError("The change is too large for an edit of single values.")


def _take(text: str, present: list[Any], document: int, step: Step, goal: Any) -> tuple[str, list[Any]]:
    """One step; of a changed text, one place only. Raises EditRefusedError where no edit does exactly this."""
    old = value_at(present[document], step.path)
    step, place_of_text = _first_place(step, old)
    try:
        positions = Positions.of(text)
    except YAML_ERRORS as error:  # read by libyaml, but not by the Python parser
        raise EditRefusedError(
            f"The text has no certain positions{what_is_wrong(error)}. Write it in plain YAML."
        ) from error
    for candidate, wanted in _candidates(text, positions, document, step, old, goal, place_of_text):
        expected = [*present[:document], with_step(present[document], wanted), *present[document + 1 :]]
        if _loads_as(candidate, expected):
            return candidate, expected
    raise EditRefusedError(
        f"{path_text(step.path, present[document])} cannot be changed alone. "
        "Where a YAML anchor or a merged mapping is shared, write its values out."
    )


def _loads_as(text: str, expected: list[Any]) -> bool:
    try:
        return list(yaml.load_all(text, Loader=VALUE_LOADER)) == expected
    except YAML_ERRORS:
        return False


Splice = tuple[int, int, str]


def _first_place(step: Step, old: Any) -> tuple[Step, Splice | None]:
    """Of a text that changes at several places, the first one alone."""
    if not (step.exists and isinstance(old, str) and isinstance(step.value, str)):
        return step, None
    before, after = _TOKEN.findall(old), _TOKEN.findall(step.value)
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            start, end = len("".join(before[:a])), len("".join(before[:b]))
            new = "".join(after[c:d])
            start, end, new = _trimmed(old, start, end, new)
            return Step(step.path, old[:start] + new + old[end:], exists=True), (start, end, new)
    return step, None


def _trimmed(old: str, start: int, end: int, new: str) -> Splice:
    """Without what is equal at both ends, such as quotes."""
    while start < end and new and old[start] == new[0]:
        start, new = start + 1, new[1:]
    while start < end and new and old[end - 1] == new[-1]:
        end, new = end - 1, new[:-1]
    if start == end > 0 and new.endswith("\n") and old[start - 1] == "\n":  # whole lines: behind the line before them
        return start - 1, end - 1, f"\n{new[:-1]}"
    return start, end, new


def _candidates(
    text: str, positions: Positions, document: int, step: Step, old: Any, goal: Any, splice: Splice | None
) -> Iterator[tuple[str, Step]]:
    """Texts that may hold the step, most faithful first, and what each is meant to hold."""
    place = positions.root(document)
    for depth, key in enumerate(step.path):
        if depth == len(step.path) - 1 and not step.exists:
            yield from _additions(text, positions, place, key, step)
            return
        child = positions.child(place, key)
        here: Path = step.path[: depth + 1]
        whole = Step(here, value_at(goal, here), exists=True)
        if child is None:  # from a merged mapping: written out here, which beats it
            yield from _additions(text, positions, place, key, whole)
            return
        if child.is_alias:
            yield text[: child.start] + render(whole.value, Style.PLAIN) + text[child.end :], whole
            return
        place = child
    raw = text[place.start : place.end]
    if splice is not None:
        assert isinstance(old, str)  # only texts are spliced
        if isinstance(place.node, yaml.ScalarNode) and place.node.style == "|":
            splice = (*splice[:2], splice[2].replace("\n", _line_start(raw, old)))
        for edited in _spliced(raw, old, splice):
            yield text[: place.start] + edited + text[place.end :], step
    if isinstance(place.node, yaml.ScalarNode) and place.node.style in ("|", ">"):
        return
    gap = " " if place.start == place.end else ""  # `key:` without a value
    for style in dict.fromkeys((style_of(place.node), Style.PLAIN, Style.DOUBLE)):
        yield text[: place.start] + gap + render(step.value, style) + text[place.end :], step


def _line_start(raw: str, old: str) -> str:
    """The end of a line of a literal block, and what stands before the text of the next one."""
    written = next((line for line in raw.split("\n")[1:] if line.strip()), "")
    read = next((line for line in old.split("\n") if line.strip()), "")
    newline = "\r\n" if "\r\n" in raw else "\n"
    return newline + " " * (_leading(written) - _leading(read))


def _leading(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _spliced(raw: str, old: str, splice: Splice) -> Iterator[str]:
    """The written form with the splice at each place that looks like it, the likeliest first."""
    start, end, new = splice
    if start < end:
        yield from (raw[:at] + new + raw[at + end - start :] for at in _likely(raw, old, old[start:end], start))
        return
    for length in _CONTEXT_CHARACTERS:
        context = old[max(0, start - length) : start]
        at = max(context.rfind(blank) for blank in " \n\t") + 1
        context = context[at:]
        if context:
            found = _likely(raw, old, context, start - len(context))
            yield from (raw[: at + len(context)] + new + raw[at + len(context) :] for at in found)


def _likely(raw: str, old: str, piece: str, at: int) -> list[int]:
    places = [found.start() for found in re.finditer(re.escape(piece), raw)]
    rank = len(re.findall(re.escape(piece), old[:at]))
    return sorted(places, key=lambda place: abs(places.index(place) - rank))


def _additions(
    text: str, positions: Positions, parent: Place, key: str | int, step: Step
) -> Iterator[tuple[str, Step]]:
    """A new item or key behind the last one of `parent`."""
    node = parent.node
    last = positions.last_child(parent)
    if isinstance(node, yaml.MappingNode):
        key_style = style_of(node.value[-1][0]) if node.value else Style.PLAIN
        new = f"{render(key, key_style)}: {render(step.value, _string_style(node, key_style))}"
    elif isinstance(node, yaml.SequenceNode):
        new = render(step.value, style_of(last.node if last else None))
    else:
        return
    if last is None:  # {} or []
        yield text[: parent.end - 1] + new + text[parent.end - 1 :], step
    elif node.flow_style:
        end = _end(positions, last)
        first = node.value[-1][0].start_mark.index if isinstance(node, yaml.MappingNode) else last.start
        line_start = text.rfind("\n", 0, first) + 1
        lead = text[line_start:first]
        separator = f",\n{lead}" if line_start and not lead.strip() else ", "
        yield text[:end] + separator + new + text[end:], step
    else:
        column, mark = _column(text, node)
        yield _with_line(text, _end(positions, last), " " * column + mark + new), step


def _string_style(node: yaml.MappingNode, key_style: Style) -> Style:
    return Style.DOUBLE if key_style is Style.DOUBLE else Style.PLAIN


def _column(text: str, node: yaml.CollectionNode) -> tuple[int, str]:
    """Where lines of a block collection begin, and what they begin with."""
    if isinstance(node, yaml.MappingNode):
        return node.value[0][0].start_mark.column, ""
    first = node.value[0].start_mark
    line = text[first.index - first.column : first.index]
    dash = line.rfind("-")
    return (dash, line[dash:]) if dash >= 0 else (0, "- ")


def _end(positions: Positions, place: Place) -> int:
    """Behind the last character of a value."""
    if place.is_alias or not isinstance(place.node, yaml.CollectionNode) or place.node.flow_style:
        return place.end
    last = positions.last_child(place)
    return place.end if last is None else _end(positions, last)


def _with_line(text: str, end: int, line: str) -> str:
    """`line` below the line that ends at or behind `end`."""
    if end and text[end - 1] == "\n":  # behind a block of text
        return text[:end] + line + "\n" + text[end:]
    stop = text.find("\n", end)
    if stop < 0:
        return text + "\n" + line
    newline = "\r\n" if text[stop - 1] == "\r" else "\n"
    stop -= len(newline) - 1
    return text[:stop] + newline + line + text[stop:]
