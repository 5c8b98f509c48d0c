"""Converts another plugin's file for a made-up machine."""

from click.testing import CliRunner, Result

from nodeplug.cli import main
from nodeplug.config import loads
from resources.resource import Resource
from tests.hostdevices.tree import Tree


def converted(tree: Tree, text: str, *words: str) -> Result:
    file = tree.host.root.parent / "theirs.yaml"
    file.write_text(text)
    return CliRunner().invoke(main, ["convert", str(file), "--root", str(tree.host.root), *words])


def resources(result: Result) -> dict[str, Resource]:
    assert result.exit_code == 0, result.output
    return {resource.name: resource for resource in loads(result.stdout.encode()).resources}
