"""An answer for scripts: the same data, as JSON or as YAML."""

import msgspec


def as_text(answer: object, output: str) -> str:
    """Return an answer as `json` or else as `yaml`, with a newline at the end."""
    plain = msgspec.to_builtins(answer)
    if output == "json":
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
    import yaml

    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=10_000)
