"""A change of a manifest's text changes what was asked, and no other byte that need not change."""

from __future__ import annotations

import difflib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.domain.manifests import (
    Change,
    EditRefusedError,
    NotAManifestError,
    apply_changes,
    edit_text,
    path_text,
    read_manifests,
    value_at,
    with_changes,
)

HEAD = "apiVersion: v1\nkind: X\n"


def lines_changed(text: str, path: tuple[str | int, ...], value: Any) -> str:
    """The changed lines, after a check that the values are the wanted ones."""
    file = read_manifests(text)
    after = apply_changes(file, file.objects[-1], [Change(path, value)])
    wanted = list(file.documents)
    wanted[-1] = with_changes(wanted[-1], [Change(path, value)])
    assert list(yaml.safe_load_all(after)) == wanted
    difference = difflib.ndiff(text.splitlines(), after.splitlines())
    return "\n".join(line for line in difference if line[0] in "+-")


@pytest.mark.parametrize(
    ("text", "path", "value", "changed"),
    [
        (
            "a: [--x=1, 'b', \"c\"] # n\n",
            ("a",),
            ["--x=2", "bb", "cc"],
            "- a: [--x=1, 'b', \"c\"] # n\n+ a: [--x=2, 'bb', \"cc\"] # n",
        ),
        ('a:\n- x   # note\n- "c"   # no\n# end\nz: 1\n', ("a",), ["x", "c", "64"], '+ - "64"'),
        ("a:\n    - x\n    - 'c'\nz: 1\n", ("a",), ["x", "c", "64"], "+     - '64'"),
        ("a: $(X)\n", ("a",), "64", '- a: $(X)\n+ a: "64"'),
        ("a: 256\n", ("a",), 64, "- a: 256\n+ a: 64"),
        ("a:\n", ("a",), ["x"], "- a:\n+ a: [x]"),
        ("a: {}\n", ("a", "k"), "v", "- a: {}\n+ a: {k: v}"),
        ("a: []\n", ("a",), ["v"], "- a: []\n+ a: [v]"),
        (
            "a: {d: 1}\n",
            ("a", "env"),
            [{"name": "N", "value": "1"}],
            '- a: {d: 1}\n+ a: {d: 1, env: [{name: N, value: "1"}]}',
        ),
        ("a:\n  - name: x\n    v: 1\n    # hi\n\nd: 1\n", ("a", 0, "env"), ["q"], "+     env: [q]"),
        ("a: 'it''s 256'\n", ("a",), "it's 64", "- a: 'it''s 256'\n+ a: 'it''s 64'"),
        ('a: &n "256"\nb: [x, *n]\n', ("b",), ["x", "64"], '- b: [x, *n]\n+ b: [x, "64"]'),
        ("a: &n [x, y]\nb: *n\n", ("b",), ["x", "z"], "- b: *n\n+ b: [x, z]"),
        (
            "a: &m {k: [z]}\nc: {<<: *m, d: 1}\n",
            ("c", "k"),
            ["z", "r"],
            "- c: {<<: *m, d: 1}\n+ c: {<<: *m, d: 1, k: [z, r]}",
        ),
        ("a: !!str 256\n", ("a",), "64", "- a: !!str 256\n+ a: !!str 64"),
        ("a: &n 256 # c\n", ("a",), 64, "- a: &n 256 # c\n+ a: &n 64 # c"),
        ("a: |\n  x 256 \\\n    y\n\n  z 256\nb: 1\n", ("a",), "x 64 \\\n  y\n\nz 256\n", "-   x 256 \\\n+   x 64 \\"),
        ("a: >-\n  x 256\n  y\n\n  z 256\nb: 1\n", ("a",), "x 256 y\nz 64 q", "-   z 256\n+   z 64 q"),
        ("a: |\n  k:\n    x: 1  # n\n  z: 2\nb: 1\n", ("a",), "k:\n  x: 1  # n\n  y: 3\nz: 2\n", "+     y: 3"),
        ("a: |2\n    k: 1\n    z: 2\n", ("a",), "  k: 1\n  z: 2\n  y: 3\n", "+     y: 3"),
        ('a: "x\\\n  256 c\n  d --x 256"\n', ("a",), "x256 c d --x 64 --y=1", '-   d --x 256"\n+   d --x 64 --y=1"'),
        ('a: "say \\"256\\"\\n"\n', ("a",), 'say "64"\n', '- a: "say \\"256\\"\\n"\n+ a: "say \\"64\\"\\n"'),
    ],
)
def test_only_the_line_of_the_value_changes(text, path, value, changed):
    difference = lines_changed(HEAD + text, path, value)
    assert "\n".join(line for line in difference.splitlines()) == changed


