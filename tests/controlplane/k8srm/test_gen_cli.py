"""`nodeplug k8srm gen`."""

import yaml
from click.testing import CliRunner

from nodeplug.commands.k8srm import k8srm


def test_gen_prints_list_with_sorted_keys() -> None:
    result = CliRunner().invoke(k8srm, ["gen", "foozer-1000-tiny"])
    assert result.exit_code == 0
    assert result.output.startswith("- apiVersion: devmgmtproto.k8s.io/v1alpha1\n  kind: DevicePool\n  metadata:\n")
    assert result.output.endswith("\n\n")
    pools = yaml.safe_load(result.output)
    assert [pool["spec"]["nodeName"] for pool in pools] == ["foozer-1000-tiny-00", "foozer-1000-tiny-01"]
    assert [list(pool["spec"]) for pool in pools] == [["attributes", "devices", "driver", "nodeName"]] * 2


def test_gen_prints_documents_for_kubectl() -> None:
    result = CliRunner().invoke(k8srm, ["gen", "shape-one", "-n", "1", "-o", "manifests"])
    assert [pool["metadata"]["name"] for pool in yaml.safe_load_all(result.output)] == [
        "shape-one-00-foozer-00",
        "shape-one-00-foozer-01",
    ]


def test_gen_refuses_unknown_shape_and_lists_known_ones() -> None:
    result = CliRunner().invoke(k8srm, ["gen", "dodecahedron"])
    assert result.exit_code == 2
    assert "'foozer-1000-tiny', 'foozer-1000-small'" in result.output
