"""`nodeplug classes`: the DeviceClasses for claims on what a configuration offers through DRA.

Exit codes: 0 printed, 2 the configuration is invalid or offers nothing through DRA.
"""

import sys
from pathlib import Path

import click
import yaml

from dra_plugin.publishing.device_class import device_class
from nodeplug.commands.choice import Choice
from nodeplug.commands.examples import examples
from nodeplug.commands.options import CONFIGURATION_FILE
from nodeplug.config import ConfigError, from_environment, load
from resourceapi.objects import v1, write_object

CONFIGURATION = 2
_VERSIONS = ("v1", "v1beta2", "v1beta1")
_WIDTH = 1000  # characters of a line: expressions stay in one piece


@click.command(epilog=examples("nodeplug classes config.yaml | kubectl apply -f -"))
@click.argument("file", type=CONFIGURATION_FILE)
@click.option(
    "--api-version",
    default="v1",
    show_default=True,
    type=Choice(_VERSIONS),
    help="The API version that the cluster serves: v1 since Kubernetes 1.34.",
)
def classes(file: Path, api_version: str) -> None:
    """Print a DeviceClass for each resource of the configuration FILE that has `api: dra` or `api: both`.

    A cluster administrator applies them once: nodeplug classes FILE | kubectl apply -f -
    """
    try:
        config = load(file, environment_settings=from_environment())
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(CONFIGURATION)
    offered = {resource.name: resource for resource in config.resources if resource.api != "device-plugin"}
    if not offered:
        click.echo(f"{file}: no resource has `api: dra` or `api: both`", err=True)
        sys.exit(CONFIGURATION)
    made = (device_class(resource, config.settings.driver_name) for resource in offered.values())
    wanted = f"{v1.GROUP}/{api_version}"
    documents = [{"apiVersion": wanted, **write_object(x, wanted)} for x in made]
    click.echo(yaml.safe_dump_all(documents, sort_keys=False, width=_WIDTH), nl=False)