def test_windows_line_ends_and_a_missing_one_stay():
    text = "apiVersion: v1\r\nkind: X\r\na:\r\n- b"
    file = read_manifests(text)
    assert apply_changes(file, file.objects[0], [Change(("a",), ["b", "c"])]).startswith(text)


def test_json_stays_json():
    text = json.dumps({"apiVersion": "v1", "kind": "X", "a": ["x", "1"], "m": {"k": "v"}}, indent=2)
    file = read_manifests(text)
    after = apply_changes(file, file.objects[0], [Change(("a",), ["x", "2", "y"]), Change(("m", "n"), "w")])
    assert json.loads(after)["a"] == ["x", "2", "y"]
    assert json.loads(after)["m"] == {"k": "v", "n": "w"}


def test_objects_in_a_list_are_found_and_changed_in_place():
    items = "- {apiVersion: v1, kind: A, metadata: {name: a}}\n- {apiVersion: v1, kind: B, n: 1}\n"
    text = f"apiVersion: v1\nkind: List\nitems:\n{items}"
    file = read_manifests(text)
    assert [found.kind for found in file.objects] == ["A", "B"]
    assert apply_changes(file, file.objects[1], [Change(("n",), 2)]) == text.replace("n: 1", "n: 2")


def test_a_value_that_others_share_by_an_anchor_is_changed_for_the_target_alone():
    text = f"{HEAD}a: &n [x, y]\nb: *n\n"
    after = edit_text(text, [Change(("a",), ["x", "z"])])
    assert yaml.safe_load(after) == {"apiVersion": "v1", "kind": "X", "a": ["x", "z"], "b": ["x", "y"]}


def test_removed_items_and_other_shapes_are_refused():
    with pytest.raises(EditRefusedError):
        edit_text("a: [x, y]\n", [Change(("a",), ["x"])])
    with pytest.raises(EditRefusedError):
        edit_text("a: [x]\n", [Change(("a",), {"x": 1})])
    with pytest.raises(EditRefusedError):
        edit_text("a: 1\n", [Change(("b", "c"), 1)])


@pytest.mark.parametrize("text", ["a: [", "{{ if x }}\na: 1\n{{ end }}", "\x00", "- 1\n- 2\n", "", "a: !x 1"])
def test_what_is_no_manifest_is_told_with_a_next_step(text):
    with pytest.raises(NotAManifestError, match=r"Render templates first|has apiVersion and kind"):
        read_manifests(text)


def test_paths_name_items_where_they_have_a_name():
    data = {"spec": {"containers": [{"name": "engine", "args": ["x"]}]}}
    assert path_text(("spec", "containers", 0, "args", 0), data) == "spec/containers[engine]/args[0]"
    assert value_at(data, ("spec", "containers", 0, "args", 0)) == "x"
    assert value_at(data, ("spec", "containers", 7)) is None


