"""The manifests of Kubernetes: valid by its schemas and those of custom resources, and in accord with the server."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from offramp.serve._requests import Limits
from offramp.serve._server import DRAIN_S
from tests.cases import each
from tests.deploy.server import ROOT, server_options

FOLDER = ROOT / "deploy/kubernetes"
SCHEMAS = Path(__file__).parent / "crds"
VERSION = "1.37.0"
KUSTOMIZATION = "kustomization.yaml"
FILES = sorted(file.name for file in FOLDER.glob("*.yaml") if file.name != KUSTOMIZATION)

Content = dict[str, Any]


def read(file: str) -> list[Content]:
    return list(yaml.safe_load_all((FOLDER / file).read_text("utf-8")))


def check(resource: Content) -> None:
    """Check a resource strictly: unknown fields are errors, and so is a kind without a schema."""
    try:
        kubernetes_validate.validate(resource, VERSION, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        group, version = resource["apiVersion"].split("/")
        schema = yaml.safe_load((SCHEMAS / f"{group}_{version}_{resource['kind']}.yaml").read_text("utf-8"))
        definitions = schema_contents(f"kubernetes-json-schema/v{VERSION}-local-strict/_definitions.json", VERSION)
        registry: Registry[Any] = Resource.from_contents(definitions) @ Registry()
        Draft202012Validator(schema, registry=registry).validate(resource)


def pods(resource: Content) -> Iterator[Content]:
    """Yield the pods of a resource, wherever they are in it."""
    if "containers" in resource:
        yield resource
    for value in resource.values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                yield from pods(part)


PODS = [(file, pod) for file in FILES for resource in read(file) for pod in pods(resource)]


@each("file", FILES)
def test_manifests_are_valid(file: str) -> None:
    for resource in read(file):
        check(resource)


def test_wrong_resources_are_found() -> None:
    deployment, service = read("deployment.yaml")[0], read("rayservice.yaml")[0]
    deployment["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        check(deployment)
    workers = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    workers[0]["template"]["spec"]["containers"][0]["ports"] = 8000
    with pytest.raises(ValidationError):
        check(service)
    del workers[0]["template"]["spec"]["containers"][0]["ports"]
    workers[0]["minReplica"] = 1
    with pytest.raises(ValidationError):
        check(service)
    with pytest.raises(FileNotFoundError):
        check({"apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "a"}})


def test_the_kustomization_names_files_that_exist() -> None:
    (content,) = read(KUSTOMIZATION)
    assert set(content["resources"]) <= set(FILES)
    assert (
        content["images"][0]["name"] == read("deployment.yaml")[0]["spec"]["template"]["spec"]["containers"][0]["image"]
    )


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_the_kustomization_is_built() -> None:
    ran = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True)
    for resource in yaml.safe_load_all(ran.stdout):
        check(resource)
        assert resource["kind"] == "Namespace" or resource["metadata"]["namespace"] == "offramp"


@each(("file", "pod"), PODS)
def test_pods_have_no_rights(file: str, pod: Content) -> None:
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        # Ray writes sessions and logs at places of its own.
        assert rights.get("readOnlyRootFilesystem", False) or file == "rayservice.yaml"
        assert {"requests", "limits"} <= container["resources"].keys()
        models = next(mount for mount in container["volumeMounts"] if mount["mountPath"] == "/models")
        assert models["readOnly"]


@each(("file", "pod"), [case for case in PODS if case[0] != "rayservice.yaml"])
def test_pods_agree_with_the_server(file: str, pod: Content) -> None:
    (container,) = pod["containers"]
    options = dict(word.split("=") for word in container["args"][1:])
    assert set(options) <= server_options()
    assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"
    before_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > before_s + 2 * DRAIN_S  # HTTP, then gRPC
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert 8080 in ports.values()
    if file == "deployment.yaml":
        assert ports["grpc"] == int(options["--grpc-port"])
        assert ports["admin"] == int(options["--admin-port"])


def test_ports_and_labels_fit_together() -> None:
    (deployment,), (service,), (policy,) = read("deployment.yaml"), read("service.yaml"), read("network.yaml")
    (autoscaler,), (budget,), (monitor,) = read("autoscaler.yaml"), read("disruptions.yaml"), read("monitor.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert labels == policy["spec"]["podSelector"]["matchLabels"] == budget["spec"]["selector"]["matchLabels"]
    assert service["metadata"]["labels"] == monitor["spec"]["selector"]["matchLabels"]
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    ports = {port["name"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports
    assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == ports
    assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= {
        port["name"] for port in service["spec"]["ports"]
    }


def test_the_ingress_has_all_that_the_server_lacks() -> None:
    *middlewares, ingress = read("ingress.yaml")
    (content,) = read(KUSTOMIZATION)
    names = ingress["metadata"]["annotations"]["traefik.ingress.kubernetes.io/router.middlewares"].split(",")
    expected = [f"{content['namespace']}-{part['metadata']['name']}@kubernetescrd" for part in middlewares]
    assert names == expected  # in this order: the limit counts by what the token says
    token, rate, size = (part["spec"] for part in middlewares)
    assert rate["rateLimit"]["sourceCriterion"]["requestHeaderName"] in token["forwardAuth"]["authResponseHeaders"]
    assert size["buffering"]["maxRequestBodyBytes"] == Limits().body_bytes
    assert ingress["spec"]["tls"]
    paths = [path["path"] for rule in ingress["spec"]["rules"] for path in rule["http"]["paths"]]
    assert paths == ["/predict", "/v2"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray's own code, when it is imported
def test_the_configuration_of_ray_serve_is_valid() -> None:
    from ray.serve.schema import ServeDeploySchema

    (service,) = read("rayservice.yaml")
    ServeDeploySchema.model_validate(yaml.safe_load(service["spec"]["serveConfigV2"]))
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"ray=={service['spec']['rayClusterConfig']['rayVersion']}" in constraints
