"""Where a part of a word can be edited, and the container's texts while they are edited."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kneekeeper.domain.arguments.environment import Environment, environment_of
from kneekeeper.domain.arguments.refusal import RefusalReason, RefusedError
from kneekeeper.domain.arguments.words import EnvValue, Expander, Glyph, Item, Reference, Span, Word, WordList


class VariableUse(StrEnum):
    """What may be done with a variable that a shell script names."""

    KEEP = "Keep"  # only the container's words are written
    SET = "Set"  # its value in the container's env may be written, where it serves this one flag only
    SET_KUBELETS = "SetKubelets"  # the same, also of a literal that the kubelet puts in the place of $(NAME)


@dataclass(frozen=True)
class Target:
    """A span of a text, or the whole value of a variable; `before` and `behind` are written with the new text."""

    place: Span | EnvValue
    before: str = ""
    behind: str = ""


class Texts:
    """Command, args and literal variables of a container, and the edits that were asked for."""

    def __init__(
        self, command: Sequence[str] | None, args: Sequence[str] | None, env: Mapping[str, str], use: VariableUse
    ) -> None:
        self._lists = {
            WordList.COMMAND: None if command is None else list(command),
            WordList.ARGS: None if args is None else list(args),
        }
        self._given = environment_of(env)
        self._use = use
        self._edits: dict[Item | EnvValue, dict[tuple[int, int], str]] = {}
        self._set: dict[str, str] = {}
        self._appended: tuple[WordList, list[str]] | None = None
        self.silenced: tuple[str, ...] = ()

    def put(self, target: Target, text: str) -> None:
        """Write `text` there."""
        if isinstance(target.place, Span):
            span = target.place
            self._edits.setdefault(span.place, {})[span.start, span.end] = target.before + text + target.behind
        else:
            self._set[target.place.name] = text

    def silence(self, name: str) -> None:
        self.silenced = tuple(dict.fromkeys((*self.silenced, name)))

    def append(self, end: WordList | Span, words: Sequence[str]) -> None:
        """Write words behind the last one of the engine."""
        if isinstance(end, WordList):
            self._appended = (end, list(words))
        elif words:
            self.put(Target(end), "".join(f" {word}" for word in words))

    def list_of(self, source: WordList) -> list[str] | None:
        """The list with its edits."""
        items = self._lists[source]
        if items is None:
            return None
        edited = [self._edited(Item(source, index), text) for index, text in enumerate(items)]
        return [*edited, *(self._appended[1] if self._appended and self._appended[0] is source else ())]

    @property
    def env(self) -> Mapping[str, str]:
        """The variables that change, with their new values."""
        places = [place for place in self._edits if isinstance(place, EnvValue)]
        written = {**{p.name: self._edited(p, self._given[p.name]) for p in places}, **self._set}
        return {name: text for name, text in written.items() if self._given.get(name) != text}

    def whole_env(self) -> Environment:
        given = self._given
        return Environment({**given, **self.env}, given.unknown, given.completeness, given.fixed)

    def may_set(self, name: str) -> bool:
        """Whether the script names the variable once, nothing else does, and a literal may be written for it."""
        if not self.may_edit_env([name]) or self._given.may_be_set(name):
            return False
        words = [text for items in self._lists.values() for text in items or ()]
        others = [text for other, text in self._given.items() if other != name]
        uses = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.ASCII)
        return sum(len(uses.findall(text)) for text in (*words, *others)) == 1

    def may_edit_env(self, names: Iterable[str]) -> bool:
        return self._use is not VariableUse.KEEP and not self._given.fixed & set(names)

    def may_set_for(self, reference: Reference) -> bool:
        """Whether the value of the variable that is named here may be written instead of the words."""
        match reference.expander:
            case Expander.SHELL:
                return self.may_set(reference.name)
            case Expander.KUBELET:
                kubelets = self._use is VariableUse.SET_KUBELETS and reference.name in self._given
                return kubelets and self.may_set(reference.name)
            case Expander.SCRIPT:
                return False

    def _edited(self, place: Item | EnvValue, text: str) -> str:
        for (start, end), new in sorted(self._edits.get(place, {}).items(), reverse=True):
            text = text[:start] + new + text[end:]
        return text


def target_of(word: Word, start: int, end: int, texts: Texts) -> Target:
    """What to write for the characters `start:end` of a word.

    Raises RefusedError where no single place stands for exactly these characters.
    """
    glyphs = word.glyphs[start:end]
    reference = _whole_reference(glyphs)
    if reference is not None:
        if texts.may_set_for(reference):
            return Target(EnvValue(reference.name))
        if reference.name:
            texts.silence(reference.name)
        return Target(glyphs[0].span)
    if all(glyph.reference is None for glyph in glyphs):
        return Target(_joined([glyph.span for glyph in glyphs], word))
    kubelets = _part_of_kubelets_reference(word, start, end)
    if kubelets is not None:
        texts.silence(kubelets[0])
        return kubelets[1]
    origins = [glyph.origin for glyph in glyphs if glyph.origin is not None]
    variables = {span.place.name for span in origins if isinstance(span.place, EnvValue)}
    if len(origins) < len(glyphs) or (variables and not texts.may_edit_env(variables)):
        raise _refusal(word)
    return Target(_joined(origins, word))


def _part_of_kubelets_reference(word: Word, start: int, end: int) -> tuple[str, Target] | None:
    """VAR, and the whole `$(VAR)` with the rest of its value written out, where it stands in this word only."""
    first = word.glyphs[start]
    if first.reference is None or first.reference.expander is not Expander.KUBELET:
        return None
    covered = [at for at, glyph in enumerate(word.glyphs) if glyph.span == first.span]
    if len(covered) != first.reference.length or not (covered[0] <= start and end <= covered[-1] + 1):
        return None
    return first.reference.name, Target(first.span, word.text[covered[0] : start], word.text[end : covered[-1] + 1])


def _joined(spans: Sequence[Span], word: Word) -> Span:
    if len({span.place for span in spans}) != 1:
        raise _refusal(word)
    return Span(spans[0].place, spans[0].start, spans[-1].end)


def _whole_reference(glyphs: Sequence[Glyph]) -> Reference | None:
    """The reference that stands for these characters and no others."""
    first = glyphs[0]
    if first.reference is None or len(glyphs) != first.reference.length:
        return None
    return first.reference if all(glyph.span == first.span for glyph in glyphs) else None


def _refusal(word: Word) -> RefusedError:
    return RefusedError(
        RefusalReason.NOT_UNDERSTOOD,
        word.raw,
        "This limit is put together from several places",
        "Write it as a plain number behind its flag.",
    )
