"""The clone carries what its speed depends on, and nothing by which production would find or feel it."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.actuate.clone import ContainerGone, build_clone
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import Scheme
from kneekeeper.api.tuning_run import TuningRunStatus
from kneekeeper.domain.actions import EnsureClone
from kneekeeper.kube.gpus import PRODUCT_LABELS
from kneekeeper.observe.workloads import parse_workload
from tests.unit.kube_objects import PRODUCT, TEMPLATE, deployment, template, tuning_run

WORDS = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=64"])
SETTINGS = ActuateSettings("registry.example.com/kneekeeper:1", "kneekeeper-clone")
ACTION = EnsureClone(start=2, container="vllm", words=WORDS, deadline_s=3600)


def clone_of(
    pod_template: dict[str, Any] | None = None,
    *,
    action: EnsureClone = ACTION,
    gpu_product: str = PRODUCT,
    scheme: Scheme = Scheme.HTTP,
    **profile_spec: Any,
) -> dict[str, Any]:
    workload = parse_workload(deployment(pod_template))
    run = tuning_run(gpu_product=gpu_product, scheme=scheme, **profile_spec)
    return build_clone(workload, run, action, SETTINGS)


def engine_of(clone: dict[str, Any]) -> dict[str, Any]:
    engines: list[dict[str, Any]] = clone["spec"]["containers"]
    [engine] = engines
    return engine


def changed_engine(**fields: Any) -> dict[str, Any]:
    """The template with some fields of the engine's container replaced; None takes one away."""
    made = template()
    engine = made["spec"]["containers"][1]
    engine.update(fields)
    for key in [key for key, value in fields.items() if value is None]:
        del engine[key]
    return made


def test_its_name_follows_from_the_run_and_the_start():
    assert clone_of()["metadata"]["name"] == "chat-1-clone-2"
    assert clone_of()["metadata"]["namespace"] == "prod"


def test_it_has_kneekeepers_labels_and_none_of_the_templates():
    labels = clone_of()["metadata"]["labels"]
    assert labels == {"kneekeeper.io/run": "chat-1", "kneekeeper.io/role": "clone"}


def test_it_has_none_of_the_templates_annotations():
    assert clone_of()["metadata"]["annotations"] == {}


def test_it_keeps_the_labels_and_annotations_that_the_user_lists():
    metadata = clone_of(probe={"clone": {"keep": ["team", "example.com/volume", "absent"]}})["metadata"]
    assert metadata["labels"]["team"] == "ml"
    assert "app" not in metadata["labels"]
    assert metadata["annotations"] == {"example.com/volume": "models"}


def test_a_kept_label_never_replaces_kneekeepers_own():
    made = template()
    made["metadata"]["labels"]["kneekeeper.io/run"] = "another"
    labels = clone_of(made, probe={"clone": {"keep": ["kneekeeper.io/run"]}})["metadata"]["labels"]
    assert labels["kneekeeper.io/run"] == "chat-1"


def test_it_is_the_runs_dependent_and_no_controller_adopts_it():
    [owner] = clone_of()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("TuningRun", "chat-1", "uid-chat-1")
    assert owner["controller"] is True


def test_its_engine_runs_the_given_words():
    engine = engine_of(clone_of())
    assert engine["command"] == WORDS.command
    assert engine["args"] == WORDS.args


def test_absent_words_leave_the_images_own_in_force():
    action = EnsureClone(1, "vllm", ContainerWords(args=["--max-num-seqs=8"]), 60)
    engine = engine_of(clone_of(action=action))
    assert "command" not in engine
    assert engine["args"] == ["--max-num-seqs=8"]


@pytest.mark.parametrize("field", ["image", "env", "resources", "volumeMounts"])
def test_its_engine_keeps_what_its_speed_depends_on(field):
    assert engine_of(clone_of())[field] == TEMPLATE["spec"]["containers"][1][field]


def test_its_engine_keeps_its_security_context():
    context = {"capabilities": {"add": ["IPC_LOCK"]}}
    assert engine_of(clone_of(changed_engine(securityContext=context)))["securityContext"] == context


def test_containers_beside_the_engine_are_dropped():
    assert [c["name"] for c in clone_of()["spec"]["containers"]] == ["vllm"]


def test_init_containers_and_native_sidecars_are_kept():
    init = [
        {"name": "fetch", "image": "registry.example.com/fetch:1"},
        {"name": "cache", "image": "registry.example.com/cache:1", "restartPolicy": "Always"},
    ]
    assert clone_of(template(initContainers=init))["spec"]["initContainers"] == init


def test_a_native_sidecar_keeps_its_startup_probe_alone_and_no_host_port():
    probe = {"tcpSocket": {"port": 1}}
    sidecar = {
        "name": "cache",
        "restartPolicy": "Always",
        "ports": [{"containerPort": 1, "hostPort": 1}],
        "startupProbe": probe,
        "readinessProbe": probe,
        "livenessProbe": probe,
        "lifecycle": {"postStart": {"exec": {"command": ["register"]}}},
    }
    [kept] = clone_of(template(initContainers=[sidecar]))["spec"]["initContainers"]
    assert kept == {
        "name": "cache",
        "restartPolicy": "Always",
        "ports": [{"containerPort": 1}],
        "startupProbe": probe,
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodeSelector", {"pool": "gpu"}),
        ("tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}]),
        ("runtimeClassName", "nvidia"),
        ("imagePullSecrets", [{"name": "pull"}]),
        ("securityContext", {"fsGroup": 1000}),
        ("serviceAccountName", "models"),
        ("volumes", [{"name": "shm", "emptyDir": {"medium": "Memory"}}]),
        ("resourceClaims", [{"name": "cards", "resourceClaimTemplateName": "two-cards"}]),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "gpu-scheduler"),
        ("hostIPC", True),
    ],
)
def test_it_keeps_the_pods(field, value):
    assert clone_of(template(**{field: value}))["spec"][field] == value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hostNetwork", True),
        ("hostname", "chat"),
        ("subdomain", "chat"),
        ("nodeName", "node-1"),
        ("priority", 1000),
        ("preemptionPolicy", "PreemptLowerPriority"),
        ("readinessGates", [{"conditionType": "example.com/routed"}]),
        ("schedulingGates", [{"name": "example.com/queue"}]),
        (
            "topologySpreadConstraints",
            [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        ),
    ],
)
def test_it_leaves_off_the_pods(field, value):
    assert field not in clone_of(template(**{field: value}))["spec"]


