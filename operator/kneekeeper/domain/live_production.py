"""What production's engines run with where their limits are switched live: not what their words say.

A workload with the plugin is shown as one without it whose words declare what is in force. So everything that asks
for the present setting, for drift, for what a rollout changed or what a clone copies, sees what is true, and need not
know of the plugin. The words that start its engines are in `WorkloadView.live` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kneekeeper.api.model import Setting
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.live_delivery import LIMITS_KEY, Delivery
from kneekeeper.domain.live_settings import setting_of, setting_read
from kneekeeper.domain.observation import LiveView, PodView, Unreachable, WorkloadView
from kneekeeper.domain.target import present_setting, words_with
from kneekeeper.livetune.messages import MalformedMessage, Report, read_limits


def is_within(setting: Setting, started: Setting) -> bool:
    """Whether an engine that was started with the one takes the other."""
    return (
        setting.max_num_seqs <= started.max_num_seqs
        and setting.max_num_batched_tokens <= started.max_num_batched_tokens
    )


def setting_in(text: str | None, started: Setting) -> Setting | None:
    """What a ConfigMap's text sets, as the plugin reads it; None where it would not take it."""
    if text is None:
        return None
    try:
        limits = read_limits(text.encode())
    except MalformedMessage:
        return None
    setting = setting_read(limits)
    return setting if setting is not None and is_within(setting, started) else None


def with_live_words(workload: WorkloadView, delivery: Delivery) -> WorkloadView:
    """The workload, read without its plugin, with what the plugin sets as its words.

    Where the words declare another pair than the delivery's, somebody else wants those: they hold.
    """
    held = workload.source.texts_of_config_map(delivery.config_map, workload.namespace) if workload.source else None
    text = (held or {}).get(LIMITS_KEY)
    container = next(each for each in workload.containers if each.name == delivery.container)
    in_force = setting_in(text, delivery.started) or delivery.approved
    words = words_with(container, in_force)
    if present_setting(container) != delivery.started or isinstance(words, Refusal):
        return replace(workload, live=LiveView(delivery, text, stands=False))
    containers = tuple(replace(c, words=words) if c is container else c for c in workload.containers)
    return replace(workload, containers=containers, live=LiveView(delivery, text, stands=True))


def pods_in_force(
    pods: Iterable[PodView], workload: WorkloadView, reports: Mapping[str, Report | Unreachable]
) -> tuple[PodView, ...]:
    """The pods with what their plugins say as their words; the words that started them where one says nothing: that is
    not what it runs with, and nothing that a rollout waits for. One that is not ready is not asked, and takes what the
    workload's do once it is."""
    return tuple(_in_force(pod, workload, reports.get(pod.name)) for pod in pods)


def _in_force(pod: PodView, workload: WorkloadView, report: Report | Unreachable | None) -> PodView:
    delivery, live = pod.delivery, workload.live
    container = next((c for c in workload.containers if delivery is not None and c.name == delivery.container), None)
    if container is None:
        return pod
    if not pod.ready and live is not None and live.stands and live.delivery == delivery:
        return replace(pod, words=container.words)
    if not isinstance(report, Report) or report.standing is None:
        return pod
    words = words_with(replace(container, words=pod.words), setting_of(report.standing.wanted))
    return pod if isinstance(words, Refusal) else replace(pod, words=words)
