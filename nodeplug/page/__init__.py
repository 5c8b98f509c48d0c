"""The page to look at: the node as a picture, who has what, what happens, live.

what the daemon answers -> Feed (what changed) -> Site (HTTP, server-sent events) -> page.html

The daemon serves it beside its metrics where the setting `statusPage` asks for that, `nodeplug ui` on its own. Nothing
here is imported before.
"""

__all__: list[str] = []
