"""The node as a picture: which devices sit where, how they are, and who has them.

devices of the host, status of the daemon -> layout -> text | svg
"""

__all__: list[str] = []
