"""The status page: the node as a picture, the holders of devices, and events, live.

what the daemon answers -> Feed (what changed) -> Site (HTTP, server-sent events) -> page.html

The daemon serves it beside its metrics if the setting `statusPage` asks for that; `nodeplug ui` serves it on its own.
Nothing here is imported before.
"""

__all__: list[str] = []
