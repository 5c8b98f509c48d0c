"""Objects whose owners are missing: a real controller manager 1.37.1 keeps and deletes the same ones."""

from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, DRIVERS, definition, driver
from tests.controlplane.apiserver.running import MERGE, Http, Plain

MAPS = "/api/v1/namespaces/default/configmaps"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
BLOCKING = {"blockOwnerDeletion": True}


def owner(kind: str, name: str, uid: str, version: str = "v1") -> Plain:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid}


def make(api: Http, name: str, *owners: Plain) -> str:
    """Create a config map with owners, and return its uid."""
    metadata = {"name": name, "ownerReferences": list(owners)}
    uid: str = api.ok("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})["metadata"]["uid"]
    return uid


def until_only(api: Http, *names: str) -> None:
    """Wait until these config maps are the only ones."""
    left: set[str] = set()
    initial = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    with api.watch(MAPS, timeoutSeconds="60", **initial) as events:
        for event in events:
            name = event["object"]["metadata"].get("name", "")
            if event["type"] == "DELETED":
                left.remove(name)
            elif event["type"] != "BOOKMARK":
                left.add(name)
            if event["type"] in ("DELETED", "BOOKMARK") and left == set(names):
                return
    raise AssertionError(left)


def test_object_is_deleted_only_if_all_owners_are_known_to_be_missing(api: Http) -> None:
    uid = make(api, "owner")
    make(api, "unknown-kind", owner("Thing", "x", "u1", "none.example.com/v1"))
    make(api, "unknown-version", owner("ConfigMap", "x", "u2", "v7"))
    make(api, "one-unknown", owner("ConfigMap", "x", "u3"), owner("Thing", "x", "u4", "none.example.com/v1"))
    make(api, "other-uid", owner("ConfigMap", "owner", "u5"))
    make(api, "other-name", owner("ConfigMap", "x", uid))
    make(api, "other-kind", owner("Secret", "owner", uid))
    metadata = {"name": "of-a-map", "ownerReferences": [owner("ConfigMap", "x", "u7")]}
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 1}
    api.ok("POST", CLASSES, body)
    make(api, "gone", owner("ConfigMap", "x", "u6"))
    until_only(api, "owner", "unknown-kind", "unknown-version", "one-unknown")
    api.ok("GET", f"{CLASSES}/of-a-map")


def test_references_to_missing_owners_are_removed(api: Http) -> None:
    there = owner("ConfigMap", "owner", make(api, "owner"))
    make(api, "p", owner("ConfigMap", "x", "u1"), there)
    with api.watch(MAPS, fieldSelector="metadata.name=p", timeoutSeconds="60") as events:
        assert any(each["object"]["metadata"]["ownerReferences"] == [there] for each in events)


def test_dependents_go_with_the_definition_of_their_owner(api: Http) -> None:
    api.ok("POST", DEFINITIONS, definition())
    made = api.ok("POST", DRIVERS, driver("d", {"type": "x"}))
    make(api, "p", owner("Driver", "d", made["metadata"]["uid"], "example.com/v1alpha1"))
    make(api, "q")
    api.ok("DELETE", f"{DEFINITIONS}/drivers.example.com")
    until_only(api, "q")


def delete_in_foreground(api: Http, name: str) -> None:
    api.ok("DELETE", f"{MAPS}/{name}", propagationPolicy="Foreground")


def test_dependent_with_another_owner_survives_foreground_deletion(api: Http) -> None:
    first, second = make(api, "first"), make(api, "second")
    make(api, "p", owner("ConfigMap", "first", first) | BLOCKING, owner("ConfigMap", "second", second))
    delete_in_foreground(api, "first")
    until_only(api, "second", "p")
    (left,) = api.ok("GET", f"{MAPS}/p")["metadata"]["ownerReferences"]
    assert left["uid"] == second


def test_foreground_deletion_ends_if_two_objects_own_each_other(api: Http) -> None:
    first = make(api, "first")
    second = make(api, "second", owner("ConfigMap", "first", first) | BLOCKING)
    owners = {"ownerReferences": [owner("ConfigMap", "second", second) | BLOCKING]}
    api.ok("PATCH", f"{MAPS}/first", {"metadata": owners}, content=MERGE)
    make(api, "other")
    delete_in_foreground(api, "first")
    until_only(api, "other")


def test_foreground_deletion_reaches_dependents_of_nonblocking_objects(api: Http) -> None:
    """The names are in the order in which the collector visits the objects."""
    above = make(api, "c")
    middle = make(api, "a", owner("ConfigMap", "c", above))
    make(api, "b", owner("ConfigMap", "a", middle))
    make(api, "other")
    delete_in_foreground(api, "c")
    until_only(api, "other")


def test_dependents_of_a_job_are_deleted_with_its_owner(api: Http) -> None:
    """Only a delete request for the job itself keeps them by default."""
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    metadata = {"name": "j", "ownerReferences": [owner("ConfigMap", "above", make(api, "above"))]}
    job = api.ok("POST", JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    make(api, "p", owner("Job", "j", job["metadata"]["uid"], "batch/v1"))
    make(api, "other")
    api.ok("DELETE", f"{MAPS}/above")
    until_only(api, "other")
