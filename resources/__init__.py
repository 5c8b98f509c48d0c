"""Which of the host's devices a node offers, under which names and groups, and how a container gets them.

inventory -> selectors, groups, danger -> assignment -> the resource of each device
"""

from resources.assignment import Assignment, Unassigned, assign
from resources.resource import Resource

__all__ = ["Assignment", "Resource", "Unassigned", "assign"]