def test_no_host_port_is_left():
    assert engine_of(clone_of())["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]


def test_its_readiness_has_the_templates_check_and_kneekeepers_patience():
    probe = engine_of(clone_of())["readinessProbe"]
    assert probe["httpGet"] == {"path": "/ready", "port": "http"}
    assert probe["timeoutSeconds"] >= 10
    assert probe["failureThreshold"] >= 30


def test_without_a_readiness_probe_the_startup_probes_check_is_taken():
    probe = engine_of(clone_of(changed_engine(readinessProbe=None)))["readinessProbe"]
    assert probe["httpGet"]["path"] == "/started"


def test_the_health_of_an_engine_that_speaks_https_is_asked_over_https():
    clone = clone_of(changed_engine(readinessProbe=None, startupProbe=None), scheme=Scheme.HTTPS)
    assert engine_of(clone)["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"


def test_without_any_probe_the_engines_health_is_asked_at_its_port():
    probe = engine_of(clone_of(changed_engine(readinessProbe=None, startupProbe=None)))["readinessProbe"]
    assert probe["httpGet"] == {"path": "/health", "port": 8000}


@pytest.mark.parametrize("field", ["livenessProbe", "startupProbe", "lifecycle"])
def test_nothing_kills_delays_or_announces_the_engine(field):
    assert field not in engine_of(clone_of())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("enableServiceLinks", False),
        ("automountServiceAccountToken", False),
        ("restartPolicy", "Never"),
        ("priorityClassName", "kneekeeper-clone"),
        ("activeDeadlineSeconds", 3600),
    ],
)
def test_it_sets(field, value):
    opposite = template(
        enableServiceLinks=True,
        automountServiceAccountToken=True,
        restartPolicy="Always",
        priorityClassName="production",
    )
    assert clone_of(opposite)["spec"][field] == value


def test_it_ends_quickly():
    assert clone_of(template(terminationGracePeriodSeconds=600))["spec"]["terminationGracePeriodSeconds"] <= 10


def terms_of(clone: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = clone["spec"]["affinity"]["nodeAffinity"]
    terms: list[dict[str, Any]] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return terms


def test_it_is_bound_to_the_serving_pods_gpu_product_under_any_label_that_names_it():
    bound = [term["matchExpressions"] for term in terms_of(clone_of())]
    assert bound == [[{"key": label, "operator": "In", "values": [PRODUCT]}] for label in PRODUCT_LABELS]


def test_several_products_are_alternatives():
    [first, *_] = terms_of(clone_of(gpu_product="A,B"))
    assert first["matchExpressions"][0]["values"] == ["A", "B"]


def test_the_templates_own_node_terms_hold_as_well():
    zones = [{"key": "zone", "operator": "In", "values": ["a"]}], [{"key": "zone", "operator": "In", "values": ["b"]}]
    required = {"nodeSelectorTerms": [{"matchExpressions": zone} for zone in zones]}
    preferred = [{"weight": 1, "preference": {}}]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required,
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
    }
    clone = clone_of(template(affinity=affinity))
    terms = terms_of(clone)
    assert len(terms) == 2 * len(PRODUCT_LABELS)
    assert all(len(term["matchExpressions"]) == 2 for term in terms)
    assert {term["matchExpressions"][0]["values"][0] for term in terms} == {"a", "b"}
    node_affinity = clone["spec"]["affinity"]["nodeAffinity"]
    assert node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] == preferred


def test_without_a_known_product_only_the_templates_node_affinity_is_left():
    assert clone_of(gpu_product="")["spec"]["affinity"] == {"nodeAffinity": {}}


def test_rules_among_the_serving_pods_do_not_bind_it():
    rule = [{"topologyKey": "kubernetes.io/hostname"}]
    affinity = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule},
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule},
    }
    assert set(clone_of(template(affinity=affinity))["spec"]["affinity"]) == {"nodeAffinity"}


def test_building_it_does_not_change_the_template():
    made = template()
    workload = parse_workload(deployment(made))
    before = template()
    build_clone(workload, tuning_run(), ACTION, SETTINGS)["spec"]["containers"][0]["env"].clear()
    assert workload.pod_template == before


def test_a_container_that_is_gone_is_an_error():
    with pytest.raises(ContainerGone, match="no container absent"):
        clone_of(action=EnsureClone(1, "absent", WORDS, 60))


def test_a_run_without_a_plan_has_no_clone():
    run = tuning_run().with_changes(status=TuningRunStatus())
    with pytest.raises(ValueError, match="plan"):
        build_clone(parse_workload(deployment()), run, ACTION, SETTINGS)
