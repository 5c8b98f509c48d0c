import pytest

from cdi import CdiError, kind_of, qualified_name, split_qualified_name


@pytest.mark.parametrize("kind", ["ab/cd", "vendor.com/device", "v_1-2.x/c_1-2.x", "Vn/c1"])
@pytest.mark.parametrize("device", ["a", "0", "misc-fuse.3", "a:b_c-d.e"])
def test_qualified_name_is_split_into_kind_and_device(kind: str, device: str) -> None:
    assert split_qualified_name(qualified_name(kind, device)) == (kind, device)


@pytest.mark.parametrize(
    "kind", ["", "a", "/b", "a/", "1a/bc", "ab/1b", "a-/bc", "ab/b.", "a b/cd", "ab/cd/ef", "äa/bb", "ab/cd\n"]
)
def test_invalid_kind_is_refused(kind: str) -> None:
    with pytest.raises(CdiError, match=r"invalid (kind|vendor|class)"):
        qualified_name(kind, "d")


@pytest.mark.parametrize("kind", ["a/gpu", "example.com/a"])
def test_kind_with_a_single_letter_part_is_refused(kind: str) -> None:
    with pytest.raises(CdiError, match="end with another letter or digit"):
        qualified_name(kind, "d")


@pytest.mark.parametrize("device", ["", "-a", "a-", "a b", "a/b", "a=b", "_", "a\n"])
def test_invalid_device_name_is_refused(device: str) -> None:
    with pytest.raises(CdiError, match="invalid device name"):
        qualified_name("ab/cd", device)


@pytest.mark.parametrize("name", ["", "ab/cd", "ab=cd/ef", "ab/cd=", "ab/cd=c=d"])
def test_unqualified_name_is_refused(name: str) -> None:
    with pytest.raises(CdiError, match="not a qualified CDI device name"):
        split_qualified_name(name)


def test_resource_name_is_the_kind_when_cdi_allows_it() -> None:
    assert kind_of("example.com/gpu") == "example.com/gpu"
    assert kind_of("nvidia.com/mig-1g.5gb") == "nvidia.com/mig-1g.5gb"


@pytest.mark.parametrize("resource", ["1.example.com/gpu", "example.com/1g", "1.example.com/1g", "a/gpu"])
def test_resource_name_that_is_no_kind_gets_a_valid_unique_kind(resource: str) -> None:
    kind = kind_of(resource)
    qualified_name(kind, "d")
    assert kind == kind_of(resource)
    assert kind != kind_of(resource.replace("1g", "2g").replace("gpu", "gpus"))


def test_resource_name_without_a_valid_kind_is_refused() -> None:
    with pytest.raises(CdiError, match=r"resource a\.b/c- has no CDI kind"):
        kind_of("a.b/c-")
