import pytest

from cdi import CdiError, kind_of, qualified_name, split_qualified_name


@pytest.mark.parametrize("kind", ["ab/cd", "vendor.com/device", "v_1-2.x/c_1-2.x", "Vn/c1"])
@pytest.mark.parametrize("device", ["a", "0", "misc-fuse.3", "a:b_c-d.e"])
def test_good_names_come_back_from_a_qualified_one(kind: str, device: str) -> None:
    assert split_qualified_name(qualified_name(kind, device)) == (kind, device)


@pytest.mark.parametrize(
    "kind", ["", "a", "/b", "a/", "1a/bc", "ab/1b", "a-/bc", "ab/b.", "a b/cd", "ab/cd/ef", "äa/bb", "ab/cd\n"]
)
def test_bad_kinds_are_refused(kind: str) -> None:
    with pytest.raises(CdiError, match=r"invalid (kind|vendor|class)"):
        qualified_name(kind, "d")


@pytest.mark.parametrize("kind", ["a/gpu", "example.com/a"])
def test_a_kind_of_one_letter_is_refused_for_runtimes_panic_at_it(kind: str) -> None:
    with pytest.raises(CdiError, match="end with another letter or digit"):
        qualified_name(kind, "d")


@pytest.mark.parametrize("device", ["", "-a", "a-", "a b", "a/b", "a=b", "_", "a\n"])
def test_bad_device_names_are_refused(device: str) -> None:
    with pytest.raises(CdiError, match="invalid device name"):
        qualified_name("ab/cd", device)


@pytest.mark.parametrize("name", ["", "ab/cd", "ab=cd/ef", "ab/cd=", "ab/cd=c=d"])
def test_what_is_not_qualified_is_refused(name: str) -> None:
    with pytest.raises(CdiError, match="not a qualified CDI device name"):
        split_qualified_name(name)


def test_a_resource_is_its_own_kind_where_cdi_allows_it() -> None:
    assert kind_of("example.com/gpu") == "example.com/gpu"
    assert kind_of("nvidia.com/mig-1g.5gb") == "nvidia.com/mig-1g.5gb"


@pytest.mark.parametrize("resource", ["1.example.com/gpu", "example.com/1g", "1.example.com/1g", "a/gpu"])
def test_a_resource_that_is_no_kind_gets_a_valid_one_of_its_own(resource: str) -> None:
    kind = kind_of(resource)
    qualified_name(kind, "d")
    assert kind == kind_of(resource)
    assert kind != kind_of(resource.replace("1g", "2g").replace("gpu", "gpus"))


def test_a_resource_without_any_kind_is_refused() -> None:
    with pytest.raises(CdiError, match=r"resource a\.b/c- has no CDI kind"):
        kind_of("a.b/c-")
