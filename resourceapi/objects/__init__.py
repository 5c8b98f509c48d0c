"""The objects of resource.k8s.io: types, quantities, defaults, validation and conversion between versions."""

from resourceapi.objects.quantity import Quantity, QuantityError

__all__ = ["Quantity", "QuantityError"]
