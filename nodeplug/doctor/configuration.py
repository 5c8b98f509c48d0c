"""The configuration: whether it exists and is correct."""

from pathlib import Path

import msgspec
from msgspec import structs

from folderwatch import is_missing
from nodeplug.config import Config, ConfigError, Settings, from_environment, load, node_name
from nodeplug.doctor.finding import Finding

_SUBJECT = "configuration"


def settings_of(config: Config | None, state: Path | None) -> Settings:
    """Return the settings; without a configuration those of the environment, if they are valid.

    `state` is the state directory, if the user names it.
    """
    if config is not None:
        settings = config.settings
    else:
        try:
            settings = msgspec.convert(from_environment(), Settings)
        except ConfigError:
            settings = Settings()
    return settings if state is None else structs.replace(settings, state_directory=str(state))


def examine(path: Path) -> tuple[Config | None, list[Finding]]:
    """Return the configuration, if it can be used, and the findings about it."""
    if is_missing(path):
        return None, [Finding("note", _SUBJECT, f"there is no {path}", "name the daemon's file with --config")]
    try:
        config = load(path, node_name(), from_environment())
    except ConfigError as error:
        return None, [Finding("wrong", _SUBJECT, line, "a daemon would not start with it") for line in error.lines()]
    return config, [Finding("ok", _SUBJECT, f"{path} can be used; resources: {len(config.resources)}")]