scalar = st.one_of(
    st.text(alphabet="ab -:#'\"\\{}[],&*!|>%@`\n\t1.~ü", max_size=10),
    st.sampled_from(["", "~", "null", "yes", "1", "1.5", "0x1", "2026-01-01", "- a", "a: b", "#c", "=", "<<"]),
    st.integers(-5, 5),
    st.booleans(),
)
tree = st.recursive(
    scalar,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)),
    max_leaves=12,
)
style = st.fixed_dictionaries(
    {
        "default_flow_style": st.sampled_from([True, False, None]),
        "default_style": st.sampled_from([None, "'", '"', "|", ">"]),
        "width": st.sampled_from([20, 80]),
        "indent": st.sampled_from([2, 4]),
    }
)


def leaves(data: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    below = [leaf for key, item in children for leaf in leaves(item, (*path, key))]
    return below if isinstance(data, dict | list) else [path]


@given(tree, style, st.data())
def test_any_text_is_changed_as_asked_or_refused(data, style, draws):
    text = yaml.safe_dump({"root": data, "other": "x # y"}, allow_unicode=True, **style)
    before = yaml.safe_load(text)
    paths = leaves(before["root"], ("root",)) or [("root",)]
    changes = [Change(path, draws.draw(scalar)) for path in draws.draw(st.lists(st.sampled_from(paths), max_size=2))]
    try:
        after = edit_text(text, changes)
    except EditRefusedError:
        return
    assert yaml.safe_load(after) == with_changes(before, changes)
    if not changes:
        assert after == text


@given(tree, style, st.integers(1, 9999))
def test_a_number_in_a_script_is_changed_in_every_style(data, style, number):
    script = "set -e\nexec vllm serve m \\\n  --max-num-seqs 256 --x '{\"a\": 256}'\n"
    text = yaml.safe_dump({"root": data, "args": [script]}, **style)
    wanted = yaml.safe_load(text)["args"][0].replace("seqs 256", f"seqs {number}")  # the writer may fold it anew
    after = edit_text(text, [Change(("args", 0), wanted)])
    assert yaml.safe_load(after)["args"] == [wanted]
    assert len(after) - len(text) == len(str(number)) - 3


@given(st.text(alphabet="ab:-# \n\t[]{}&*!|>'\"%@`,?", max_size=40))
def test_any_text_at_all_is_read_or_told_to_be_no_manifest(text):
    try:
        file = read_manifests(text)
    except NotAManifestError:
        return
    assert file.objects


def test_a_line_more_in_a_block_of_text_ends_like_the_lines_around_it():
    text = "apiVersion: v1\r\nkind: X\r\na: |\r\n  k: 1\r\n  z: 2\r\n"
    file = read_manifests(text)
    after = apply_changes(file, file.objects[0], [Change(("a",), "k: 1\nz: 2\ny: 3\n")])
    assert after == text + "  y: 3\r\n"


def test_json_with_tabs_stays_as_it_is_around_a_change():
    value = {"apiVersion": "v1", "kind": "X", "a": ["x", "1"], "m": {"k": "v"}}
    text = json.dumps(value, indent="\t")
    file = read_manifests(text)
    after = apply_changes(file, file.objects[0], [Change(("a",), ["x", "2", "y"]), Change(("m", "n"), "w")])
    assert after == json.dumps(value | {"a": ["x", "2", "y"], "m": {"k": "v", "n": "w"}}, indent="\t")


@pytest.mark.parametrize(
    "spec",
    [
        "[" * 200 + "]" * 200,
        "&a {b: *a}",
        "{a0: &a0 [1,2,3,4,5,6,7,8,9,0], "
        + ", ".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))
        + "}",
    ],
    ids=["deep", "endless", "many"],
)
def test_a_value_too_large_to_look_at_is_told_at_once(spec):
    with pytest.raises(NotAManifestError, match="Write it without them"):
        read_manifests(f"{HEAD}spec: {spec}\n")


def test_what_is_no_yaml_is_told_in_one_line():
    for text in ("a: [", "a\0b", "a: b: c"):
        with pytest.raises(NotAManifestError) as told:
            read_manifests(text)
        assert "\n" not in str(told.value)
