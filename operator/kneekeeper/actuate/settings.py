"""What an installation sets for the objects that kneekeeper makes."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.domain.live_delivery import PluginImage


@dataclass(frozen=True)
class ActuateSettings:
    """Given by the chart through the operator's environment."""

    agent_image: str
    """The load agent's image: kneekeeper's own, whose entry point is `python -m`."""

    priority_class: str
    """Of clones and agents; below every workload, with preemptionPolicy Never. A value below -10 also keeps
    the cluster autoscaler from adding a node for them."""

    instance: str = "kneekeeper"
    """The operator's pod, told in events; at most 128 characters."""

    agent_image_pull_policy: str = "IfNotPresent"

    agent_image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in the namespaces of the profiles."""

    @property
    def plugin_image(self) -> PluginImage:
        """What the live-tuning plugin is delivered with."""
        return PluginImage(self.agent_image, self.agent_image_pull_policy, self.agent_image_pull_secrets)
