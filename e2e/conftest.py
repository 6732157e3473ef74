"""The lab that all end-to-end tests share, and a namespace for each of them."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

import pytest

from e2e.cluster import ClusterSpec
from e2e.lab import GPU_PRODUCT, Lab, open_lab


@pytest.fixture(scope="session")
def lab() -> Lab:
    """One node with four GPUs; it is left running, since the next run finds it in seconds."""
    return open_lab(ClusterSpec(nodes=1, gpus_per_node=4, gpu_product=GPU_PRODUCT))


@pytest.fixture
def namespace(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace under restricted pod security, named after the test and gone after it."""
    yield from _namespace(lab, request.node, None)


@pytest.fixture
def open_namespace(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """The same without pod security: pods of real vLLM mount the machine's own files."""
    yield from _namespace(lab, request.node, {})


def _namespace(lab: Lab, test: pytest.Item, labels: dict[str, str] | None) -> Iterator[str]:
    name = re.sub(r"[^a-z0-9]+", "-", test.name.removeprefix("test_").lower())[:40].strip("-")
    yield lab.namespace(name, labels)
    if not test.stash.get(FAILED, False):
        lab.delete_namespace(name)


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test keeps its namespace, so that it can be looked at."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report
