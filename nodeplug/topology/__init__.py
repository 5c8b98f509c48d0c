"""The node as a picture: the location, health and holders of devices.

devices of the host, status of the daemon -> layout -> text | svg
"""

__all__: list[str] = []
