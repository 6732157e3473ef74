"""The ConfigMap that production's engines take their limits from, where they are switched live."""

from __future__ import annotations

from kneekeeper.actuate.children import ensure
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.domain.actions import EnsureLimits
from kneekeeper.domain.live_delivery import LIMITS_KEY
from kneekeeper.domain.live_fields import limits_as_text
from kneekeeper.kube.children import owner_reference
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import CONFIG_MAPS, SERVING_PROFILES


async def ensure_limits(kube: Kube, profile: ServingProfile, action: EnsureLimits) -> None:
    """It exists and sets this; what stood in the profile's own one, which no engine takes, is replaced.

    Raises ForeignObject where it is somebody else's, and other KubeErrors.
    """
    namespace, data = profile.metadata["namespace"], {LIMITS_KEY: limits_as_text(action.setting)}
    body = {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.name,
        "metadata": {
            "name": action.config_map,
            "namespace": namespace,
            "ownerReferences": [owner_reference(SERVING_PROFILES, profile.metadata)],
        },
        "data": data,
    }
    if not await ensure(kube, CONFIG_MAPS, body, profile.metadata):
        patch = [{"op": "add", "path": "/data", "value": data}]
        await kube.json_patch(CONFIG_MAPS, namespace, action.config_map, patch)
